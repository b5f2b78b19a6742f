"""Canonicalize by identities: leave out arithmetic, casts and reshapes that change nothing.

`IDENTITIES` is the whole of it. Only what is exact for the element type is done, bit by bit: in floating types `x + 0`
turns -0 into 0, `x * 0` is not 0 for infinities and NaN, sums are rounded, and the absolute value of a zero keeps its
sign, so these stay (`x + -0` goes). `fast_math` does what is left of sums and products.

Operators of ATen that only call one of the library share its identities; the others declare their own traits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from lamella.base.dtype import ElementType, Kind
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Operation, Single, Tensor
from lamella.graph.passes.patterns import (
    Match,
    Predicate,
    identities,
    is_plain,
    is_static,
    output_of,
    rewriting,
    trait_of,
)
from lamella.graph.rewrite import rewrite

IDENTITIES = identities("""
    f(x) = x                                     if copy(f)
    f(f(x)) = x                                  if involution(f)
    f(f(x)) = f(x)                               if idempotent(f)
    f(x, x) = x                                  if idempotent(f)
    f(x, e) = x                                  if identity(f, e)
    f(x, e) = constant(e)                        if absorbing(f, e)
    f(math.neg(x)) = f(x)                        if even(f)

    f(x, y) = x                                  if linear(f) and vanishes(y)    # x + b * y
    f(x, y) = y                                  if linear(f) and vanishes(x)
    f(g(x, y), z) = rest                         if integer(z) and linear(f) and linear(g) and sums_to(rest)
    f(z, g(x, y)) = rest                         if integer(z) and linear(f) and linear(g) and sums_to(rest)

    layout.cast(x) = x
    layout.cast(layout.cast(x)) = x              if lossless(x)
    f(x) = x                                     if reshape(f)
    f(g(x)) = x                                  if reshape(f) and reshape(g)
    f(g(x)) = reshape(x)                         if reshape(f) and reshape(g)
    f(x) = x                                     if window(f)
    layout.slice(x, stride=1) = x
    aten.pad(x, _, pad=0) = x
    aten.constant_pad_nd(x, _, pad=0) = x
    f([x]) = x                                   if singleton(f)
    f(x) = [x]                                   if partition(f)

    math.select(True, x, _) = broadcast(x)
    math.select(False, _, x) = broadcast(x)
    math.select(_, x, x) = x
    aten.clamp(x, None, None) = x
    aten.copy(_, x) = x

    aten.native_dropout(x) = x, aten.ones(size=shape)
    aten.zeros_like(_) = aten.zeros(size=shape)
    aten.new_zeros(_) = aten.zeros(size=shape)
    aten.empty_like(_) = aten.zeros(size=shape)
    aten.new_empty(_) = aten.zeros(size=shape)
    aten.ones_like(_) = aten.ones(size=shape)
    aten.new_ones(_) = aten.ones(size=shape)
    aten.full_like(_, x) = aten.full(x, size=shape)
    aten.new_full(_, x) = aten.full(x, size=shape)
    aten.fill(_, x) = aten.full(x, size=shape)
