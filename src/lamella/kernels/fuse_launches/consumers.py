"""Producer fusion into consumers: the work-groups of a larger launch absorb small launches that they alone read.

Attention of a decoding step has a work-group for each head of keys. What comes before it (norms, rotations, rows of
caches) has work-groups for heads too. Where those of one head touch nothing that another head writes, they become
phases of that head's work-group. The caches that it reads then are those of tokens before, which nobody writes any
more, and one row of its own, which is forwarded from where it was made. So the rest of a cache is prefetched before the
predecessor has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from math import gcd

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.build import Builder
from lamella.kernels.footprints import Footprint, find_footprints
from lamella.kernels.fuse_launches.phase_writer import (
    GroupSlice,
    PhaseMemory,
    PhaseWriter,
    StoredRow,
    is_group_number,
)
from lamella.kernels.fuse_launches.phases import INSIDE, PURE, WARP, Phase, find_levels
from lamella.kernels.hazards import local_size
from lamella.kernels.launches import FILL, Launch, LaunchList
from lamella.kernels.rewrite import used_values, walk
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    Barrier,
    Builtin,
    Cast,
    Compare,
    Constant,
    Dictionary,
    DictionaryEntry,
    For,
    Function,
    If,
    Instruction,
    Load,
    Parallel,
    Parameter,
    Region,
    Statement,
    Store,
    Value,
)
from lamella.lang.tensor.nodes.types import INDEX

MOST_LOCAL = 48 << 10
"""Local memory of a work-group without asking for more."""
SETTLED = "settled"
"""The attribute of a parameter all of whose loads that count read what was written before the list began."""
MOST_CONSUMER_GROUPS = 256
"""The most work-groups of a consumer, for the footprint of each is computed."""
MOST_TEAM = 16
"""The most work-groups that recompute the same."""
BEFORE = (Alloca, Arith, Builtin, Cast, Compare, Constant)
"""What a consumer does before its work-items begin."""
WITHIN = (*INSIDE, Barrier, Builtin, For, If)
"""What its work-items do."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the work-groups of a consumer share what it absorbs."""

    teams: int
    """Of neighbouring work-groups; each team touches memory of its own."""
    parts: Mapping[str, GroupSlice]
    """The slices of each team of the buffers that are written."""


