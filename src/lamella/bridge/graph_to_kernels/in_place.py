"""In-place updates of states (KV caches): an operation that keeps most of a state writes the rest, and copies nothing.

    y[i, j] = 0 <= j - s < n ? x[i, j - s] : state[i, j]      becomes      state[i, s + t] = x[i, t],  t < n

What the operation overwrites it saves first, so that a run that fails leaves its states as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.graph.nodes import Graph, Operation, tensors
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup, Loop, Scalar
from lamella.ops.lower import reachable

UNDO = ".undo"
"""The temporary that holds what was overwritten."""


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """An operation whose output is the next value of a state that no other operation reads."""

    operation: Operation
    state: str
    value: str


def find_updates(graph: Graph) -> Iterator[StateUpdate]:
    """The operations that could update a state in place, if their formulas allow it."""
    operations = [node for node in graph.nodes if isinstance(node, Operation)]
    made = {item.name: one for one in operations if len(one.outputs) == 1 for item in tensors(one.outputs[0])}
    readers = Counter(
        name
        for one in operations
        for name in {item.name for argument in one.inputs for item in tensors(argument)}
    )
    leaving = [item.name for argument in graph.outputs for item in tensors(argument)]
    leaving += [item.value.name for item in graph.updates]
    for item in graph.updates if len(operations) == len(graph.nodes) else ():
        state, value = item.variable.name, item.value.name
        node = made.get(value)
        if node is None or readers[state] != 1 or leaving.count(value) != 1 or state in leaving:
            continue
        if state in {given.name for argument in node.inputs for given in tensors(argument)}:
            yield StateUpdate(node, state, value)


@dataclass(frozen=True, slots=True)
class Put:
    """The assignment of new values into a state, and the names of the operands that say where."""

    formula: Contraction
    where: frozenset[str]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of what is overwritten."""
        return tuple(loop.extent for loop in self.formula.loops if isinstance(loop.extent, int))

    def save(self, state: str) -> Contraction:
        """The formula that saves what is overwritten."""
        (place,) = self.formula.targets
        return replace(self.formula, targets=(self._saved,), values=(replace(place, tensor=state),))

    def restore(self) -> Contraction:
        """The formula that restores it."""
        return replace(self.formula, values=(self._saved,))

    @property
    def _saved(self) -> Element:
        (place,) = self.formula.targets
        return Element(UNDO, tuple(Index(loop.index) for loop in self.formula.loops), place.type)


def find_put(formula: Contraction, kept: str) -> Put:
    """The assignment of new values by a formula that keeps the rest of a tensor; Unsupported where it does more."""
    value = formula.values[0]
    if formula.sign != "=" or formula.condition is not None or len(formula.targets) != 1:
        raise Unsupported("it is no plain assignment")
    (target,) = formula.targets
    loops = {loop.index: loop.extent for loop in formula.loops}
    names = [item.name for item in target.indices if isinstance(item, Index)]
    if not isinstance(value, Apply) or value.function != "?:" or sorted(names) != sorted(loops):
        raise Unsupported("it does not choose between old and new")
    chosen, new, old = value.operands
    same = isinstance(old, Element) and old.tensor == kept and old.indices == target.indices
    if not same or any(isinstance(item, Element) and item.tensor == kept for item in reachable(chosen, new)):
        raise Unsupported("it reads the state elsewhere too")
    found = _along_window(formula, chosen, new)
    (place,) = found.targets
    read = reachable(*(item for item in place.indices if not isinstance(item, Guard)), found.condition)
    return Put(found, frozenset(item.tensor for item in read if isinstance(item, Element)))


def _along_window(formula: Contraction, chosen: Scalar, new: Scalar) -> Contraction:
    """The assignment in loops over what is new: `0 <= j - s < n` makes `t < n` of a loop `j = s + t`."""
    tests = chosen.operands if isinstance(chosen, Apply) and chosen.function == "&&" else ()
    low, high = (_test(tests, sign) for sign in (">=", "<"))
    if len(tests) != 2 or low is None or high is None or low[1] != 0 or low[0] != high[0]:
        return replace(formula, values=(new,), condition=chosen)
    moved, count = low[0], high[1]
    if not isinstance(moved, Apply) or moved.function != "-" or not isinstance(count, int):
        return replace(formula, values=(new,), condition=chosen)
    index, start = moved.operands
    if not isinstance(index, Index) or any(isinstance(item, Index) for item in reachable(start)):
        return replace(formula, values=(new,), condition=chosen)
    place = Apply("+", (index, start), "int")
    extent = next(loop.extent for loop in formula.loops if loop.index == index.name)
    if not isinstance(extent, int):
        raise Unsupported("an extent is not known")
    (target,) = formula.targets
    inside = (Apply(">=", (place, 0), "bool"), Apply("<", (place, extent), "bool"))
    return replace(
        formula,
        targets=(
            replace(target, indices=tuple(place if item == index else item for item in target.indices)),
        ),
        values=(_Moving(moved, index, place).scalar(new),),
        loops=tuple(Loop(item.index, count) if item.index == index.name else item for item in formula.loops),
        condition=Apply("&&", inside, "bool"),
    )


def _test(tests: tuple[Scalar, ...], sign: str) -> tuple[Scalar, Scalar] | None:
    found = [item for item in tests if isinstance(item, Apply) and item.function == sign]
    return (found[0].operands[0], found[0].operands[1]) if len(found) == 1 else None


class _Moving:
    """Rebuilds terms in which a loop counts from another place on."""

    def __init__(self, moved: Apply, index: Index, place: Apply) -> None:
        self._moved, self._index, self._place = moved, index, place
        self._known: dict[int, Scalar] = {}

    def scalar(self, term: Scalar) -> Scalar:
        """A term with the loop moved."""
        if term == self._index:
            return self._place
        if not isinstance(term, Apply | Element | Lookup):
            return term
        if id(term) not in self._known:
            self._known[id(term)] = self._rebuilt(term)
        return self._known[id(term)]

    def _rebuilt(self, term: Apply | Element | Lookup) -> Scalar:
        if isinstance(term, Apply):
            if term.function == "-" and term == self._moved:
                return self._index
            return replace(term, operands=tuple(self.scalar(item) for item in term.operands))
        if isinstance(term, Lookup):
            return replace(term, index=self.scalar(term.index))
        return replace(term, indices=tuple(self._at(item) for item in term.indices))

    def _at(self, index: Scalar | Guard) -> Scalar | Guard:
        if not isinstance(index, Guard):
            return self.scalar(index)
        return replace(index, index=self.scalar(index.index))