""")


def simplify(model: Model) -> Model:
    """The model without arithmetic that changes nothing."""
    visit = rewriting(model.library, IDENTITIES, PREDICATES, OF_VALUES)
    return replace(model, graph=rewrite(model.graph, visit))


# --- sums and products, term by term ------------------------------------------------------------------------------


def weights(match: Match, operation: Operation, trait: str) -> tuple[int | float, int | float] | None:
    """`a` and `b` of `a * x + b * y`, or of `x ** a * y ** b`; None where they are no known numbers."""
    declared = trait_of(match.library, operation, trait)
    numbers = [_weight(operation, text) for text in declared.values] if declared is not None else []
    known = [item for item in numbers if item is not None]
    return (known[0], known[1]) if len(known) == 2 else None


def _weight(operation: Operation, text: str) -> int | float | None:
    name = text.removeprefix("-")
    value = int(name) if name.isdecimal() else dict(operation.attributes).get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return -value if text.startswith("-") else value


def weights_of(match: Match, name: str, trait: str) -> tuple[int | float, int | float] | None:
    """The weight of the operand `x` or `y` of a sum or a product `f(x, y)`, and that of the other one."""
    pair = weights(match, match.node, trait)
    operand, (first, second) = match.tensor(name), match.node.inputs
    # A commutative operation may have been matched the other way round, and its operands may be one tensor.
    swapped = first is not second and (operand is first) != (name == "x")
    return pair[::-1] if pair is not None and swapped != (name == "y") else pair


def _vanishes(match: Match, about: tuple[str, ...]) -> bool:
    """Whether `x + weight * y = x` for the `y` that is asked about."""
    pair, vanishing = weights_of(match, about[0], "linear"), match.tensor(about[0])
    if pair is None or vanishing is None or pair[1] != 1:
        return False
    return _is_nothing(match.uniform(vanishing), pair[0], vanishing.element.is_integer)


def _is_nothing(value: Single | None, weight: int | float, integer: bool) -> bool:
    """Whether `x + weight * value = x`: for integers any zero, in floating types the negative one alone."""
    if integer and weight == 0:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    if 0 not in (value, weight) or not math.isfinite(weight):
        return False
    return integer or math.copysign(1.0, value) * math.copysign(1.0, weight) < 0


def combines_to(match: Match, name: str, trait: str) -> bool:
    """Whether two sums (or products) that follow each other are one tensor, or nothing at all, once terms cancel.

    `sub(add(x, y), y)` is `{x: 1, y: 1} + {y: -1} = {x: 1}`: what is left is the one tensor `x`. Products are known by
    their exponents in the same way. For integers this is exact, since they wrap round; for floating types it is not.
    """
    terms = _terms(match, match.node, trait)
    if terms is None:
        return False
    sums: dict[str, int | float] = {}
    for tensor, weight in terms:
        sums[tensor.name] = sums.get(tensor.name, 0) + weight
    kept = [item for item in sums if sums[item] != 0]
    if len(kept) > 1 or any(sums[item] != 1 for item in kept):
        return False
    left: Tensor | Constant | None = next((item for item, _ in terms if item.name in kept), None)
    left = _zero(match.node) if left is None else left
    if left is not None:
        match.bound[name] = left
    return left is not None


def _terms(match: Match, node: Operation, trait: str) -> list[tuple[Tensor, int | float]] | None:
    """The operands of an operation with their weights, those of the inner operation of the match in its place."""
    pair = weights(match, node, trait) if is_plain(node) or trait == "linear" else None
    # Alignments other than the default would let one tensor mean two things.
    if pair is None or any(value is not None for name, value in node.attributes if name.endswith("_align")):
        return None
    terms: list[tuple[Tensor, int | float]] = []
    inner = match.operation("g")
    for operand, weight in zip(node.inputs, pair, strict=True):
        if not isinstance(operand, Tensor):
            return None
        if node is match.node and operand in inner.outputs:
            deeper = _terms(match, inner, trait)
            if deeper is None:
                return None
            terms += [(tensor, weight * other) for tensor, other in deeper]
        else:
            terms.append((operand, weight))
    return terms


def _zero(node: Operation) -> Constant | None:
    """The result of an operation as a constant 0; of floating types there is no telling which zero."""
    output = output_of(node)
    known = output is not None and output.element.is_integer and is_static(output.shape)
    return Constant(output, 0) if output is not None and known else None


def is_integer(match: Match, about: tuple[str, ...]) -> bool:
    """Whether the elements of a tensor are integers."""
    tensor = match.tensor(about[0])
    return tensor is not None and tensor.element.is_integer


# --- conversions between element types ----------------------------------------------------------------------------


_DIGITS: Mapping[str, int] = MappingProxyType({"bf16": 8, "f16": 11, "f32": 24, "f64": 53})
"""Bits of an integer that a floating type still says exactly."""
_WIDER: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"bf16": ("f32", "f64"), "f16": ("f32", "f64"), "f32": ("f64",)}
)


def _lossless(match: Match, about: tuple[str, ...]) -> bool:
    """Whether a tensor is cast to a type that has all of its values, before it is cast back."""
    (inner, *_), start = match.node.inputs, match.tensor(about[0])
    return isinstance(inner, Tensor) and start is not None and represents(inner.element, start.element)


def represents(wide: ElementType, narrow: ElementType) -> bool:
    """Whether each value of a type is one of another type too."""
    if narrow.kind is Kind.BOOL:
        return wide.is_integer or wide.name in _DIGITS
    if narrow.is_float:
        return wide.name in _WIDER.get(narrow.name, ())
    if not narrow.is_integer:
        return False
    if wide.is_integer:
        return wide.minimum <= narrow.minimum and narrow.maximum <= wide.maximum
    return wide.is_float and narrow.bits <= _DIGITS.get(wide.name, 0)


PREDICATES: Mapping[str, Predicate] = MappingProxyType(
    {
        "integer": is_integer,
        "lossless": _lossless,
        "sums_to": lambda match, about: combines_to(match, about[0], "linear"),
        "vanishes": _vanishes,
    }
)
OF_VALUES = frozenset(("vanishes",))
"""Predicates that only an operand full of zeros, or a weight of 0, can satisfy."""