@dataclass(slots=True)
class ConsumerFusion:
    """Finds the launches of a list that can absorb others, and writes their kernels."""

    whole: LaunchList
    functions: Mapping[str, Function]
    _known: dict[tuple[str, int], dict[str, Footprint]] = field(default_factory=dict)

    def find(self, launch: Launch) -> Phase | None:
        """A launch of work-groups of several subgroups that can absorb others; None for another one."""
        function = self.functions.get(launch.kernel)
        if launch.kernel == FILL or function is None or launch.groups > MOST_CONSUMER_GROUPS:
            return None
        *before, last = function.body.statements
        if _count_subgroups(function) is None or not isinstance(last.instruction, Parallel):
            return None
        known = all(isinstance(item.instruction, BEFORE) for item in before) and all(
            isinstance(item.instruction, WITHIN) for item in walk(last.instruction.body)
        )
        return Phase(launch, function, 0) if known else None

    def find_sharing(self, phases: Sequence[Phase], consumer: Phase) -> Sharing:
        """Which work-groups of a consumer compute what, and their slices of the buffers that are written.

        Neighbours may be one team: each of them recomputes what its team needs, and the first what others see.
        Unsupported: two teams meet in a buffer.
        """
        whole = gcd(consumer.launch.groups, *(item.launch.groups for item in phases))
        fewest = -(-consumer.launch.groups // MOST_TEAM)
        for teams in (item for item in range(whole, fewest - 1, -1) if whole % item == 0):
            with suppress(Unsupported):
                return Sharing(teams, self._find_parts(phases, consumer, teams))
        raise Unsupported("work-groups touch the same memory")

    def _find_parts(self, phases: Sequence[Phase], consumer: Phase, teams: int) -> dict[str, GroupSlice]:
        """The slices of each team of the buffers that phases write; the consumer's own are told apart by group."""
        touched: dict[str, list[Footprint | None]] = {}
        for item in (*phases, consumer):
            for group in range(item.launch.groups):
                self._add(touched, item, (group, group // (item.launch.groups // teams), teams))
        own: dict[str, list[Footprint | None]] = {}
        count = consumer.launch.groups
        for group in range(count):
            self._add(own, consumer, (group, group, count))
        made = {item.launch.arguments[place].buffer for item in phases for place in item.launch.writes}
        for place in consumer.launch.writes:
            buffer = consumer.launch.arguments[place].buffer
            if buffer in made:
                raise Unsupported("a consumer and what it takes over write the same memory")
            _find_part(own[buffer])
        return {name: _find_part(touched[name]) for name in touched.keys() & made}

    def _add(
        self, touched: dict[str, list[Footprint | None]], item: Phase, place: tuple[int, int, int]
    ) -> None:
        """What a work-group touches, for one of so many."""
        group, number, count = place
        key = item.function.name, group
        if key not in self._known:
            self._known[key] = find_footprints(
                item.function, group, (WARP, _count_subgroups(item.function) or 1)
            )
        pairs = zip(item.launch.arguments, item.function.parameters, strict=False)
        for view, parameter in pairs:
            found = self._known[key].get(parameter.value.name)
            if found is not None:
                moved = replace(found, first=found.first + view.offset, last=found.last + view.offset)
                held = touched.setdefault(view.buffer, [None] * count)
                before = held[number]
                held[number] = moved if before is None else before.joined(moved)

    def write(
        self,
        name: str,
        memory: PhaseMemory,
        phases: Sequence[Phase],
        consumer: Phase,
        sharing: tuple[Sharing, set[str]],
    ) -> Function:
        """The kernel of a consumer with what it absorbs; caches are settled that no launch before writes."""
        subgroups = _count_subgroups(consumer.function)
        if subgroups is None:
            raise Unsupported("its work-groups have one subgroup")
        (shared, settled), writer = sharing, PhaseWriter(memory, subgroups)
        written = _ConsumerWriter(writer, phases, consumer, shared.teams).write(name, settled)
        held = [item.instruction for item in walk(written.body)]
        if sum(local_size(item.type) for item in held if isinstance(item, Alloca)) > MOST_LOCAL:
            raise Unsupported("what they make does not fit into local memory")
        return written


def _count_subgroups(function: Function) -> int | None:
    """The subgroups of a work-group, where they are several."""
    given = Dictionary() if function.attributes is None else function.attributes
    size = given.find("work_group_size")
    if given.find("subgroup_size") != WARP or not isinstance(size, tuple) or size[1] != 1:
        return None
    count = size[0] // WARP if isinstance(size[0], int) else 0
    return count if count > 1 else None


def _find_part(found: Sequence[Footprint | None]) -> GroupSlice:
    """The slice of a buffer of each work-group; Unsupported where two share some."""
    own = [item for item in found if item is not None]
    if len(own) != len(found):
        raise Unsupported("a work-group has no part")
    step = own[1].first - own[0].first if len(own) > 1 else 0
    size = max(item.last - item.first for item in own) + 1
    if any(item.first != own[0].first + number * step for number, item in enumerate(own)):
        raise Unsupported("parts of a buffer lie at uneven distances")
    if len(own) > 1 and abs(step) < size:
        raise Unsupported("two work-groups touch the same memory")
    return GroupSlice(own[0].first, step, size)


@dataclass(slots=True)
class _ConsumerWriter:
    """Writes the kernel of a consumer."""

    writer: PhaseWriter
    phases: Sequence[Phase]
    consumer: Phase
    teams: int
    forwarded: set[str] = field(default_factory=set)
    """Buffers of which one row is forwarded from where it was made."""

    def write(self, name: str, settled: set[str]) -> Function:
        """Write it."""
        writer, each = self.writer, self.consumer.launch.groups // self.teams
        parameters, builder = writer.begin()
        group = builder.builtin("group_id", INDEX)
        self._verify_teams()
        with builder.parallel() as region:
            team, number = group, region.constant(0)
            if each > 1:
                size = region.constant(each)
                team, number = region.arith("div", group, size), region.arith("rem", group, size)
            for buffer in writer.memory.local:
                part = writer.memory.parts[buffer]
                start = region.arith("mul", team, region.constant(part.step))
                writer.bases[buffer] = region.arith("add", start, region.constant(part.first))
            rows = dict(self._find_rows(region, team))
            taken = 0
            for level in find_levels(self.phases):
                # Subgroups that have nothing to do yet load for the next level meanwhile.
                taken = self._write_level(region, level, (team, number), taken)
                writer.put_barrier(region)
            writing, body = writer.begin_body(region, self.consumer, group)
            *before, last = body.statements
            for statement in before:
                if not is_group_number(statement):
                    builder.add_statement(statement)
            inner = last.instruction.body if isinstance(last.instruction, Parallel) else Region(())
            replace(writing, rows=rows).write(region, inner.statements)
        places = [
            number for number, name in enumerate(writer.memory.views) if name in settled & self.forwarded
        ]
        promised = [_settled(item) if number in places else item for number, item in enumerate(parameters)]
        return writer.close(name, promised, builder)

    def _write_level(
        self, builder: Builder, level: Sequence[Phase], place: tuple[Value, Value], taken: int
    ) -> int:
        """Phases side by side: all of a team do those that it needs itself, the first those that others see.

        Gives how many subgroups are taken behind it.
        """
        team, number = place
        for item in level:
            each = item.launch.groups // self.teams
            first = builder.arith("mul", team, builder.constant(each))
            if self.teams == self.consumer.launch.groups or not self._is_seen(item):
                self.writer.write_groups(builder, item, each, taken, first)
            else:
                is_first = builder.compare("eq", number, builder.constant(0))
                with builder.condition(is_first) as inner:
                    self.writer.write_groups(inner, item, each, taken, first)
            taken += each
        return taken

    def _is_seen(self, phase: Phase) -> bool:
        """Whether a phase writes memory that is not the work-group's own."""
        local = self.writer.memory.local
        return any(phase.launch.arguments[place].buffer not in local for place in phase.launch.writes)

    def _verify_teams(self) -> None:
        """Refuse teams where one would read what another one writes; only forwarded rows may be."""
        if self.teams == self.consumer.launch.groups:
            return
        seen = [item for item in self.phases if self._is_seen(item)]
        made = {item.launch.arguments[place].buffer for item in seen for place in item.launch.writes}
        if made & self.writer.memory.local.keys():
            raise Unsupported("a phase writes what its team needs and what others see")
        own = {id(item) for item in seen}
        read = {view.buffer for item in self.phases if id(item) not in own for view in item.launch.arguments}
        late = {view.buffer for view in self.consumer.launch.arguments} & made
        if read & made or any(not self._is_forwarded(buffer) for buffer in late):
            raise Unsupported("a work-group reads what another one of its team writes")

    def _is_forwarded(self, buffer: str) -> bool:
        """Whether a buffer is written by one phase, a row of it, which the consumer takes from where it was made."""
        made = self._makers(buffer)
        kept = buffer in self.writer.memory.kept and len(made) == 1
        return kept and _find_row_store(made[0]) is not None and self._is_alone(buffer, made[0])

    def _makers(self, buffer: str) -> list[Phase]:
        return [
            item
            for item in self.phases
            if any(item.launch.arguments[place].buffer == buffer for place in item.launch.writes)
        ]

    def _find_rows(self, builder: Builder, group: Value) -> Iterator[tuple[str, StoredRow]]:
        """The rows of buffers that phases store and the consumer reads, by the names of their memrefs."""
        for buffer in dict.fromkeys(view.buffer for view in self.consumer.launch.arguments):
            if self._is_forwarded(buffer):
                (phase,) = self._makers(buffer)
                found = _find_row_store(phase)
                if found is not None:
                    self.forwarded.add(buffer)
                    row = self._write_row(builder, phase, found, group)
                    yield self.writer.values[buffer].name, row

    def _is_alone(self, buffer: str, phase: Phase) -> bool:
        """Whether no phase behind the one that stores a row reads its buffer."""
        behind = self.phases[[id(item) for item in self.phases].index(id(phase)) + 1 :]
        return all(view.buffer != buffer for item in behind for view in item.launch.arguments)

    def _write_row(self, builder: Builder, phase: Phase, found: _RowStore, group: Value) -> StoredRow:
        """Compute which row a phase stores."""
        writing, body = self.writer.begin_body(builder, phase, group)
        # The copy has its statements in the same order: those of the row are found by their numbers.
        copied = list(walk(body))
        writing.write(builder, [copied[number] for number in found.needed])
        store = copied[found.store].instruction
        load = copied[found.load].instruction
        if not isinstance(store, Store) or not isinstance(load, Load):
            raise Unsupported("a row is stored in another way")
        number, missing = store.indices[found.mode], builder.constant(-1)
        for place in found.conditions:
            condition = copied[place].instruction
            if isinstance(condition, If):
                number = builder.arith("select", condition.condition, number, missing)
        return StoredRow(found.mode, number, load.operand, load.indices[found.mode], writing)


def _settled(parameter: Parameter) -> Parameter:
    entries = () if parameter.attributes is None else parameter.attributes.entries
    return replace(parameter, attributes=Dictionary((*entries, DictionaryEntry(SETTLED, True))))


@dataclass(frozen=True, slots=True)
class _RowStore:
    """Which statements of a kernel store a row of a memref: by their numbers, in the order of a walk."""

    mode: int
    store: int
    load: int
    conditions: tuple[int, ...]
    """The branches around the store."""
    needed: tuple[int, ...]
    """What computes the number of the row, and whether it is stored."""


def _find_row_store(phase: Phase) -> _RowStore | None:
    """How a kernel copies one row into a memref; None for a kernel that does more, or something else."""
    function = phase.function
    statements = list(walk(function.body))
    fault = function.parameters[-1].value.name if phase.launch.has_fault else None
    stores = [
        number
        for number, item in enumerate(statements)
        if isinstance(item.instruction, Store) and item.instruction.operand.name != fault
    ]
    makers = {value.name: number for number, item in enumerate(statements) for value in item.results}
    store = statements[stores[0]].instruction if len(stores) == 1 else None
    if not isinstance(store, Store) or store.flag:
        return None
    load_place = makers.get(store.value.name, -1)
    load = statements[load_place].instruction if load_place >= 0 else None
    if not isinstance(load, Load) or len(load.indices) != len(store.indices):
        return None
    others = [
        mode
        for mode, (one, other) in enumerate(zip(load.indices, store.indices, strict=True))
        if one != other
    ]
    if len(others) != 1:
        return None
    conditions = tuple(_branches_around(statements, stores[0]))
    wanted = [store.indices[others[0]], load.indices[others[0]]]
    for place in conditions:
        node = statements[place].instruction
        wanted += [node.condition] if isinstance(node, If) else []
    needed = _find_needed(statements, makers, wanted)
    return None if needed is None else _RowStore(others[0], stores[0], load_place, conditions, needed)


def _branches_around(statements: Sequence[Statement], inside: int) -> Iterator[int]:
    """The numbers of the branches whose first region has a statement in it."""
    for number, item in enumerate(statements):
        node = item.instruction
        if isinstance(node, If) and any(found is statements[inside] for found in walk(node.then)):
            yield number


def _find_needed(
    statements: Sequence[Statement], makers: Mapping[str, int], wanted: Sequence[Value]
) -> tuple[int, ...] | None:
    """The statements that compute some values, in order; None where a loop or a lane decides one."""
    waiting, needed = [item.name for item in wanted], set[int]()
    while waiting:
        name = waiting.pop()
        number = makers.get(name)
        if number is None:
            return None
        node: Instruction = statements[number].instruction
        if number in needed or is_group_number(statements[number]):
            continue
        if not isinstance(node, PURE):
            return None
        needed.add(number)
        used = list(node.indices) if isinstance(node, Load) else used_values(node)
        waiting += [item.name for item in used]
    return tuple(sorted(needed))
