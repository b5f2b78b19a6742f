"""A graph as Schedule IR: its ops in order, with streams, and an offset in an arena for every tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lamella.base import dim
from lamella.base.arena import Allocation, LiveBlock, allocate, allocate_in_line
from lamella.base.dim import Extent, TooComplex
from lamella.base.liveness import LiveRange, changes
from lamella.bridge.module_to_ir import nodes as ir
from lamella.bridge.module_to_ir.annotations import KEPT, LIFETIME, Marks
from lamella.bridge.module_to_ir.graph import (
    SymbolTable,
    dtype_name,
    layer_of,
    members,
    operations,
    primitive_of,
)
from lamella.bridge.module_to_ir.liveness import (
    Storage,
    bytes_of,
    find_live_ranges,
    find_storage,
    find_waits,
    is_collective,
)
from lamella.graph.nodes import Graph, Operation, Tensor

ALIGNMENT = 64
"""Every buffer begins at a multiple of so many bytes."""

SCHEDULE_FORMAT = "lamella.schedule 1"
ACTIVATION, GRADIENT, WEIGHT, WORKSPACE = "activation", "gradient", "weight", "workspace"
KINDS = (ACTIVATION, GRADIENT, WEIGHT, WORKSPACE)
CALLER, WEIGHTS, SAVED, GRADIENTS, SCRATCH = "caller", "weights", "saved", "gradients", "scratch"
POOLS = (CALLER, WEIGHTS, SAVED, GRADIENTS, SCRATCH)
COMPUTE, COMM = "compute", "comm"
MOST_SUMS = 16
"""Sums of memory that only the inputs can compare; of more the largest is not written out."""


def make_schedule(
    graph: Graph, marks: Marks, modes: Mapping[str, str], lasting: bool = True
) -> ir.ScheduleIR:
    """The plan of a graph; modes say which tensors are kept, to the end where they are `lasting`."""
    return _Scheduling(graph, marks, modes, lasting).run()


class _Scheduling:
    """The work of `make_schedule`."""

    def __init__(self, graph: Graph, marks: Marks, modes: Mapping[str, str], lasting: bool) -> None:
        self.graph, self.marks = graph, marks
        self.nodes = operations(graph)
        self.table = SymbolTable()
        self.given = [item for argument in graph.inputs for item in members(argument)]
        self.lasting = [*graph.variables, *(item.tensor for item in graph.constants)]
        made = [item for node in self.nodes for argument in node.outputs for item in members(argument)]
        self.tensors = {item.name: item for item in (*self.given, *self.lasting, *made)}
        self.bytes = {name: bytes_of(item) for name, item in self.tensors.items()}
        self.kept = {name for name in self.tensors if modes.get(name) in KEPT}
        self.storage = {name: Storage(name, 0) for name in self.tensors} | find_storage(graph, marks)
        self.live_ranges = find_live_ranges(graph, self.kept if lasting else ())
        self._inside: dict[str, list[int]] = {}
        if lasting:
            self.live_ranges |= dict(self._lifetimes())
        self.owner_ranges = self._owner_ranges()
        self.pools = self._pools()
        self.arenas = {name: self._place(name) for name in POOLS}

    def run(self) -> ir.ScheduleIR:
        buffers = tuple(map(self._buffer, self.tensors.values()))
        ops = tuple(self._op(number, node) for number, node in enumerate(self.nodes))
        peaks = tuple(self._peak(kind) for kind in KINDS)
        saved = [self.tensors[name] for name in self.tensors if self._is_saved(name)]
        gradients = [self.tensors[name] for name, pool in self.pools.items() if pool == GRADIENTS]
        return ir.ScheduleIR(
            format=SCHEDULE_FORMAT,
            name=self.graph.name,
            alignment=ALIGNMENT,
            ops=ops,
            buffers=buffers,
            pools=tuple(ir.Pool(name, self._size(item.total)) for name, item in self.arenas.items()),
            sync_points=tuple(self._sync_points()),
            activation_layout=ir.ActivationLayout(self._fields(saved), self._size(self.arenas[SAVED].total)),
            gradient_layout=ir.MemoryLayout(
                self._fields(gradients), self._size(self.arenas[GRADIENTS].total)
            ),
            peaks=peaks,
            symbols=self.table.symbols,
        )

    def _size(self, extent: Extent) -> int:
        return self.table.extent(extent)

    # --- memory ---------------------------------------------------------------------------------------------

    def _owner_ranges(self) -> dict[str, LiveRange]:
        """When the memory of each owner is in use, by itself or by a part of it."""
        found: dict[str, LiveRange] = {}
        for name, storage in self.storage.items():
            live = self.live_ranges[name]
            found[storage.owner] = found[storage.owner].joined(live) if storage.owner in found else live
        return found

    def _lifetimes(self) -> Iterator[tuple[str, LiveRange]]:
        """The lives that `@lifetime` gives tensors, none of which end before the last use."""
        for mark, resolved in self.marks.all:
            name, arguments = mark.tensor.name, resolved.arguments
            if resolved.name != LIFETIME or name not in self.live_ranges:
                continue
            owner = mark.path.rpartition(".")[0]
            words = (arguments.get("start"), arguments.get("end"))
            named = [(number, self._word(number)) for number in self._below(owner)]
            within = [*self._within(str(arguments.get("scope")), owner)]
            within += [number for number, word in named if word in words]
            born = [number for number, word in named if word == words[0]]
            live = self.live_ranges[name]
            yield name, LiveRange(min((live.first, *born)), max((live.last, *within)))

    def _within(self, scope: str, owner: str) -> Sequence[int]:
        """The ops of a scope around a declaration; one operation is the tensor's own life."""
        if scope == "operation":
            return ()
        if scope == "layer":
            layer = layer_of(owner)
            return [number for number in self._below("") if layer_of(self._path(number)) == layer]
        return self._below({"sublayer": owner, "block": owner.rpartition(".")[0]}.get(scope, ""))

    def _below(self, owner: str) -> Sequence[int]:
        """The ops of an instance and of all that it calls; all ops for the root."""
        if owner not in self._inside:
            self._inside[owner] = [
                number
                for number in range(len(self.nodes))
                if not owner or self._path(number).startswith(f"{owner}.")
            ]
        return self._inside[owner]

    def _word(self, number: int) -> str:
        return primitive_of(self.nodes[number])

    def _path(self, number: int) -> str:
        origin = self.nodes[number].origin
        return "" if origin is None else origin.what

    def _pools(self) -> dict[str, str]:
        """The pool of each tensor that owns its memory."""
        outputs = {item.name for argument in self.graph.outputs for item in members(argument)}
        kept = {self.storage[name].owner for name in self.kept}
        pools = {name: SAVED if name in kept else SCRATCH for name in self.owner_ranges}
        pools |= {name: GRADIENTS for name in self.owner_ranges if name in outputs and is_gradient(name)}
        pools |= {item.name: CALLER for item in self.given}
        return pools | {item.name: WEIGHTS for item in self.lasting}

    def _place(self, pool: str) -> Allocation:
        blocks = [
            LiveBlock(name, self.bytes[name], self.owner_ranges[name].first, self.owner_ranges[name].last)
            for name, other in self.pools.items()
            if other == pool
        ]
        return (allocate if pool == SCRATCH else allocate_in_line)(blocks, ALIGNMENT)

    def _offset(self, name: str) -> Extent:
        """Where a tensor lies in its pool."""
        storage = self.storage[name]
        return dim.add(self.arenas[self.pools[storage.owner]].offsets[storage.owner], storage.offset)

    def _is_saved(self, name: str) -> bool:
        return name in self.kept and self.pools[self.storage[name].owner] == SAVED

    def _kind(self, name: str) -> str:
        if self.pools[self.storage[name].owner] == WEIGHTS:
            return WEIGHT
        return GRADIENT if is_gradient(name) else ACTIVATION

    def _buffer(self, tensor: Tensor) -> ir.ScheduleBuffer:
        name = tensor.name
        storage = self.storage[name]
        part = storage.owner != name
        live = self.live_ranges[name] if part else self.owner_ranges[name]
        aliases = (ir.BufferAlias(storage.owner, self._size(storage.offset)),) if part else ()
        return ir.ScheduleBuffer(
            id=name,
            tensor=name,
            kind=self._kind(name),
            dtype=dtype_name(tensor.element),
            bytes=self._size(self.bytes[name]),
            first=live.first,
            last=live.last,
            pool=self.pools[storage.owner],
            offset=self._size(self._offset(name)),
            aliases=aliases,
        )

    def _fields(self, tensors: Sequence[Tensor]) -> tuple[ir.LayoutField, ...]:
        return tuple(
            ir.LayoutField(
                item.name,
                self._size(self._offset(item.name)),
                self._size(self.bytes[item.name]),
                dtype_name(item.element),
            )
            for item in tensors
        )

    # --- ops ------------------------------------------------------------------------------------------------

    def _op(self, number: int, node: Operation) -> ir.ScheduledOp:
        made = [item.name for argument in node.outputs for item in members(argument)]
        moved = any(self.storage[name].owner == name for name in made)
        hooks = [self.marks.argument(name, "hook", "point") for name in made]
        path = node.origin.what if node.origin is not None else ""
        return ir.ScheduledOp(
            order=number,
            kernel=node.operator if moved else "view",
            node=f"n{number}",
            inputs=tuple(self._refs(item.name for argument in node.inputs for item in members(argument))),
            outputs=tuple(self._refs(iter(made))),
            stream=COMM if is_collective(node) else COMPUTE,
            layer=layer_of(path),
            hook=next((str(item) for item in hooks if item is not None), None),
        )

    def _refs(self, names: Iterator[str]) -> Iterator[ir.BufferRef]:
        for name in names:
            storage = self.storage[name]
            yield ir.BufferRef(storage.owner, self._size(storage.offset), self._size(self.bytes[name]))

    def _sync_points(self) -> Iterator[ir.SyncPoint]:
        """A collective waits for all before it; what needs its result, or the end, waits for the collective."""
        waits = {before: op for op, before in find_waits(self.graph)}
        computed = -1
        for number, node in enumerate(self.nodes):
            if number in waits:
                yield ir.SyncPoint(waits[number], number, COMPUTE, "comm_wait", self._group(waits[number]))
            if not is_collective(node):
                computed = number
            elif computed >= 0:
                yield ir.SyncPoint(computed, number, COMM, "stream_sync", self._group(number))
        if len(self.nodes) in waits:
            last = waits[len(self.nodes)]
            yield ir.SyncPoint(last, len(self.nodes), COMPUTE, "comm_wait", self._group(last))

    def _group(self, number: int) -> str:
        made = [item.name for argument in self.nodes[number].outputs for item in members(argument)]
        found = [self.marks.argument(name, "comm", "group") for name in made]
        return next((str(item) for item in found if item is not None), "")

    # --- peaks ----------------------------------------------------------------------------------------------

    def _peak(self, kind: str) -> ir.PeakMemory:
        owners = [name for name in self.owner_ranges if self._kind(name) == kind]
        unshared: Extent = 0
        for name in owners:
            unshared = dim.add(unshared, self.bytes[name])
        most = largest(self._sums(owners), unshared)
        return ir.PeakMemory(kind, self._size(most), self._size(unshared))

    def _sums(self, owners: Sequence[str]) -> Iterator[Extent]:
        """The bytes that are in use at each op, and before the first."""
        # Ends are exclusive: a buffer is in use to the end of its last op.
        ranges = ((name, self.owner_ranges[name].first, self.owner_ranges[name].last + 1) for name in owners)
        total: Extent = 0
        for _, begun, ended in changes(ranges):
            for name in begun:
                total = dim.add(total, self.bytes[name])
            for name in ended:
                total = dim.sub(total, self.bytes[name])
            yield total


def is_gradient(name: str) -> bool:
    """Whether a tensor is a gradient, which its name shows: `d_blocks.0.weight`, `blocks.0.d_x`."""
    return name.startswith("d_") or name.rpartition(".")[2].startswith("d_")


def largest(sums: Iterator[Extent], otherwise: Extent) -> Extent:
    """The largest of several sizes; where too many of them cannot be compared, an upper bound."""
    found: list[Extent] = []
    for item in dict.fromkeys(sums):
        if not any(dim.less_equal(item, other) is True for other in found):
            found = [other for other in found if dim.less_equal(other, item) is not True] + [item]
        # The maximum of many incomparable sums is an expression nobody reads; the plain sum bounds it.
        if len(found) > MOST_SUMS:
            return otherwise
    most: Extent = 0
    try:
        for item in found:
            most = dim.larger(most, item)
    except TooComplex:
        return otherwise
    return most
