"""Flattening and loop collapsing: stages over flat memory, every access one affine form over shared loops.

Loops of different stages are one where they count the same dimension of a tensor that one stage writes and another
reads (or that both read): loop fusion. Loops that are contiguous in every access are collapsed, whatever dimensions
they were: adding two tensors of any rank is one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise

from lamella.base.affine import Affine
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form, find_form
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.maps import ASSIGNMENTS
from lamella.bridge.graph_to_kernels.substitution import TermTable
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup, Scalar
from lamella.ops.lower import reachable


@dataclass(frozen=True, slots=True)
class FlatLayout:
    """Strides and offset of a tensor in flat memory."""

    strides: tuple[int, ...]
    offset: int = 0


def row_major(shape: Sequence[int]) -> FlatLayout:
    """The layout without gaps, the last dimension closest."""
    strides, stride = [1] * len(shape), 1
    for place in reversed(range(len(shape))):
        strides[place] = stride
        stride *= shape[place]
    return FlatLayout(tuple(strides))


def span_of(shape: Sequence[int], layout: FlatLayout) -> int:
    """The span of memory from the start to the last element."""
    last = sum(stride * (size - 1) for stride, size in zip(layout.strides, shape, strict=True))
    return layout.offset + last + 1


@dataclass(frozen=True, slots=True)
class FlatStage:
    """A stage whose elements have one index each, the place in memory."""

    tensor: str
    place: Form
    type: str
    sign: str
    value: Scalar
    condition: Scalar | None
    loops: tuple[str, ...]

    @property
    def is_reduction(self) -> bool:
        """Whether it accumulates."""
        return self.sign not in ASSIGNMENTS

    @property
    def kept(self) -> tuple[str, ...]:
        """The loops that count the target."""
        return tuple(name for name in self.loops if self.place.coefficient(name))

    @property
    def reduced(self) -> tuple[str, ...]:
        """The loops that do not."""
        return tuple(name for name in self.loops if not self.place.coefficient(name))

    def reads(self) -> Iterator[Element]:
        """The elements that it reads."""
        return (item for item in reachable(self.value, self.condition) if isinstance(item, Element))

    def forms(self, table: TermTable) -> Iterator[Form]:
        """The places of all its accesses."""
        yield self.place
        for item in self.reads():
            yield place_of(item, table)


def place_of(element: Element, table: TermTable) -> Form:
    """The place of an element of a flat stage."""
    (index,) = element.indices
    form = None if isinstance(index, Guard) else table.form(index)
    if form is None:
        raise Unsupported("an index is not affine")
    return form


@dataclass(frozen=True, slots=True)
class FlatKernel:
    """Stages that share loops: the rows that all of them count, and the loops inside."""

    stages: tuple[FlatStage, ...]
    rows: tuple[str, ...]
    """Loops that every stage has and none reduces, outermost first."""
    extents: Mapping[str, int]
    table: TermTable


def flatten_stages(
    stages: Sequence[Contraction], tensors: Mapping[str, GroupTensor], layouts: Mapping[str, FlatLayout]
) -> FlatKernel:
    """The stages of one kernel over flat memory; Unsupported where an index is not affine or may be outside."""
    naming = _Naming(stages, tensors)
    names, extents = naming.names()
    table = TermTable(extents)
    found = tuple(
        _Flattening(stage, names[number], tensors, layouts, table).stage()
        for number, stage in enumerate(stages)
    )
    rows = tuple(name for name in extents if _is_row(name, found, naming.bad))
    return merge_loops(FlatKernel(_ordered(found), rows, extents, table))


def _is_row(name: str, stages: Sequence[FlatStage], bad: set[str]) -> bool:
    return name not in bad and all(item.place.coefficient(name) for item in stages)


def _ordered(stages: Sequence[FlatStage]) -> tuple[FlatStage, ...]:
    """The stages with their loops in the order of memory: what counts farther in the target is farther out."""
    return tuple(
        replace(
            item, loops=tuple(sorted(item.loops, key=lambda name: -abs(item.place.coefficient(name)) or 0))
        )
        for item in stages
    )


# --- which loops are one ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Naming:
    """The loops of stages, joined where they count the same dimension of a tensor."""

    stages: Sequence[Contraction]
    tensors: Mapping[str, GroupTensor]
    bad: set[str] = field(default_factory=set)
    """Loops that count a tensor which another stage reads at other places."""
    _parents: dict[tuple[int, str], tuple[int, str]] = field(default_factory=dict)
    _extents: dict[tuple[int, str], int] = field(default_factory=dict)

    def names(self) -> tuple[list[dict[str, str]], dict[str, int]]:
        """For each stage the new names of its loops, and their extents."""
        for number, stage in enumerate(self.stages):
            for loop in stage.loops:
                if not isinstance(loop.extent, int) or loop.extent < 1:
                    raise Unsupported("an extent is 0 or not known before the run")
                self._parents[number, loop.index] = (number, loop.index)
                self._extents[number, loop.index] = loop.extent
        wrong = list(self._join_written())
        self._join_inputs()
        roots = dict.fromkeys(self._root(key) for key in self._parents)
        called = {root: f"l{place}" for place, root in enumerate(roots)}
        self.bad = {called[self._root(key)] for key in wrong}
        names = [
            {loop.index: called[self._root((number, loop.index))] for loop in stage.loops}
            for number, stage in enumerate(self.stages)
        ]
        if any(len(set(item.values())) < len(item) for item in names):
            raise Unsupported("a tensor is read at two places that one loop counts")
        return names, {called[root]: self._extents[root] for root in roots}

    def _join_written(self) -> Iterator[tuple[int, str]]:
        """Join the loops of those who write a tensor with those who read it; gives those that do not fit."""
        writers: dict[str, int] = {}
        for number, stage in enumerate(self.stages):
            if len(stage.targets) != 1 or any(isinstance(item, Guard) for item in stage.targets[0].indices):
                raise Unsupported("a stage has several targets, or tests the index of one")
            for read in self._reads(number):
                if read.tensor in writers:
                    yield from self._join(writers[read.tensor], number, read)
            target = stage.targets[0].tensor
            if target in writers:
                raise Unsupported("several stages write one tensor")
            writers[target] = number

    def _reads(self, number: int) -> list[Element]:
        stage = self.stages[number]
        found = [item for item in reachable(*stage.values, stage.condition) if isinstance(item, Element)]
        if any(item.tensor == stage.targets[0].tensor for item in found):
            raise Unsupported("a stage reads what it writes")
        return found

    def _join(self, writer: int, reader: int, read: Element) -> Iterator[tuple[int, str]]:
        target = self.stages[writer].targets[0]
        for one, other in zip(target.indices, read.indices, strict=True):
            first, second = self._terms(writer, one), self._terms(reader, other)
            if (
                first is None
                or second is None
                or [item[1:] for item in first] != [item[1:] for item in second]
            ):
                yield from ((writer, item[0]) for item in first or ())
                yield from ((reader, item[0]) for item in second or ())
                continue
            for (left, _, _), (right, _, _) in zip(first, second, strict=True):
                self._parents[self._root((reader, right))] = self._root((writer, left))

    def _terms(self, number: int, index: Scalar | Guard) -> list[tuple[str, int, int]] | None:
        """The loops of an index with factor and extent, the farthest first; None where it is not affine from 0 on."""
        extents = {name: size for (stage, name), size in self._extents.items() if stage == number}
        form = None if isinstance(index, Guard) else find_form(index, extents)
        if form is None or form.constant:
            return None
        found = [(name, factor, extents[name]) for name, factor in form.terms]
        return sorted(found, key=lambda item: (-item[1], -item[2]))

    def _root(self, key: tuple[int, str]) -> tuple[int, str]:
        while self._parents[key] != key:
            key = self._parents[key]
        return key

    def _join_inputs(self) -> None:
        """Join loops that count the same dimension of a tensor that two stages read."""
        seen: dict[str, tuple[int, Element]] = {}
        for number in range(len(self.stages)):
            for read in self._reads(number):
                if read.tensor not in seen:
                    seen[read.tensor] = (number, read)
                elif seen[read.tensor][0] != number:
                    self._join_reads(seen[read.tensor], (number, read))

    def _join_reads(self, left: tuple[int, Element], right: tuple[int, Element]) -> None:
        for one, other in zip(left[1].indices, right[1].indices, strict=True):
            first, second = self._terms(left[0], one), self._terms(right[0], other)
            if first and second and [item[1:] for item in first] == [item[1:] for item in second]:
                for (name, _, _), (called, _, _) in zip(first, second, strict=True):
                    self._try_join((left[0], name), (right[0], called))

    def _try_join(self, left: tuple[int, str], right: tuple[int, str]) -> None:
        """Join two loops unless one stage would then count one loop twice."""
        one, other = self._root(left), self._root(right)
        stages = [key[0] for key in self._parents if self._root(key) in (one, other)]
        if one != other and len(set(stages)) == len(stages):
            self._parents[other] = one


# --- flat accesses ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Flattening:
    """The terms of one stage while their accesses become flat and their loops get new names."""

    source: Contraction
    names: Mapping[str, str]
    tensors: Mapping[str, GroupTensor]
    layouts: Mapping[str, FlatLayout]
    table: TermTable
    _known: dict[int, Scalar] = field(default_factory=dict)

    def stage(self) -> FlatStage:
        """The stage."""
        source = self.source
        target = source.targets[0]
        condition = None if source.condition is None else self._scalar(source.condition)
        if condition is not None and source.sign in ASSIGNMENTS:
            raise Unsupported("it writes under a condition")
        value = self._scalar(source.values[0])
        place = self._place(target)
        return FlatStage(
            target.tensor, place, target.type, source.sign, value, condition, tuple(self.names.values())
        )

    def _scalar(self, term: Scalar) -> Scalar:
        if isinstance(term, Index):
            return Index(self.names[term.name])
        if not isinstance(term, Apply | Element | Lookup):
            return term
        if id(term) not in self._known:
            self._known[id(term)] = self._rebuild(term)
        return self._known[id(term)]

    def _rebuild(self, term: Apply | Element | Lookup) -> Scalar:
        if isinstance(term, Element):
            return self.table.element(term.tensor, (self.table.affine(self._place(term)),), term.type)
        if isinstance(term, Lookup):
            table = [self._scalar(item) for item in term.table]
            return self.table.lookup(table, self._scalar(term.index), term.type)
        return self.table.apply(term.function, [self._scalar(item) for item in term.operands], term.type)

    def _place(self, element: Element) -> Form:
        """Where an element lies."""
        held = self.tensors[element.tensor]
        layout = self.layouts.get(element.tensor) or row_major(held.shape)
        found: Form = Affine(layout.offset)
        for index, size, stride in zip(element.indices, held.shape, layout.strides, strict=True):
            if isinstance(index, Guard):
                raise Unsupported("an index is tested")
            form = self.table.form(self._scalar(index))
            if form is None or not self.table.is_within(self.table.affine(form), size):
                raise Unsupported("an index is not affine, or may be outside")
            found = found.plus(form, stride)
        return found


# --- loops that are one behind the other --------------------------------------------------------------------


def merge_loops(kernel: FlatKernel) -> FlatKernel:
    """Loop collapsing: two loops become one where in every access the outer one goes on where the inner one ends."""
    found = kernel
    while True:
        pair = next(_mergeable(found), None)
        if pair is None:
            return found
        found = _merge(found, *pair)


def _mergeable(kernel: FlatKernel) -> Iterator[tuple[str, str]]:
    bare = {
        item.name
        for stage in kernel.stages
        for item in _outside_accesses(stage.value, stage.condition)
        if isinstance(item, Index)
    }
    forms = [form for stage in kernel.stages for form in stage.forms(kernel.table)]
    pairs = dict.fromkeys(pair for stage in kernel.stages for pair in _neighbours(stage.loops))
    for outer, inner in pairs:
        alike = all((outer in stage.loops) == (inner in stage.loops) for stage in kernel.stages)
        if not alike or (outer in kernel.rows) != (inner in kernel.rows) or {outer, inner} & bare:
            continue
        size = kernel.extents[inner]
        if all(form.coefficient(outer) == size * form.coefficient(inner) for form in forms):
            yield outer, inner


def _neighbours(loops: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Pairs of loops, those that stand side by side first."""
    yield from pairwise(loops)
    yield from ((one, other) for one in loops for other in loops if one != other)


