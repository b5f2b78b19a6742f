"""A graph as Schedule IR: its ops in order, with streams, and with a place in memory for every tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from lamella.base import dim
from lamella.base.dim import Extent, TooComplex
from lamella.bridge.module_to_ir import nodes as ir
from lamella.bridge.module_to_ir.annotations import KEPT, Marks
from lamella.bridge.module_to_ir.graph import Table, dtype_name, layer_of, members, operations, primitive_of
from lamella.graph.nodes import Graph, Operation, Shape, Tensor

# --- from which op to which op the memory of each tensor is in use, and which tensors are parts of ----------


WHOLE = frozenset(
    ("math.iden", "aten.reshape", "layout.reshape", "layout.squeeze", "layout.unsqueeze", "layout.flatten")
)
"""Operators whose result has the elements of their operand in the same order."""
PARTS, SLICE, FORK = "llm.split", "layout.slice", "llm.fork"
COLLECTIVES = frozenset(
    ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "broadcast")
)
BEFORE = -1
"""The time before the first op."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The memory of a tensor: part of that of another, which owns its own."""

    owner: str
    offset: Extent


def bytes_of(tensor: Tensor) -> Extent:
    """The memory that a tensor takes, elements packed."""
    bits: Extent = tensor.element.bits
    for extent in tensor.shape:
        bits = dim.mul(bits, extent)
    return dim.ceil_divide(bits, 8)


def is_collective(node: Operation) -> bool:
    """Whether a node speaks with other devices."""
    return primitive_of(node) in COLLECTIVES


# --- parts of other tensors -------------------------------------------------------------------------------------


def find_seats(graph: Graph, marks: Marks) -> dict[str, Seat]:
    """Where each tensor lies; results of the graph and of updates have memory of their own."""
    own = {item.name for argument in graph.outputs for item in members(argument)}
    own |= {item.value.name for item in graph.updates}
    seats: dict[str, Seat] = {}
    for node in operations(graph):
        views = {item.name: (of, offset) for item, of, offset in _views(node)}
        for item in (item for argument in node.outputs for item in members(argument)):
            view = views.get(item.name)
            if view is None or item.name in own or _must_copy(item, marks):
                seats[item.name] = Seat(item.name, 0)
                continue
            below = seats.get(view[0], Seat(view[0], 0))
            seats[item.name] = Seat(below.owner, dim.add(below.offset, view[1]))
    return seats


def _must_copy(tensor: Tensor, marks: Marks) -> bool:
    """Whether something may write to a tensor, or its memory is wished for."""
    names = {item.name for item in marks.on(tensor.name)}
    written = marks.argument(tensor.name, "hook", "mode") in ("modify", "replace")
    return written or "noalias" in names


def _views(node: Operation) -> Iterator[tuple[Tensor, str, Extent]]:
    """The results of a node that are parts of its operand, with their offsets in bytes."""
    source = members(node.inputs[0]) if node.inputs else ()
    if len(source) != 1 or primitive_of(node) in (*COLLECTIVES, "copy") or source[0].element.bits % 8:
        return
    of = source[0]
    results = [item for argument in node.outputs for item in members(argument)]
    for item, offset in zip(results, _offsets(node, of, results), strict=False):
        if item.element == of.element:
            yield item, of.name, offset


def _offsets(node: Operation, of: Tensor, results: Sequence[Tensor]) -> Iterator[Extent]:
    attributes = dict(node.attributes)
    if node.operator in WHOLE or node.operator == FORK:
        yield from (0 for _ in results)
    elif node.operator == PARTS and isinstance(attributes.get("dim"), int):
        axis = attributes["dim"]
        if isinstance(axis, int) and _leads(of.shape, axis % len(of.shape)):
            offset: Extent = 0
            for item in results:
                yield offset
                offset = dim.add(offset, bytes_of(item))
    elif node.operator == SLICE:
        yield from _sliced(attributes, of)


