"""Row kernels: fused maps and reductions over the same rows (softmax, norms) as one kernel.

A work-group goes through its rows one after the other. In each row the passes follow each other: reductions end in
registers, what a later pass needs of a whole row stays in local memory, and outputs are written once. On a GPU several
subgroups may share long rows: their partial reductions meet in local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from lamella.base.affine import Affine
from lamella.base.dtype import F64
from lamella.base.errors import Unsupported
from lamella.base.open_extent import OpenExtent, is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.contraction import join, neutral_value
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.flat import (
    FlatLayout,
    FlatStage,
    begin_accesses,
    flatten_stages,
    row_major,
    span_of,
)
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.register_transpose import TransposeWriter, plan_transpose
from lamella.bridge.graph_to_kernels.row_plan import VECTOR, Pass, RowPlan, plan_rows
from lamella.bridge.graph_to_kernels.row_terms import RowTerms
from lamella.bridge.graph_to_kernels.scans import LANES, find_scan, write_scan
from lamella.bridge.graph_to_kernels.shared_transpose import (
    ITEMS,
    WARP,
    SharedTransposeWriter,
    plan_shared_transpose,
)
from lamella.bridge.graph_to_kernels.terms import TensorView, stored_type
from lamella.kernels.build import Builder, FreshNames
from lamella.lang.tensor.nodes import Barrier, Function, If, Parameter, Scalar, SubgroupOperation, Value
from lamella.lang.tensor.nodes.types import BOOL, INDEX, Dictionary, DictionaryEntry, make_memref
from lamella.ops.formula import Contraction, Element, Guard

SIZES = (16, 32, 64)
"""Sizes of subgroups that a kernel may ask for."""
I32 = Scalar("i32")
SHARED_AT_ONCE = 8
"""Unrolling of a subgroup that shares a row: steps in flight at once."""
LANE = "lane"
"""Stands for the number of the lane in places; no loop has this name."""
LANE_FUNCTIONS = {"+=": "add", "<=": "min", ">=": "max"}


@dataclass(frozen=True, slots=True)
class RowKernel:
    """A kernel and the tensors that are its arguments in order, each as one flat mode with an offset."""

    function: Function
    tensors: tuple[str, ...]
    starts: tuple[int, ...]
    spans: tuple[int, ...]
    groups: int


@dataclass(frozen=True, slots=True)
class RowInside:
    """The context of a row kernel: what no argument of it tells."""

    temporaries: frozenset[str] = frozenset()
    """Tensors that are taken whole, because what a kernel takes of one tells its size."""
    wide: bool = False
    """Whether reals are computed in 64 bits, as a tensor says that stands in its readers."""
    threads: bool = False
    """Whether work-items are threads."""


NOTHING = RowInside()


def write_rows(
    name: str,
    stages: Sequence[Contraction],
    tensors: Mapping[str, GroupTensor],
    outputs: frozenset[str],
    layouts: Mapping[str, FlatLayout] | None = None,
    sizes: Sequence[int] = SIZES,
    inside: RowInside = NOTHING,
) -> RowKernel:
    """The kernel of some stages; Unsupported where they cannot run in one.

    `outputs` are the tensors that something outside of the kernel reads.
    """
    places = layouts or {}
    scan = find_scan(stages[0], tensors) if len(stages) == 1 and LANES in sizes else None
    if scan is not None and not {scan.target, scan.source} & set(places):
        size = tensors[scan.target].volume
        function, groups = write_scan(name, scan, size)
        return RowKernel(function, (scan.target, scan.source), (0, 0), (size, size), groups)
    spans = {
        name: span_of(tensors[name].shape, places.get(name) or row_major(tensors[name].shape))
        for name in inside.temporaries
    }
    kernel, reaches = begin_accesses(flatten_stages(stages, tensors, places), spans)
    read = dict.fromkeys(item.tensor for stage in kernel.stages for item in stage.reads())
    written = dict.fromkeys(item.tensor for item in kernel.stages)
    named = (*(item for item in written if item in outputs), *(item for item in read if item not in written))
    arguments = _Arguments(named, tensors, reaches)
    wide = inside.wide or any(tensors[item].element == F64 for item in (*written, *read))
    real = Scalar("f64" if wide else "f32")
    if not sizes:
        raise Unsupported("no subgroup has a size that row kernels can use")
    tiles = plan_shared_transpose(kernel, tensors) if inside.threads else None
    by_matrices = VECTOR in sizes and not inside.threads
    transpose = plan_transpose(kernel, tensors, arguments.spans) if by_matrices else None
    plan = None if tiles or transpose else plan_rows(kernel, tensors, outputs, sizes, inside.threads)
    builder = Builder(FreshNames({item.name for item in arguments.memrefs.values()}))
    lanes, items = WARP, WARP
    if tiles is not None:
        SharedTransposeWriter(tiles, tensors, outputs, builder, real).write(arguments.views())
        items, groups = ITEMS, tiles.groups
    elif transpose is not None:
        TransposeWriter(transpose, tensors, builder, real).write(arguments.views())
        lanes, items, groups = VECTOR, VECTOR, transpose.groups
    elif plan is not None:
        _Rows(plan, tensors, outputs, builder, real).write(arguments)
        lanes, items, groups = plan.lanes, plan.lanes * plan.sharers, plan.groups
    attributes = Dictionary(
        (DictionaryEntry("subgroup_size", lanes), DictionaryEntry("work_group_size", (items, 1)))
    )
    function = Function(name, arguments.parameters(), builder.region(), attributes)
    starts = tuple(reaches[item].start for item in named)
    return RowKernel(function, named, starts, tuple(arguments.spans.values()), groups)


class _Arguments:
    """The arguments of a kernel: tensors in flat memory."""

    def __init__(
        self, names: Sequence[str], tensors: Mapping[str, GroupTensor], reaches: Mapping[str, range]
    ) -> None:
        self.held = {name: tensors[name] for name in names}
        self.memrefs = {name: Value(_memref_name(name, number)) for number, name in enumerate(names)}
        # Open loops may reach a part of a tensor of known extents.
        mark = OpenExtent if any(is_open(size) for item in self.held.values() for size in item.shape) else int
        self.spans = {name: mark(reaches[name].stop - reaches[name].start) for name in names}

    def views(self) -> dict[tuple[str, int | None], TensorView]:
        """The views of the tensors for terms."""
        return {
            (name, None): TensorView(memref, self.held[name].element, (self.spans[name],))
            for name, memref in self.memrefs.items()
        }

    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the kernel."""
        return tuple(
            Parameter(memref, make_memref(stored_type(self.held[name].element), (self.spans[name],)))
            for name, memref in self.memrefs.items()
        )


