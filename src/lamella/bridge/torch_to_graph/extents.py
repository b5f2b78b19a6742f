"""Sizes that PyTorch leaves open: expressions over symbols become extents of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Protocol, cast

from lamella.base import dim
from lamella.base.dim import Dim, Extent
from lamella.bridge.torch_to_graph.program import Range

UNBOUNDED = 1 << 20
"""The largest value of an extent that PyTorch gives no end."""


class Expression(Protocol):
    """What is read of a sympy expression."""

    @property
    def args(self) -> tuple[Expression, ...]:
        """Its operands."""

    @property
    def free_symbols(self) -> Iterable[object]:
        """The symbols in it."""

    def __int__(self) -> int:
        """The number that it is."""


def expression_of(size: object) -> Expression | None:
    """The expression of a symbolic number of PyTorch; None for what is none."""
    found = getattr(getattr(size, "node", None), "expr", None)
    return None if found is None else cast("Expression", found)


def is_unbacked(size: object) -> bool:
    """Whether a size depends on the numbers in a tensor: no input of the graph tells its symbols."""
    expression = expression_of(size)
    return expression is not None and any(
        str(item).startswith(("u", "zu")) for item in expression.free_symbols
    )


class Symbols:
    """The symbols of a program and the extents that they are."""

    def __init__(self, ranges: Mapping[object, Range]) -> None:
        self._ranges = {str(name): _ends(item) for name, item in ranges.items()}
        self._extents: dict[str, Extent] = {}
        self._named: dict[str, tuple[int, int]] = {}

    def declare(self, size: object, name: str) -> None:
        """Name the symbol that a dimension of an input is, unless it has a name or is more than a symbol."""
        expression = expression_of(size)
        if expression is None or type(expression).__name__ != "Symbol" or str(expression) in self._extents:
            return
        low, high = self._ranges.get(str(expression), (0, UNBOUNDED))
        if name in self._named:
            before = self._named[name]
            low, high = max(low, before[0]), min(high, before[1])
        self._named[name] = (low, max(low, high))
        same = [key for key, extent in self._extents.items() if str(extent) == name]
        for key in (*same, str(expression)):
            self._extents[key] = dim.symbol(name, max(low, high), low)

    def extent(self, size: object) -> Extent | None:
        """The extent that a size is; None where it cannot be said."""
        if isinstance(size, int):
            return int(size)
        expression = expression_of(size)
        return None if expression is None else self._convert(expression)

    def _convert(self, expression: Expression) -> Extent | None:
        kind = type(expression).__name__
        if not expression.args:
            return self._extents.get(str(expression)) if kind == "Symbol" else _number(expression)
        operands = [self._convert(item) for item in expression.args]
        known = [item for item in operands if item is not None]
        rule = _RULES.get(kind)
        return rule(known) if rule is not None and len(known) == len(operands) else None


def _ends(item: Range) -> tuple[int, int]:
    return max(0, _bounded(item.lower, 0)), _bounded(item.upper, UNBOUNDED)


def _bounded(end: object, otherwise: int) -> int:
    """The end of a range; an infinite one is no integer of Python."""
    text = str(end)
    return min(int(text), UNBOUNDED) if text.lstrip("-").isdigit() else otherwise


def _number(expression: Expression) -> int | None:
    text = str(expression)
    return int(text) if text.lstrip("-").isdigit() else None


def _power(operands: list[Extent]) -> Extent | None:
    base, exponent = operands
    if isinstance(exponent, Dim) or not 0 <= exponent <= 8:
        return None
    one: Extent = 1
    return reduce(dim.mul, [base] * exponent, one)


def _pair(rule: Callable[[Extent, Extent], Extent]) -> Callable[[list[Extent]], Extent | None]:
    return lambda operands: rule(operands[0], operands[1])


def _several(rule: Callable[[Extent, Extent], Extent]) -> Callable[[list[Extent]], Extent | None]:
    return lambda operands: reduce(rule, operands)


_RULES: Mapping[str, Callable[[list[Extent]], Extent | None]] = MappingProxyType(
    {
        "Add": _several(dim.add),
        "Mul": _several(dim.mul),
        "Max": _several(dim.larger),
        "Min": _several(dim.smaller),
        "FloorDiv": _pair(dim.floor_divide),
        "CleanDiv": _pair(dim.floor_divide),
        "CeilDiv": _pair(dim.ceil_divide),
        "Mod": _pair(dim.remainder),
        "PythonMod": _pair(dim.remainder),
        "Pow": _power,
        "PowByNatural": _power,
    }
)
