"""A formula as a row of cells: each term once, after the terms it is made of, with what is known before the run.

Terms may share parts and may be deep, so nothing here calls itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import NamedTuple, TypeGuard

from lamella.backend.formula.affine import Form, span
from lamella.base.affine import Affine, combine
from lamella.base.dim import Dim, Logic, Test
from lamella.base.limits import in_range
from lamella.base.records import dataclass
from lamella.lang.skriptnd.rules.graphs import INTEGER_TOO_WIDE, NO_MEANING
from lamella.ops.fault import Fault
from lamella.ops.formula import MOST_LOOPS, Apply, Contraction, Counter, Element, Guard, Index, Lookup, Scalar


class SubscriptCells(NamedTuple):
    """One index of an access: its cell, whether it is tested, and the cells that replace it outside."""

    at: int
    guarded: bool = False
    below: int | None = None
    above: int | None = None

    @property
    def skips(self) -> bool:
        """Whether a step is skipped where the index is outside, on one side at least."""
        return self.guarded and (self.below is None or self.above is None)


class TensorAccess(NamedTuple):
    """An element of a tensor: its name, the number of the pack's item or the cell that computes it, its indices."""

    tensor: str
    places: tuple[SubscriptCells, ...]
    item: int | None = None
    picked: int | None = None


@dataclass(frozen=True, slots=True)
class TermCell:
    """One term with the numbers of the cells it needs; `form` where it is affine in the loop indices."""

    term: Scalar
    operands: tuple[int, ...] = ()
    form: Form | None = None
    access: TensorAccess | None = None
    axes: frozenset[int] = frozenset()


@dataclass(slots=True)
class ExpressionDag:
    """The cells of one contraction; a cell stands after its operands."""

    loops: tuple[tuple[str, int], ...]
    cells: list[TermCell] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)

    def __getitem__(self, number: int) -> TermCell:
        return self.cells[number]

    def add(self, root: Scalar) -> int:
        """The number of a term's cell; the cells it needs are made first."""
        waiting: list[tuple[Scalar, bool]] = [(root, False)]
        while waiting:
            term, ready = waiting.pop()
            if id(term) in self.numbers:
                continue
            if ready:
                self.numbers[id(term)] = len(self.cells)
                self.cells.append(self._make(term))
            else:
                waiting.append((term, True))
                waiting += [(part, False) for part in reversed(list(_parts(term)))]
        return self.numbers[id(root)]

    def access(self, element: Element) -> TensorAccess:
        """An access whose parts have their cells."""
        places = tuple(self._place(index) for index in element.indices)
        if element.item is None or _is_integer(element.item):
            return TensorAccess(element.tensor, places, element.item if _is_integer(element.item) else None)
        return TensorAccess(element.tensor, places, picked=self.add(element.item))

    def needed(self, roots: Iterable[int]) -> tuple[int, ...]:
        """The cells to compute for some roots, in order; an affine cell needs no others."""
        found: set[int] = set()
        waiting = list(roots)
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                if self.cells[number].form is None:
                    waiting += self._inputs(self.cells[number])
        return tuple(sorted(found))

    def access_inputs(self, access: TensorAccess) -> Iterator[int]:
        """The cells that must be computed to find the place of an access: affine indices need not."""
        if access.picked is not None:
            yield access.picked
        for place in access.places:
            remapped = place.below is not None or place.above is not None
            if remapped or self.cells[place.at].form is None:
                yield place.at
            yield from (number for number in (place.below, place.above) if number is not None)

    def _inputs(self, cell: TermCell) -> Iterable[int]:
        return cell.operands if cell.access is None else self.access_inputs(cell.access)

    def _place(self, index: Scalar | Guard) -> SubscriptCells:
        if not isinstance(index, Guard):
            return SubscriptCells(self.add(index))
        below, above = (None if side is None else self.add(side) for side in (index.below, index.above))
        return SubscriptCells(self.add(index.index), True, below, above)

    def _make(self, term: Scalar) -> TermCell:
        if isinstance(term, Index):
            axis = next((axis for axis, (name, _) in enumerate(self.loops) if name == term.name), None)
            index = Affine(0) if axis is None else Affine(0, ((axis, 1),))
            return TermCell(term, form=index, axes=index.symbols)
        if isinstance(term, Counter):
            return TermCell(term, axes=frozenset(range(len(self.loops))))
        if isinstance(term, Element):
            access = self.access(term)
            return TermCell(term, access=access, axes=self.axes_of(access))
        operands = tuple(self.numbers[id(part)] for part in _parts(term))
        axes = frozenset[int]().union(*(self.cells[number].axes for number in operands))
        form = self._form(term, operands)
        return TermCell(_checked(term), operands, form, axes=axes if form is None else form.symbols)

    def axes_of(self, access: TensorAccess) -> frozenset[int]:
        """The axes along which the place of an access varies."""
        numbers = [place.at for place in access.places]
        numbers += [number for place in access.places for number in place[2:] if number is not None]
        numbers += [] if access.picked is None else [access.picked]
        return frozenset[int]().union(*(self.cells[number].axes for number in numbers))

    def _form(self, term: Scalar, operands: tuple[int, ...]) -> Form | None:
        if _is_integer(term):
            return Affine(term)
        if not isinstance(term, Apply) or term.type != "int":
            return None
        forms = [self.cells[number].form for number in operands]
        known = [form for form in forms if form is not None]
        if len(known) < len(forms):
            return None
        found = known[0] if term.function == "cast" else combine(term.function, known)
        if found is None:
            return None
        # Loop arithmetic is exact here; where 64 bits would wrap around, arrays do it instead.
        ends = span(found, tuple((0, max(extent, 1)) for _, extent in self.loops))
        return found if all(in_range(end) for end in ends) else None


