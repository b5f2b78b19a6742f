"""Fast-math: leave out arithmetic that changes nothing but for special numbers and rounding.

`IDENTITIES` are those of NAC's optimiser, and hold for real numbers; for floating ones they do not:

    x + 0 = x              but -0 + 0 is 0
    x * 0 = 0              but for infinities and NaN it is NaN, and for negative x it is -0
    (x + y) - y = x        but the sum is rounded, may overflow, and is NaN where y is infinite or NaN
    (x - y) + y = x        likewise
    (x * y) / y = x        but the product is rounded, may overflow or vanish, and y may be 0, infinite or NaN
    (x / y) * y = x        likewise

Terms are found on either side, with equal factors `alpha` too. Integers are left to `simplify`, which does for them
what is exact; quotients of integers are rounded down and stay. Nobody runs this pass unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from lamella.graph.model import Model
from lamella.graph.passes.patterns import Match, Predicate, identities, rewriting
from lamella.graph.passes.simplify import combines_to, is_integer, weights_of
from lamella.graph.rewrite import rewrite

IDENTITIES = identities("""
    f(x, y) = x                    if linear(f) and zero(y) and weighs_one(x) and real(x)
    f(x, y) = y                    if linear(f) and zero(x) and weighs_one(y) and real(x)
    f(g(x, y), z) = rest           if linear(f) and linear(g) and real(z) and sums_to(rest)
    f(z, g(x, y)) = rest           if linear(f) and linear(g) and real(z) and sums_to(rest)
    f(x, y) = 0                    if monomial(f) and zero(y) and weighs_one(y) and real(x)
    f(x, y) = 0                    if monomial(f) and zero(x) and weighs_one(y) and real(x)
    f(g(x, y), z) = rest           if monomial(f) and monomial(g) and real(z) and multiplies_to(rest)
    f(z, g(x, y)) = rest           if monomial(f) and monomial(g) and real(z) and multiplies_to(rest)
""")


def fast_math(model: Model) -> Model:
    """The model without arithmetic that would change nothing if numbers were real."""
    visit = rewriting(model.library, IDENTITIES, PREDICATES, OF_VALUES)
    return replace(model, graph=rewrite(model.graph, visit))


def _is_zero(match: Match, about: tuple[str, ...]) -> bool:
    value = match.uniform(match.tensor(about[0]))
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


def _weighs_one(match: Match, about: tuple[str, ...]) -> bool:
    """Whether an operand of a sum has the factor 1, or one of a product the exponent 1."""
    pair = weights_of(match, about[0], "linear") or weights_of(match, about[0], "monomial")
    return pair is not None and pair[0] == 1


PREDICATES: Mapping[str, Predicate] = MappingProxyType(
    {
        "real": lambda match, about: not is_integer(match, about),
        "zero": _is_zero,
        "weighs_one": _weighs_one,
        "sums_to": lambda match, about: combines_to(match, about[0], "linear"),
        "multiplies_to": lambda match, about: combines_to(match, about[0], "monomial"),
    }
)
OF_VALUES = frozenset(("zero",))
"""Predicates that only an operand full of zeros, or a weight of 0, can satisfy."""
