"""Every operator that torch tags as core is in the library, or said to be left out."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.ops.missing import missing_operators
from tests.support.judges.aten import torch
from tests.support.judges.registry import operators


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
