"""Extents that only the run knows: bound from the shapes of arrays, checked against their bounds and each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.diagnostic import LamellaError
from lamella.base.dim import Dim, DimSymbol, Extent, Logic, Test, substitute, substitute_truth, symbols
from lamella.lang.skriptnd.rules.graphs import EXTENT_BOUND, EXTENT_DIFFERS, RANK_DIFFERS
from lamella.ops.fault import Fault
from lamella.ops.instance import Check


class Extents(dict[str, int]):
    """The symbols that have a value in this run, with what gave it to them."""

    def __init__(self, values: Mapping[str, int] | None = None) -> None:
        super().__init__(values or {})
        self.origin: dict[str, str] = {}

    def bind(self, name: str, shape: Sequence[Extent], found: Sequence[int]) -> None:
        """Take the extents of an array for those of the tensor it stands for; a Fault says what does not fit."""
        if len(shape) != len(found):
            raise Fault(RANK_DIFFERS, name=name, found=list(found), shape=show_shape(shape))
        if shape == found:
            return
        for axis, (extent, size) in enumerate(zip(shape, found, strict=True)):
            self.bind_extent(f"dimension {axis} of '{name}'", extent, size)

    def bind_extent(self, what: str, extent: Extent, size: int) -> None:
        """Take a number for an extent: it gives one unknown symbol its value, and must agree with known ones."""
        known = substitute(extent, self)
        if isinstance(known, Dim):
            self._solve(what, known, size)
            known = substitute(known, self)
        if known != size:
            reason = "; ".join(self._reasons(extent))
            raise Fault(
                EXTENT_DIFFERS, what=what, size=size, expected=known, reason=f" ({reason})" if reason else ""
            )

    def _solve(self, what: str, extent: Dim, size: int) -> None:
        unknown = {item.name: item for item in symbols(extent)}
        if len(unknown) != 1:
            return
        ((name, symbol),) = unknown.items()
        value = _invert(extent, symbol, size)
        if value is None:
            return
        if not symbol.low <= value <= symbol.high:
            raise Fault(
                EXTENT_BOUND, what=what, size=size, symbol=name, value=value, low=symbol.low, high=symbol.high
            )
        self[name] = value
        self.origin[name] = what

    def _reasons(self, extent: Extent) -> list[str]:
        names = dict.fromkeys(item.name for item in symbols(extent))
        return [f"'{name}' is {self[name]} by {self.origin[name]}" for name in names if name in self.origin]


def _invert(extent: Dim, symbol: DimSymbol, size: int) -> int | None:
    """The value of a symbol for which an affine extent has a size; None where there is none."""
    # Taken for affine where three points have equal differences; `bind_extent` tests what is found.
    constant = substitute(extent, {symbol.name: 0})
    one = substitute(extent, {symbol.name: 1})
    two = substitute(extent, {symbol.name: 2})
    if isinstance(constant, Dim) or isinstance(one, Dim) or isinstance(two, Dim):
        return None
    factor = one - constant
    if factor == 0 or two - one != factor or (size - constant) % factor:
        return None
    return (size - constant) // factor


def show_shape(shape: Sequence[Extent]) -> str:
    """A shape as the language writes it."""
    return f"[{', '.join(str(item) for item in shape)}]"


def require_checks(checks: Sequence[Check], extents: Mapping[str, int]) -> None:
    """Refuse a run in which an assertion does not hold, as far as its extents are known by now."""
    for check in checks:
        condition, names = check.condition, set[str]()
        if isinstance(condition, Test | Logic):
            names = {item.name for item in symbols(condition)}
            condition = substitute_truth(condition, extents)
        if condition is False:
            known = ", ".join(f"'{name}' is {extents[name]}" for name in sorted(names) if name in extents)
            values = known or "it does not hold"
            raise LamellaError([check.rule.at(check.span, message=check.message, values=values)])
