"""Binding: a plan becomes a task-control stream for one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lamella.base.arena import Arena
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.limits import DEFAULT, LARGEST, Limits, hint_for
from lamella.base.quant import Quant
from lamella.base.source import NOWHERE, Span
from lamella.lang.nem.check.kernels import COMPUTE
from lamella.lang.nem.device import ResolvedDevice, ResolvedTopology
from lamella.lang.nem.resolved import Buffer, Loop, Plan, Region, Task
from lamella.lang.nem.rules import (
    ABSTRACT_TARGET,
    ADDRESS_SPACE,
    BAD_STREAM,
    NO_DEVICE,
    SERIALISED,
    TOO_LONG,
    TOPOLOGY_VALUE,
)
from lamella.lang.nem.words import MOVES
from lamella.plan.bind.fusion import find_chains, outside
from lamella.plan.bind.placement import Placement, Seat, check_tasks, offset_of
from lamella.plan.bind.repeat import TaskMark, iterations, restore, shorten
from lamella.plan.expand import TaskInstance, expand
from lamella.plan.stcb.nodes import (
    MOST_BITS,
    MOST_ENGINES,
    MOST_QUEUES,
    PLAIN,
    RESET,
    WDM,
    MappedBuffer,
    NamedTensor,
    RecordOrigin,
    Stream,
    StreamKernel,
    StreamUnit,
    StridedAccess,
    TaskRecord,
)
from lamella.plan.stcb.validate import Clock, join, ordered

# --- addresses: every buffer gets its bytes, aligned as it asks, for the whole program ----------------------


MOST_GAPS = 256
"""How many gaps are remembered, which keeps the search linear in the number of buffers."""


def assign_addresses(
    buffers: Iterable[Buffer], topology: ResolvedTopology
) -> tuple[Mapping[str, int], list[Diagnostic]]:
    """The address of each buffer in its memory, by name, and the buffers that do not fit."""
    levels: dict[str, list[Buffer]] = {}
    for buffer in buffers:
        levels.setdefault(buffer.level, []).append(buffer)
    found: dict[str, int] = {}
    findings: list[Diagnostic] = []
    for level, members in levels.items():
        placed = pack(members)
        found |= placed
        findings += _overflow(members, placed, level, capacity(members[0].memory, topology))
    return found, findings


def capacity(memory: str, topology: ResolvedTopology) -> int:
    """Bytes of a memory; DDR has no end."""
    sizes = {"L1": topology.l1_size_bytes, "L2": topology.l2_size_bytes}
    return sizes.get(memory, LARGEST)


def pack(buffers: Sequence[Buffer]) -> dict[str, int]:
    """Addresses in one memory, by the better of the two orders."""
    by_size = _first_fit(sorted(buffers, key=lambda item: -item.size))
    by_alignment = _first_fit(sorted(buffers, key=lambda item: (-item.align, -item.size)))
    return min(by_size, by_alignment, key=lambda placed: end_of(buffers, placed))


def end_of(buffers: Iterable[Buffer], placed: Mapping[str, int]) -> int:
    """The first byte behind the last buffer."""
    return max((placed[item.name] + item.size for item in buffers), default=0)


def _first_fit(buffers: Iterable[Buffer]) -> dict[str, int]:
    """Buffers live as long as the program: only what alignment leaves between them is filled again."""
    arena = Arena(MOST_GAPS)
    return {buffer.name: arena.first_fit(buffer.size, buffer.align) for buffer in buffers}


def _overflow(
    buffers: Sequence[Buffer], placed: Mapping[str, int], level: str, available: int
) -> list[Diagnostic]:
    """The first buffer, by address, that ends behind the memory; the others follow from it."""
    needed = end_of(buffers, placed)
    outside = [item for item in buffers if placed[item.name] + item.size > available]
    outside.sort(key=lambda item: placed[item.name])
    return [
        ADDRESS_SPACE.at(item.span, buffer=item.name, level=level, needed=needed, available=available)
        for item in outside[:1]
    ]


# --- order: which dependencies of a program need a token once every unit takes its records in order ---------


@dataclass(frozen=True, slots=True)
class BoundItem:
    """Task instances that start and complete as one, with the queues that take them and the nodes they wait for."""

    number: int
    engine: int
    queues: tuple[int, ...]
    members: tuple[TaskInstance, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Serial:
    """An order added for want of tokens: an item starts when all that stand `depth` or more before it are complete."""

    depth: int
    whole_device: bool


@dataclass(slots=True)
class IssueOrder:
    """For each item what its queues guarantee and what is complete with it; the waits between items."""

    base: list[Clock] = field(default_factory=list)
    done: list[Clock] = field(default_factory=list)
    place: list[tuple[int, int]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    added: int = 0

    def is_before(self, number: int, clock: Clock) -> bool:
        """Whether an item is complete by a clock."""
        queue, position = self.place[number]
        return clock[queue] >= position


def order_items(
    nodes: Sequence[TaskInstance], items: Sequence[BoundItem], queues: int, serial: Serial | None
) -> IssueOrder:
    """Find the waits of all items, in the order in which they stand in the streams."""
    walk = _Walk(items, queues, serial)
    first = {item.members[0].number: item for item in items}
    inside = {member.number for item in items for member in item.members[1:]}
    for node in nodes:
        if node.number in first:
            walk.take(first[node.number])
        elif node.number not in inside:
            walk.clocks[node.number] = walk.gather(node.after)
    return walk.order


class _Walk:
    """Goes through the program once; `clocks` are those of nodes, gates included."""

    def __init__(self, items: Sequence[BoundItem], queues: int, serial: Serial | None) -> None:
        self.items = items
        self.serial = serial
        self.zero: Clock = [0] * queues
        self.order = IssueOrder()
        self.clocks: dict[int, Clock] = {}
        self.last: list[Clock] = [self.zero] * queues
        self.contents: list[list[int]] = [[] for _ in range(queues)]
        self.prefixes: dict[int, list[Clock]] = {}

    def gather(self, numbers: Sequence[int]) -> Clock:
        """What is complete when all these nodes are."""
        clocks = [self.clocks[number] for number in numbers]
        return clocks[0] if len(clocks) == 1 else join(clocks, len(self.zero))

    def take(self, item: BoundItem) -> None:
        """Give one item its waits and its clock."""
        base = join([self.last[queue] for queue in item.queues], len(self.zero))
        required = self.gather(item.after)
        held = required if self.serial is None else join([required, self._held_back(item)], len(self.zero))
        earlier = len(self.order.waits)
        done = list(self._wait(item, base, held))
        makers = [maker for maker, _ in self.order.waits[earlier:]]
        self.order.added += sum(not self.order.is_before(maker, required) for maker in makers)
        for queue in item.queues:
            self.contents[queue].append(item.number)
            done[queue] = len(self.contents[queue])
        self._remember(item, base, done)

    def _wait(self, item: BoundItem, known: Clock, required: Clock) -> Clock:
        """Add the waits that lead from what is known to what is required."""
        missing = [queue for queue, count in enumerate(required) if count > known[queue]]
        makers = {self.contents[queue][required[queue] - 1] for queue in missing}
        for maker in sorted(makers, reverse=True):
            if not self.order.is_before(maker, known):
                self.order.waits.append((maker, item.number))
                known = join([known, self.order.done[maker]], len(self.zero))
        return known

    def _held_back(self, item: BoundItem) -> Clock:
        if self.serial is None:
            return self.zero
        prefix = self.prefixes.setdefault(self._line(item), [self.zero])
        return prefix[max(0, len(prefix) - self.serial.depth)]

    def _line(self, item: BoundItem) -> int:
        """The items that are held back by each other: those of an engine, or all."""
        return -1 if self.serial is not None and self.serial.whole_device else item.engine

    def _remember(self, item: BoundItem, base: Clock, done: Clock) -> None:
        self.order.base.append(base)
        self.order.done.append(done)
        self.order.place.append((item.queues[0], done[item.queues[0]]))
        for queue in item.queues:
            self.last[queue] = done
        for member in item.members:
            self.clocks[member.number] = done
        if self.serial is not None:
            prefix = self.prefixes[self._line(item)]
            prefix.append(join([prefix[-1], done], len(self.zero)))


# --- tokens: every wait gets a bit of the bank of the engine that waits -------------------------------------


_DEPTHS = (64, 32, 24, 16, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1)


@dataclass(frozen=True, slots=True)
class TokenUse:
    """A wait of one item for another, and the bit that carries it."""

    maker: int
    waiter: int
    bit: int


@dataclass(frozen=True, slots=True)
class Coloring:
    """All tokens; `needed` is the largest number of bits of a bank, `full` the first token behind the limit."""

    tokens: tuple[TokenUse, ...]
    needed: int
    full: TokenUse | None


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a program; where it was serialised, what it would have needed and where it began."""

    tokens: tuple[TokenUse, ...]
    bits: int
    wanted: int
    added: int = 0
    full: TokenUse | None = None

    @property
    def fits(self) -> bool:
        """Whether the bits that exist are enough."""
        return self.bits >= self.needed

    needed: int = 0


