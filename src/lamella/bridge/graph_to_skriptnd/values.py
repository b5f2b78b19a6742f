"""Values, extents and conditions as expressions of the language."""

from __future__ import annotations

import math
import re

from lamella.base.dim import Atom, Condition, Dim, DimPart, DimSymbol, Extent, Logic, Monomial
from lamella.graph.nodes import Single, Value
from lamella.lang.skriptnd import nodes as n
from lamella.ops.instance import Repeated, singles

_OF_TENSOR = re.compile(r"(?P<tensor>.+)\.(?P<field>shape|size|rank)(\[(?P<axis>\d+)\])?")


def expression(value: Value) -> n.Expr:
    """A value of an attribute or a constant."""
    if isinstance(value, tuple):
        return n.List(tuple(map(_single, value)))
    if isinstance(value, Repeated):
        item, length = singles(value)
        return n.List((n.Expand(_single(item), _single(length)),))
    return n.List(()) if value is None else _single(value)


def _single(value: Single) -> n.Expr:
    if isinstance(value, bool):
        return n.Bool(value)
    if isinstance(value, int):
        return _signed(value < 0, n.Integer(abs(value)))
    if isinstance(value, float):
        return _real(value)
    if isinstance(value, str):
        return n.Text(value.replace("{", "\\{"))
    return extent(value) if isinstance(value, Dim) else condition(value)


def _signed(negative: bool, number: n.Expr) -> n.Expr:
    return n.Unary("-", number) if negative else number


def _real(value: float) -> n.Expr:
    if math.isnan(value):
        return n.Chain(n.Constant("inf"), (("-", n.Constant("inf")),))
    size = n.Constant("inf") if math.isinf(value) else n.Real(abs(value))
    return _signed(math.copysign(1.0, value) < 0, size)


def extent(value: Extent) -> n.Expr:
    """An extent: a sum of products."""
    if isinstance(value, int):
        return _single(value)
    (monomial, factor), *others = value.terms
    first = _product(monomial, factor)
    rest = tuple(("-" if size < 0 else "+", _product(item, abs(size))) for item, size in others)
    return n.Chain(first, rest) if rest else first


def _product(monomial: Monomial, factor: int) -> n.Expr:
    words = [_atom(item) for item in monomial]
    if factor != 1 or not words:
        words.insert(0, _single(factor))
    return n.Chain(words[0], tuple(("*", word) for word in words[1:])) if len(words) > 1 else words[0]


def _atom(atom: Atom) -> n.Expr:
    return _symbol(atom) if isinstance(atom, DimSymbol) else _part(atom)


def _symbol(symbol: DimSymbol) -> n.Expr:
    """A symbol is a name, or the extent of a tensor that it is called after."""
    found = _OF_TENSOR.fullmatch(symbol.name)
    if found is None:
        return n.Name(symbol.name)
    member = n.Member(found["tensor"], found["field"])
    return member if found["axis"] is None else n.Index(member, n.Integer(int(found["axis"])))


def _part(part: DimPart) -> n.Expr:
    left, right = (extent(item) for item in part.operands)
    if part.condition is not None:
        return n.Select(condition(part.condition), left, right)
    return n.Chain(left, ((part.sign, right),))


def condition(value: Condition) -> n.Expr:
    """A condition on extents."""
    if not isinstance(value, Logic):
        return n.Chain(extent(value.left), ((value.sign, extent(value.right)),))
    words = [condition(item) for item in value.operands]
    if value.sign == "!":
        return n.Unary("!", words[0])
    return n.Chain(words[0], tuple((value.sign, word) for word in words[1:]))


def literal(expr: n.Expr) -> Value:
    """The value of a literal; None where an expression is more than that."""
    if isinstance(expr, n.Integer | n.Real | n.Bool | n.Text):
        return expr.value
    if isinstance(expr, n.Constant):
        return math.inf if expr.name == "inf" else math.pi
    if isinstance(expr, n.Unary) and expr.sign == "-":
        value = literal(expr.operand)
        return -value if isinstance(value, int | float) else None
    if isinstance(expr, n.List):
        return _literals(expr)
    return None


def _literals(expr: n.List) -> Value:
    found: list[Single] = []
    for item in expr.items:
        value = None if isinstance(item, n.Range | n.Expand | n.Zip) else literal(item)
        if value is None or isinstance(value, tuple | Repeated):
            return None
        found.append(value)
    return tuple(found)
