"""What of a graph computes in integers: its layers, and which tensors share codes.

    product      a convolution, a linear layer or a matrix product of activations: always, where its type is f32
    elementwise  where it reads a tensor with codes, and something that computes in integers reads it
    pool, clip   where it reads a tensor with codes
    view         moves codes: its result has those of its operand
    scaling      a product with a positive number: the same codes, which stand for others

What is between layers and reads or gives anything else is an island of real numbers. A residual stream that only
normalisations read is one: eight bits are too few for a sum that grows from block to block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lamella.base.dtype import F32
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor
from lamella.graph.passes.moves import KnownMoves
from lamella.graph.passes.products import FixedTensors, KnownProducts, WeightedProduct
from lamella.graph.quantize.forms import BINARY, bounds_of, unary_form
from lamella.graph.rewrite import members, operands_of, results_of


class LayerRole(StrEnum):
    """What an operation is to quantisation."""

    PRODUCT = "product"
    ELEMENTWISE = "elementwise"
    POOL = "pool"
    VIEW = "view"
    SCALING = "scaling"
    FLOAT = "float"


POOLS = frozenset(["nn.avg_pool", "math.mean_reduce"])
SCALINGS = frozenset(["math.mul", "math.div"])
MATMUL = "linalg.matmul"


LAYERS = (LayerRole.PRODUCT, LayerRole.ELEMENTWISE, LayerRole.POOL)
"""What computes, and so loses something."""


@dataclass(frozen=True, slots=True)
class Layer:
    """An operation that computes in integers, by the name of its result."""

    name: str
    operation: Operation
    kind: LayerRole
    product: WeightedProduct | None
    """Of a product with a weight what is what; None of others."""

    @property
    def weight(self) -> str | None:
        """The name of the weight; None where there is none."""
        operand = None if self.product is None else self.product.operand(self.product.weight)
        return None if operand is None else operand.name

    @property
    def activations(self) -> tuple[Tensor, ...]:
        """The real operands that change from run to run."""
        if self.product is not None:
            operand = self.product.operand(self.product.activation)
            return () if operand is None else (operand,)
        return tuple(item for item in members(self.operation.inputs) if isinstance(item, Tensor))


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a graph in order, and the tensors that have codes, each with the one whose range decides."""

    layers: Mapping[str, Layer]
    ranges: Mapping[str, str]
    """By tensor with codes the one that is looked at for its range."""
    tensors: Mapping[str, Tensor]
    readers: Mapping[str, tuple[Node, ...]]
    floats: Mapping[str, str] = field(default_factory=dict)
    """By the result of an operation why it computes in real numbers."""

    def observed(self) -> list[Tensor]:
        """The tensors whose ranges decide, in order."""
        return [self.tensors[name] for name in dict.fromkeys(self.ranges.values())]


def find_layers(model: Model, kept: Iterable[str] = (), promoted: Iterable[str] = ()) -> Layers:
    """The layers of a prepared model; those of the names `kept`, and those `promoted`, compute in real numbers."""
    return _Finding(model, frozenset(kept), frozenset(promoted)).run()