def assign_tokens(
    nodes: Sequence[TaskInstance], items: Sequence[BoundItem], queues: int, bits: int
) -> Tokens:
    """Bits for all dependencies that need one."""
    order = order_items(nodes, items, queues, None)
    free = color(items, order, bits)
    if free.needed <= bits:
        return Tokens(free.tokens, bits, free.needed, needed=free.needed)
    best = Tokens(free.tokens, bits, free.needed, full=free.full, needed=free.needed)
    for serial in _leashes(len(items)):
        order = order_items(nodes, items, queues, serial)
        found = color(items, order, bits)
        if found.needed < best.needed:
            best = Tokens(found.tokens, bits, free.needed, order.added, free.full, found.needed)
        if best.fits:
            break
    return best


def _leashes(count: int) -> Iterator[Serial]:
    """Ever shorter ones, first along each engine, then over the whole device."""
    for whole_device in (False, True):
        yield from (Serial(depth, whole_device) for depth in _DEPTHS if depth < max(2, count))


def color(items: Sequence[BoundItem], order: IssueOrder, limit: int) -> Coloring:
    """Give each wait the bit whose last waiter was in the same queue, or any other that is free, or a new one."""
    banks: dict[int, list[TokenUse]] = {}
    tokens: list[TokenUse] = []
    full: TokenUse | None = None
    for maker, waiter in sorted(order.waits):
        bank = banks.setdefault(items[waiter].engine, [])
        token = TokenUse(maker, waiter, _choose(bank, maker, waiter, order))
        bank[token.bit : token.bit + 1] = [token]
        tokens.append(token)
        full = token if full is None and token.bit >= limit else full
    return Coloring(tuple(tokens), max(map(len, banks.values()), default=0), full)


