"""The names in a piece of syntax, and the extents that declare one."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from lamella.base.source import Notes, Span
from lamella.lang.skriptnd.nodes import Access, Chain, Integer, Member, Name, NullTest, Unary


def names_in(node: object) -> Iterator[str]:
    """The names that a node uses, possibly several times; a walk without recursion."""
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, Name):
            yield item.id
        elif isinstance(item, Member | NullTest):
            yield item.name
        elif isinstance(item, tuple):
            if not isinstance(item, Span):
                stack.extend(item)
        elif hasattr(item, "__dataclass_fields__") and not isinstance(item, Notes):
            if isinstance(item, Access):
                yield item.tensor
            stack.extend(getattr(item, field) for field in item.__dataclass_fields__)


class Affine(NamedTuple):
    """`factor * name + offset`; without a name it is a number."""

    name: str | None
    factor: int
    offset: int


def new_names(node: object, known: Collection[str]) -> list[str]:
    """The names of a node that are not known yet, each once."""
    return [name for name in dict.fromkeys(names_in(node)) if name not in known]


def affine_in(node: object, known: Collection[str]) -> str | None:
    """The new name that an extent declares: the only one in it, multiplied and moved by numbers."""
    found = read_affine(node)
    if found is None or found.name is None or found.name in known or found.factor == 0:
        return None
    return found.name


def read_affine(node: object) -> Affine | None:
    """An expression as a number times a name plus a number, or None where it is not of that form."""
    if isinstance(node, Name):
        return Affine(node.id, 1, 0)
    if isinstance(node, Integer):
        return Affine(None, 0, node.value)
    if isinstance(node, Unary) and node.sign in "+-":
        inner = read_affine(node.operand)
        return (
            inner if inner is None or node.sign == "+" else Affine(inner.name, -inner.factor, -inner.offset)
        )
    return _read_chain(node) if isinstance(node, Chain) else None


def _read_chain(chain: Chain) -> Affine | None:
    whole = read_affine(chain.first)
    for sign, operand in chain.rest:
        part = read_affine(operand)
        if whole is None or part is None:
            return None
        whole = _join(sign, whole, part)
    return whole


def _join(sign: str, left: Affine, right: Affine) -> Affine | None:
    if sign == "*" and (left.name is None or right.name is None):
        whole, number = (left, right.offset) if right.name is None else (right, left.offset)
        if number.bit_length() > 64 or whole.offset.bit_length() > 64:
            return None
        return Affine(whole.name, whole.factor * number, whole.offset * number)
    if sign not in ("+", "-") or (left.name and right.name and left.name != right.name):
        return None
    turn = 1 if sign == "+" else -1
    name = left.name or right.name
    return Affine(name, left.factor + turn * right.factor, left.offset + turn * right.offset)
