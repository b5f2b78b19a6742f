"""Values as an instance holds them: known before the run, or symbolic extents."""

from __future__ import annotations

from lamella.base.dim import Dim, Logic, Test
from lamella.base.dtype import ElementType
from lamella.lang.skriptnd.rules.invocation import UNDECIDED
from lamella.ops.instance import Repeated, Single, Value
from lamella.ops.problem import Fault
from lamella.ops.scalars.values import show


def as_single(value: object) -> Single:
    """One value; a term that only the run computes is refused."""
    if isinstance(value, int | float | str | Dim | Test | Logic):
        return value
    raise Fault(UNDECIDED, what="a value", value=show(value))


def as_element(value: object, element: ElementType) -> Single:
    """One value of a constant; the extreme integers become those of its type."""
    found = as_single(value)
    if type(found) is int and element.is_integer:
        return min(max(found, element.minimum), element.maximum)
    return found


def as_value(value: object) -> Value:
    """A value, a pack of them, or null."""
    if isinstance(value, tuple):
        return tuple([as_single(item) for item in value])
    if isinstance(value, Repeated):
        return Repeated(as_single(value.item), value.length)
    return None if value is None else as_single(value)