class _Finding:
    def __init__(self, model: Model, kept: frozenset[str], promoted: frozenset[str]) -> None:
        self.model, self.graph, self.kept, self.promoted = model, model.graph, kept, promoted
        self.fixed = FixedTensors(model.graph, model.library)
        self.moves = KnownMoves(model.library)
        self.constants = {item.tensor.name: item for item in model.graph.constants}
        self.products: dict[str, WeightedProduct] = {}
        self.kinds: list[tuple[Node, LayerRole]] = []
        self.makers: dict[str, LayerRole] = {}
        self.bounds: set[str] = set()
        """The results of operations that only cut numbers off."""
        self.integer: set[str] = set()
        """The results of operations that compute in integers; what these read has codes too."""
        self.readers: dict[str, list[Node]] = {}
        inputs = [item for item in members(self.graph.inputs) if isinstance(item, Tensor)]
        self.tensors: dict[str, Tensor] = {item.name: item for item in inputs}
        ends = (*members(self.graph.inputs), *members(self.graph.outputs))
        self.ends = {item.name for item in ends}
        self._walk(KnownProducts(model.library, self.fixed))
        self.biased = {name for node, kind in self.kinds for name in self._bias_sum(node, kind)}
        """The results of sums of a product and a bias, which are one layer with it."""

    def _walk(self, products: KnownProducts) -> None:
        """Note what every node could be, and who reads what."""
        for node in self.graph.nodes:
            is_fixed = self.fixed.add(node)
            product = products.find(node) if isinstance(node, Operation) else None
            if product is not None:
                self.products[product.result.name] = product
            kind = LayerRole.FLOAT if is_fixed else self._kind(node, product)
            self.kinds.append((node, kind))
            self.makers.update((item.name, kind) for item in results_of(node))
            for item in operands_of(node):
                self.readers.setdefault(item.name, []).append(node)
            for item in results_of(node):
                if isinstance(item, Tensor):
                    self.tensors[item.name] = item

    def _kind(self, node: Node, product: WeightedProduct | None) -> LayerRole:
        """What an operation could be; whether it is depends on its neighbours."""
        results = list(results_of(node))
        if not isinstance(node, Operation) or any(item.name in self.kept | self.promoted for item in results):
            return LayerRole.FLOAT
        if not all(isinstance(item, Tensor) and item.element == F32 for item in results):
            return LayerRole.FLOAT
        if product is not None or node.operator == MATMUL:
            return LayerRole.PRODUCT
        if self.moves.find(node):
            return LayerRole.VIEW
        return LayerRole.POOL if node.operator in POOLS else self._elementwise(node, results[0].name)

    def _elementwise(self, node: Operation, name: str) -> LayerRole:
        numbers = [self._number(item) for item in node.inputs]
        bounds = bounds_of(node, numbers)
        if bounds is not None:
            self.bounds.add(name)
        if bounds is not None or unary_form(node, bounds) is not None:
            return LayerRole.ELEMENTWISE
        if node.operator not in BINARY:
            return LayerRole.FLOAT
        known = [item for item in numbers if item is not None]
        scales = node.operator in SCALINGS and len(known) == 1 and known[0] > 0
        return (
            LayerRole.SCALING
            if scales and (numbers[1] is not None or node.operator == "math.mul")
            else LayerRole.ELEMENTWISE
        )

    def _bias_sum(self, node: Node, kind: LayerRole) -> Iterator[str]:
        """The result of an operation that adds a known vector to the columns of a product nobody else reads."""
        if (
            kind is not LayerRole.ELEMENTWISE
            or not isinstance(node, Operation)
            or node.operator != "math.add"
        ):
            return
        (result,) = results_of(node)
        for one, other in (node.inputs, node.inputs[::-1]):
            if not isinstance(one, Tensor) or not isinstance(other, Tensor) or not self.fixed.holds(other):
                continue
            alone = self.makers.get(one.name) is LayerRole.PRODUCT and len(self.readers[one.name]) == 1
            if alone and one.name not in self.ends and other.shape == one.shape[-1:]:
                yield result.name

    def _number(self, argument: Argument) -> float | None:
        """The one number that a constant is full of; None of anything else."""
        constant = self.constants.get(argument.name) if isinstance(argument, Tensor) else None
        value = None if constant is None else constant.value
        return float(value) if isinstance(value, int | float) else None

    def run(self) -> Layers:
        """The layers, their codes, and why other operations have none."""
        coded = self._coded(self._wanted())
        ranges = self._ranges(coded)
        layers: dict[str, Layer] = {}
        floats: dict[str, str] = {}
        for node, kind in self.kinds:
            name = next((item.name for item in results_of(node)), "")
            if kind in LAYERS and name in self.integer:
                assert isinstance(node, Operation)
                if not self._is_folded(node, ranges):
                    layers[name] = Layer(name, node, kind, self.products.get(name))
            elif name not in self.integer and not self.fixed.holds(self.tensors.get(name)):
                floats[name] = self._reason(node, kind, name)
        readers = {name: tuple(nodes) for name, nodes in self.readers.items()}
        return Layers(layers, ranges, self.tensors, readers, floats)

    def _reason(self, node: Node, kind: LayerRole, name: str) -> str:
        if name in self.kept:
            return "it was asked to stay real"
        if name in self.promoted:
            return "the budget of errors leaves it no codes"
        if kind is LayerRole.FLOAT:
            return (
                "it has no integer form"
                if isinstance(node, Operation)
                else "what it runs is known at the run"
            )
        return "what it reads or gives is real"

    def _wanted(self) -> set[str]:
        """The tensors that something that computes in integers reads, directly or through views."""
        wanted: set[str] = set()
        for node, kind in reversed(self.kinds):
            results = {item.name for item in results_of(node)}
            if kind is LayerRole.PRODUCT or (kind is not LayerRole.FLOAT and results & wanted):
                wanted.update(item.name for item in self._live(node))
        return wanted

    def _live(self, node: Node) -> list[Tensor]:
        """The real operands that a run computes."""
        read = (item for item in operands_of(node) if isinstance(item, Tensor))
        return [item for item in read if item.element.is_float and not self.fixed.holds(item)]

    def _coded(self, wanted: set[str]) -> set[str]:
        """The tensors that have codes: what integer operations read and give."""
        coded: set[str] = set()
        for node, kind in self.kinds:
            results = {item.name for item in results_of(node)}
            live = self._live(node)
            known = [item.name in coded for item in live]
            free = kind is LayerRole.POOL or bool(results & (wanted | self.bounds | self.biased))
            if (
                kind is LayerRole.PRODUCT
                or (kind in (LayerRole.ELEMENTWISE, LayerRole.POOL) and free and any(known))
                or (kind in (LayerRole.VIEW, LayerRole.SCALING) and bool(live) and all(known))
            ):
                self.integer |= results
                coded |= results | {item.name for item in live}
        return coded

    def _ranges(self, coded: set[str]) -> dict[str, str]:
        """Whose range decides the codes of each tensor; what is only scaled has none of its own."""
        rule: dict[str, str] = {}
        scaled: set[str] = set()
        for node, kind in self.kinds:
            operands = [item.name for item in self._live(node) if item.name in coded]
            for item in results_of(node):
                if item.name not in self.integer or not operands:
                    continue
                if kind is LayerRole.SCALING or (kind is LayerRole.VIEW and operands[0] in scaled):
                    scaled.add(item.name)
                elif kind is LayerRole.VIEW and len(operands) == 1:
                    rule[item.name] = operands[0]
                elif kind is LayerRole.VIEW or item.name in self.bounds:
                    rule.update((name, item.name) for name in operands if self._is_only_read(name, rule))
        return {name: _follow(name, rule) for name in self.tensors if name in coded - scaled}

    def _is_folded(self, node: Operation, ranges: Mapping[str, str]) -> bool:
        """Whether an operation only cuts a range that the operation before it has already: it is no layer."""
        results = [item.name for item in results_of(node)]
        names = [*results, *(item.name for item in self._live(node))]
        return results[0] in self.bounds and len({ranges.get(name) for name in names}) == 1

    def _is_only_read(self, name: str, rule: Mapping[str, str]) -> bool:
        """Whether one operation alone reads a tensor, which no view gives and which is no input or output."""
        return len(self.readers.get(name, ())) == 1 and name not in rule and name not in self.ends


def _follow(name: str, rule: Mapping[str, str]) -> str:
    """The tensor at the end of a chain of tensors with the same codes."""
    while name in rule:
        name = rule[name]
    return name
