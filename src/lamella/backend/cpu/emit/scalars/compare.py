"""Comparisons: NaN is different from everything and in no order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.integers import WIDTHS
from lamella.backend.cpu.emit.scalars.constants import wrap
from lamella.backend.cpu.emit.scalars.floats import widen
from lamella.backend.cpu.emit.scalars.lanes import lanes_of, level, vectors_of
from lamella.backend.cpu.emit.scalars.vectors import Vector
from lamella.backend.cpu.emit.values import Lanes
from lamella.lang.tensor.nodes import Compare

FLOATING = MappingProxyType({"eq": "oeq", "ne": "une", "gt": "ogt", "ge": "oge", "lt": "olt", "le": "ole"})
SIGNED = MappingProxyType({"eq": "eq", "ne": "ne", "gt": "sgt", "ge": "sge", "lt": "slt", "le": "sle"})
FOLD: Mapping[str, Callable[[int, int], bool]] = MappingProxyType(
    {
        "eq": operator.eq,
        "ne": operator.ne,
        "gt": operator.gt,
        "ge": operator.ge,
        "lt": operator.lt,
        "le": operator.le,
    }
)


def emit_compare(here: Here, instruction: Compare) -> Lanes:
    """`cmp.lt %a, %b : bool`."""
    names = instruction.left.name, instruction.right.name
    left, right = (here.scalar(name) for name in names)
    return compare(here, instruction.function, left, right)


def compare(here: Here, function: str, left: Lanes, right: Lanes) -> Lanes:
    """A bool in each lane."""
    known = _fold(here, function, left, right) if left.element in WIDTHS else None
    if known is not None:
        return Lanes("bool", (str(known).lower(),), constant=known)
    left, right = level(here, left, right)
    pairs = zip(vectors_of(here, left), vectors_of(here, right), strict=True)
    found = [_compare(function, left.element, *pair) for pair in pairs]
    if len(found) == 2:
        found = [found[0] & found[1] if function == "eq" else found[0] | found[1]]
    return lanes_of("bool", found[0])


def _fold(here: Here, function: str, left: Lanes, right: Lanes) -> bool | None:
    """The answer of all lanes, where it is known and the same."""
    pairs = zip(_numbers(here, left), _numbers(here, right), strict=False)
    found = {FOLD[function](*pair) for pair in pairs}
    return found.pop() if len(found) == 1 else None


def _numbers(here: Here, value: Lanes) -> list[int]:
    """The numbers of all lanes; none where they are not known before the run."""
    if isinstance(value.constant, int):
        return [value.constant] * here.lanes
    if value.base is None or not value.base.lstrip("-").isdigit():
        return []
    return [wrap(int(value.base) + value.step * lane, value.element) for lane in range(here.lanes)]


def _compare(function: str, element: str, left: Vector, right: Vector) -> Vector:
    if element == "bf16":
        left, right = widen(left), widen(right)
    return left.compare((FLOATING if left.is_floating else SIGNED)[function], right)
