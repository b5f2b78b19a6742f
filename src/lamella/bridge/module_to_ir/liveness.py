"""Liveness in a graph: aliases of storage, live ranges of tensors, and the waits for collectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from lamella.base import dim
from lamella.base.dim import Extent
from lamella.base.liveness import LiveRange, live_ranges
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


def find_live_ranges(graph: Graph, kept: Iterable[str]) -> dict[str, LiveRange]:
    """The live range of each tensor, from definition to last use; what is `kept`, given or updated lives to the end."""
    nodes = operations(graph)
    end = len(nodes) - 1
    inputs = [item.name for argument in graph.inputs for item in members(argument)]
    stored = [*(item.name for item in graph.variables), *(item.tensor.name for item in graph.constants)]
    steps = ((_names(node.inputs), _names(node.outputs)) for node in nodes)
    ranges = live_ranges(steps, before=[*inputs, *stored])
    lasting = {*stored, *kept, *_names(graph.outputs), *(item.value.name for item in graph.updates)}
    for name in lasting & ranges.keys():
        ranges[name] = ranges[name].until(end)
    # A collective runs on another stream: its buffers are in use until somebody waits for it.
    for number, done in find_waits(graph):
        for name in (*_names(nodes[number].inputs), *_names(nodes[number].outputs)):
            ranges[name] = ranges[name].until(min(done, end))
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