def _outside_accesses(*roots: object) -> Iterator[object]:
    """The terms that are no part of an index."""
    done: set[int] = set()
    waiting: list[object] = list(roots)
    while waiting:
        term = waiting.pop()
        if id(term) not in done:
            done.add(id(term))
            yield term
            if isinstance(term, Apply):
                waiting += term.operands
            elif isinstance(term, Lookup):
                waiting += (*term.table, term.index)


def _merge(kernel: FlatKernel, outer: str, inner: str) -> FlatKernel:
    """The kernel with one loop for two, under the name of the inner one."""
    extents = {name: size for name, size in kernel.extents.items() if name != outer}
    extents[inner] *= kernel.extents[outer]
    table = TermTable(extents)
    loops = [tuple(name for name in stage.loops if name != outer) for stage in kernel.stages]
    stages = tuple(
        replace(_moved(stage, lambda _, form: form.without(outer), kernel.table, table), loops=own)
        for stage, own in zip(kernel.stages, loops, strict=True)
    )
    return FlatKernel(stages, tuple(name for name in kernel.rows if name != outer), extents, table)


def _moved(
    stage: FlatStage, move: Callable[[str, Form], Form], old: TermTable, table: TermTable
) -> FlatStage:
    """A stage whose accesses of each tensor are at other places."""
    known: dict[int, Scalar] = {}

    def rebuild(term: Scalar) -> Scalar:
        if not isinstance(term, Apply | Element | Lookup):
            return term
        if id(term) not in known:
            known[id(term)] = again(term)
        return known[id(term)]

    def again(term: Apply | Element | Lookup) -> Scalar:
        if isinstance(term, Element):
            index = table.affine(move(term.tensor, place_of(term, old)))
            return table.element(term.tensor, (index,), term.type)
        if isinstance(term, Lookup):
            return table.lookup([rebuild(item) for item in term.table], rebuild(term.index), term.type)
        return table.apply(term.function, [rebuild(item) for item in term.operands], term.type)

    return replace(
        stage,
        place=move(stage.tensor, stage.place),
        value=rebuild(stage.value),
        condition=None if stage.condition is None else rebuild(stage.condition),
    )


