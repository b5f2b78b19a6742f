"""The backward pass of attention, recognised among stages: which product, map and sum is which.

s = q k',  t = g v',  w = exp(c s - l),  d = f w (t - a);   dq = d k,  dk = d' q,  dv = w' g
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import inf

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import Access, substitute_loops
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.attention import is_product, place_in
from lamella.bridge.graph_to_kernels.attention_mask import KeyBound, VisibleKeys, find_visible
from lamella.bridge.graph_to_kernels.softmax import find_factor, is_reals, without_guard
from lamella.bridge.graph_to_kernels.tiled import (
    Key,
    Tensors,
    extents_of,
    held_access,
    key_of,
    meet,
    verify_whole,
    walk_terms,
)
from lamella.ops.formula import Apply, Contraction, Element
from lamella.ops.formula import Scalar as Term

WIDTH = "width"
"""The loop along values and output gradients."""
PRODUCTS, MAPS = 5, 2


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor that is read or written: its access over the loops of the scores and of WIDTH, and its key."""

    access: Access
    key: Key


@dataclass(frozen=True, slots=True)
class BackwardRoles:
    """The role of each loop and tensor of the backward pass."""

    extents: Mapping[str, int]
    query: str
    key: str
    depth: str
    heads: tuple[str, ...]
    """The other loops of keys."""
    share: tuple[str, ...]
    """Those that queries have and keys have not."""
    queries: Operand
    keys: Operand
    values: Operand
    given: Operand
    """The gradient of the output."""
    logs: Operand
    along: Operand
    scale: float
    """The factor of scores before the exponential."""
    factor: float
    """The factor of their gradient."""
    causal: bool
    to_queries: Operand
    to_keys: Operand
    to_values: Operand


def find_attention_backward(stages: Sequence[Contraction], tensors: Tensors) -> BackwardRoles | None:
    """The backward pass that stages are; None where they are something else."""
    if len(stages) != PRODUCTS + MAPS or sum(map(is_product, stages)) != PRODUCTS:
        return None
    try:
        return _BackwardReader(tensors).read(stages)
    except Unsupported:
        return None


