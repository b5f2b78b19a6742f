"""Every operator that torch tags as core is in the library, or said to be left out."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator, Mapping

from lamella.base.paths import read_shipped
from lamella.bridge.aten.table import REFUSE, SIZE, rows
from tests.support.judges.aten import torch


@functools.cache
def missing_operators() -> Mapping[str, str]:
    """For each overload that is left out, such as `aten.atan2.out`, the reason; a default overload has no suffix."""
    rows = csv.DictReader(read_shipped("ops/tables/aten_missing.csv").splitlines())
    return {row["name"]: row["reason"] for row in rows}


def tagged() -> Iterator[tuple[str, str]]:
    """The overloads that torch tags as core; some are only listed once somebody has asked for them."""
    for stem in sorted({*dir(torch.ops.aten), "resize_", "sym_is_contiguous"}):
        packet = getattr(torch.ops.aten, stem)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            if torch.Tag.core in getattr(packet, overload).tags:
                yield stem, overload


def is_said(stem: str, overload: str) -> bool:
    """Whether operators of the library say an overload, by the table of the bridge."""
    row = rows().get(f"aten.{stem}.{overload}")
    return row is not None and row.how not in (REFUSE, SIZE)


def test_each_is_there_or_missing() -> None:
    names = {(stem, overload): f"aten.{stem}{_suffix(overload)}" for stem, overload in tagged()}
    left = {name for key, name in names.items() if not is_said(*key)}
    assert len(names) > 150
    assert left == missing_operators().keys()


def _suffix(overload: str) -> str:
    return "" if overload == "default" else f".{overload}"


def test_each_has_a_reason() -> None:
    assert all(len(reason) > 10 for reason in missing_operators().values())
