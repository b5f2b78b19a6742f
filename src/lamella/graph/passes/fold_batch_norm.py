"""Fold what scales and shifts the channels of a product into its weight and bias.

    conv(x, w, b) · s = conv(x, w · s, b · s)
    conv(x, w, b) + s = conv(x, w, b + s)

for `s` that is the same in every run and has one element for each channel: a batch normalisation with known statistics
goes this way, whatever product stands before it. What is computed from weights alone is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Shape, Tensor, Value
from lamella.graph.passes.dce import dce
from lamella.graph.passes.products import FixedTensors, KnownProducts, WeightedProduct
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite
from lamella.ops.library import Library

SCALES: Mapping[tuple[str, ...], str] = {("1", "1"): "math.mul", ("1", "-1"): "math.div"}
SHIFTS: Mapping[tuple[str, ...], str] = {("1", "1"): "math.add", ("1", "-1"): "math.sub"}


def fold_batch_norm(model: Model) -> Model:
    """The model with scales and shifts of channels in the weights of the products before them."""
    return dce(replace(model, graph=rewrite(model.graph, _BatchNormFold(model).visit)))


@dataclass(slots=True)
class _ChannelChange:
    """An operation that scales or shifts the channels of a product."""

    product: WeightedProduct
    operator: str
    """What joins the weight or the bias with the vector: math.mul, math.div, math.add or math.sub."""
    vector: Tensor


class _BatchNormFold:
    def __init__(self, model: Model) -> None:
        self.library: Library = model.library
        self.fixed = FixedTensors(model.graph, model.library)
        self.products = KnownProducts(model.library, self.fixed)

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """Take a scale or a shift into the product before it."""
        self.fixed.add(node)
        change = self._find(node, walk) if isinstance(node, Operation) else None
        if change is None:
            return None
        try:
            nodes = tuple(self._folded(change, node.outputs[0], walk))
        except Found:  # the definition refuses what should be equal; the node stays as it was
            return None
        for item in nodes:
            self.fixed.add(item)
        return Replacement(tuple(replace(item, origin=item.origin or node.origin) for item in nodes))

    def _find(self, node: Operation, walk: RewriteWalk) -> _ChannelChange | None:
        operator = self._operator(node)
        if operator is None or len(node.inputs) != 2:
            return None
        for result, vector in (node.inputs, node.inputs[::-1]):
            maker = walk.maker(result)
            if maker is None or not isinstance(vector, Tensor) or not self.fixed.holds(vector):
                continue
            if result is node.inputs[1] and operator in ("math.div", "math.sub"):
                continue
            product = self.products.find(maker)
            if product is not None and self._fits(node, product, vector):
                return _ChannelChange(product, operator, vector)
        return None

    def _operator(self, node: Operation) -> str | None:
        """The operation of two numbers that an elementwise one is."""
        traits = self.library.traits(node.operator)
        for name, table in (("monomial", SCALES), ("linear", SHIFTS)):
            if name in traits and "aligned" in traits:
                return table.get(traits[name].values)
        return None

    def _fits(self, node: Operation, product: WeightedProduct, vector: Tensor) -> bool:
        """Whether nothing else reads the product, and the vector has one element for each of its channels."""
        result, (output,) = product.result, node.outputs
        if not isinstance(output, Tensor) or (output.element, output.shape) != (result.element, result.shape):
            return False
        if self.fixed.reads.get(result.name) != 1 or result.quantization is not None:
            return False
        return (
            vector.element == result.element
            and self._axis(node, vector, len(result.shape)) == product.channel
        )

    def _axis(self, node: Operation, vector: Tensor, rank: int) -> int | None:
        """The axis of the result along which a vector lies; None for what is no vector."""
        attributes = dict(node.attributes)
        first = node.inputs[0] is vector
        align = attributes.get("lhs_align" if first else "rhs_align")
        other = attributes.get("rhs_align" if first else "lhs_align")
        start = align if isinstance(align, int) else rank - len(vector.shape)
        long = [axis for axis, extent in enumerate(vector.shape) if extent != 1]
        if len(long) != 1 or other not in (None, 0):
            return None
        return start + long[0]

    def _folded(self, change: _ChannelChange, output: Argument, walk: RewriteWalk) -> Iterator[Operation]:
        """The product with the vector in its weight and bias; Found where the operator has no bias to take it."""
        product, calls = change.product, _Calls(self.library, walk)
        inputs = list(product.operation.inputs)
        shifts, bias = change.operator in SHIFTS.values(), product.operand(product.bias)
        others = [
            item for number, item in enumerate(inputs) if number not in (product.activation, product.weight)
        ]
        if product.bias is None and (shifts or any(item is not None for item in others)):
            raise Found
        if not shifts:
            inputs[product.weight] = _scaled_weight(change, calls)
        if product.bias is not None and (shifts or bias is not None):
            inputs[product.bias] = _joined_bias(change, bias, calls)
        yield from calls.made
        yield replace(product.operation, inputs=tuple(inputs), outputs=(output,))


@dataclass(slots=True)
class _Calls:
    """New operations in the order in which they are called."""

    library: Library
    walk: RewriteWalk
    made: list[Operation] = field(default_factory=list)

    def call(self, operator: str, inputs: tuple[Argument, ...], name: str, **attributes: Value) -> Tensor:
        """Call an operator of one result."""
        self.made.append(call(self.library, operator, inputs, attributes, [self.walk.fresh(name)]))
        (found,) = self.made[-1].outputs
        if not isinstance(found, Tensor):
            raise Found
        return found

    def shaped(self, tensor: Tensor, shape: Shape) -> Tensor:
        """A tensor in another shape."""
        if tensor.shape == shape:
            return tensor
        return self.call("layout.reshape", (tensor,), tensor.name, shape=shape)


def _scaled_weight(change: _ChannelChange, calls: _Calls) -> Tensor:
    product = change.product
    weight = product.operand(product.weight)
    if weight is None:
        raise Found
    vector = calls.shaped(change.vector, (weight.shape[product.rows],))
    # Aligned, and not in the shape of a column: that would be an operation more for each other axis.
    return calls.call(change.operator, (weight, vector), f"{weight.name}.scaled", rhs_align=product.rows)


def _joined_bias(change: _ChannelChange, bias: Tensor | None, calls: _Calls) -> Tensor:
    product = change.product
    vector = calls.shaped(change.vector, (product.result.shape[product.channel],))
    if bias is not None:
        return calls.call(change.operator, (bias, vector), f"{bias.name}.folded")
    return (
        calls.call("math.neg", (vector,), f"{vector.name}.shift") if change.operator == "math.sub" else vector
    )