@dataclass(slots=True)
class _BackwardReader:
    """Reads stages one after the other."""

    tensors: Tensors
    places: dict[str, tuple[Form, ...]] = field(default_factory=dict)
    """Where each tensor of scores is reached in each dimension, over the loops of the scores."""
    extents: dict[str, int] = field(default_factory=dict)

    def read(self, stages: Sequence[Contraction]) -> BackwardRoles:
        """Which is which; Unsupported where one is not there."""
        products = {item.targets[0].tensor: item for item in stages if is_product(item)}
        weigh, steepen = (item for item in stages if not is_product(item))
        if any(item.sign != "=" or item.condition is not None for item in (weigh, steepen)):
            raise Unsupported("a map is none")
        read = [item for item in walk_terms(weigh) if isinstance(item, Element) and item.tensor in products]
        scores = products[read[0].tensor] if read else stages[0]
        self.extents = extents_of(scores)
        target = scores.targets[0]
        same: dict[str, Form] = {name: Affine(0, ((name, 1),)) for name in self.extents}
        self.places[target.tensor] = self._place(target, scores, same)
        logs, scale, masked = self._read_weights(weigh, target.tensor)
        weights, steep = weigh.targets[0].tensor, steepen.targets[0].tensor
        toward, along, factor = self._read_score_gradient(steepen, weights)
        rows = [(weigh, self._loops(weigh, [target.tensor]))]
        query, key, depth = self._loops_of(scores)
        visible = find_visible(rows, key, weights)
        diagonal: Form = Affine(0, ((query, 1),))
        if masked and visible != VisibleKeys(KeyBound(diagonal)):
            raise Unsupported("its mask is not that of what comes later")
        queries, keys = self._factors(scores, key, depth)
        given, values = self._factors(products[toward], key, WIDTH)
        outer = [name for name in self.extents if name not in (query, key, depth, WIDTH)]
        heads = tuple(name for name in outer if name in keys.access.loops())
        sums = [item for name, item in products.items() if name not in (target.tensor, toward)]
        to_queries = self._sum(sums, steep, keys.key, (query, depth))
        to_keys = self._sum(sums, steep, queries.key, (key, depth))
        to_values = self._sum(sums, weights, given.key, (key, WIDTH))
        return BackwardRoles(
            self.extents, query, key, depth, heads, tuple(name for name in outer if name not in heads),
            queries, keys, values, given, logs, along, scale, factor, masked, to_queries, to_keys, to_values,
        )  # fmt: skip

    def _loops(self, formula: Contraction, known: Sequence[str]) -> dict[str, Form]:
        """The loops of a map in those of the scores."""
        read = [item for item in walk_terms(formula) if isinstance(item, Element) and item.tensor in known]
        loops = meet([(item, self.places[item.tensor]) for item in read], extents_of(formula))
        if len(loops) < len(formula.loops):
            raise Unsupported("a map has loops that the scores have not")
        return loops

    def _place(self, element: Element, formula: Contraction, loops: Mapping[str, Form]) -> tuple[Form, ...]:
        return tuple(place_in(item, loops, extents_of(formula)) for item in element.indices)

    def _side(self, element: Element, formula: Contraction, loops: Mapping[str, Form]) -> Operand:
        access = substitute_loops(held_access(element, self.tensors, extents_of(formula)), loops)
        return Operand(access, key_of(element))

    def _read_weights(self, formula: Contraction, scores: str) -> tuple[Operand, float, bool]:
        """`l == -inf ? 0 : exp(c s - l)`."""
        loops = self._loops(formula, [scores])
        value = formula.values[0]
        for item in walk_terms(formula):
            if isinstance(item, Element):
                value = without_guard(formula.values[0], item.tensor, -inf) or value
        if not isinstance(value, Apply) or value.function != "exp":
            raise Unsupported("its weights are no exponentials")
        (rest,) = value.operands
        if not isinstance(rest, Apply) or rest.function != "-" or not isinstance(rest.operands[1], Element):
            raise Unsupported("its weights are no exponentials of differences")
        scale, masked = find_factor(rest.operands[0], scores)
        self.places[formula.targets[0].tensor] = self._place(formula.targets[0], formula, loops)
        return self._side(rest.operands[1], formula, loops), scale, masked

    def _read_score_gradient(self, formula: Contraction, weights: str) -> tuple[str, Operand, float]:
        """`w (t - a) f`: the tensor t, a, and f."""
        loops, factor = self._loops(formula, [weights]), 1.0
        toward, along = "", None
        for item in _flat_factors(formula.values[0]):
            if isinstance(item, int | float) and not isinstance(item, bool):
                factor *= item
            elif isinstance(item, Apply) and item.function == "-" and is_reals(item.operands) and not toward:
                first, second = item.operands
                toward, along = first.tensor, self._side(second, formula, loops)
                self.places[toward] = self._place(first, formula, loops)
            elif not isinstance(item, Element) or item.tensor != weights:
                raise Unsupported("its gradient is another one")
        if along is None or self.places[toward] != self.places[weights]:
            raise Unsupported("its gradient is another one")
        self.places[formula.targets[0].tensor] = self._place(formula.targets[0], formula, loops)
        return toward, along, factor

    def _loops_of(self, scores: Contraction) -> tuple[str, str, str]:
        """The loops of queries, of keys and of the sum."""
        target = scores.targets[0]
        verify_whole(target, self.tensors[key_of(target)].shape, self.extents)
        places = self.places[target.tensor]
        plain = [form for form in places[-2:] if len(form.terms) == 1]
        names = [form.terms[0][0] for form in plain if form.terms[0][1] == 1 and not form.constant]
        summed = [name for name in self.extents if not any(form.coefficient(name) for form in places)]
        if len(names) != 2 or len(summed) != 1:
            raise Unsupported("its scores have no queries and keys")
        return names[0], names[1], summed[0]

    def _factors(self, product: Contraction, key: str, along: str) -> tuple[Operand, Operand]:
        """The operands of a product of the size of scores, that of keys last; its sum gets a name."""
        target, own, value = product.targets[0], extents_of(product), product.values[0]
        loops = meet([(target, self.places[target.tensor])], own)
        inner = [name for name in own if name not in loops]
        if len(inner) != 1 or not isinstance(value, Apply):
            raise Unsupported("it is a product of several sums")
        loops[inner[0]] = Affine(0, ((along, 1),))
        self.extents[along] = own[inner[0]]
        sides = [self._side(item, product, loops) for item in value.operands if isinstance(item, Element)]
        if key in sides[0].access.loops():
            sides.reverse()
        if key in sides[0].access.loops() or key not in sides[1].access.loops():
            raise Unsupported("its factors are not queries and keys")
        return sides[0], sides[1]

    def _sum(self, sums: Sequence[Contraction], weights: str, other: Key, lies: tuple[str, str]) -> Operand:
        """Where the sum of some weights with the vectors of a tensor goes, along a line and a width."""
        for formula in sums:
            value = formula.values[0]
            operands = value.operands if isinstance(value, Apply) else ()
            items = [item for item in operands if isinstance(item, Element)]
            if len(items) != 2 or {weights, other[0]} != {item.tensor for item in items}:
                continue
            own = extents_of(formula)
            loops = meet([(item, self.places[weights]) for item in items if item.tensor == weights], own)
            inner = [name for name in own if name not in loops]
            target = formula.targets[0]
            verify_whole(target, self.tensors[key_of(target)].shape, own)
            if len(inner) != 1 or own[inner[0]] != self.extents[lies[1]]:
                raise Unsupported("a sum has several loops of its own")
            loops[inner[0]] = Affine(0, ((lies[1], 1),))
            side = self._side(target, formula, loops)
            if lies[0] not in side.access.loops():
                raise Unsupported("a sum goes elsewhere")
            return side
        raise Unsupported("a sum is not there")


def _flat_factors(term: Term) -> list[Term]:
    if isinstance(term, Apply) and term.function == "*":
        return [factor for item in term.operands for factor in _flat_factors(item)]
    return [term]
