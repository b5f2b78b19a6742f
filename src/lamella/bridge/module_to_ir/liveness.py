"""Liveness and allocation: aliases of storage, live ranges of tensors, and offsets in an arena."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from lamella.base import dim
from lamella.base.dim import Extent
from lamella.bridge.module_to_ir.annotations import Marks
from lamella.bridge.module_to_ir.graph import members, operations, primitive_of
from lamella.graph.nodes import Graph, Operation, Shape, Tensor

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
class Storage:
    """Where the storage of a tensor lies: in that of its owner, itself or the tensor that it is a view of."""

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


def find_storage(graph: Graph, marks: Marks) -> dict[str, Storage]:
    """Alias analysis: the storage of each tensor; results of the graph and of updates own theirs."""
    # Callers and states keep these beyond the run, so they cannot be parts of reused memory.
    own = {item.name for argument in graph.outputs for item in members(argument)}
    own |= {item.value.name for item in graph.updates}
    storage: dict[str, Storage] = {}
    for node in operations(graph):
        views = {item.name: (of, offset) for item, of, offset in _views(node)}
        for item in (item for argument in node.outputs for item in members(argument)):
            view = views.get(item.name)
            if view is None or item.name in own or _must_copy(item, marks):
                storage[item.name] = Storage(item.name, 0)
                continue
            below = storage.get(view[0], Storage(view[0], 0))
            storage[item.name] = Storage(below.owner, dim.add(below.offset, view[1]))
    return storage


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


@dataclass(frozen=True, slots=True)
class LiveRange:
    """Live range: the first and the last op during which the storage of a tensor is in use, both included."""

    first: int
    last: int

    def joined(self, other: LiveRange) -> LiveRange:
        """The hull of both."""
        return LiveRange(min(self.first, other.first), max(self.last, other.last))


def find_live_ranges(graph: Graph, kept: Iterable[str]) -> dict[str, LiveRange]:
    """The live range of each tensor, from definition to last use; what is `kept`, given or updated lives to the end."""
    nodes = operations(graph)
    end = len(nodes) - 1
    ranges = {item.name: LiveRange(BEFORE, BEFORE) for argument in graph.inputs for item in members(argument)}
    ranges |= {item.name: LiveRange(BEFORE, end) for item in graph.variables}
    ranges |= {item.tensor.name: LiveRange(BEFORE, end) for item in graph.constants}
    for number, node in enumerate(nodes):
        for name in _names(node.inputs):
            ranges[name] = LiveRange(ranges[name].first, max(ranges[name].last, number))
        ranges |= {name: LiveRange(number, number) for name in _names(node.outputs)}
    lasting = {*kept, *_names(graph.outputs), *(item.value.name for item in graph.updates)}
    for name in lasting & ranges.keys():
        ranges[name] = LiveRange(ranges[name].first, end)
    # A collective runs on another stream: its buffers are in use until somebody waits for it.
    for number, done in find_waits(graph):
        for name in (*_names(nodes[number].inputs), *_names(nodes[number].outputs)):
            ranges[name] = LiveRange(ranges[name].first, max(ranges[name].last, min(done, end)))
    return ranges


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


ALIGNMENT = 64
"""Every buffer begins at a multiple of so many bytes."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """A block to be placed: its size and its live range."""

    name: str
    bytes: Extent
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena:
    """The offset of each block in one arena, and how large it must be."""

    offsets: dict[str, Extent]
    total: Extent


def _aligned(size: Extent) -> Extent:
    """A size rounded up to the next place where a buffer may begin."""
    return dim.mul(dim.ceil_divide(size, ALIGNMENT), ALIGNMENT)


def allocate_in_order(blocks: Iterable[Allocation]) -> Arena:
    """Each block behind the one before it: for what lives to the end."""
    offsets: dict[str, Extent] = {}
    total: Extent = 0
    for block in blocks:
        offsets[block.name] = total
        total = dim.add(total, _aligned(block.bytes))
    return Arena(offsets, total)


def allocate(blocks: Sequence[Allocation]) -> Arena:
    """Arena allocation in the order of first definitions: no two blocks that are live at once share a byte."""
    ordered = sorted(blocks, key=lambda item: item.first)
    known = [(item, item.bytes) for item in ordered if isinstance(item.bytes, int)]
    return _fit(known) if len(known) == len(ordered) else _share(ordered)


def _fit(blocks: Sequence[tuple[Allocation, int]]) -> Arena:
    """Best fit, where all sizes are known: the smallest gap that is large enough."""
    offsets: dict[str, Extent] = {}
    used: list[tuple[int, int, int]] = []
    total = 0
    for block, size in blocks:
        length = -(-size // ALIGNMENT) * ALIGNMENT
        # Both ends are included: an op reads its operands while it writes its results.
        used = [item for item in used if item[2] >= block.first]
        start = _gap(used, length)
        offsets[block.name] = start
        used.append((start, start + length, block.last))
        used.sort()
        total = max(total, start + length)
    return Arena(offsets, total)


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
class _ReusedSlot:
    size: Extent
    offset: Extent
    last: int


def _share(blocks: Sequence[Allocation]) -> Arena:
    """Reuse, where sizes are expressions: a block takes the slot of a dead one that is never smaller."""
    offsets: dict[str, Extent] = {}
    slots: list[_ReusedSlot] = []
    total: Extent = 0
    for block in blocks:
        size = _aligned(block.bytes)
        free = [item for item in slots if item.last < block.first]
        # Equal first: of two expressions mostly neither is provably smaller.
        fits = [item for item in free if item.size == size] or [
            item for item in free if dim.less_equal(size, item.size) is True
        ]
        if fits:
            slot = fits[0]
            slot.last = block.last
        else:
            slot = _ReusedSlot(size, total, block.last)
            slots.append(slot)
            total = dim.add(total, size)
        offsets[block.name] = slot.offset
    return Arena(offsets, total)
