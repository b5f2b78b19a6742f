"""Which values an index can have, and which guards it therefore does not need."""

from __future__ import annotations

from collections.abc import Mapping

from lamella.base import dim
from lamella.base.dim import Dim, Extent
from lamella.base.limits import in_range
from lamella.ops.formula import Apply, Guard, Index

RANGES = "|ranges|"
"""The name under which a scope holds the extents of loop indices; no identifier is spelled so."""
Ends = tuple[int, int]


def unguard(part: object, extent: object, ranges: Mapping[str, Extent]) -> object:
    """A guarded index without its guard where it cannot leave its range."""
    if not isinstance(part, Guard) or not isinstance(extent, int | Dim):
        return part
    ends = ends_of(part.index, ranges, {})
    if ends is not None and ends[0] >= 0 and ends[1] < dim.bounds(extent)[0]:
        return part.index
    if isinstance(part.index, Index) and ranges.get(part.index.name) == extent:
        return part.index
    return part


def ends_of(value: object, ranges: Mapping[str, Extent], known: dict[int, Ends | None]) -> Ends | None:
    """The smallest and the largest value of an index; None where nothing is known."""
    if isinstance(value, int):
        return value, value
    if isinstance(value, Dim):
        return dim.bounds(value)
    if isinstance(value, Index):
        extent = ranges.get(value.name)
        return None if extent is None else (0, max(dim.bounds(extent)[1] - 1, 0))
    if not isinstance(value, Apply):
        return None
    key = id(value)
    if key not in known:
        # Guards against terms that are nested deeper than anything an index needs.
        known[key] = None if len(known) > MOST_PARTS else _ends_of_apply(value, ranges, known)
    return known[key]


MOST_PARTS = 100


def _ends_of_apply(value: Apply, ranges: Mapping[str, Extent], known: dict[int, Ends | None]) -> Ends | None:
    if value.function not in ("+", "-", "*", "<<", ">>"):
        return None
    known[id(value)] = None
    left, right = (ends_of(item, ranges, known) for item in value.operands)
    if left is None or right is None:
        return None
    found = _combine(value.function, left, right)
    # The run wraps around where exact numbers would go on growing.
    return found if in_range(found[0]) and in_range(found[1]) else None


def _combine(function: str, left: Ends, right: Ends) -> Ends:
    if function == "+":
        return left[0] + right[0], left[1] + right[1]
    if function == "-":
        return left[0] - right[1], left[1] - right[0]
    if function == "*":
        corners = [a * b for a in left for b in right]
        return min(corners), max(corners)
    pick = min if function == "<<" else max
    return pick(left[0], right[0]), pick(left[1], right[1])
