"""Products whose columns go different ways, divided: queries, keys and values made by one product become three.

    split(x · W + b)  =  x · W₁ + b₁, x · W₂ + b₂, …

Each part then has codes of its own, whose scale is that of its numbers alone, and nothing is cut out of a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lamella.base.errors import Found
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor, tensors
from lamella.graph.passes.dce import dce
from lamella.graph.quantize.spellings import SpellingCalls
from lamella.graph.rewrite import Replacement, RewriteWalk, members, operands_of, rewrite, uses

PRODUCT, SUM, SPLIT, SLICE, HEADS = (
    "linalg.matmul",
    "math.add",
    "layout.split",
    "layout.slice",
    "layout.unflatten",
)


def divide_products(model: Model) -> Model:
    """The model in which no product with a weight makes columns that are only taken apart again."""
    return dce(replace(model, graph=rewrite(model.graph, _Division(model).visit)))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of a product: what is multiplied, its weight and bias, and where the columns are cut out."""

    product: Operation
    bias: Tensor | None
    head: int
    """Columns of a head, where the columns are cut by heads; else 1."""

    @property
    def axis(self) -> int:
        """The axis that is cut: the last one, or that of heads before it."""
        return -1 if self.head == 1 else -2


class _Division:
    def __init__(self, model: Model) -> None:
        graph = model.graph
        self.library, self.reads = model.library, uses(graph)
        changed = {item.variable.name for item in graph.updates}
        self.weights = set(model.data or ()) - changed
        self.ends = {item.name for item in members(graph.outputs)} | {
            item.value.name for item in graph.updates
        }
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for item in operands_of(node):
                self.readers.setdefault(item.name, []).append(node)

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """Products of their own in the place of what takes the columns of one apart."""
        if not isinstance(node, Operation) or node.operator not in (SPLIT, SLICE):
            return None
        source = node.inputs[0]
        found = self._columns(source, walk)
        if found is None:
            return None
        old = [item for output in node.outputs for item in tensors(output)]
        parts = zip(old, _parts(node, found.axis), strict=False)
        calls = SpellingCalls(self.library, walk, node, self.reads)
        try:
            made = [self._part(calls, found, run, item.name.replace(":", "_")) for item, run in parts]
        except Found:  # an operator refuses what should be one of its calls; the node stays as it was
            return None
        if [item.shape for item in old] != [item.shape for item in made]:
            return None
        results = {one.name: other for one, other in zip(old, made, strict=True)}
        nodes = tuple(replace(item, origin=node.origin) for item in calls.made)
        return Replacement(nodes, results=results)

    def _columns(self, source: Argument, walk: RewriteWalk) -> _Columns | None:
        """The product whose columns a tensor is, where all that read it only cut columns out."""
        if not isinstance(source, Tensor):
            return None
        maker, head, bias = walk.maker(source), 1, None
        if maker is not None and maker.operator == HEADS:
            inner, width = maker.inputs[0], source.shape[-1]
            if (
                not isinstance(inner, Tensor)
                or source.shape[:-2] != inner.shape[:-1]
                or not self._is_alone(inner)
            ):
                return None
            if not isinstance(width, int) or width == 1:
                return None
            maker, head = walk.maker(inner), width
        if not self._is_cut(source, -1 if head == 1 else -2):
            return None
        if maker is not None and maker.operator == SUM:
            product, added = maker.inputs
            if not isinstance(added, Tensor) or added.name not in self.weights or len(added.shape) != 1:
                return None
            if not isinstance(product, Tensor) or not self._is_alone(product):
                return None
            maker, bias = walk.maker(product), added
        if maker is None or maker.operator != PRODUCT or maker.inputs[2] is not None:
            return None
        weight = maker.inputs[1]
        known = isinstance(weight, Tensor) and weight.name in self.weights and len(weight.shape) == 2
        return _Columns(maker, bias, head) if known else None

    def _is_alone(self, tensor: Tensor) -> bool:
        return len(self.readers.get(tensor.name, ())) == 1 and tensor.name not in self.ends

    def _is_cut(self, tensor: Tensor, axis: int) -> bool:
        """Whether all that read a tensor only cut columns, or heads, out of it."""
        readers = self.readers.get(tensor.name, ())
        return tensor.name not in self.ends and all(
            isinstance(node, Operation) and node.operator in (SPLIT, SLICE) and bool(list(_parts(node, axis)))
            for node in readers
        )

    def _part(self, calls: SpellingCalls, found: _Columns, run: tuple[int, int], name: str) -> Tensor:
        """Some columns, or heads, as a product of their own; its weight is cut out before the run."""
        product, head, (first, count) = found.product, found.head, run
        weight, given = product.inputs[1], dict(product.attributes)
        low, high = first * head, (first + count) * head
        axis, fresh = 0 if given.get("transB") else 1, calls.walk.fresh
        part = fresh(f"{name}.weight")
        columns = calls.call(SLICE, weight, name=part, axes=(axis,), begin=(low,), end=(high,))
        made = calls.call(PRODUCT, product.inputs[0], columns, None, name=fresh(f"{name}.product"), **given)
        if found.bias is not None:
            part = fresh(f"{name}.bias")
            bias = calls.call(SLICE, found.bias, name=part, axes=(0,), begin=(low,), end=(high,))
            made = calls.call(SUM, made, bias, name=fresh(f"{name}.sum"))
        if head == 1:
            return made
        return calls.call(
            HEADS, made, name=fresh(f"{name}.heads"), axis=len(made.shape) - 1, shape=(count, head)
        )


def _parts(node: Operation, wanted: int) -> Iterator[tuple[int, int]]:
    """The runs that an operation cuts out of an axis, counted from the last: firsts and counts."""
    source, given = node.inputs[0], dict(node.attributes)
    if not isinstance(source, Tensor):
        return
    rank = len(source.shape)
    if node.operator == SPLIT:
        sizes, axis = given.get("sizes"), given.get("axis")
        if not isinstance(sizes, tuple) or not isinstance(axis, int) or axis % rank != rank + wanted:
            return
        first = 0
        for size in sizes:
            if not isinstance(size, int):
                return
            yield first, size
            first += size
        return
    axes, begin, end = (given.get(name) for name in ("axes", "begin", "end"))
    if not (
        isinstance(axes, tuple) and isinstance(begin, tuple) and isinstance(end, tuple) and len(axes) == 1
    ):
        return
    axis, low, high = axes[0], begin[0], end[0]
    step = given.get("stride")
    if not (
        isinstance(axis, int) and isinstance(low, int) and isinstance(high, int) and step in ((1,), 1, None)
    ):
        return
    if axis % rank == rank + wanted and 0 <= low < high:
        yield low, high - low
