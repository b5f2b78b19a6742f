"""Merge products of one activation with several weights into one product.

    x · w₁ᵀ, x · w₂ᵀ, …  =  the parts of  x · concat(w₁, w₂, …)ᵀ

for operations that differ in weight and bias alone: queries, keys and values; gates and what they gate. The weights are
joined once. It pays where a launch and one more reading of the activation cost more than the memory that results need
which were consumed on the way: whoever computes with the parts reads them from memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod

from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.graph.binding import signature
from lamella.graph.build import call
from lamella.graph.model import FusionHint, Model
from lamella.graph.nodes import Graph, Node, Operation, Tensor, Value
from lamella.graph.passes.fuse.kinds import Kind, facts_of
from lamella.graph.passes.fuse.machine import DEFAULT_MACHINE, Machine
from lamella.graph.passes.products import FixedTensors, KnownProducts, WeightedProduct
from lamella.graph.rewrite import Replacement, RewriteWalk, operands_of, rewrite
from lamella.ops.library import Library


def merge_products(model: Model, machine: Machine = DEFAULT_MACHINE) -> Model:
    """The model with one product in the place of several that read the same activation, where it pays."""
    graph = _fixed_first(model)
    merging = _Merging(model.library, graph, machine, model.hints)
    return replace(model, graph=rewrite(graph, merging.visit)) if merging.groups else model


def _fixed_first(model: Model) -> Graph:
    """The graph with what is computed from weights alone at its start: a merged weight needs all its parts."""
    graph = model.graph
    fixed = FixedTensors(graph, model.library)
    early = [node for node in graph.nodes if isinstance(node, Operation) and fixed.add(node)]
    kept = {id(node) for node in early}
    return replace(graph, nodes=(*early, *(node for node in graph.nodes if id(node) not in kept)))


@dataclass(slots=True)
class _Merging:
    library: Library
    graph: Graph
    machine: Machine
    hints: tuple[FusionHint, ...]
    fixed: FixedTensors = field(init=False)
    groups: dict[str, list[WeightedProduct]] = field(init=False)
    """The products that are one, by the result of each."""
    readers: dict[str, list[Operation]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fixed = FixedTensors(self.graph, self.library)
        for node in self.graph.nodes:
            self.fixed.add(node)
            if isinstance(node, Operation):
                for item in operands_of(node):
                    self.readers.setdefault(item.name, []).append(node)
        self.groups = {item.result.name: group for group in self._find_groups() for item in group}

    def _find_groups(self) -> Iterator[list[WeightedProduct]]:
        """Products at the top of the graph that differ in weight and bias alone, and are cheaper as one."""
        found: dict[object, list[WeightedProduct]] = {}
        products = KnownProducts(self.library, self.fixed)
        for node in self.graph.nodes:
            product = products.find(node) if isinstance(node, Operation) else None
            if product is not None and product.result.quantization is None and self._is_free(product):
                found.setdefault(_key(product), []).append(product)
        return (group for group in found.values() if len(group) > 1 and self._pays(group))

    def _is_free(self, product: WeightedProduct) -> bool:
        """Whether other channels may stand beside those of a product, and the model does not want it by itself."""
        # With more channels those of a group would be others, and read another part of the activation.
        return not product.grouped and not any(
            item.is_apart and item.holds(product.result.name) for item in self.hints
        )

    def _pays(self, group: Sequence[WeightedProduct]) -> bool:
        activation = group[0].operand(group[0].activation)
        saved = (len(group) - 1) * (self.machine.launch * 1e-6 + self._seconds(activation))
        lost = sum(2 * self._seconds(item.result) for item in group if self._is_consumed(item.result))
        return saved >= lost

    def _seconds(self, tensor: Tensor | None) -> float:
        known = [] if tensor is None else [extent for extent in tensor.shape if isinstance(extent, int)]
        return self.machine.seconds(4 * prod(known))

    def _is_consumed(self, tensor: Tensor) -> bool:
        """Whether something computes with the elements of a result where they stand, as an epilogue could."""
        waiting = list(self.readers.get(tensor.name, ()))
        while waiting:
            reader = waiting.pop()
            facts = facts_of(self.library, reader)
            if facts.kind is Kind.VIEW:
                made = [item for item in reader.outputs if isinstance(item, Tensor)]
                waiting += [other for item in made for other in self.readers.get(item.name, ())]
            elif not facts.is_moving and facts.is_pointwise and facts.size in facts.sizes:
                return True
        return False

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """One product for a group, where its first stands; its parts in the place of the others."""
        if (
            not isinstance(node, Operation)
            or len(node.outputs) != 1
            or not isinstance(node.outputs[0], Tensor)
        ):
            return None
        group = self.groups.get(node.outputs[0].name)
        if group is None:
            return None
        if group[0].result.name != node.outputs[0].name:
            return Replacement()  # the first of the group gives its result already
        try:
            nodes = tuple(self._merged(group, walk))
        except Found:  # the definition refuses what should be equal; the products stay as they were
            self.groups = {name: item for name, item in self.groups.items() if item is not group}
            return None
        return Replacement(tuple(replace(item, origin=item.origin or node.origin) for item in nodes))

    def _merged(self, group: Sequence[WeightedProduct], walk: RewriteWalk) -> Iterator[Operation]:
        first = group[0]
        inputs = list(first.operation.inputs)
        for number, axis in ((first.weight, first.rows), (first.bias, 0)):
            parts = [item.operand(number) for item in group]
            if number is None or parts[0] is None:
                continue
            tensors = tuple(item for item in parts if item is not None)
            joined = call(self.library, "layout.concat", (tensors,), {"axis": axis}, [walk.fresh("joined")])
            yield joined
            inputs[number] = joined.outputs[0]
        names = [walk.fresh(f"{first.result.name}.merged")]
        attributes = dict(first.operation.attributes)
        whole = call(self.library, first.operation.operator, inputs, attributes, names)
        yield replace(whole, origin=first.operation.origin)
        yield from self._parts(group, whole)

    def _parts(self, group: Sequence[WeightedProduct], whole: Operation) -> Iterator[Operation]:
        begin: int = 0
        for item in group:
            extent = item.result.shape[item.channel]
            if not isinstance(extent, int):
                raise Found
            place: Mapping[str, Value] = {
                "axes": (item.channel,),
                "begin": (begin,),
                "end": (begin + extent,),
            }
            begin += extent
            part = call(self.library, "layout.slice", whole.outputs, place, [item.result.name])
            yield replace(part, outputs=item.operation.outputs, origin=item.operation.origin)


def _key(product: WeightedProduct) -> object:
    """What products that can be one have in common: all but the weight, the bias and the number of channels."""
    operation = product.operation
    weight, bias = product.operand(product.weight), product.operand(product.bias)
    shape = () if weight is None else weight.shape
    rest = tuple(extent for axis, extent in enumerate(shape) if axis != product.rows)
    others = tuple(
        item for number, item in enumerate(operation.inputs) if number not in (product.weight, product.bias)
    )
    plain = replace(operation, inputs=(), outputs=())
    return (
        signature(plain),
        others,
        rest,
        bias is None,
        weight and weight.element,
        product.channel,
        product.rows,
    )