def _choose(bank: Sequence[TokenUse], maker: int, waiter: int, order: IssueOrder) -> int:
    free = [
        last
        for last in bank
        if order.is_before(last.waiter, order.done[maker])
        and order.is_before(last.waiter, order.base[waiter])
    ]
    same = [last for last in free if order.place[last.waiter][0] == order.place[waiter][0]]
    best = max(same or free, key=lambda last: last.waiter, default=None)
    return len(bank) if best is None else best.bit


# --- from placed, coloured task instances to the records of the engines' streams ----------------------------


class StreamBuilder:
    """Writes records one after another; constants are entered once."""

    def __init__(self, plan: Plan, device: ResolvedDevice, addresses: Mapping[str, int]) -> None:
        self.plan = plan
        self.device = device
        self.addresses = addresses
        self.constants: dict[Quant, int] = {}
        self.loops = {item.number: item for item, _ in plan.walk() if isinstance(item, Loop)}
        self.weights = device.units("WDM") > 0
        self.lines: dict[int, int] = {}

    def build(
        self, items: Sequence[BoundItem], seats: Mapping[int, Seat], tokens: Tokens, engines: int
    ) -> Stream:
        """The whole stream."""
        bits = _Bits(items, tokens)
        streams: list[list[TaskRecord]] = [[] for _ in range(engines)]
        places = {number: place for place, number in enumerate(sorted(seats))}
        for item in items:
            for position, node in enumerate(item.members):
                chained = position < len(item.members) - 1
                record = self._record(node, places[node.number], seats[node.number].unit, chained)
                streams[item.engine].append(bits.put(record, item, position == 0, not chained))
        for engine, stream in enumerate(streams):
            stream.append(TaskRecord(len(places) + engine, StreamUnit("SEQ", 0), RESET))
        tensors = self._tensors()
        return Stream(
            name=self.plan.name,
            device=self.device.name,
            bits=tokens.bits,
            memory=self._memory(),
            engines=tuple(map(tuple, streams)),
            constants=tuple(self.constants),
            tensors=tensors,
            kernels=self._kernels(
                {str(item.attrs["op"]) for stream in streams for item in stream if item.op == COMPUTE}
            ),
        )

    def _kernels(self, used: Collection[str]) -> tuple[StreamKernel, ...]:
        """What the `compute` tasks that are executed run, in the order of their names."""
        return tuple(StreamKernel(name, self.plan.kernels[name].text) for name in sorted(used))

    def _memory(self) -> tuple[MappedBuffer, ...]:
        places = [
            MappedBuffer(
                *(number, item.name, item.memory, item.engine, self.addresses[item.name], item.size),
                item.imported,
                *((item.codec, item.stored) if self.weights else ("", 0)),
            )
            for number, item in enumerate(self.plan.buffers)
        ]
        return tuple(ordered(places))

    def _tensors(self) -> tuple[NamedTensor, ...]:
        """The typed regions of a name and a fixed place."""
        return tuple(
            NamedTensor(name, region.buffer.engine, self._access(region, {}))
            for name, region in self.plan.regions.items()
            if region.type is not None and region.offset.is_constant
        )

    def _record(self, node: TaskInstance, number: int, unit: StreamUnit, chained: bool) -> TaskRecord:
        task = node.task
        if task is None:
            return TaskRecord(number, unit, RESET)
        return TaskRecord(
            seq=number,
            unit=unit,
            op=task.opcode,
            src=self._accesses(task, task.inputs, node.iteration),
            dst=self._accesses(task, task.outputs, node.iteration),
            attrs=dict(task.attributes),
            chain=chained,
            path=self._path(task),
            memmove=task.memmove,
            origin=self._origin(task, node.iteration),
        )

    def _path(self, task: Task) -> str:
        """Weights come from imported buffers; they go through WDM where the device has one."""
        is_weight = task.opcode == "transfer" and task.inputs[0].buffer.imported
        return WDM if is_weight and self.weights else PLAIN

    def _accesses(
        self, task: Task, regions: Sequence[Region], iteration: Mapping[int, int]
    ) -> tuple[StridedAccess, ...]:
        """The operands of a task; a move takes as many bytes as its source has."""
        if task.opcode in MOVES:
            return tuple(self._bytes(region, task.inputs[0].extent, iteration) for region in regions)
        return tuple(self._access(region, iteration) for region in regions)

    def _bytes(self, region: Region, extent: int, iteration: Mapping[int, int]) -> StridedAccess:
        return StridedAccess(region.buffer.memory, self._address(region, iteration), (extent,), (1,))

    def _access(self, region: Region, iteration: Mapping[int, int]) -> StridedAccess:
        if region.type is None:
            return self._bytes(region, region.extent, iteration)
        kind = region.type
        quant = None if kind.quant is None else self.constants.setdefault(kind.quant, len(self.constants))
        address = self._address(region, iteration)
        return StridedAccess(
            region.buffer.memory, address, kind.shape, kind.strides, kind.elem, kind.layout, quant
        )

    def _address(self, region: Region, iteration: Mapping[int, int]) -> int:
        return self.addresses[region.buffer.name] + offset_of(region, iteration)

    def _origin(self, task: Task, iteration: Mapping[int, int]) -> RecordOrigin:
        if task.number not in self.lines:
            self.lines[task.number] = task.span.line if task.span.source.text else 0
        return RecordOrigin(
            line=self.lines[task.number],
            token=task.token,
            iteration=tuple((self.loops[loop].variable, value) for loop, value in iteration.items()),
            debug=task.debug,
            profile=task.profile,
        )