def _memref_name(name: str, number: int) -> str:
    """The name of an argument: the last word of the tensor's, and its number to tell it from others."""
    word = "".join(char if char.isascii() and char.isalnum() else "_" for char in name.rpartition(".")[2])
    return f"{word.lstrip('_0123456789') or 't'}_{number}"


# --- the kernel ---------------------------------------------------------------------------------------------


class _Rows:
    """Writes the body of a row kernel."""

    def __init__(
        self,
        plan: RowPlan,
        tensors: Mapping[str, GroupTensor],
        outputs: frozenset[str],
        builder: Builder,
        real: Scalar,
    ) -> None:
        self.plan = plan
        self.kernel = plan.kernel
        self.held = tensors
        self.outputs = outputs
        self.builder = builder
        self.real = real
        self.lane = Value("")
        self.sharer = Value("")
        """The number of the subgroup, where several share a row."""
        self._rooms: dict[str, Value] = {}
        """Local memory for partial reductions."""
        self._first: Value | None = None
        """Whether a work-item is the one of its row that stores what all of them know."""
        self._exists: Value | None = None
        """Whether the row of a work-item exists; None where all of them do."""
        self._shared: str | None = None
        """The loop of the pass whose steps they share."""
        self._is_last = False
        """Whether no pass behind has such a loop: one of them does the rest alone, until this is closed."""
        self._last = ExitStack()
        self._types: list[Scalar] = []
        """The types of the values that the loops of a pass carry."""

    def write(self, arguments: _Arguments) -> None:
        """Write everything."""
        views = arguments.views()
        share = self.plan.lanes if self.plan.across else 1
        for name, room in self.plan.locals.items():
            element = self.held[name].element
            memref = self.builder.alloca(make_memref(stored_type(element), (room.count * share,), local=True))
            views[name, None] = TensorView(memref, element, (self.held[name].volume,))
        for stage in self.kernel.stages:
            # What is never stored has no memory, but a type.
            held = self.held[stage.tensor]
            views.setdefault((stage.tensor, None), TensorView(Value(""), held.element, (held.volume,)))
        written = frozenset(item.tensor for item in self.kernel.stages) - self.plan.registers
        self.terms = RowTerms(
            self.real, views, self.kernel.extents, [self.builder], written=written, forms=self._form
        )
        self.terms.single = self.plan.registers
        if self.plan.sharers > 1:
            self._allocate()
        self._open_groups()

    def _allocate(self) -> None:
        """Allocate local memory."""
        size = self.plan.lanes * self.plan.sharers
        sums = [
            item for held in self.plan.passes if not held.inner for item in held.stages if item.is_reduction
        ]
        for stage in sums:
            kind = self.terms.kind(self._target(stage))
            self._rooms[stage.tensor] = self.builder.alloca(make_memref(kind.name, (size,), local=True))

    def _form(self, element: Element) -> Form:
        """Where an element is in the memory of its tensor."""
        (index,) = element.indices
        form = None if isinstance(index, Guard) else self.kernel.table.form(index)
        if form is None:
            raise Unsupported("an index is not affine")
        if element.tensor not in self.plan.locals:
            return form
        form = self.plan.locals[element.tensor].place(form)
        return form if self.plan.across is None else form.times(self.plan.lanes) + Affine(0, ((LANE, 1),))

    # --- rows -----------------------------------------------------------------------------------------------

    def _open_groups(self) -> None:
        """The work-group's rows, then the lanes."""
        plan, here, extents = self.plan, self.builder, self.kernel.extents
        counts = {name: extents[name] for name in plan.shared}
        if plan.cut is not None:
            counts[plan.cut] = -(-extents[plan.cut] // plan.piece)
        numbers = delinearize_group(here, list(counts), counts)
        piece = None if plan.cut is None else numbers.pop(plan.cut)
        for name, number in numbers.items():
            self.terms.open_index(name, number)
        with here.parallel() as inner:
            self.lane = inner.cast(inner.builtin("subgroup_local_id", I32), INDEX)
            self.terms.levels.append(inner)
            self.terms.open_index(LANE, self.lane)
            if piece is not None and plan.sharers > 1:
                self._open_shared(inner, piece)
            else:
                self._open_pieces(piece)
            self.terms.levels.pop()

    def _open_shared(self, here: Builder, piece: Value) -> None:
        """The row of each lane where several subgroups share it; a lane without a row computes another one.

        Such a lane stores nothing, for all of them meet at barriers.
        """
        plan = self.plan
        extent = self.kernel.extents[plan.cut or ""]
        self.sharer = here.cast(here.builtin("subgroup_id", I32), INDEX)
        place = here.arith("add", here.arith("mul", piece, here.constant(plan.lanes)), self.lane)
        self._first = here.compare("eq", self.sharer, here.constant(0))
        if extent % plan.lanes:
            self._exists = here.compare("lt", place, here.constant(extent))
            place = here.arith("min", place, here.constant(extent - 1))
            self._first = here.arith("and", self._first, self._exists, type_=BOOL)
        self.terms.open_index(plan.cut or "", place)
        self._in_lanes()

    def _open_pieces(self, piece: Value | None) -> None:
        """The piece of the loop that is shared out; the last one may be shorter."""
        plan, here = self.plan, self.terms.here
        if plan.cut is None or piece is None:
            self._open_rows(plan.looped, None)
            return
        extent = self.kernel.extents[plan.cut]
        begin = here.arith("mul", piece, here.constant(plan.piece))
        whole, rest = divmod(extent, plan.piece)
        if rest == 0 and not is_open(extent):
            self._open_rows(plan.looped, (begin, plan.piece))
            return
        sides = []
        for length in (plan.piece, rest):
            with self.terms.region() as inner:
                self._open_rows(plan.looped, (begin, length))
            sides.append(inner.region())
        here.put(If(here.compare("lt", piece, here.constant(whole)), sides[0], sides[1]))

    def _open_rows(self, names: Sequence[str], span: tuple[Value, int] | None) -> None:
        """Loops over rows; the first one may be a piece, the last one the lanes."""
        if not names:
            self.terms.row_depth = len(self.terms.levels) - 1
            self._write_passes()
            return
        name, here = names[0], self.terms.here
        begin, count = (here.constant(0), self.kernel.extents[name]) if span is None else span
        if name == self.plan.across:
            self._along_lanes(name, (begin, count), (), lambda _: self._in_lanes())
            return
        end = here.arith("add", begin, here.constant(count)) if span is not None else here.constant(count)
        with here.loop(begin, end) as loop, self.terms.level(loop.body):
            self.terms.open_index(name, loop.variable)
            self._open_rows(names[1:], None)

    def _in_lanes(self) -> Sequence[Value]:
        self.terms.row_depth = len(self.terms.levels) - 1
        self._write_passes()
        return ()

    def _write_passes(self) -> None:
        made = set[str]()
        with ExitStack() as self._last:
            for number, item in enumerate(self.plan.passes):
                if made & {read.tensor for stage in item.stages for read in stage.reads()}:
                    # What one subgroup has stored another one may read.
                    self.terms.here.put(Barrier(on_global=True, on_local=True))
                self._is_last = not any(map(self.plan.shared_loop, self.plan.passes[number + 1 :]))
                self._write_pass(item)
                self.terms.forget(self.terms.row_depth)
                if self.plan.sharers > 1:
                    made |= {stage.tensor for stage in item.stages} - self.plan.registers
        self.terms.registers.clear()
        self.terms.forget(0)

    # --- passes ---------------------------------------------------------------------------------------------

    def _write_pass(self, item: Pass) -> None:
        self._types = self._kinds(item.stages)
        self._shared = self.plan.shared_loop(item)
        if item.inner:
            (stage,) = item.stages
            self._nest(item.outer, item.lane, (), lambda _: self._sum_inside(stage, item.inner))
            return
        sums = [stage for stage in item.stages if stage.is_reduction]
        starts = [self._start(stage) for stage in sums]
        if not item.outer and item.lane is None:
            found: Sequence[Value] = self._step(item.stages, starts)
        else:
            found = self._nest(item.outer, item.lane, starts, lambda held: self._step(item.stages, held))
        if self._shared is not None and sums:
            found = self._met(sums, found)
        for stage, value in zip(sums, found, strict=True):
            self._finish(stage, value if item.lane is None else self._across(stage, value))
        if not item.outer and item.lane is None:
            for stage in item.stages:
                if not stage.is_reduction:
                    self._finish(stage, self.terms.passing[stage.tensor])

    def _target(self, stage: FlatStage) -> Element:
        return Element(stage.tensor, (self.kernel.table.affine(stage.place),), stage.type)

    def _start(self, stage: FlatStage) -> Value:
        return neutral_value(self.terms, stage.sign, self._target(stage))

    def _kinds(self, stages: Sequence[FlatStage]) -> list[Scalar]:
        return [self.terms.kind(self._target(stage)) for stage in stages if stage.is_reduction]

    def _nest(
        self,
        outer: Sequence[str],
        lane: str | None,
        held: Sequence[Value],
        body: Callable[[Sequence[Value]], Sequence[Value]],
    ) -> Sequence[Value]:
        """Loops one inside the other round a body; values are carried through all of them."""
        if not outer:
            if lane is None:
                return body(held)
            here = self.terms.here
            return self._along_lanes(lane, (here.constant(0), self.kernel.extents[lane]), held, body)
        here, extent = self.terms.here, self.kernel.extents[outer[0]]
        if outer[0] == self._shared:
            steps = here.constant(0), extent
            return self._spread(
                outer[0],
                steps,
                (self.sharer, self.plan.sharers, 1 if outer[1:] else SHARED_AT_ONCE),
                held,
                lambda found: self._nest(outer[1:], lane, found, body),
            )
        carried = [(value, self._types[place]) for place, value in enumerate(held)]
        with (
            here.loop(here.constant(0), here.constant(extent), carried=carried) as loop,
            self.terms.level(loop.body),
        ):
            self.terms.open_index(outer[0], loop.variable)
            found = self._nest(outer[1:], lane, loop.carried, body)
            if carried:
                self.terms.here.give(*found)
        return loop.results

    def _along_lanes(
        self,
        name: str,
        span: tuple[Value, int],
        held: Sequence[Value],
        body: Callable[[Sequence[Value]], Sequence[Value]],
    ) -> Sequence[Value]:
        """A loop whose steps are lanes."""
        return self._spread(name, span, (self.lane, self.plan.lanes, self.plan.at_once), held, body)

    def _spread(
        self,
        name: str,
        span: tuple[Value, int],
        sharing: tuple[Value, int, int],
        held: Sequence[Value],
        body: Callable[[Sequence[Value]], Sequence[Value]],
    ) -> Sequence[Value]:
        """A loop whose steps lanes or subgroups share: whole rounds without a predicate, the rest behind one.

        `sharing` is the number of the one that this is, how many there are, and how many steps are in flight
        (unrolled).
        """
        begin, count = span
        here, (own, lanes, at_once) = self.terms.here, sharing
        full = count // lanes * lanes
        found = held
        start = here.arith("add", begin, own)
        if full == lanes and not is_open(count):
            with self.terms.level(here):
                self.terms.open_index(name, start)
                found = body(found)
        elif full or is_open(count):
            carried = [(value, self._types[place]) for place, value in enumerate(held)]
            ends = here.constant(0), here.constant(full), here.constant(lanes)
            wanted = Dictionary((DictionaryEntry("unroll", at_once),)) if at_once > 1 else None
            with here.loop(*ends, carried=carried, attributes=wanted) as loop, self.terms.level(loop.body):
                self.terms.open_index(name, loop.body.arith("add", start, loop.variable))
                found = body(loop.carried)
                if carried:
                    self.terms.here.give(*found)
            found = loop.results
        if count == full and not is_open(count):
            return found
        return self._rest(name, (own, start, full, count - full), found, body)

    def _rest(
        self,
        name: str,
        span: tuple[Value, Value, int, int],
        held: Sequence[Value],
        body: Callable[[Sequence[Value]], Sequence[Value]],
    ) -> Sequence[Value]:
        """The last steps, predicated."""
        own, start, full, count = span
        here = self.terms.here
        condition = here.compare("lt", own, here.constant(count))
        inner = here.inner()
        with self.terms.level(inner):
            moves = full or is_open(full)
            self.terms.open_index(name, inner.arith("add", start, inner.constant(full)) if moves else start)
            found = body(held)
            if held:
                inner.give(*found)
        if not held:
            here.put(If(condition, inner.region()))
            return ()
        otherwise = here.inner()
        otherwise.give(*held)
        results = [here.names.new() for _ in held]
        here.put(If(condition, inner.region(), otherwise.region(), tuple(self._types)), results)
        return results

    # --- steps ----------------------------------------------------------------------------------------------

    def _step(self, stages: Sequence[FlatStage], held: Sequence[Value]) -> list[Value]:
        """One step of all stages of a pass; gives the sums after it."""
        sums, found = iter(held), list[Value]()
        for stage in stages:
            if stage.is_reduction:
                found.append(self._joined(stage, next(sums)))
            else:
                self._assign(stage)
        return found

    def _joined(self, stage: FlatStage, held: Value) -> Value:
        """A reduction after one step; a step whose predicate is false changes nothing."""
        if any(self.terms.is_risky(item) for item in (stage.value, stage.condition)):
            raise Unsupported("a step may have no value")
        value = self.terms.saturated(stage.value, self.held[stage.tensor].element)
        target = self._target(stage)
        found = join(self.terms, stage.sign, held, value, target)
        if stage.condition is None:
            return found
        condition = self.terms.value(stage.condition)
        return self.terms.here.arith("select", condition, found, held, type_=self.terms.kind(target))

    def _assign(self, stage: FlatStage) -> None:
        if self.terms.is_risky(stage.value):
            raise Unsupported("a step may have no value")
        element, target = self.held[stage.tensor].element, self._target(stage)
        value = self.terms.saturated(stage.value, element)
        stored = stage.tensor in self.outputs or stage.tensor in self.plan.locals
        if stored and stage.tensor not in self.plan.registers:
            self._store(value, target)
        self.terms.passing[stage.tensor] = self.terms.rounded(value, element, self.terms.kind(target))

    def _sum_inside(self, stage: FlatStage, loops: Sequence[str]) -> Sequence[Value]:
        """A sum in each lane, stored where it belongs."""
        (found,) = self._nest(loops, None, [self._start(stage)], lambda held: self._step((stage,), held))
        self._store(found, self._target(stage))
        return ()

    def _met(self, sums: Sequence[FlatStage], found: Sequence[Value]) -> list[Value]:
        """The reductions of all subgroups that share a row, combined by each that goes on, in the same order."""
        here, lanes = self.terms.here, self.plan.lanes
        own = here.arith("add", here.arith("mul", self.sharer, here.constant(lanes)), self.lane)
        for stage, value in zip(sums, found, strict=True):
            here.store(value, self._rooms[stage.tensor], [own])
        here.put(Barrier(on_local=True))
        if self._is_last:
            self._last.enter_context(self._alone())
            here = self.terms.here
        results = list[Value]()
        for stage, kind in zip(sums, self._types, strict=True):
            target, total = self._target(stage), None
            for number in range(self.plan.sharers):
                place = here.arith("add", here.constant(number * lanes), self.lane)
                more = here.load(self._rooms[stage.tensor], [place], kind)
                total = more if total is None else join(self.terms, stage.sign, total, more, target)
            results += [] if total is None else [total]
        return results

    def _across(self, stage: FlatStage, value: Value) -> Value:
        """Reduce over all lanes; the smallest or largest is NaN where one lane has it."""
        here, kind = self.terms.here, self.terms.kind(self._target(stage))
        function = LANE_FUNCTIONS[stage.sign]
        found = here.value(SubgroupOperation(function, "reduce", value, kind))
        if function == "add" or kind not in (Scalar("f32"), Scalar("f64")):
            return found
        zero, sound = here.constant(0.0, kind), here.compare("eq", value, value)
        doubt = here.arith("select", sound, zero, value, type_=kind)
        together = here.value(SubgroupOperation("add", "reduce", doubt, kind))
        return here.arith("select", here.compare("eq", together, together), found, together, type_=kind)

    def _finish(self, stage: FlatStage, value: Value) -> None:
        """The one element of a row: known from now on, and stored if it leaves."""
        target, element = self._target(stage), self.held[stage.tensor].element
        if stage.tensor in self.outputs:
            self._store_once(value, target)
        self.terms.registers[stage.tensor] = self.terms.rounded(value, element, self.terms.kind(target))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """What the first subgroup does for all of them."""
        here, first = self.terms.here, self._first
        if first is None:
            raise TypeError("subgroups were shared")
        self._first = self._exists = None
        with self.terms.region() as inner:
            yield
        here.put(If(first, inner.region()))

    def _store(self, value: Value, target: Element) -> None:
        """Store what a work-item has of its row, where that is there; local memory is each lane's own."""
        self._store_where(None if target.tensor in self.plan.locals else self._exists, value, target)

    def _store_once(self, value: Value, target: Element) -> None:
        here, first = self.terms.here, self._first
        if self.plan.across is None:
            first = here.compare("eq", self.lane, here.constant(0))
        self._store_where(first, value, target)

    def _store_where(self, condition: Value | None, value: Value, target: Element) -> None:
        if condition is None:
            self.terms.store(value, target)
            return
        here = self.terms.here
        with self.terms.region() as inner:
            self.terms.store(value, target)
        here.put(If(condition, inner.region()))
