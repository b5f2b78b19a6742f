"""Sampling (`grid_sample`, resizing): places and weights that cost more than the products are hoisted.

    y[c, i] += w(i, j) * x[c, |p(i, j)|],  j < 2

computes places and weights again for every channel `c`. With some channels inside the lanes, and the sum unrolled,

    y[c, i] = (p0 is inside ? w(i, 0) * x[c, p0] : 0) + (p1 is inside ? w(i, 1) * x[c, p1] : 0)

they are terms of `i` alone, loop-invariant in `c`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from lamella.bridge.graph_to_kernels.affine import find_form, find_range
from lamella.bridge.graph_to_kernels.inline import cost_of
from lamella.bridge.graph_to_kernels.terms import TensorView, stored_type
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import Fuse
from lamella.lang.tensor.nodes.types import make_memref
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import operands

LEAST_COST = 12
"""What terms cost in each lane that are worth a loop inside the lanes."""
MOST_STEPS = 4
"""Steps of a sum that are written out."""
LONGEST = 16
"""Steps of the loop inside the lanes: each goes through memory of its own."""
Key = tuple[str, int | None]
Views = Mapping[Key, TensorView]


def find_shared_loop(
    formula: Contraction, lane: str, loops: Sequence[str], inner: Sequence[str]
) -> str | None:
    """The loop in which the costliest terms are invariant; None where they cost little."""
    extents = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
    if formula.sign != "+=" or len(formula.targets) != 1 or formula.condition is not None:
        return None
    if prod(extents[name] for name in inner) > MOST_STEPS or not inner:
        return None
    known = _dependencies(formula.values)
    if any(
        isinstance(term, Guard) and (term.below is None) != (term.above is None) for term, _ in known.values()
    ):
        return None
    costs = {
        name: sum(
            _cost(term, extents) * prod(extents[item] for item in inner if item in found)
            for term, found in known.values()
            if lane in found and name not in found
        )
        for name in loops
        if block_of(extents[name]) > 1
    }
    best = max(costs, key=lambda name: costs[name], default=None)
    return best if best is not None and costs[best] >= LEAST_COST else None


def block_of(extent: int) -> int:
    """Steps of a loop that run inside the lanes at a time."""
    return max(size for size in range(1, LONGEST + 1) if extent % size == 0)


def _dependencies(values: Sequence[Term]) -> dict[int, tuple[object, frozenset[str]]]:
    """Every term by its identity, with the loops that it depends on."""
    known: dict[int, tuple[object, frozenset[str]]] = {}
    waiting: list[tuple[object, bool]] = [(item, False) for item in values]
    while waiting:
        term, ready = waiting.pop()
        if id(term) in known:
            continue
        if not ready:
            waiting.append((term, True))
            waiting += [(item, False) for item in operands(term)]
            continue
        own = frozenset([term.name]) if isinstance(term, Index) else frozenset()
        known[id(term)] = term, own.union(*(known[id(item)][1] for item in operands(term)))
    return known


def _cost(term: object, extents: Mapping[str, int]) -> int:
    if isinstance(term, Element):
        return 1
    if not isinstance(term, Apply) or (term.type == "int" and find_form(term, extents) is not None):
        return 0
    return cost_of(term)


# --- places as one number ------------------------------------------------------------------------------------


def fuse_places(formula: Contraction, views: Views, builder: Builder) -> tuple[Contraction, Views]:
    """The formula with gathered places in the last dimensions linearized, computed before the loop.

    The tensor is the same memory with those dimensions fused.
    """
    extents = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
    counts: dict[Key, set[int]] = {}
    for element in _elements(formula.values[0]):
        indices = list(element.indices)
        while indices and not isinstance(indices[-1], Guard) and find_form(indices[-1], extents) is None:
            indices.pop()
        counts.setdefault(_key_of(element), set()).add(len(element.indices) - len(indices))
    fused: dict[Key, int] = {}
    found = dict(views)
    for key, count in counts.items():
        view = views[key]
        if len(count) == 1 and min(count) > 1 and view.layout is None and key[1] is None:
            fused[key] = min(count)
            found[key] = _fused_view(view, min(count), builder)
    if not fused:
        return formula, views
    value = _FusedPlaces(fused, {key: item.shape for key, item in views.items()}).term(formula.values[0])
    return replace(formula, values=(value,)), found


def _key_of(element: Element) -> Key:
    return element.tensor, element.item if isinstance(element.item, int) else None


def _fused_view(view: TensorView, count: int, builder: Builder) -> TensorView:
    shape = *view.shape[:-count], prod(view.shape[-count:])
    type_ = make_memref(stored_type(view.element), shape[::-1])
    return replace(view, memref=builder.value(Fuse(view.memref, 0, count - 1, type_)), shape=shape)


class _FusedPlaces:
    """Terms while the last indices of some tensors become one."""

    def __init__(self, counts: Mapping[Key, int], shapes: Mapping[Key, tuple[int, ...]]) -> None:
        self.counts, self.shapes = counts, shapes
        self.known: dict[int, Term] = {}
        self.places: dict[tuple[int, ...], Term] = {}
        """By the identity of the indices."""

    def term(self, term: Term) -> Term:
        """A term with fused indices."""
        if not isinstance(term, Apply | Element | Lookup):
            return term
        if id(term) not in self.known:
            self.known[id(term)] = self._rebuilt(term)
        return self.known[id(term)]

    def _rebuilt(self, term: Apply | Element | Lookup) -> Term:
        if isinstance(term, Apply):
            return replace(term, operands=tuple(map(self.term, term.operands)))
        count = 0 if isinstance(term, Lookup) else self.counts.get(_key_of(term), 0)
        if isinstance(term, Lookup) or not count:
            return term
        plain = [item for item in term.indices[-count:] if not isinstance(item, Guard)]
        key = tuple(map(id, plain))
        if key not in self.places:
            place = plain[0]
            for index, size in zip(plain[1:], self.shapes[_key_of(term)][1 - count :], strict=True):
                place = Apply("+", (Apply("*", (place, size), "int"), index), "int")
            self.places[key] = place
        return replace(term, indices=(*term.indices[:-count], self.places[key]))


# --- sums that are written out ------------------------------------------------------------------------------


def write_out(
    formula: Contraction, inner: Sequence[str], shapes: Mapping[Key, tuple[int, ...]]
) -> Contraction:
    """The formula with some loops unrolled into one sum; a step that is skipped adds nothing."""
    extents = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
    rest = {name: extent for name, extent in extents.items() if name not in inner}
    writing = _WritingOut(formula.values[0], formula.targets[0].type, rest, shapes)
    steps = product(*(range(extents[name]) for name in inner))
    values = [writing.step(dict(zip(inner, places, strict=True))) for places in steps]
    total = values[0]
    for value in values[1:]:
        total = Apply("+", (total, value), formula.targets[0].type)
    loops = tuple(loop for loop in formula.loops if loop.index not in inner)
    return replace(formula, values=(total,), loops=loops)


class _WritingOut:
    """The value of a formula while it is written out for steps of some loops."""

    def __init__(
        self, value: Term, type_: str, extents: Mapping[str, int], shapes: Mapping[Key, tuple[int, ...]]
    ) -> None:
        self.value, self.type, self.extents, self.shapes = value, type_, extents, shapes
        self.loops = {key: found for key, (_, found) in _dependencies([value]).items()}
        self.known: dict[object, Term] = {}
        """What a term is in a step, by its identity and the places of those loops that it depends on."""
        self.places: Mapping[str, int] = {}
        self.tests: dict[object, Term] = {}

    def step(self, places: Mapping[str, int]) -> Term:
        """The value of one step, or 0."""
        self.places = places
        found = self._term(self.value)
        tests = [
            test
            for item in _elements(self.value)
            for index, size in zip(item.indices, self._shape(item), strict=True)
            if isinstance(index, Guard)
            for test in self._tests(index, size)
        ]
        if not tests:
            return found
        inside = tests[0]
        for test in tests[1:]:
            inside = Apply("&&", (inside, test), "bool")
        return Apply("?:", (inside, found, 0.0 if self.type == "real" else 0), self.type)

    def _shape(self, element: Element) -> tuple[int, ...]:
        return self.shapes[element.tensor, element.item if isinstance(element.item, int) else None]

    def _key(self, term: object) -> object:
        names = sorted(self.loops.get(id(term), frozenset()) & set(self.places))
        return id(term), *((name, self.places[name]) for name in names)

    def _term(self, term: Term) -> Term:
        if isinstance(term, Index):
            return self.places.get(term.name, term)
        if not isinstance(term, Apply | Element | Lookup):
            return term
        key = self._key(term)
        if key not in self.known:
            self.known[key] = self._rebuilt(term)
        return self.known[key]

    def _rebuilt(self, term: Apply | Element | Lookup) -> Term:
        if isinstance(term, Apply):
            return Apply(term.function, tuple(map(self._term, term.operands)), term.type)
        if isinstance(term, Lookup):
            return Lookup(tuple(map(self._term, term.table)), self._term(term.index), term.type)
        pairs = zip(term.indices, self._shape(term), strict=True)
        return replace(term, indices=tuple(self._index(index, size) for index, size in pairs))

    def _index(self, index: Term | Guard, size: int) -> Term | Guard:
        """An index of an element, held inside where it is tested: what it then gives is not taken."""
        if not isinstance(index, Guard):
            return self._term(index)
        inner = self._term(index.index)
        if index.below is not None and index.above is not None:
            return Guard(inner, self._term(index.below), self._term(index.above))
        if self._is_within(inner, size):
            return inner
        key = "held", self._key(index.index), size
        if key not in self.known:
            self.known[key] = Apply("<<", (Apply(">>", (inner, 0), "int"), size - 1), "int")
        return self.known[key]

    def _tests(self, guard: Guard, size: int) -> Iterator[Term]:
        if guard.below is not None and guard.above is not None:
            return
        inner = self._term(guard.index)
        if self._is_within(inner, size):
            return
        for sign, bound in ((">=", 0), ("<", size)):
            key = sign, self._key(guard.index), bound
            if key not in self.tests:
                self.tests[key] = Apply(sign, (inner, bound), "bool")
            yield self.tests[key]

    def _is_within(self, index: Term, size: int) -> bool:
        found = find_range(index, self.extents)
        return found is not None and found[0] >= 0 and found[1] < size


def _elements(value: Term) -> Iterator[Element]:
    return (term for term, _ in _dependencies([value]).values() if isinstance(term, Element))