class _Bits:
    """The token bits of each item."""

    def __init__(self, items: Sequence[BoundItem], tokens: Tokens) -> None:
        self.waits: dict[int, list[int]] = {}
        self.sets: dict[int, list[int]] = {}
        self.remote: dict[int, list[tuple[int, int]]] = {}
        for token in tokens.tokens:
            home = items[token.waiter].engine
            self.waits.setdefault(token.waiter, []).append(token.bit)
            if items[token.maker].engine == home:
                self.sets.setdefault(token.maker, []).append(token.bit)
            else:
                self.remote.setdefault(token.maker, []).append((home, token.bit))

    def put(self, record: TaskRecord, item: BoundItem, first: bool, last: bool) -> TaskRecord:
        """A record with the bits of its item: the first one waits and clears, the last one sets."""
        waits = tuple(sorted(self.waits.get(item.number, ()))) if first else ()
        return TaskRecord(
            record.seq,
            record.unit,
            record.op,
            waits,
            tuple(sorted(self.sets.get(item.number, ()))) if last else (),
            waits,
            tuple(sorted(self.remote.get(item.number, ()))) if last else (),
            *(record.src, record.dst, record.attrs, record.chain, record.path, record.memmove, record.origin),
        )


__all__ = ["bind"]

_DEFAULT_BITS = 16


