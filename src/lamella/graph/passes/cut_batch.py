"""Cut a batch: where the items of a batch do not meet, the graph runs on some of them at a time.

Layer by layer, eight images fill and read again memory that no cache holds; image by image most of it stays close. What
a run reads of weights is read more often then, so that networks of long products with few rows are left whole.

That items do not meet is read off the formulas: the first index of everything that has the batch is the loop of the
batch itself, and that loop stands nowhere else. The formulas of the smaller graph must be the same but for its extent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from lamella.base.errors import Found, Unsupported
from lamella.base.records import dataclass
from lamella.graph.binding import bind_operation
from lamella.graph.build import base_name, bind, result
from lamella.graph.compose.decompose import decompose
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Graph, Operation, Shape, Tensor, Value, tensors
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup
from lamella.ops.instance import Instance
from lamella.ops.library import Library
from lamella.ops.lower import contractions

NEAR_BYTES = 1 << 20
"""What a core has close: a tensor beyond it is written to memory that all share, and read from there."""
FLOPS, BYTES = 1e11, 2e10
"""What a core computes in a second, and what it moves; only their ratio decides anything."""
MOST_PARTS = 256
"""Parts that are tried: a part more is a call more, and an extent may be 2 ** 62."""
GAIN = 0.97
"""The part of the whole's time that the parts may take."""
ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class BatchCut:
    """A graph for a part of its batch."""

    model: Model
    parts: int
    batched: frozenset[str]
    """The inputs that have the batch."""


def cut_batch(model: Model, parts: int | None = None) -> BatchCut | None:
    """The graph for one of so many parts of its batch, else for the one that takes the least time.

    None where that is the whole, or items meet.
    """
    size = _batch_of(model.graph)
    if size is None:
        return None
    library = model.library
    flat = decompose(model, lambda name: "reshape" in library.traits(name))
    try:
        work = _Cutting(flat, size)
        count = work.choose() if parts is None else parts
        cut = None if count == 1 or size % count else work.cut(count)
    except (Fault, Found, Unsupported):
        return None
    return None if cut is None else BatchCut(cut, count, frozenset(_with_batch(model.graph.inputs, size)))


def _batch_of(graph: Graph) -> int | None:
    """The extent that the first axes of inputs and all outputs have in common; None where there is no such."""
    items = (*graph.inputs, *graph.outputs)
    if graph.updates or graph.checks or not all(isinstance(item, Tensor) for item in items):
        return None
    if not all(isinstance(node, Operation) for node in graph.nodes) or not graph.outputs:
        return None
    found = {item.shape[0] if item.shape else 1 for item in graph.outputs if isinstance(item, Tensor)}
    size = found.pop()
    known = isinstance(size, int) and size > 1 and not found
    return size if known and isinstance(size, int) and any(_with_batch(graph.inputs, size)) else None


def _with_batch(arguments: Sequence[Argument], size: int) -> Iterator[str]:
    return (item.name for part in arguments for item in tensors(part) if item.shape and item.shape[0] == size)


@dataclass(frozen=True, slots=True)
class _Call:
    """An operation that reads the batch, with its formulas; none for one that keeps the order of elements."""

    operation: Operation
    instance: Instance
    formulas: tuple[Contraction, ...]