def _is_integer(term: Scalar | None) -> TypeGuard[int]:
    return isinstance(term, int) and not isinstance(term, bool)


def _checked(term: Scalar) -> Scalar:
    if isinstance(term, Dim | Test | Logic):
        raise Fault(NO_MEANING, reason=f"nothing in this run says what {term} is")
    if _is_integer(term) and not in_range(term):
        raise Fault(INTEGER_TOO_WIDE, bits=term.bit_length())
    return term


def _parts(term: Scalar) -> Iterator[Scalar]:
    """The terms that a term is made of."""
    if isinstance(term, Apply):
        yield from term.operands
    elif isinstance(term, Lookup):
        yield term.index
        yield from term.table
    elif isinstance(term, Element):
        if term.item is not None:
            yield term.item
        for index in term.indices:
            if isinstance(index, Guard):
                yield index.index
                yield from (side for side in (index.below, index.above) if side is not None)
            else:
                yield index


@dataclass(frozen=True, slots=True)
class PreparedFormula:
    """A contraction ready to run: its cells, what they are for, the loops in order."""

    cells: ExpressionDag
    targets: tuple[TensorAccess, ...]
    values: tuple[int, ...]
    condition: int | None
    sign: str
    extents: tuple[int, ...]

    def accesses(self) -> Iterator[TensorAccess]:
        """Every access in the order in which a step makes them: inner ones first, those of the left side last."""
        for cell in self.cells.cells:
            if cell.access is not None:
                yield cell.access
        yield from self.targets


def prepare(contraction: Contraction) -> PreparedFormula:
    """Write a contraction with known extents as cells; a loop of one step is no loop."""
    known = ((loop.index, _known(loop.extent)) for loop in contraction.loops)
    loops = tuple((index, extent) for index, extent in known if extent != 1)
    if len(loops) > MOST_LOOPS:
        raise Fault(NO_MEANING, reason=f"its formula has {len(loops)} loops; at most {MOST_LOOPS} can be run")
    cells = ExpressionDag(loops)
    targets = tuple(_target(cells, target) for target in contraction.targets)
    values = tuple(cells.add(value) for value in contraction.values)
    condition = None if contraction.condition is None else cells.add(contraction.condition)
    return PreparedFormula(
        cells, targets, values, condition, contraction.sign, tuple(size for _, size in loops)
    )


def _target(cells: ExpressionDag, target: Element) -> TensorAccess:
    for part in _parts(target):
        cells.add(part)
    return cells.access(target)


def _known(extent: int | Dim) -> int:
    if isinstance(extent, Dim):
        raise Fault(NO_MEANING, reason=f"nothing in this run says what {extent} is")
    return extent
