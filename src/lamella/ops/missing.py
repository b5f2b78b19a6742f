"""The operators of ATen's own selection (those it tags as its core) that the library leaves out, and why."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from types import MappingProxyType

from lamella.base.paths import read_shipped


@functools.cache
def missing_operators() -> Mapping[str, str]:
    """For each overload that is left out, such as `aten.atan2.out`, the reason; a default overload has no suffix."""
    rows = csv.DictReader(read_shipped("ops/tables/aten_missing.csv").splitlines())
    return MappingProxyType({row["name"]: row["reason"] for row in rows})