def _sliced(attributes: Mapping[str, object], of: Tensor) -> Iterator[Extent]:
    axes, begins, steps = (attributes.get(name) for name in ("axes", "begin", "stride"))
    if not isinstance(axes, tuple) or not isinstance(begins, tuple) or len(axes) != 1:
        return
    axis, begin = axes[0], begins[0]
    plain = steps is None or steps == (1,) or steps == 1
    if plain and isinstance(axis, int) and isinstance(begin, int) and begin >= 0 and _leads(of.shape, axis):
        size, *row = (item for item in of.shape[axis % len(of.shape) :] if isinstance(item, int))
        if len(row) + 1 == len(of.shape) - axis % len(of.shape) and begin <= size:
            yield begin * prod(row) * of.element.bits // 8


def _leads(shape: Shape, axis: int) -> bool:
    """Whether parts along an axis lie one behind the other: all extents before it are 1."""
    return all(item == 1 for item in shape[: axis % len(shape)])


# --- lifetimes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """The first and the last op that a tensor's memory is in use for."""

    first: int
    last: int

    def joined(self, other: Span) -> Span:
        """The time of both."""
        return Span(min(self.first, other.first), max(self.last, other.last))


def find_spans(graph: Graph, kept: Iterable[str]) -> dict[str, Span]:
    """When each tensor is in use by itself; what is `kept`, given or updated lasts to the end."""
    nodes = operations(graph)
    end = len(nodes) - 1
    spans = {item.name: Span(BEFORE, BEFORE) for argument in graph.inputs for item in members(argument)}
    spans |= {item.name: Span(BEFORE, end) for item in graph.variables}
    spans |= {item.tensor.name: Span(BEFORE, end) for item in graph.constants}
    for number, node in enumerate(nodes):
        for name in _names(node.inputs):
            spans[name] = Span(spans[name].first, max(spans[name].last, number))
        spans |= {name: Span(number, number) for name in _names(node.outputs)}
    lasting = {*kept, *_names(graph.outputs), *(item.value.name for item in graph.updates)}
    for name in lasting & spans.keys():
        spans[name] = Span(spans[name].first, end)
    for number, done in find_waits(graph):
        for name in (*_names(nodes[number].inputs), *_names(nodes[number].outputs)):
            spans[name] = Span(spans[name].first, max(spans[name].last, min(done, end)))
    return spans


def _names(arguments: Iterable[object]) -> list[str]:
    return [
        item.name
        for argument in arguments
        for item in (argument if isinstance(argument, tuple) else (argument,))
        if isinstance(item, Tensor)
    ]


def find_waits(graph: Graph) -> Iterator[tuple[int, int]]:
    """The ops that speak with other devices, each with the first op that needs what it brings."""
    nodes = operations(graph)
    open_ops: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in _names(node.inputs):
            if name in open_ops and not is_collective(node):
                done = open_ops[name]
                yield from ((op, number) for op in sorted(set(open_ops.values())) if op <= done)
                open_ops = {key: op for key, op in open_ops.items() if op > done}
        if is_collective(node):
            open_ops |= dict.fromkeys(_names(node.outputs), number)
    yield from ((op, len(nodes)) for op in sorted(set(open_ops.values())))


# --- where buffers lie in a pool: no two that are in use at once share a byte -------------------------------


ALIGNMENT = 64
"""Every buffer begins at a multiple of so many bytes."""


