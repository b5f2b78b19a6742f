"""What stands inside an expression: its parts, the names it uses, the type it has by its form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from lamella.base.dtype import find_in
from lamella.lang.skriptnd import nodes
from lamella.ops.scalars.terms import COMPARISONS, LOGICAL
from lamella.ops.scalars.values import word_of_type

Node: TypeAlias = nodes.Item | nodes.Omitted
"""Whatever may stand where an expression stands."""


def parts(node: Node) -> Iterator[Node]:
    """The expressions directly inside one, from left to right."""
    match node:
        case nodes.Format(parts=items):
            yield from (item for item in items if not isinstance(item, str))
        case nodes.Range(begin=begin, end=end, step=step):
            yield from (item for item in (begin, end, step) if item is not None)
        case nodes.Expand(operand=operand, count=count):
            yield operand
            if count is not None:
                yield count
        case nodes.Zip(operands=operands):
            yield from operands
        case nodes.List(items=items):
            yield from items
        case nodes.Index(operand=operand, index=index):
            yield from (operand, index)
        case nodes.Substitute(target=target, value=value):
            yield from (target, value)
        case nodes.Access(item=item, indices=indices):
            if item is not None:
                yield item
            yield from indices
        case nodes.Chain(first=first, rest=rest):
            yield first
            yield from (operand for _, operand in rest)
        case _:
            yield from _other_parts(node)


def _other_parts(node: Node) -> Iterator[Node]:
    match node:
        case nodes.Bounded(index=index, below=below, above=above):
            yield from (item for item in (index, below, above) if item is not None)
        case nodes.Select(condition=condition, then=then, otherwise=otherwise):
            yield from (item for item in (condition, then, otherwise) if item is not None)
        case nodes.Coalesce(value=value, default=default):
            yield from (value, default)
        case nodes.Unary(operand=operand) | nodes.Fold(operand=operand) | nodes.Call(operand=operand):
            yield operand
        case nodes.Cast(operand=operand):
            if operand is not None:
                yield operand


def walk(node: Node) -> Iterator[Node]:
    """An expression and everything inside it."""
    stack = [node]
    while stack:
        found = stack.pop()
        yield found
        stack += reversed(list(parts(found)))


def names(*found: Node | None) -> frozenset[str]:
    """The names that expressions use; the generic types of casts are among them."""
    used: set[str] = set()
    for start in found:
        for node in walk(start) if start is not None else ():
            match node:
                case nodes.Name(id=name) | nodes.Access(tensor=name):
                    used.add(name)
                case nodes.Member(name=name) | nodes.NullTest(name=name):
                    used.add(name)
                case nodes.Cast(type=name):
                    if primitive(name) is None:
                        used.add(name)
    return frozenset(used)


def primitive(name: str) -> str | None:
    """The primitive type of a type's name, sized or not; None for a generic one."""
    if name == "str":
        return name
    element = find_in("skriptnd", name)
    return None if element is None else word_of_type(element)


def infer(node: Node, words: Mapping[str, str]) -> str:
    """The type of an expression's items by its form: a primitive type, a generic one, or empty if not known."""
    while True:
        match node:
            case nodes.Select(then=inner) | nodes.Expand(operand=inner) | nodes.Unary(operand=inner):
                node = inner
            case nodes.Index(operand=inner) | nodes.Coalesce(value=inner):
                node = inner
            case nodes.Substitute(target=nodes.Index(operand=inner)):
                node = inner
            case nodes.List(items=items) if items:
                node = items[0]
            case nodes.Zip(operands=operands):
                node = operands[0]
            case nodes.Chain(first=first, rest=rest) if rest[-1][0] not in _TRUTH_SIGNS:
                node = first
            case nodes.Fold(operand=inner, sign=sign) if sign not in COMPARISONS:
                node = inner
            case nodes.Call(function=function, operand=inner) if function in ("abs", "sign"):
                node = inner
            case _:
                return _infer_plain(node, words)


_TRUTH_SIGNS = COMPARISONS | LOGICAL | {"is", "in"}


def _infer_plain(node: Node, words: Mapping[str, str]) -> str:
    match node:
        case nodes.Name(id=name) | nodes.Access(tensor=name):
            return words.get(name, "")
        case nodes.Cast(type=name):
            return primitive(name) or name
        case nodes.Real() | nodes.Constant() | nodes.Call():
            return "real"
        case nodes.Integer() | nodes.Member() | nodes.Range():
            return "int"
        case nodes.Bool() | nodes.NullTest() | nodes.Chain() | nodes.Fold():
            return "bool"
        case nodes.Text() | nodes.Format():
            return "str"
    return ""
