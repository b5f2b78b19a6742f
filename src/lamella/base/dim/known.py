"""Extents and conditions with some symbols known: what the run asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from types import MappingProxyType

from lamella.base.dim.arithmetic import (
    add,
    ceil_divide,
    choose,
    floor_divide,
    larger,
    mul,
    remainder,
    smaller,
)
from lamella.base.dim.form import Atom, Dim, Extent, Logic, Part, Symbol, Test, Truth, Values
from lamella.base.dim.truth import both, differ, either, equal, less, less_equal, negate


def symbols(value: Extent | Truth) -> Iterator[Symbol]:
    """The symbols in an extent or a condition, possibly several times."""
    if isinstance(value, Dim):
        for monomial, _ in value.terms:
            for atom in monomial:
                yield from [atom] if isinstance(atom, Symbol) else _part_symbols(atom)
    elif isinstance(value, Test):
        yield from (*symbols(value.left), *symbols(value.right))
    elif isinstance(value, Logic):
        for item in value.operands:
            yield from symbols(item)


def _part_symbols(part: Part) -> Iterator[Symbol]:
    if part.condition is not None:
        yield from symbols(part.condition)
    for item in part.operands:
        yield from symbols(item)


def substitute(extent: Extent, values: Values) -> Extent:
    """The extent with some symbols known; ZeroDivisionError where a divisor turns out to be zero."""
    if isinstance(extent, int):
        return extent
    total: Extent = 0
    for monomial, factor in extent.terms:
        term: Extent = factor
        for atom in monomial:
            term = mul(term, _atom_value(atom, values))
        total = add(total, term)
    return total


def _atom_value(atom: Atom, values: Values) -> Extent:
    if isinstance(atom, Symbol):
        return values[atom.name] if atom.name in values else Dim((((atom,), 1),))
    if atom.condition is not None:
        return _chosen(atom.condition, atom, values)
    left, right = (substitute(item, values) for item in atom.operands)
    return _ARITHMETIC[atom.sign](left, right)


def _chosen(condition: Truth, part: Part, values: Values) -> Extent:
    """A choice; what is not chosen is not computed."""
    truth = substitute_truth(condition, values)
    if isinstance(truth, bool):
        return substitute(part.operands[0 if truth else 1], values)
    return choose(truth, substitute(part.operands[0], values), substitute(part.operands[1], values))


_ARITHMETIC: Mapping[str, Callable[[Extent, Extent], Extent]] = MappingProxyType(
    {"/": floor_divide, "\\": ceil_divide, "%": remainder, "<<": smaller, ">>": larger}
)


def substitute_truth(truth: Truth, values: Values) -> Truth:
    """The condition with some symbols known."""
    if isinstance(truth, bool):
        return truth
    if isinstance(truth, Test):
        left, right = substitute(truth.left, values), substitute(truth.right, values)
        return _COMPARISONS[truth.sign](left, right)
    inner = [substitute_truth(item, values) for item in truth.operands]
    return negate(inner[0]) if truth.sign == "!" else reduce(_LOGIC[truth.sign], inner)


_LOGIC: Mapping[str, Callable[[Truth, Truth], Truth]] = MappingProxyType(
    {"&&": both, "||": either, "^": differ}
)
_COMPARISONS: Mapping[str, Callable[[Extent, Extent], Truth]] = MappingProxyType(
    {
        "==": equal,
        "!=": lambda left, right: negate(equal(left, right)),
        "<": less,
        "<=": less_equal,
    }
)