class _Cutting:
    """A graph while it is cut."""

    def __init__(self, model: Model, size: int) -> None:
        self._model = model
        self._size = size
        graph = model.graph
        self._batched = set(_with_batch(graph.inputs, size))
        self._calls = {id(node): found for node in graph.operations() if (found := self._call(node))}

    def _call(self, operation: Operation) -> _Call | None:
        """An operation that reads the batch, which its results then have; Unsupported where they do not."""
        read = [item for part in operation.inputs for item in tensors(part)]
        if not any(item.name in self._batched for item in read):
            return None
        made = [item for part in operation.outputs for item in tensors(part)]
        library = self._model.library
        wrong = len(made) != len(operation.outputs) or "random" in library.traits(operation.operator)
        if wrong or any(item.quantization is not None or item.shape[:1] != (self._size,) for item in made):
            raise Unsupported("its results do not have the batch first")
        self._batched.update(item.name for item in made)
        instance = bind_operation(library, operation)
        formulas = () if _keeps_order(library, operation) else contractions(instance)
        if not formulas and not _keeps_order(library, operation):
            raise Unsupported("it has no formula")
        return _Call(operation, instance, formulas)

    # --- into how many parts -------------------------------------------------------------------------------------

    def choose(self) -> int:
        """Into how many parts the batch is cut: as few as take the least time, 1 where the whole does."""
        whole = self._seconds(1)
        best, parts = whole * GAIN, 1
        most = min(self._size, MOST_PARTS)
        for count in (item for item in range(2, most + 1) if self._size % item == 0):
            seconds = self._seconds(count)
            if seconds < best:
                best, parts = seconds, count
        return parts

    def _seconds(self, parts: int) -> float:
        return sum(self._seconds_of(call, parts) for call in self._calls.values())

    def _seconds_of(self, call: _Call, parts: int) -> float:
        """About how long an operation takes: products or its weights, and what it writes beyond what is near."""
        sums = [item for item in call.formulas if item.sign == "+="]
        steps = sum(prod(_known(loop.extent) for loop in item.loops) for item in sums)
        weights = sum(
            _bytes(item.shape)
            for part in call.operation.inputs
            for item in tensors(part)
            if item.name not in self._batched
        )
        made = [_bytes(item.shape) for part in call.operation.outputs for item in tensors(part)]
        far = sum(2 * size for size in made if size > NEAR_BYTES * parts) if call.formulas else 0
        return parts * max(2 * steps / parts / FLOPS, weights / BYTES) + far / BYTES

    # --- the graph of a part -------------------------------------------------------------------------------------

    def cut(self, parts: int) -> Model | None:
        """The graph for a part; None where items meet."""
        graph, size = self._model.graph, self._size // parts
        changed = {
            item.name: _resized(item, size)
            for part in graph.inputs
            for item in tensors(part)
            if item.name in self._batched
        }
        nodes: list[Operation] = []
        for node in graph.operations():
            call = self._calls.get(id(node))
            found = node if call is None else self._part(call, changed, size)
            if found is None:
                return None
            nodes.append(found)
        inputs, outputs = (
            tuple(changed.get(item.name, item) for part in side for item in tensors(part))
            for side in (graph.inputs, graph.outputs)
        )
        return replace(self._model, graph=replace(graph, inputs=inputs, outputs=outputs, nodes=tuple(nodes)))

    def _part(self, call: _Call, changed: dict[str, Tensor], size: int) -> Operation | None:
        """An operation on a part; None where it is another one, or mixes items."""
        node, library = call.operation, self._model.library
        inputs = tuple(_renewed(item, changed) for item in node.inputs)
        made = [_resized(item, size) for part in node.outputs for item in tensors(part)]
        for attributes in self._attributes(node, size):
            instance = _bound(library, node, inputs, attributes)
            if instance is None or _shapes(instance) != [item.shape for item in made]:
                continue
            if not _keeps_order(library, node) and not self._is_same(call, instance, size):
                continue
            changed.update((item.name, item) for item in made)
            return replace(node, inputs=inputs, outputs=tuple(made), attributes=attributes)
        return None

    def _attributes(self, node: Operation, size: int) -> Iterator[tuple[tuple[str, Value], ...]]:
        """The attributes as they are; then with the extent of the part where lists begin with that of the batch."""
        yield node.attributes
        found = [
            (name, (size, *value[1:]) if isinstance(value, tuple) and value[:1] == (self._size,) else value)
            for name, value in node.attributes
        ]
        if tuple(found) != node.attributes:
            yield tuple(found)

    def _is_same(self, call: _Call, instance: Instance, size: int) -> bool:
        """Whether a call does on a part what the whole does, item by item."""
        names = {item.name for item in instance.outputs}
        for name, value in call.instance.inputs:
            parts = value if isinstance(value, tuple) else (value,)
            held = {getattr(item, "name", "") in self._batched for item in parts}
            if len(held) > 1:
                return False
            names |= {name} if True in held else set()
        formulas = contractions(instance)
        return len(formulas) == len(call.formulas) and all(
            _Comparison(names, size).agree(old, new, self._size)
            for old, new in zip(call.formulas, formulas, strict=True)
        )