@dataclass(frozen=True, slots=True)
class Life:
    """A piece of memory and the ops, both included, between which it is in use."""

    name: str
    bytes: Extent
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Where each piece lies, and how large the pool must be."""

    offsets: dict[str, Extent]
    total: Extent


def aligned(size: Extent) -> Extent:
    """A size rounded up to the next place where a buffer may begin."""
    return dim.mul(dim.ceil_divide(size, ALIGNMENT), ALIGNMENT)


def line_up(lives: Iterable[Life]) -> Placed:
    """Each piece behind the one before it: for what stays to the end."""
    offsets: dict[str, Extent] = {}
    total: Extent = 0
    for life in lives:
        offsets[life.name] = total
        total = dim.add(total, aligned(life.bytes))
    return Placed(offsets, total)


def place(lives: Sequence[Life]) -> Placed:
    """Pieces in the order in which they begin, each where it fits between those that are in use then."""
    ordered = sorted(lives, key=lambda item: item.first)
    known = [(item, item.bytes) for item in ordered if isinstance(item.bytes, int)]
    return _fit(known) if len(known) == len(ordered) else _share(ordered)


def _fit(lives: Sequence[tuple[Life, int]]) -> Placed:
    """Sizes are known: the smallest gap that is large enough."""
    offsets: dict[str, Extent] = {}
    used: list[tuple[int, int, int]] = []
    total = 0
    for life, size in lives:
        length = -(-size // ALIGNMENT) * ALIGNMENT
        used = [item for item in used if item[2] >= life.first]
        start = _gap(used, length)
        offsets[life.name] = start
        used.append((start, start + length, life.last))
        used.sort()
        total = max(total, start + length)
    return Placed(offsets, total)


def _gap(used: Sequence[tuple[int, int, int]], length: int) -> int:
    """The start of the smallest gap for so many bytes, behind all where there is none."""
    best, start, end = -1, -1, 0
    for begin, stop, _ in used:
        gap = begin - end
        if gap >= length and (start < 0 or gap < best):
            best, start = gap, end
        end = max(end, stop)
    return end if start < 0 else start


@dataclass(slots=True)
class _Slot:
    size: Extent
    offset: Extent
    last: int


def _share(lives: Sequence[Life]) -> Placed:
    """Sizes are expressions: a piece takes the place of one that is over, where it is never larger."""
    offsets: dict[str, Extent] = {}
    slots: list[_Slot] = []
    total: Extent = 0
    for life in lives:
        size = aligned(life.bytes)
        free = [item for item in slots if item.last < life.first]
        fits = [item for item in free if item.size == size] or [
            item for item in free if dim.less_equal(size, item.size) is True
        ]
        if fits:
            slot = fits[0]
            slot.last = life.last
        else:
            slot = _Slot(size, total, life.last)
            slots.append(slot)
            total = dim.add(total, size)
        offsets[life.name] = slot.offset
    return Placed(offsets, total)


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
        self.table = Table()
        self.given = [item for argument in graph.inputs for item in members(argument)]
        self.lasting = [*graph.variables, *(item.tensor for item in graph.constants)]
        made = [item for node in self.nodes for argument in node.outputs for item in members(argument)]
        self.tensors = {item.name: item for item in (*self.given, *self.lasting, *made)}
        self.bytes = {name: bytes_of(item) for name, item in self.tensors.items()}
        self.kept = {name for name in self.tensors if modes.get(name) in KEPT}
        self.seats = {name: Seat(name, 0) for name in self.tensors} | find_seats(graph, marks)
        self.spans = find_spans(graph, self.kept if lasting else ())
        self.whole = self._whole()
        self.pools = self._pools()
        self.placed = {name: self._place(name) for name in POOLS}

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
            pools=tuple(ir.Pool(name, self._size(item.total)) for name, item in self.placed.items()),
            sync_points=tuple(self._sync_points()),
            activation_layout=ir.ActivationLayout(self._fields(saved), self._size(self.placed[SAVED].total)),
            gradient_layout=ir.Layout(self._fields(gradients), self._size(self.placed[GRADIENTS].total)),
            peaks=peaks,
            symbols=self.table.symbols,
        )

    def _size(self, extent: Extent) -> int:
        return self.table.extent(extent)

    # --- memory ---------------------------------------------------------------------------------------------

    def _whole(self) -> dict[str, Span]:
        """When the memory of each owner is in use, by itself or by a part of it."""
        found: dict[str, Span] = {}
        for name, seat in self.seats.items():
            span = self.spans[name]
            found[seat.owner] = found[seat.owner].joined(span) if seat.owner in found else span
        return found

    def _pools(self) -> dict[str, str]:
        """The pool of each tensor that owns its memory."""
        outputs = {item.name for argument in self.graph.outputs for item in members(argument)}
        kept = {self.seats[name].owner for name in self.kept}
        pools = {name: SAVED if name in kept else SCRATCH for name in self.whole}
        pools |= {name: GRADIENTS for name in self.whole if name in outputs and is_gradient(name)}
        pools |= {item.name: CALLER for item in self.given}
        return pools | {item.name: WEIGHTS for item in self.lasting}

    def _place(self, pool: str) -> Placed:
        lives = [
            Life(name, self.bytes[name], self.whole[name].first, self.whole[name].last)
            for name, home in self.pools.items()
            if home == pool
        ]
        return place(lives) if pool == SCRATCH else line_up(lives)

    def _offset(self, name: str) -> Extent:
        """Where a tensor lies in its pool."""
        seat = self.seats[name]
        return dim.add(self.placed[self.pools[seat.owner]].offsets[seat.owner], seat.offset)

    def _is_saved(self, name: str) -> bool:
        return name in self.kept and self.pools[self.seats[name].owner] == SAVED

    def _kind(self, name: str) -> str:
        if self.pools[self.seats[name].owner] == WEIGHTS:
            return WEIGHT
        return GRADIENT if is_gradient(name) else ACTIVATION

    def _buffer(self, tensor: Tensor) -> ir.Buffer:
        name = tensor.name
        seat = self.seats[name]
        part = seat.owner != name
        span = self.spans[name] if part else self.whole[name]
        aliases = (ir.BufferAlias(seat.owner, self._size(seat.offset)),) if part else ()
        return ir.Buffer(
            id=name,
            tensor=name,
            kind=self._kind(name),
            dtype=dtype_name(tensor.element),
            bytes=self._size(self.bytes[name]),
            first=span.first,
            last=span.last,
            pool=self.pools[seat.owner],
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
        moved = any(self.seats[name].owner == name for name in made)
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
            seat = self.seats[name]
            yield ir.BufferRef(seat.owner, self._size(seat.offset), self._size(self.bytes[name]))

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

    def _peak(self, kind: str) -> ir.Peak:
        owners = [name for name in self.whole if self._kind(name) == kind]
        unshared: Extent = 0
        for name in owners:
            unshared = dim.add(unshared, self.bytes[name])
        most = largest(self._sums(owners), unshared)
        return ir.Peak(kind, self._size(most), self._size(unshared))

    def _sums(self, owners: Sequence[str]) -> Iterator[Extent]:
        """The bytes that are in use at each op, and before the first."""
        changes: dict[int, Extent] = {}
        for name in owners:
            span, size = self.whole[name], self.bytes[name]
            changes[span.first] = dim.add(changes.get(span.first, 0), size)
            changes[span.last + 1] = dim.sub(changes.get(span.last + 1, 0), size)
        total: Extent = 0
        for _, change in sorted(changes.items()):
            total = dim.add(total, change)
            yield total


def is_gradient(name: str) -> bool:
    """Whether a tensor is a gradient, which its name tells: `d_blocks.0.weight`, `blocks.0.d_x`."""
    return name.startswith("d_") or name.rpartition(".")[2].startswith("d_")


def largest(sums: Iterator[Extent], otherwise: Extent) -> Extent:
    """The largest of several sizes; where too many of them cannot be compared, an upper bound."""
    found: list[Extent] = []
    for item in dict.fromkeys(sums):
        if not any(dim.less_equal(item, other) is True for other in found):
            found = [other for other in found if dim.less_equal(other, item) is not True] + [item]
        if len(found) > MOST_SUMS:
            return otherwise
    most: Extent = 0
    try:
        for item in found:
            most = dim.larger(most, item)
    except TooComplex:
        return otherwise
    return most
