"""Every operator that torch tags as core is in the library, or said to be left out."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator, Mapping

from lamella.base.paths import read_shipped
from tests.support.judges.aten import torch
from tests.support.judges.registry import operators


@functools.cache
def missing_operators() -> Mapping[str, str]:
    """For each overload that is left out, such as `aten.atan2.out`, the reason; a default overload has no suffix."""
    rows = csv.DictReader(read_shipped("ops/tables/aten_missing.csv").splitlines())
    return {row["name"]: row["reason"] for row in rows}


def tagged() -> Iterator[tuple[str, str]]:
    """The overloads that torch tags as core; one of them is only listed once somebody has asked for it."""
    for stem in sorted({*dir(torch.ops.aten), "sym_is_contiguous"}):
        packet = getattr(torch.ops.aten, stem)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            if torch.Tag.core in getattr(packet, overload).tags:
                yield stem, overload


def is_said(stem: str, overload: str) -> bool:
    """Whether an operator of the library says an overload: by its name, or by that and the overload's."""
    name, found = stem.lstrip("_"), set(operators())
    return f"aten.{name}_{overload}" in found or (f"aten.{name}" in found and overload != "out")


def test_each_is_there_or_missing() -> None:
    names = {(stem, overload): f"aten.{stem}{_suffix(overload)}" for stem, overload in tagged()}
    left = {name for key, name in names.items() if not is_said(*key)}
    assert len(names) > 150
    assert left == missing_operators().keys()


def _suffix(overload: str) -> str:
    return "" if overload == "default" else f".{overload}"


def test_each_has_a_reason() -> None:
    assert all(len(reason) > 10 for reason in missing_operators().values())
