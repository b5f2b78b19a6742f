"""Affine expressions: what an extent or a length says of the one symbol in it."""

from __future__ import annotations

from typing import NamedTuple

from lamella.lang.skriptnd.nodes import Chain, Integer, Name, Unary


class Affine(NamedTuple):
    """`factor * name + offset`; without a name it is a number."""

    name: str | None
    factor: int
    offset: int


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