def bind(
    plan: Plan, device: ResolvedDevice | None = None, *, allow_future: bool = False, limits: Limits = DEFAULT
) -> tuple[Stream | None, list[Diagnostic]]:
    """The stream of a checked plan on a device, and what was found; without a stream there is an error among it."""
    target = device or plan.device
    if target is None:
        return None, [NO_DEVICE.at(_first_span(plan))]
    if target.topology is None:
        return None, [ABSTRACT_TARGET.at(_first_span(plan), name=target.name)]
    if target.topology.num_engines > MOST_ENGINES:
        problem = (
            f"{target.name} has {target.topology.num_engines} engines; a stream has at most {MOST_ENGINES}"
        )
        return None, [BAD_STREAM.at(_first_span(plan), problem=problem)]
    placement = Placement(plan, target)
    addresses, findings = assign_addresses(plan.buffers, target.topology)
    findings += check_tasks(plan, placement, allow_future)
    findings += _check_bits(target)
    if errors(findings):
        return None, findings
    try:
        stream, more = _bind_loops(plan, target, addresses, limits)
    except LamellaError as problem:
        return None, [*findings, *problem.findings]
    return stream, findings + more


def _bind_loops(
    plan: Plan, device: ResolvedDevice, addresses: Mapping[str, int], limits: Limits
) -> tuple[Stream | None, list[Diagnostic]]:
    """Unroll a program of few instances; of a longer one, bind some iterations of its long loops and repeat them."""
    tried: Counter[int] = Counter()
    short = plan.instances() > limits.max_unrolled
    while True:
        placement = Placement(plan, device)
        some, cuts = shorten(plan, placement, tried) if short else (plan, [])
        builder = StreamBuilder(some, device, addresses)
        stream, found, items = _build(expand(some, limits, "max_records"), placement, builder)
        if stream is None or not cuts:
            return stream, found
        long = restore(stream, _marks(items, len(stream.engines)), cuts, iterations(plan))
        if isinstance(long, Stream):
            return _within(long, plan, found, limits)
        tried.update(long)


def _within(
    stream: Stream, plan: Plan, found: list[Diagnostic], limits: Limits
) -> tuple[Stream | None, list[Diagnostic]]:
    """The stream, unless it executes more records than any reader takes."""
    if stream.count() <= limits.max_records:
        return stream, found
    needed, limit = plan.instances(), limits.max_records
    hint = hint_for("max_records")
    return None, [*found, TOO_LONG.at(_first_span(plan), needed=needed, limit=limit, hint=hint)]