# --- where accesses begin -----------------------------------------------------------------------------------


def begin_accesses(kernel: FlatKernel, whole: Mapping[str, int]) -> tuple[FlatKernel, dict[str, range]]:
    """The kernel with accesses of each tensor from 0 on, and the span of its memory that they reach.

    Kernels that do the same to other parts of tensors, as those that stack them, are equal then. Tensors that are taken
    `whole` have so many places.
    """
    reaches = {name: range(size) for name, size in whole.items()}
    for stage in kernel.stages:
        _note_reach(reaches, stage.tensor, stage.place, kernel.extents)
        for item in stage.reads():
            _note_reach(reaches, item.tensor, place_of(item, kernel.table), kernel.extents)
    if not any(item.start for item in reaches.values()):
        return kernel, reaches
    table = TermTable(kernel.extents)

    def move(tensor: str, form: Form) -> Form:
        return replace(form, constant=form.constant - reaches[tensor].start)

    stages = tuple(_moved(stage, move, kernel.table, table) for stage in kernel.stages)
    return replace(kernel, stages=stages, table=table), reaches


def _note_reach(reaches: dict[str, range], tensor: str, form: Form, extents: Mapping[str, int]) -> None:
    ends = [factor * (extents[name] - 1) for name, factor in form.terms]
    first = form.constant + sum(item for item in ends if item < 0)
    last = form.constant + sum(item for item in ends if item > 0)
    known = reaches.get(tensor, range(first, last + 1))
    reaches[tensor] = range(min(known.start, first), max(known.stop, last + 1))