def _keeps_order(library: Library, operation: Operation) -> bool:
    """Whether an operation gives its elements in the order in which it has them: items stay together then."""
    return "reshape" in library.traits(operation.operator)


def _bound(
    library: Library, node: Operation, inputs: Sequence[Argument], attributes: Sequence[tuple[str, Value]]
) -> Instance | None:
    names = [base_name(item) for item in node.outputs]
    try:
        return bind(library, node.operator, inputs, dict(attributes), dict(node.types), names)
    except Found:
        return None


def _shapes(instance: Instance) -> list[Shape]:
    return [item.shape for declared in instance.outputs for item in tensors(result(declared, ""))]


def _resized(tensor: Tensor, size: int) -> Tensor:
    return replace(tensor, shape=(size, *tensor.shape[1:]))


def _renewed(argument: Argument, changed: Mapping[str, Tensor]) -> Argument:
    if isinstance(argument, Tensor):
        return changed.get(argument.name, argument)
    return (
        tuple(changed.get(item.name, item) for item in argument) if isinstance(argument, tuple) else argument
    )


def _bytes(shape: Shape) -> int:
    return ELEMENT_BYTES * prod(map(_known, shape))


def _known(extent: object) -> int:
    """A number; Unsupported where only the run tells it."""
    if not isinstance(extent, int):
        raise Unsupported("an extent is open")
    return extent


# --- two formulas that differ in the extent of the batch ------------------------------------------------------------


class _Comparison:
    """Two formulas side by side; terms that are shared are compared once."""

    def __init__(self, batched: set[str], size: int) -> None:
        self._batched = batched
        self._size = size
        self._loop = ""
        self._known: dict[tuple[int, int], bool] = {}

    def agree(self, old: Contraction, new: Contraction, whole: int) -> bool:
        """Whether the new formula does for a part what the old one does for the whole, item by item."""
        first = old.targets[0].indices[:1]
        if not first or not isinstance(first[0], Index):
            return False
        self._loop = first[0].name
        extents = [(item.index, item.extent) for item in old.loops]
        expected = [(name, self._size if name == self._loop else extent) for name, extent in extents]
        if (
            expected != [(item.index, item.extent) for item in new.loops]
            or (self._loop, whole) not in extents
        ):
            return False
        pairs = (
            (old.sign, new.sign),
            (old.targets, new.targets),
            (old.values, new.values),
            (old.condition, new.condition),
        )
        return all(self._same(*pair) for pair in pairs)

    def _same(self, old: object, new: object) -> bool:
        key = id(old), id(new)
        if key not in self._known:
            self._known[key] = self._compare(old, new)
        return self._known[key]

    def _compare(self, old: object, new: object) -> bool:
        if type(old) is not type(new):
            return False
        if isinstance(old, tuple) and isinstance(new, tuple):
            return len(old) == len(new) and all(map(self._same, old, new))
        if isinstance(old, Index):
            return old == new and old.name != self._loop
        if isinstance(old, Element) and isinstance(new, Element):
            return self._same_element(old, new)
        parts = PARTS.get(type(old))
        if parts is None:
            return old is None or (isinstance(old, int | float | str) and repr(old) == repr(new))
        return all(self._same(*pair) for pair in zip(parts(old), parts(new), strict=True))

    def _same_element(self, old: Element, new: Element) -> bool:
        heads = (old.tensor, old.type) == (new.tensor, new.type) and self._same(old.item, new.item)
        if not heads or old.tensor not in self._batched:
            return heads and self._same(old.indices, new.indices)
        # An extent of 1 may have been written as its only index.
        items = [Index(self._loop)] + [0] * (self._size == 1)
        begins = old.indices[:1] == (items[0],) and any(new.indices[:1] == (item,) for item in items)
        rest = (
            old.indices[1:],
            new.indices[1:],
        )  # tuples of this moment, which nobody may remember by identity
        return begins and len(rest[0]) == len(rest[1]) and all(map(self._same, *rest))


PARTS: Mapping[type, Callable[..., tuple[object, ...]]] = {
    Guard: lambda item: (item.index, item.below, item.above),
    Apply: lambda item: (item.function, item.type, item.operands),
    Lookup: lambda item: (item.table, item.index, item.type),
}
"""What the parts of terms are."""