def _marks(items: Sequence[BoundItem], engines: int) -> list[list[TaskMark]]:
    """Where each record comes from, in the order in which records are written."""
    found: list[list[TaskMark]] = [[] for _ in range(engines)]
    for item in items:
        for node in item.members:
            found[item.engine].append(TaskMark(node.task, tuple(node.iteration.items())))
    for marks in found:
        marks.append(TaskMark(None))
    return found


def _build(
    nodes: Sequence[TaskInstance], placement: Placement, builder: StreamBuilder
) -> tuple[Stream | None, list[Diagnostic], Sequence[BoundItem]]:
    """Fuse, place, colour and write; where even one after another needs too many bits, with fewer units."""
    device = builder.device
    chains = find_chains(builder.plan, nodes, placement)
    items, seats = _seat(nodes, chains, placement)
    if _count_queues(items) > MOST_QUEUES:
        problem = f"{_count_queues(items)} units are in use; a stream has at most {MOST_QUEUES}"
        return None, [BAD_STREAM.at(_first_span(builder.plan), problem=problem)], items
    tokens = assign_tokens(nodes, items, _count_queues(items), _bits(device))
    if not tokens.fits:
        placement = Placement(builder.plan, device, narrow=True)
        items, seats = _seat(nodes, chains, placement)
        fewer = assign_tokens(nodes, items, _count_queues(items), _bits(device))
        needed = min(tokens.needed, fewer.needed)
        tokens = replace(fewer, wanted=tokens.wanted, full=tokens.full, needed=needed)
    found = [*placement.remapped.values(), *_token_findings(tokens, items, device)]
    if errors(found):
        return None, found, items
    return builder.build(items, seats, tokens, placement.machine.engines), found, items


def _first_span(plan: Plan) -> Span:
    return next((item.span for item, _ in plan.walk()), NOWHERE)


def _bits(device: ResolvedDevice) -> int:
    return min(MOST_BITS, device.characteristic("SEQ", "max_active_tokens", _DEFAULT_BITS))


def _check_bits(device: ResolvedDevice, least: int = 1) -> Iterator[Diagnostic]:
    if _bits(device) < least:
        field = "SEQ.max_active_tokens"
        yield TOPOLOGY_VALUE.at(device.span, field=field, name=device.name, value=_bits(device), least=least)


def _seat(
    nodes: Sequence[TaskInstance], chains: Mapping[int, tuple[TaskInstance, ...]], placement: Placement
) -> tuple[list[BoundItem], dict[int, Seat]]:
    """Place all instances in program order; a chain stands where its first member stands."""
    queues: dict[Seat, int] = {}
    seats: dict[int, Seat] = {}
    items: list[BoundItem] = []
    chained = {member.number for members in chains.values() for member in members[1:]}
    for node in nodes:
        if node.task is None or node.number in chained:
            continue
        members = chains.get(node.number, (node,))
        found = placement.seat_chain(list(members))
        seats |= {member.number: seat for member, seat in zip(members, found, strict=True)}
        numbers = tuple(dict.fromkeys(queues.setdefault(seat, len(queues)) for seat in found))
        after = outside(members, nodes) if len(members) > 1 else node.after
        items.append(BoundItem(len(items), found[0].engine, numbers, members, tuple(after or ())))
    return items, seats


def _count_queues(items: Sequence[BoundItem]) -> int:
    return 1 + max((queue for item in items for queue in item.queues), default=0)


def _token_findings(
    tokens: Tokens, items: Sequence[BoundItem], device: ResolvedDevice
) -> Iterator[Diagnostic]:
    """That the program was serialised, or that even that does not help."""
    if not tokens.fits:
        yield from _check_bits(device, tokens.needed)
    elif tokens.full is not None:
        task = items[tokens.full.waiter].members[0].task
        span = NOWHERE if task is None else task.span
        yield SERIALISED.at(span, count=tokens.wanted, limit=tokens.bits, added=tokens.added)
