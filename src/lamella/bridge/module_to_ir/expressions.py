"""Extents in files: a number where it is known, else the negative id of an entry of a table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from types import MappingProxyType

from lamella.base import dim
from lamella.base.dim import Condition, Dim, Extent, Logic, TooComplex, Truth
from lamella.base.dim import DimPart as Nested
from lamella.base.dim import DimSymbol as Unknown
from lamella.base.limits import in_range
from lamella.bridge.module_to_ir.codec import MisfitError
from lamella.bridge.module_to_ir.nodes import Symbol

SYMBOL, NUMBER, SUM, CHOICE = "symbol", "number", "sum", "?"
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")


# --- writing ----------------------------------------------------------------------------------------------------


class Table:
    """The entries of one file; equal extents are one entry."""

    def __init__(self) -> None:
        self._entries: list[Symbol] = []
        self._ids: dict[object, int] = {}

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The entries so far, each behind what it consists of."""
        return tuple(self._entries)

    def extent(self, value: Extent) -> int:
        """An extent as a file has it; it is never a negative number."""
        if isinstance(value, int):
            return value if value >= 0 else self._add(value, Symbol(0, NUMBER, str(value), value=value))
        return self._sum(value)

    def shape(self, shape: Sequence[Extent]) -> tuple[int, ...]:
        """A shape as a file has it."""
        return tuple(map(self.extent, shape))

    def condition(self, value: Condition) -> int:
        """A condition as a file has it."""
        if isinstance(value, Logic):
            operands = tuple(self.condition(item) for item in value.operands)
        else:
            operands = (self.extent(value.left), self.extent(value.right))
        return self._add(value, Symbol(0, value.sign, str(value), operands=operands))

    def _sum(self, value: Dim) -> int:
        only = value.terms[0] if len(value.terms) == 1 else None
        if only is not None and only[1] == 1 and len(only[0]) == 1:
            return self._atom(only[0][0])
        terms = tuple((factor, *map(self._atom, monomial)) for monomial, factor in value.terms)
        return self._add(value, Symbol(0, SUM, str(value), terms=terms))

    def _atom(self, atom: Unknown | Nested) -> int:
        if isinstance(atom, Unknown):
            return self._add(atom, Symbol(0, SYMBOL, atom.name, atom.low, atom.high))
        operands = tuple(map(self.extent, atom.operands))
        if atom.condition is not None:
            operands = (self.condition(atom.condition), *operands)
        return self._add(atom, Symbol(0, atom.sign, str(atom), operands=operands))

    def _add(self, key: object, entry: Symbol) -> int:
        if key not in self._ids:
            self._ids[key] = -len(self._entries) - 1
            self._entries.append(replace(entry, id=self._ids[key]))
        return self._ids[key]


# --- reading ----------------------------------------------------------------------------------------------------

_ARITHMETIC: Mapping[str, Callable[[Extent, Extent], Extent]] = MappingProxyType(
    {
        "/": dim.floor_divide,
        "\\": dim.ceil_divide,
        "%": dim.remainder,
        "<<": dim.smaller,
        ">>": dim.larger,
    }
)
_COMPARISONS: Mapping[str, Callable[[Extent, Extent], Truth]] = MappingProxyType(
    {
        "<": dim.less,
        "<=": dim.less_equal,
        "==": dim.equal,
        "!=": lambda left, right: dim.negate(dim.equal(left, right)),
    }
)
_LOGIC: Mapping[str, Callable[[Truth, Truth], Truth]] = MappingProxyType(
    {"&&": dim.both, "||": dim.either, "^": dim.differ}
)


class Meanings:
    """What the ids of a file stand for."""

    def __init__(self, symbols: Sequence[Symbol]) -> None:
        self._values: list[Extent | Condition | bool] = []
        for number, entry in enumerate(symbols):
            if entry.id != -number - 1:
                raise MisfitError(f"entry {number} of the symbols has the id {entry.id}, not {-number - 1}")
            try:
                self._values.append(self._read(entry))
            except ZeroDivisionError:
                raise MisfitError(f"symbol {entry.id} divides by zero") from None
            except TooComplex as problem:
                raise MisfitError(f"symbol {entry.id} is {problem}") from None

    def extent(self, id: int) -> Extent:
        """The extent that a number in a file is."""
        found = self._find(id)
        if isinstance(found, bool) or not isinstance(found, int | Dim):
            raise MisfitError(f"symbol {id} is a condition where an extent is wanted")
        return found

    def shape(self, ids: Sequence[int]) -> tuple[Extent, ...]:
        """The shape that a file gives."""
        return tuple(map(self.extent, ids))

    def condition(self, id: int) -> Truth:
        """The condition that an id stands for."""
        found = self._find(id)
        if isinstance(found, Dim) or (isinstance(found, int) and not isinstance(found, bool)):
            raise MisfitError(f"symbol {id} is an extent where a condition is wanted")
        return found

    def value(self, id: int) -> Extent | Truth:
        """The extent or condition that an id stands for."""
        return self._find(id)

    def _find(self, id: int) -> Extent | Truth:
        if id >= 0:
            return id
        if -id > len(self._values):
            raise MisfitError(f"there is no symbol {id} at this place")
        return self._values[-id - 1]

    def _read(self, entry: Symbol) -> Extent | Truth:
        kind, operands = entry.kind, entry.operands
        if kind == SYMBOL:
            return self._symbol(entry)
        if kind == NUMBER and entry.value is not None:
            return entry.value
        if kind == SUM:
            return self._sum(entry)
        if kind in _ARITHMETIC and len(operands) == 2:
            return _ARITHMETIC[kind](self.extent(operands[0]), self.extent(operands[1]))
        if kind in _COMPARISONS and len(operands) == 2:
            return _COMPARISONS[kind](self.extent(operands[0]), self.extent(operands[1]))
        if kind == CHOICE and len(operands) == 3:
            return dim.choose(self.condition(operands[0]), self.extent(operands[1]), self.extent(operands[2]))
        if kind == "!" and len(operands) == 1:
            return dim.negate(self.condition(operands[0]))
        if kind in _LOGIC and len(operands) > 1:
            return reduce(_LOGIC[kind], map(self.condition, operands))
        raise MisfitError(f"symbol {entry.id} is no '{kind[:20]}'")

    def _symbol(self, entry: Symbol) -> Extent:
        low, high = entry.low, entry.high
        if low is None or high is None or not 0 <= low <= high or not _NAME.fullmatch(entry.text):
            raise MisfitError(f"symbol {entry.id} has no name or no range")
        return dim.symbol(entry.text, high, low)

    def _sum(self, entry: Symbol) -> Extent:
        total: Extent = 0
        for parts in entry.terms:
            term: Extent = parts[0] if parts else 0
            for atom in parts[1:]:
                term = dim.mul(term, self.extent(atom))
            total = dim.add(total, term)
            factors = [total] if isinstance(total, int) else [factor for _, factor in total.terms]
            if not all(map(in_range, factors)):
                raise MisfitError(f"symbol {entry.id} leaves the signed 64-bit range")
        return total
