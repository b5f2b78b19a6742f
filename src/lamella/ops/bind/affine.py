"""Affine expressions: what an extent or a length says of the one symbol in it."""

from __future__ import annotations

from typing import NamedTuple

from lamella.lang.skriptnd import nodes
from lamella.ops.evaluate.walk import Node


class Affine(NamedTuple):
    """`factor * symbol + offset`."""

    factor: int
    offset: int


def affine(node: Node) -> Affine | None:
    """The form of an expression with a single symbol; None where it is not affine, or too large to be one."""
    match node:
        case nodes.Name():
            return Affine(1, 0)
        case nodes.Integer(value=value):
            return Affine(0, value)
        case nodes.Unary(sign=sign, operand=operand):
            inner = affine(operand)
            if inner is None or sign == "!":
                return None
            return inner if sign == "+" else Affine(-inner.factor, -inner.offset)
        case nodes.Chain():
            return _chain(node)
    return None


def _chain(node: nodes.Chain) -> Affine | None:
    found = affine(node.first)
    for sign, operand in node.rest:
        other = affine(operand)
        if found is None or other is None:
            return None
        found = _combine(sign, found, other)
    return found


def _combine(sign: str, left: Affine, right: Affine) -> Affine | None:
    if sign == "+":
        return Affine(left.factor + right.factor, left.offset + right.offset)
    if sign == "-":
        return Affine(left.factor - right.factor, left.offset - right.offset)
    if sign != "*" or (left.factor and right.factor):
        return None
    factor = left.factor * right.offset + right.factor * left.offset
    return Affine(factor, left.offset * right.offset)
