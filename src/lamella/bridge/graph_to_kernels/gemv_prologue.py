"""Prologue fusion of a GEMV: a norm before the vectors is applied to the sums behind the product.

    s += x[k] * x[k] / n;  v[k] = x[k] / sqrt(s + e) * g[k];  y[j] += v[k] * w[j, k]

is `y[j] = (Σ x[k] * g[k] * w[j, k]) / sqrt(Σ x[k] * x[k] / n + e)`. Both sums go along the vector at once, and no
kernel has to run before the product.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from lamella.base.dtype import F32, F64
from lamella.base.dtype import find as find_element
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass, replace
from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.epilogue import EpilogueWriter
from lamella.bridge.graph_to_kernels.factors import Factor, find_decoded, is_contraction
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.inline import Stages
from lamella.bridge.graph_to_kernels.terms import ROUND
from lamella.bridge.graph_to_kernels.tile_parameters import Parameters
from lamella.bridge.graph_to_kernels.tiled import Epilogue, Key, PreparedProduct, Tensors, key_of
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import Scalar, Value
from lamella.ops.formula import Apply, Contraction, Element, Index
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import reachable

HALVES = ("bf16", "f16")
"""Types to which an operand would be rounded, were it in memory."""


def keep_factors(stages: Stages, fixed: Collection[str]) -> Stages:
    """Stages in which factors of weights that are computed from sums of the group are tensors of their own.

    Inside their products they would be computed again for every row.
    """
    found, tensors = list[Contraction](), dict(stages.tensors)
    sums = {item.targets[0].tensor for item in stages.contractions if item.sign == "+="}
    for stage in stages.contractions:
        made = _kept(stage, sums, fixed)
        if made is None:
            found.append(stage)
            continue
        map_, product = made
        extents = tuple(loop.extent for loop in map_.loops if isinstance(loop.extent, int))
        value, element, target = map_.values[0], F64 if stages.wide else F32, map_.targets[0]
        if isinstance(value, Apply) and value.function.startswith(ROUND):
            element = find_element(value.function.removeprefix(ROUND)) or element
        tensors[target.tensor] = GroupTensor(target.tensor, element, extents)
        found += [map_, product]
    return replace(stages, contractions=tuple(found), tensors=tensors)


def _kept(
    stage: Contraction, sums: Collection[str], fixed: Collection[str]
) -> tuple[Contraction, Contraction] | None:
    """A product as the map that its computed factor is, and the product of that; None where it is none of weights."""
    value = stage.values[0]
    if stage.sign != "+=" or not isinstance(value, Apply) or value.function != "*" or value.type != "real":
        return None
    for place, (term, other) in enumerate((value.operands, value.operands[::-1])):
        factor = Factor(other) if isinstance(other, Element) else find_decoded(other, scaled=True)
        read = {item.tensor for item in reachable(term) if isinstance(item, Element)}
        if factor is None or factor.element.tensor not in fixed or isinstance(term, Element):
            continue
        counted = {item.name for item in reachable(term) if isinstance(item, Index)}
        loops = tuple(item for item in stage.loops if item.index in counted)
        if not loops or read.isdisjoint(sums):
            continue
        made = Element(
            f"{stage.targets[0].tensor}/factor", tuple(Index(item.index) for item in loops), "real"
        )
        operands = (made, other) if place == 0 else (other, made)
        product = replace(stage, values=(replace(value, operands=operands),))
        return Contraction((made,), "=", (term,), loops), product
    return None


def split_prologue(
    stages: Sequence[Contraction], needed: Callable[[str, Sequence[Contraction]], bool]
) -> tuple[tuple[Contraction, ...], int]:
    """The stages that are a fusible prologue of the first product behind them, and its place; else nothing.

    `needed` tells whether a tensor is read by other stages than some, or outside.
    """
    place = next((place for place, item in enumerate(stages) if place and _has_two_factors(item)), 0)
    prologue, made = stages[:place], [item.targets[0].tensor for item in stages[:place]]
    used = place and prologue[-1].sign == "=" and made[-1] in _named(stages[place])
    if not used or any(needed(name, (*prologue, stages[place])) for name in made):
        return (), 0
    inside = {name for item in prologue[:-1] for name in _named(item)}
    is_plain = all(item.sign == "+=" for item in prologue[:-1]) and len(set(made)) == len(made)
    return (tuple(prologue), place) if is_plain and inside.isdisjoint(made) else ((), 0)


def _has_two_factors(stage: Contraction) -> bool:
    """Whether a stage is a product of two tensors: a sum of squares is none."""
    return is_contraction(stage) and len(set(_named(stage))) > 1


def _named(stage: Contraction) -> Iterator[str]:
    """The tensors that a stage reads."""
    return (item.tensor for item in reachable(*stage.values) if isinstance(item, Element))


@dataclass(frozen=True, slots=True)
class Prologue:
    """A fused prologue: factors along the sum, reductions of them, and factors of the result."""

    inside: tuple[Term, ...]
    """Factors of an element of a vector."""
    outside: tuple[Term, ...]
    """Factors of the result."""
    sums: tuple[tuple[Key, tuple[Term, ...], float], ...]
    """For each reduction of the prologue the factors of an element, and a number for all of them."""
    accesses: Mapping[int, Access]
    """Of elements that are in memory, by their identity."""
    keys: Mapping[int, Key]
    extents: Mapping[str, int]
    """Of the loops that its elements name, the largest where formulas have one of the same name."""

    def along_sum(self, name: str) -> list[Access]:
        """The accesses that change along the sum."""
        return [item for item in self.accesses.values() if name in item.loops()]

    def along(self, change: Callable[[Access], Access]) -> Prologue:
        """The prologue with other accesses."""
        return replace(self, accesses={key: change(item) for key, item in self.accesses.items()})

    def added(self, parameters: Parameters) -> Prologue:
        """The prologue with accesses to the parameters of a kernel."""
        found = {key: parameters.add(self.keys[key], item) for key, item in self.accesses.items()}
        return replace(self, accesses=found)


def find_prologue(found: PreparedProduct, sums: Sequence[str], narrow: bool) -> Prologue | None:
    """The prologue of a factor, None where the factor is in memory; `narrow` are factors that are rounded."""
    if not found.prologue:
        return None
    *before, map_ = found.prologue
    made = {key_of(item.formula.targets[0]) for item in before}
    accesses = {
        key: found.accesses[key]
        for item in found.prologue
        for key in item.accesses
        if item.keys[key] not in made
    }
    keys = {key: name for item in found.prologue for key, name in item.keys.items() if key in accesses}
    for key in [id(map_.formula.targets[0]), *(id(item.formula.targets[0]) for item in before)]:
        accesses.pop(key, None)
    factors = list(_factors(map_.formula.values[0], narrow))
    inside = tuple(item for item in factors if _goes_along(item, accesses, sums))
    outside = tuple(item for item in factors if not any(item is other for other in inside))
    if any(_reads(item, made) for item in inside) or not inside:
        raise Unsupported("what stands before it is no product with one number for each vector")
    extents: dict[str, int] = {}
    for item in found.prologue:
        extents |= {name: max(size, extents.get(name, 0)) for name, size in item.extents.items()}
    return Prologue(inside, outside, tuple(map(_find_sum, before)), accesses, keys, extents)


def _find_sum(item: Epilogue) -> tuple[Key, tuple[Term, ...], float]:
    """A reduction of the prologue: its tensor, the factors of an element, and the numbers among them as one."""
    terms, number = [], 1.0
    for term in _factors(item.formula.values[0], narrow=False):
        if isinstance(term, float):
            number *= term
        elif (
            isinstance(term, Apply)
            and term.function == "/"
            and term.operands[0] == 1.0
            and isinstance(term.operands[1], float)
        ):
            number /= term.operands[1]
        else:
            terms.append(term)
    if not terms:
        raise Unsupported("a sum before it is one of numbers")
    return key_of(item.formula.targets[0]), tuple(terms), number


def _factors(term: Term, narrow: bool) -> Iterator[Term]:
    """The factors that a real is the product of; divisors as quotients of one."""
    if isinstance(term, Apply) and term.type == "real":
        if term.function == "*":
            for item in term.operands:
                yield from _factors(item, narrow)
            return
        if term.function == "/":
            yield from _factors(term.operands[0], narrow)
            yield Apply("/", (1.0, term.operands[1]), "real")
            return
        if narrow and term.function.removeprefix(ROUND) in HALVES and term.function.startswith(ROUND):
            yield from _factors(term.operands[0], narrow)
            return
    if term != 1.0:
        yield term


def _goes_along(term: Term, accesses: Mapping[int, Access], sums: Sequence[str]) -> bool:
    """Whether a term changes along the sum."""
    if any(isinstance(item, Index) for item in _outside_elements(term)):
        raise Unsupported("what stands before it computes with the numbers of elements")
    inside = reachable(term)
    read = [accesses[id(item)] for item in inside if isinstance(item, Element) and id(item) in accesses]
    return any(not item.loops().isdisjoint(sums) for item in read)


def _outside_elements(term: object) -> Iterator[object]:
    """The terms inside one, but those of indices of its elements."""
    yield term
    if isinstance(term, Apply):
        for item in term.operands:
            yield from _outside_elements(item)


def _reads(term: Term, made: set[Key]) -> bool:
    return any(isinstance(item, Element) and key_of(item) in made for item in reachable(term))


# --- writing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PrologueWriter:
    """Writes the prologue while the kernel of the GEMV is written."""

    prologue: Prologue
    real: Scalar
    tensors: Tensors

    def _writer(self, builder: Builder, loops: Mapping[str, Value], terms: Sequence[Term]) -> EpilogueWriter:
        """What writes terms; what they read at the same place is loaded once."""
        found = EpilogueWriter(self.real, self.tensors, self.prologue.extents, [builder])
        loaded: dict[Access, Value] = {}
        ready = {}
        for element in reachable(*terms):
            access = self.prologue.accesses.get(id(element))
            if access is None:
                continue
            if access not in loaded:
                places = access.places(builder, loops)
                loaded[access] = builder.load(access.memref, places, Scalar(access.element))
            ready[id(element)] = loaded[access]
        found.ready = ready
        return found

    def element(
        self, builder: Builder, loops: Mapping[str, Value], sums: Sequence[Value]
    ) -> tuple[Value, list[Value]]:
        """An element of a vector, and the prologue's reductions with what it adds to each."""
        inside = [item for _, terms, _ in self.prologue.sums for item in terms]
        writing = self._writer(builder, loops, [*self.prologue.inside, *inside])
        found = []
        for (_, (first, *others), _), total in zip(self.prologue.sums, sums, strict=True):
            value = writing.value(first)
            if others:
                total = add_product(builder, value, self._product(writing, others), total, self.real)
            else:
                total = builder.arith("add", total, value, type_=self.real)
            found.append(total)
        return self._product(writing, self.prologue.inside), found

    def scale(self, builder: Builder, loops: Mapping[str, Value], sums: Sequence[Value]) -> Value | None:
        """The factor of a result, given the prologue's reductions of its vector."""
        if not self.prologue.outside:
            return None
        known = {}
        for (key, _, number), value in zip(self.prologue.sums, sums, strict=True):
            factor = builder.constant(number, self.real)
            known[key] = builder.arith("mul", value, factor, type_=self.real)
        writing = self._writer(builder, loops, self.prologue.outside)
        writing.known = known
        return self._product(writing, self.prologue.outside)

    def _product(self, writing: EpilogueWriter, terms: Sequence[Term]) -> Value:
        first, *others = (writing.value(item) for item in terms)
        for item in others:
            first = writing.here.arith("mul", first, item, type_=self.real)
        return first


def add_product(builder: Builder, left: Value, right: Value, total: Value, real: Scalar) -> Value:
    """A fused multiply-add where there is an instruction for it."""
    if real.name == "f32":
        return builder.arith("fma", left, right, total, type_=real)
    return builder.arith("add", total, builder.arith("mul", left, right, type_=real), type_=real)
