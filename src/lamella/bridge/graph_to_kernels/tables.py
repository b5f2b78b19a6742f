"""Precomputed tables of terms that only loops decide: indices and weights that are costly and the same at every run.

The place where a resized image is read, `(2 * i + 1) * 56 / 112 - 1`, and its weight are terms of one or two loops,
which stand inside all others. As a stage of its own such a term is computed once for each step of its loops. It reads
nothing, so that it runs once for all calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import count
from math import prod

from lamella.base.dtype import F32, F64, I32, ElementType
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import find_form, find_range
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.inline import cost_of
from lamella.ops.formula import Apply, Contraction, Counter, Element, Guard, Index, Lookup, Loop
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import reachable

LONGEST = 1 << 13
"""Elements of a table."""
LEAST_SHARE = 16
"""So many steps of the formula at least for each element of a table."""
LEAST_COST = 6
"""What a term costs that is worth a load."""
TABLE = "/table"


@dataclass(frozen=True, slots=True)
class Tabulated:
    """A formula that reads tables, the formulas of the tables, and the tensors that they are."""

    formula: Contraction
    tables: tuple[Contraction, ...] = ()
    tensors: Mapping[str, GroupTensor] = field(default_factory=dict)


def tabulate(
    formula: Contraction, order: Sequence[str], tensors: Mapping[str, GroupTensor], wide: bool
) -> Tabulated:
    """The formula with its costly terms in tables, whose last dimension is the last of the loops in `order`."""
    writing = _Tables(formula, order, tensors, F64 if wide else F32)
    found = writing.run()
    return Tabulated(found, tuple(writing.tables), writing.made) if writing.tables else Tabulated(formula)


class _Tables:
    """A formula while its terms are replaced."""

    def __init__(
        self,
        formula: Contraction,
        order: Sequence[str],
        tensors: Mapping[str, GroupTensor],
        real: ElementType,
    ) -> None:
        self.formula, self.order, self.tensors, self.real = formula, order, tensors, real
        self.extents = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
        self.steps = prod(self.extents.values())
        self.tables: list[Contraction] = []
        self.made: dict[str, GroupTensor] = {}
        self.known: dict[int, tuple[Term, Term]] = {}
        """What each term became; the term itself is kept, so that its identity stays its own."""

    def run(self) -> Contraction:
        """Replace what is worth it."""
        formula = self.formula
        values = tuple(self._term(item) for item in formula.values)
        condition = None if formula.condition is None else self._term(formula.condition)
        return Contraction(formula.targets, formula.sign, values, formula.loops, condition)

    def _term(self, term: Term) -> Term:
        if not isinstance(term, Apply | Element | Lookup):
            return term
        if id(term) not in self.known:
            self.known[id(term)] = (term, self._rebuilt(term))
        return self.known[id(term)][1]

    def _rebuilt(self, term: Apply | Element | Lookup) -> Term:
        if isinstance(term, Element):
            shape = self.tensors[term.tensor].shape
            pairs = zip(term.indices, shape, strict=True)
            return Element(
                term.tensor, tuple(self._index(item, size) for item, size in pairs), term.type, term.item
            )
        if isinstance(term, Lookup):
            return Lookup(tuple(map(self._term, term.table)), self._term(term.index), term.type)
        loops = self._loops(term)
        if loops is not None:
            return self._look_up(term, loops)
        return Apply(term.function, tuple(map(self._term, term.operands)), term.type)

    def _index(self, index: Term | Guard, size: int) -> Term | Guard:
        """An index; a guarded one that is replaced outside becomes its replacement."""
        if not isinstance(index, Guard):
            return self._term(index)
        if index.below is None or index.above is None:
            return Guard(self._term(index.index), index.below, index.above)
        last = Apply("?:", (Apply(">", (index.index, size - 1), "bool"), index.above, index.index), "int")
        place = Apply("?:", (Apply("<", (index.index, 0), "bool"), index.below, last), "int")
        loops = self._loops(place) if find_form(index.index, self.extents) is None else None
        inner = find_range(index.below, self.extents), find_range(index.above, self.extents)
        inside = all(item is not None and item[0] >= 0 and item[1] < size for item in inner)
        return index if loops is None or not inside else self._look_up(place, loops, (0, size - 1))

    # --- what a table may hold ------------------------------------------------------------------------------

    def _loops(self, term: Apply) -> tuple[str, ...] | None:
        """The loops of a term that a table can hold; None where it is not worth one."""
        if term.type not in ("int", "real") or self._is_affine(term):
            return None
        inside = list(reachable(term))
        if any(isinstance(item, Element | Counter | Guard) for item in inside):
            return None
        if any(self._may_fail(item) for item in inside):
            return None
        names = {item.name for item in inside if isinstance(item, Index)}
        loops = tuple(name for name in self.order if name in names)
        volume = prod(self.extents.get(name, 0) for name in loops)
        cost = sum(cost_of(item) for item in inside if isinstance(item, Apply) and not self._is_affine(item))
        # Another call may take more steps, and shall run the same code.
        most = LONGEST if is_open(self.steps) else min(LONGEST, self.steps // LEAST_SHARE)
        if len(loops) < len(names) or is_open(volume) or not 0 < volume <= most:
            return None
        return loops if cost >= LEAST_COST and loops else None

    def _is_affine(self, term: Apply) -> bool:
        return term.type == "int" and find_form(term, self.extents) is not None

    def _may_fail(self, term: object) -> bool:
        """Whether a term may have no value: it would be computed for steps too that nothing takes."""
        if not isinstance(term, Apply) or term.type != "int" or term.function not in ("/", "\\", "%"):
            return False
        divisor = find_range(term.operands[1], self.extents)
        return divisor is None or divisor[0] <= 0 <= divisor[1]

    def _name(self) -> str:
        """A name that no table has: another formula with the same target may have tables of its own."""
        stem = f"{self.formula.targets[0].tensor}{TABLE}"
        names = (f"{stem}{number}" for number in count())
        return next(name for name in names if name not in self.tensors and name not in self.made)

    def _look_up(self, term: Apply, loops: Sequence[str], ends: tuple[int, int] | None = None) -> Term:
        name = self._name()
        range_ = find_range(term, self.extents) if term.type == "int" else None
        span = ends or range_
        if term.type == "int" and (span is None or not -(1 << 31) < span[0] <= span[1] < 1 << 31):
            return Apply(term.function, tuple(map(self._term, term.operands)), term.type)
        found = Element(name, tuple(Index(item) for item in loops), term.type)
        shape = tuple(self.extents[item] for item in loops)
        self.made[name] = GroupTensor(name, I32 if term.type == "int" else self.real, shape)
        self.tables.append(
            Contraction((found,), "=", (term,), tuple(Loop(item, self.extents[item]) for item in loops))
        )
        if span is None or term.type != "int":
            return found
        # What is loaded is not known to be in the range that it was computed in.
        return Apply("<<", (Apply(">>", (found, span[0]), "int"), span[1]), "int")
