"""From placed, coloured task instances to the records of the engines' streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.quant import Quant
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.resolved import Loop, Plan, Region, Task
from lamella.plan.bind.offsets import offset_of
from lamella.plan.bind.order import Item
from lamella.plan.bind.placement import Seat
from lamella.plan.bind.tokens import Tokens
from lamella.plan.expand import Node
from lamella.plan.stcb.nodes import (
    PLAIN,
    RESET,
    WDM,
    Access,
    Origin,
    Place,
    Record,
    Stream,
    Tensor,
    Unit,
)
from lamella.plan.stcb.validate import MOVES, ordered


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

    def build(self, items: Sequence[Item], seats: Mapping[int, Seat], tokens: Tokens, engines: int) -> Stream:
        """The whole stream."""
        bits = _Bits(items, tokens)
        streams: list[list[Record]] = [[] for _ in range(engines)]
        places = {number: place for place, number in enumerate(sorted(seats))}
        for item in items:
            for position, node in enumerate(item.members):
                chained = position < len(item.members) - 1
                record = self._record(node, places[node.number], seats[node.number].unit, chained)
                streams[item.engine].append(bits.put(record, item, position == 0, not chained))
        for engine, stream in enumerate(streams):
            stream.append(Record(len(places) + engine, Unit("SEQ", 0), RESET))
        tensors = self._tensors()
        return Stream(
            name=self.plan.name,
            device=self.device.name,
            bits=tokens.bits,
            memory=self._memory(),
            engines=tuple(map(tuple, streams)),
            constants=tuple(self.constants),
            tensors=tensors,
        )

    def _memory(self) -> tuple[Place, ...]:
        places = [
            Place(number, item.name, item.memory, item.engine, address, item.size, item.imported)
            for number, item in enumerate(self.plan.buffers)
            for address in [self.addresses[item.name]]
        ]
        return tuple(ordered(places))

    def _tensors(self) -> tuple[Tensor, ...]:
        """The typed regions of a name and a fixed place."""
        return tuple(
            Tensor(name, region.buffer.engine, self._access(region, {}))
            for name, region in self.plan.regions.items()
            if region.type is not None and region.offset.is_constant
        )

    def _record(self, node: Node, number: int, unit: Unit, chained: bool) -> Record:
        task = node.task
        if task is None:
            return Record(number, unit, RESET)
        return Record(
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
    ) -> tuple[Access, ...]:
        """The operands of a task; a move takes as many bytes as its source has."""
        if task.opcode in MOVES:
            return tuple(self._bytes(region, task.inputs[0].extent, iteration) for region in regions)
        return tuple(self._access(region, iteration) for region in regions)

    def _bytes(self, region: Region, extent: int, iteration: Mapping[int, int]) -> Access:
        return Access(region.buffer.memory, self._address(region, iteration), (extent,), (1,))

    def _access(self, region: Region, iteration: Mapping[int, int]) -> Access:
        if region.type is None:
            return self._bytes(region, region.extent, iteration)
        kind = region.type
        quant = None if kind.quant is None else self.constants.setdefault(kind.quant, len(self.constants))
        address = self._address(region, iteration)
        return Access(region.buffer.memory, address, kind.shape, kind.strides, kind.elem, kind.layout, quant)

    def _address(self, region: Region, iteration: Mapping[int, int]) -> int:
        return self.addresses[region.buffer.name] + offset_of(region, iteration)

    def _origin(self, task: Task, iteration: Mapping[int, int]) -> Origin:
        if task.number not in self.lines:
            self.lines[task.number] = task.span.line if task.span.source.text else 0
        return Origin(
            line=self.lines[task.number],
            token=task.token,
            iteration=tuple((self.loops[loop].variable, value) for loop, value in iteration.items()),
            debug=task.debug,
            profile=task.profile,
        )


class _Bits:
    """The token bits of each item."""

    def __init__(self, items: Sequence[Item], tokens: Tokens) -> None:
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

    def put(self, record: Record, item: Item, first: bool, last: bool) -> Record:
        """A record with the bits of its item: the first one waits and clears, the last one sets."""
        waits = tuple(sorted(self.waits.get(item.number, ()))) if first else ()
        return Record(
            record.seq,
            record.unit,
            record.op,
            waits,
            tuple(sorted(self.sets.get(item.number, ()))) if last else (),
            waits,
            tuple(sorted(self.remote.get(item.number, ()))) if last else (),
            *(record.src, record.dst, record.attrs, record.chain, record.path, record.memmove, record.origin),
        )
