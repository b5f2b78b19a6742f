"""Affine expressions: what an extent or a length says of the one symbol in it."""

from __future__ import annotations

from lamella.base.affine import Affine, combine
from lamella.lang.skriptnd.nodes import Chain, Integer, Name, Unary

WIDEST = 64
"""Bits of a factor that is multiplied: a chain of products must not grow without end."""


def read_affine(node: object) -> Affine[str] | None:
    """An expression as a number times a name plus a number, or None where it is not of that form."""
    if isinstance(node, Name):
        return Affine(0, ((node.id, 1),))
    if isinstance(node, Integer):
        return Affine(node.value)
    if isinstance(node, Unary) and node.sign in "+-":
        inner = read_affine(node.operand)
        return inner if inner is None or node.sign == "+" else inner.times(-1)
    return _read_chain(node) if isinstance(node, Chain) else None


def _read_chain(chain: Chain) -> Affine[str] | None:
    whole = read_affine(chain.first)
    for sign, operand in chain.rest:
        part = read_affine(operand)
        if whole is None or part is None or (sign == "*" and not (_is_narrow(whole) and _is_narrow(part))):
            return None
        names = max(len(whole.terms), len(part.terms))
        whole = combine(sign, [whole, part])
        # Two names are not affine in one symbol; one that cancels says nothing of its value.
        if whole is None or len(whole.terms) != names:
            return None
    return whole


def _is_narrow(form: Affine[str]) -> bool:
    return form.constant.bit_length() <= WIDEST


def symbol_of(form: Affine[str]) -> str | None:
    """The one name in a form; None of a number."""
    return form.terms[0][0] if form.terms else None
