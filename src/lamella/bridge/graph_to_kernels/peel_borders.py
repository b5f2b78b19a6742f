"""Loop peeling at borders (index-set splitting): formulas without the bounds tests that inner steps do not need.

`y[i] >= x[|2 * i + j - 1|]` tests its index in every step, and fails at the first and the last `i` only. Split there,
the inner steps have an index that stays inside. A tested index whose other loops are open already becomes the bounds of
a loop instead, from `max(0, 2 * i - 1)` up to `min(n, 2 * i - 1 + k)`: what would be skipped is not reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lamella.base.affine import Affine
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form, find_form, find_range
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup, Loop
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import operands

LEAST_INSIDE = 32
"""Steps without tests that are worth code of their own."""
Key = tuple[str, int | None]
Shapes = Mapping[Key, tuple[int, ...]]
"""The shapes of tensors by name and item of a pack."""


def peel_borders(formula: Contraction, lane: str, shapes: Shapes) -> list[Contraction]:
    """The formula over the first, the inner and the last steps of a loop, whichever there are; or unchanged."""
    extents = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
    if any(isinstance(item, Guard) for target in formula.targets for item in target.indices):
        return [formula]
    low, high = 0, extents[lane]
    for guard, size in guards_of(formula, shapes):
        form = find_form(guard.index, extents)
        if form is None or not form.coefficient(lane) or _is_within(form, extents, size):
            continue
        first, last = _inside(form, lane, extents, size)
        low, high = max(low, first), min(high, last)
    if high - low < LEAST_INSIDE or high - low == extents[lane]:
        return [formula]
    ends = [(0, low), (low, high), (high, extents[lane])]
    return [_Shift(formula, lane, begin, end - begin, shapes).run() for begin, end in ends if begin < end]


def eliminate_guards(formula: Contraction, shapes: Shapes) -> Contraction:
    """The formula without guards that are proved: terms for tested indices that are replaced outside.

    `x[|i - 3 <> 3 - i : 225 - i|]` is `x[i < 3 ? 3 - i : i - 3 > 111 ? 225 - i : i - 3]`: no step has to be told apart
    any more, and the index is computed where its loops are.
    """
    replaced = [item for item, _ in guards_of(formula, shapes) if None not in (item.below, item.above)]
    lane = formula.loops[0] if formula.loops else None
    if not replaced or lane is None or not isinstance(lane.extent, int):
        return formula
    return _Shift(formula, lane.index, 0, lane.extent, shapes, settling=True).run()


def _replaced_place(guard: Guard, size: int, extents: Mapping[str, int]) -> Term | None:
    """The place that a tested index is replaced by outside, or is; None where it may be outside after all."""
    form = find_form(guard.index, extents)
    if form is None or guard.below is None or guard.above is None:
        return None
    low, high = form.bounds({name: (0, extents[name] - 1) for name, _ in form.terms})
    sides = [(guard.below, low, min(high, -1)), (guard.above, max(low, size), high)]
    if not all(_stays_inside(side, form, (first, last), size, extents) for side, first, last in sides):
        return None
    if high < 0 or low >= size:
        return guard.below if high < 0 else guard.above
    found: Term = guard.index
    if high >= size and guard.above != size - 1:
        found = Apply("?:", (Apply(">", (guard.index, size - 1), "bool"), guard.above, found), "int")
    if low < 0 and guard.below != 0:
        found = Apply("?:", (Apply("<", (guard.index, 0), "bool"), guard.below, found), "int")
    # Held between both ends, it is known to be inside.
    return Apply("<<", (Apply(">>", (found, 0), "int"), size - 1), "int")


def _stays_inside(
    side: Term, form: Form, span: tuple[int, int], size: int, extents: Mapping[str, int]
) -> bool:
    """Whether what replaces an index stays inside while the index is in a span, none where that is empty."""
    if span[0] > span[1]:
        return True
    other = find_form(side, extents)
    if other is None:
        return False
    if not other.terms:
        return 0 <= other.constant < size
    name, factor = other.terms[0]
    whole, rest = divmod(factor, form.coefficient(name) or 1)
    left = other.plus(form, -whole)
    if rest or left.terms or not form.coefficient(name):
        return False
    ends = [whole * end + left.constant for end in span]
    return min(ends) >= 0 and max(ends) < size


def guards_of(formula: Contraction, shapes: Shapes) -> Iterator[tuple[Guard, int]]:
    """The guards of a formula: tested indices with the sizes that they are tested against."""
    for element in _elements(formula):
        shape = shapes.get(_key(element))
        for index, size in zip(element.indices, shape or (), strict=False):
            if isinstance(index, Guard):
                yield index, size


def _key(element: Element) -> Key:
    """The tensor of an element; of a pack whose tensor the run picks, none."""
    return element.tensor, element.item if isinstance(element.item, int) else None


def _elements(formula: Contraction) -> Iterator[Element]:
    done: set[int] = set()
    waiting: list[object] = [*formula.targets, *formula.values, formula.condition]
    while waiting:
        term = waiting.pop()
        if id(term) not in done:
            done.add(id(term))
            waiting += operands(term)
            if isinstance(term, Element):
                yield term


def _is_within(form: Form, extents: Mapping[str, int], size: int) -> bool:
    low, high = form.bounds({name: (0, extents[name] - 1) for name, _ in form.terms})
    return low >= 0 and high < size


def _inside(form: Form, lane: str, extents: Mapping[str, int], size: int) -> tuple[int, int]:
    """The steps of a loop in which an index stays inside, whatever the others count."""
    factor = form.coefficient(lane)
    rest = Affine(form.constant, tuple(item for item in form.terms if item[0] != lane))
    low, high = rest.bounds({name: (0, extents[name] - 1) for name, _ in rest.terms})
    # low + factor * i >= 0 and high + factor * i <= size - 1
    ends = (-low, size - 1 - high) if factor > 0 else (high - size + 1, low)
    step = abs(factor)
    return max(0, -(-ends[0] // step)), ends[1] // step + 1


class _Shift:
    """A formula over some steps of one of its loops: its index counts from the first of them."""

    def __init__(
        self,
        formula: Contraction,
        lane: str,
        begin: int,
        length: int,
        shapes: Shapes,
        settling: bool = False,
    ) -> None:
        self.formula, self.lane, self.shapes = formula, lane, shapes
        self.settling = settling
        self.loops = tuple(
            Loop(loop.index, length if loop.index == lane else loop.extent) for loop in formula.loops
        )
        self.extents = {loop.index: loop.extent for loop in self.loops if isinstance(loop.extent, int)}
        self.index: Term = Apply("+", (Index(lane), begin), "int") if begin else Index(lane)
        # Terms are told apart by identity, so what is one term stays one.
        self.known: dict[int, tuple[Term, Term]] = {}

    def run(self) -> Contraction:
        """Replace the index everywhere."""
        formula = self.formula
        targets = tuple(self._element(item) for item in formula.targets)
        values = tuple(self._term(item) for item in formula.values)
        condition = None if formula.condition is None else self._term(formula.condition)
        return Contraction(targets, formula.sign, values, self.loops, condition)

    def _term(self, term: Term) -> Term:
        if isinstance(term, Index):
            return self.index if term.name == self.lane else term
        if not isinstance(term, Apply | Element | Lookup):
            return term
        if id(term) not in self.known:
            self.known[id(term)] = (term, self._rebuilt(term))
        return self.known[id(term)][1]

    def _rebuilt(self, term: Apply | Element | Lookup) -> Term:
        if isinstance(term, Element):
            return self._element(term)
        if isinstance(term, Lookup):
            return Lookup(tuple(map(self._term, term.table)), self._term(term.index), term.type)
        return Apply(term.function, tuple(map(self._term, term.operands)), term.type)

    def _element(self, element: Element) -> Element:
        shape = self.shapes.get(_key(element), (0,) * len(element.indices))
        indices = tuple(
            self._guard(item, size) if isinstance(item, Guard) else self._term(item)
            for item, size in zip(element.indices, shape, strict=True)
        )
        item = None if element.item is None else self._term(element.item)
        return Element(element.tensor, indices, element.type, item)

    def _guard(self, guard: Guard, size: int) -> Guard | Term:
        """A tested index, plain where no step fails."""
        index = self._term(guard.index)
        found = find_range(index, self.extents)
        if found is not None and found[0] >= 0 and found[1] < size:
            return index
        sides = [None if side is None else self._term(side) for side in (guard.below, guard.above)]
        whole = Guard(index, *sides)
        settled = _replaced_place(whole, size, self.extents) if self.settling else None
        return whole if settled is None else settled


@dataclass(frozen=True, slots=True)
class Window:
    """A loop that only a tested index counts, always the same one: the loop can run over the index itself."""

    loop: str
    base: Form
    """The index where the loop is at its first step."""
    size: int
    guards: tuple[Guard, ...]


def find_windows(
    formula: Contraction, loops: Sequence[str], lane: str | None, shapes: Shapes
) -> dict[str, Window]:
    """The windows among some loops, those inside the lanes; an index that the lanes count tells each apart."""
    extents = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
    found: dict[str, Window] = {}
    tested = [
        (guard, size, form)
        for guard, size in guards_of(formula, shapes)
        if guard.below is None and guard.above is None
        if (form := find_form(guard.index, extents)) is not None
    ]
    for loop in loops:
        mine = [item for item in tested if item[2].coefficient(loop)]
        kinds = {(form, size) for _, size, form in mine}
        others = _counted(formula, loop, {id(guard.index) for guard, _, _ in mine})
        if len(kinds) != 1 or others:
            continue
        ((form, size),) = kinds
        base = Affine(form.constant, tuple(item for item in form.terms if item[0] != loop))
        outside = not any(name == lane or name in loops for name, _ in base.terms)
        if form.coefficient(loop) == 1 and outside and not _is_within(form, extents, size):
            found[loop] = Window(loop, base, size, tuple(guard for guard, _, _ in mine))
    return found


def _counted(formula: Contraction, loop: str, but: set[int]) -> bool:
    """Whether a loop is counted by anything but some terms."""
    done: set[int] = set()
    waiting: list[object] = [*formula.targets, *formula.values, formula.condition]
    while waiting:
        term = waiting.pop()
        if isinstance(term, Index) and term.name == loop:
            return True
        if id(term) not in done and id(term) not in but:
            done.add(id(term))
            waiting += operands(term)
    return False
