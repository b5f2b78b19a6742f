"""The kernel that phases become: its parameters, its local memory, and its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.build import HOLDERS, Builder, FreshNames, regions
from lamella.kernels.fuse_launches.copies import ROW_BYTES
from lamella.kernels.fuse_launches.phases import WARP, Phase, find_levels, find_spans
from lamella.kernels.launches import ELEMENT_BYTES, BufferView, LaunchList
from lamella.kernels.rewrite import copy_region, make_names_unique, walk
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    Barrier,
    Builtin,
    Constant,
    Dictionary,
    DictionaryEntry,
    For,
    Foreach,
    Function,
    If,
    Load,
    Parallel,
    Parameter,
    Region,
    Scalar,
    Statement,
    Store,
    Value,
)
from lamella.lang.tensor.nodes.types import INDEX, make_memref

MOST_LOCAL = 40 << 10
"""Bytes of local memory that phases share."""
LANE = Scalar("i32")


@dataclass(frozen=True, slots=True)
class GroupSlice:
    """The slice of a buffer that a work-group touches: as many elements for each, at the same stride."""

    first: int
    step: int
    size: int


@dataclass(slots=True)
class PhaseMemory:
    """The parameters of a fused kernel: buffers that one view shows as they were, others as one row."""

    whole: LaunchList
    phases: Sequence[Phase]
    private: set[str]
    repeated: bool
    parts: Mapping[str, GroupSlice] = field(default_factory=dict)
    """The slice of each written buffer of a work-group, where each computes what it alone reads."""
    views: dict[str, BufferView] = field(default_factory=dict)
    kept: dict[str, Parameter] = field(default_factory=dict)
    """The parameters of buffers that keep their type."""
    local: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Element type and size of what lies in local memory."""
    written: set[str] = field(default_factory=set)
    has_fault: bool = False

    def __post_init__(self) -> None:
        uses: dict[str, list[tuple[BufferView, Parameter]]] = {}
        for item in self.phases:
            self.has_fault |= item.launch.has_fault
            pairs = zip(item.launch.arguments, item.function.parameters, strict=False)
            for place, (view, parameter) in enumerate(pairs):
                uses.setdefault(view.buffer, []).append((view, parameter))
                if place in item.launch.writes:
                    self.written.add(view.buffer)
        room = 0
        for name, found in uses.items():
            elements = {view.element for view, _ in found}
            if len(elements) > 1:
                raise Unsupported("memory is seen as two types")
            (element,) = elements
            end = max(view.offset + view.reach // ELEMENT_BYTES[element] for view, _ in found)
            held = self.parts[name].size if name in self.parts else end
            size = -(-held * ELEMENT_BYTES[element] // ROW_BYTES) * ROW_BYTES
            # A read before the first write would find what the last run left there.
            starts = self._begins_written(name)
            if name in self.private and starts and (self.repeated or room + size <= MOST_LOCAL):
                self.local[name], room = (element, held), room + size
                continue
            if len({(view, parameter.type) for view, parameter in found}) == 1:
                self.views[name], self.kept[name] = found[0][0], _promised([item for _, item in found])
                continue
            base = min(view.offset for view, _ in found)
            self.views[name] = BufferView(name, element, (end - base,), (1,), base)
        if room > MOST_LOCAL or (self.repeated and any(name in self.views for name in self._made())):
            raise Unsupported("what they make does not fit into local memory")

    def _begins_written(self, name: str) -> bool:
        for item in self.phases:
            places = [place for place, view in enumerate(item.launch.arguments) if view.buffer == name]
            if places:
                return all(place in item.launch.writes for place in places)
        return False

    def _made(self) -> set[str]:
        """What all phases but the last write."""
        return {
            item.launch.arguments[place].buffer for item in self.phases[:-1] for place in item.launch.writes
        }


def _promised(parameters: Sequence[Parameter]) -> Parameter:
    """A parameter with the promise of the one that promises most."""

    def alignment(item: Parameter) -> int:
        found = None if item.attributes is None else item.attributes.find("alignment")
        return found if isinstance(found, int) else 0

    return max(parameters, key=alignment)


# --- the kernel -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PhaseWriter:
    """Writes a fused kernel."""

    memory: PhaseMemory
    subgroups: int
    names: FreshNames = field(default_factory=lambda: FreshNames(set()))
    values: dict[str, Value] = field(default_factory=dict)
    """What holds each buffer."""
    bases: dict[str, Value] = field(default_factory=dict)
    """Where the slice of a buffer in local memory begins, where that is not the start."""

    def key(self, phases: Sequence[Phase], repeated: bool) -> object:
        """What makes two fused kernels equal."""
        memory, numbers = self.memory, dict[str, int]()
        for name in (*memory.views, *memory.local):
            numbers[name] = len(numbers)
        views = tuple(replace(view, buffer="") for view in memory.views.values())
        parts = tuple(
            (
                item.launch.kernel,
                item.launch.groups,
                tuple((numbers[view.buffer], view.offset) for view in item.launch.arguments),
            )
            for item in phases
        )
        return (
            parts,
            views,
            tuple(memory.local.values()),
            tuple(numbers[name] for name in memory.kept),
            repeated,
        )

    def write(self, name: str, phases: Sequence[Phase], repeated: bool) -> Function:
        """Write it."""
        parameters, builder = self.begin()
        # One region for all: they may say at the same place that something is wrong, and no barrier is wanted there.
        with builder.parallel() as region:
            for number, level in enumerate(find_levels(phases)):
                if number:
                    self.put_barrier(region)
                taken = 0
                for item in level:
                    if repeated and item is phases[-1]:
                        self._write_share(region, item)
                    else:
                        self.write_groups(region, item, item.launch.groups, taken)
                    taken += item.launch.groups
        return self.close(name, parameters, builder)

    def write_beside(self, name: str, phases: Sequence[Phase]) -> Function:
        """Write a kernel of independent phases (horizontal fusion), each subgroup with a work-group of one."""
        parameters, builder = self.begin()
        with builder.parallel() as region:
            own, count = region.builtin("subgroup_id", LANE), region.constant(self.subgroups)
            first = region.arith("mul", region.builtin("group_id", INDEX), count)
            self._write_one_of(region, phases, region.arith("add", first, region.cast(own, INDEX)))
        return self.close(name, parameters, builder)

    def _write_one_of(self, builder: Builder, phases: Sequence[Phase], number: Value) -> None:
        """The phase that has a work-group of a number, where all of them are counted one after the other."""
        first, *others = phases
        count = builder.constant(first.launch.groups)
        with builder.choice(builder.compare("lt", number, count)) as (then, otherwise):
            self._write_body(then, first, number)
            if others:
                self._write_one_of(otherwise, others, otherwise.arith("sub", number, count))

    def begin(self) -> tuple[list[Parameter], Builder]:
        """The parameters, and a body that has what lies in local memory."""
        memory, parameters = self.memory, []
        for number, (buffer, view) in enumerate(memory.views.items()):
            value = self.values[buffer] = Value(f"m{number}")
            kept = memory.kept.get(buffer)
            type_ = make_memref(view.element, view.shape) if kept is None else kept.type
            parameters.append(Parameter(value, type_, None if kept is None else kept.attributes))
        if memory.has_fault:
            parameters.append(Parameter(Value("fault"), make_memref("i32", (1,))))
        self.names = FreshNames({item.value.name for item in parameters} | {"fault"})
        builder = Builder(self.names)
        for buffer, (element, size) in memory.local.items():
            aligned = Dictionary((DictionaryEntry("alignment", ROW_BYTES),))
            self.values[buffer] = builder.value(Alloca(make_memref(element, (size,), local=True), aligned))
        return parameters, builder

    def put_barrier(self, builder: Builder) -> None:
        """Wait until the work-group has done what stands before."""
        builder.put(Barrier(on_global=bool(self.memory.written & self.memory.views.keys()), on_local=True))

    def close(self, name: str, parameters: Sequence[Parameter], builder: Builder) -> Function:
        """The kernel."""
        sizes = (
            DictionaryEntry("subgroup_size", WARP),
            DictionaryEntry("work_group_size", (WARP * self.subgroups, 1)),
        )
        return Function(name, tuple(parameters), builder.region(), Dictionary(sizes))

    def _write_share(self, builder: Builder, phase: Phase) -> None:
        """The work-groups of a launch of which each work-group of the fused one has some, one for each subgroup."""
        own, count = (
            builder.cast(builder.builtin("subgroup_id", LANE), INDEX),
            builder.constant(self.subgroups),
        )
        own = builder.arith("add", builder.arith("mul", builder.builtin("group_id", INDEX), count), own)
        if phase.launch.groups % self.subgroups == 0:
            self._write_body(builder, phase, own)
            return
        some = builder.compare("lt", own, builder.constant(phase.launch.groups))
        with builder.condition(some) as inner:
            self._write_body(inner, phase, own)

    def write_groups(
        self, builder: Builder, phase: Phase, groups: int, taken: int, first: Value | None = None
    ) -> None:
        """Some work-groups of a launch from a first one on, one for each free subgroup."""
        own, taken = builder.cast(builder.builtin("subgroup_id", LANE), INDEX), taken % self.subgroups
        count = builder.constant(self.subgroups)
        if taken:
            moved = builder.arith("add", own, builder.constant(self.subgroups - taken))
            own = builder.arith("rem", moved, count)

        def write(inner: Builder, number: Value) -> None:
            self._write_body(inner, phase, number if first is None else inner.arith("add", first, number))

        rounds, rest = divmod(groups, self.subgroups)
        for number in range(rounds):
            start = builder.constant(number * self.subgroups)
            write(builder, builder.arith("add", own, start) if number else own)
        if rest:
            last = builder.arith("add", own, builder.constant(rounds * self.subgroups)) if rounds else own
            with builder.condition(builder.compare("lt", last, builder.constant(groups))) as inner:
                write(inner, last)

    def _write_body(self, builder: Builder, phase: Phase, group: Value) -> None:
        """What one subgroup does for a work-group."""
        writing, body = self.begin_body(builder, phase, group)
        writing.write(builder, body.statements)

    def begin_body(self, builder: Builder, phase: Phase, group: Value) -> tuple[SpmdWriter, Region]:
        """The body of a launch for a work-group, with names of its own, and what writes it."""
        function = make_names_unique(phase.function)
        given = {"fault": Value("fault")} if phase.launch.has_fault else {}
        flat: dict[str, tuple[BufferView, str]] = {}
        pairs = zip(phase.launch.arguments, function.parameters, strict=False)
        for number, (view, parameter) in enumerate(pairs):
            if view.buffer in self.memory.kept:
                given[parameter.value.name] = self.values[view.buffer]
            else:
                token = f"flat {number}"
                given[parameter.value.name] = Value(token)
                flat[token] = view, view.buffer
        if phase.launch.has_fault:
            given[function.parameters[-1].value.name] = Value("fault")
        numbers = [item for item in walk(function.body) if is_group_number(item)]
        given |= {item.results[0].name: group for item in numbers}
        body = copy_region(function.body, self.names, given)
        lane = builder.cast(builder.builtin("subgroup_local_id", LANE), INDEX)
        known = {
            item.results[0].name: item.instruction.value
            for item in walk(body)
            if isinstance(item.instruction, Constant) and isinstance(item.instruction.value, int)
        }
        return SpmdWriter(self, flat, lane, known, find_spans(body)), body


def is_group_number(statement: Statement) -> bool:
    """Whether a statement asks for the number of the work-group."""
    node = statement.instruction
    return isinstance(node, Builtin) and node.name == "group_id"


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row of a memref that a kernel stores, forwarded to its readers: a copy of values that lie elsewhere."""

    mode: int
    """The mode that counts rows."""
    number: Value
    """Which row it is; one that is not there where nothing is stored."""
    source: Value
    """Where the values come from, as `reading` knows it."""
    source_index: Value
    """What counts rows there."""
    reading: SpmdWriter


@dataclass(frozen=True, slots=True)
class SpmdWriter:
    """Statements of a kernel as one subgroup does them."""

    writer: PhaseWriter
    flat: Mapping[str, tuple[BufferView, str]]
    lane: Value
    known: Mapping[str, int]
    """The integers that are constants."""
    spans: Mapping[tuple[str, str], int]
    """How far some values lie behind others."""
    rows: Mapping[str, StoredRow] = field(default_factory=dict)
    """The rows that the kernel stores itself, by memref: loads of them are forwarded."""

    def write(self, builder: Builder, statements: Sequence[Statement]) -> None:
        """Write them behind what a builder has."""
        for statement in statements:
            node = statement.instruction
            if is_group_number(statement):
                continue
            match node:
                case Parallel():
                    self.write(builder, node.body.statements)
                case Foreach():
                    self._write_foreach(builder, node)
                case Load() if node.operand.name in self.rows:
                    self._write_forwarded(builder, node, statement.results)
                case Load():
                    self.put_load(builder, node, statement.results)
                case Store() if node.operand.name in self.flat:
                    memory, place = self._place(builder, node.operand, node.indices)
                    builder.put(Store(node.value, memory, (place,), node.flag))
                case _ if type(node) in HOLDERS:
                    inner = []
                    for region in regions(node):
                        own = builder.inner()
                        self.write(own, region.statements)
                        inner.append(own.region())
                    builder.put(_with_regions(node, inner), statement.results)
                case _:
                    builder.add_statement(statement)

    def put_load(self, builder: Builder, node: Load, results: Sequence[Value]) -> None:
        """A load from where a parameter lies now."""
        if node.operand.name in self.flat:
            memory, place = self._place(builder, node.operand, node.indices)
            node = Load(memory, (place,), node.type)
        builder.put(node, results)

    def _write_forwarded(self, builder: Builder, node: Load, results: Sequence[Value]) -> None:
        """Store-to-load forwarding: a load of what may be in the stored row reads where it comes from."""
        row, old, new = self.rows[node.operand.name], self.writer.names.new(), self.writer.names.new()
        builder.put(node, (old,))
        indices = list(node.indices)
        is_new = builder.compare("eq", indices[row.mode], row.number)
        indices[row.mode] = row.source_index
        row.reading.put_load(builder, Load(row.source, tuple(indices), node.type), (new,))
        builder.put(Arith("select", (is_new, new, old), node.type), results)

    def _write_foreach(self, builder: Builder, node: Foreach) -> None:
        """The first variable goes along the lanes, the others count."""
        first, *others = zip(node.variables, node.begins, node.ends, strict=True)
        begin, end = self.known.get(first[1].name), self.known.get(first[2].name)
        step, inner = builder.constant(WARP), builder.inner()
        span = self.spans.get((first[1].name, first[2].name))
        if begin is not None and end is not None:
            span = end - begin
        whole = span is not None and span % WARP == 0
        counted = self.writer.names.new() if whole else first[0]
        if whole:
            start = builder.arith("add", first[1], self.lane)
            inner.put(Arith("add", (counted, start), INDEX), (first[0],))
        self.write(inner, node.body.statements)
        body = inner.region()
        for variable, low, high in reversed(others):
            body = Region((Statement((), For(variable, low, high, body)),))
        if whole:
            unroll = Dictionary((DictionaryEntry("unroll", True),))
            ends = builder.constant(0), builder.constant(span or 0)
            builder.put(For(counted, *ends, body, step, attributes=unroll))
        else:
            start = builder.arith("add", first[1], self.lane)
            builder.put(For(first[0], start, first[2], body, step))

    def _place(self, builder: Builder, operand: Value, indices: Sequence[Value]) -> tuple[Value, Value]:
        """Where an element lies in the one row of its buffer."""
        view, buffer = self.flat[operand.name]
        held = self.writer.memory.views.get(buffer)
        offset = view.offset - (0 if held is None else held.offset)
        found: Value | None = None
        for index, size, stride in zip(indices, view.shape, view.strides, strict=True):
            if size == 1:
                continue
            part = index if stride == 1 else builder.arith("mul", index, builder.constant(stride))
            found = part if found is None else builder.arith("add", found, part)
        if found is None:
            found = builder.constant(offset)
        elif offset:
            found = builder.arith("add", found, builder.constant(offset))
        base = self.writer.bases.get(buffer)
        if base is not None:
            found = builder.arith("sub", found, base)
        return self.writer.values[buffer], found


def _with_regions(node: object, inner: Sequence[Region]) -> For | If:
    if isinstance(node, For):
        return replace(node, body=inner[0])
    if isinstance(node, If):
        return replace(node, then=inner[0], otherwise=inner[1] if len(inner) > 1 else None)
    raise Unsupported("it does more than work-items do alone")
