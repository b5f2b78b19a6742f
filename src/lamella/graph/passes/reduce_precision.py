"""Products in a narrower precision: their weights, and where asked for their activations too, become narrow numbers.

    w8     x · wᵀ = x · (real(q) * s)ᵀ            q: i8 with one scale for each channel
    w4     x · wᵀ = x · (real(q) * s)ᵀ            q: i4 with one scale for each 32 elements along the sum
    fp8    x · wᵀ = x · (real(q) * s)ᵀ            q: f8e4m3 with one scale for each channel
    bf16   x · wᵀ = real(bf16(x)) · real(bf16(w))ᵀ
    int8   x · wᵀ = (real(p) * t) · (real(q) * s)ᵀ   p: i8 with a scale for each row of the activation, made anew

What makes `q` and `s` depends on weights alone and runs once. What makes numbers of them again is one chain for each
product, which a kernel takes in: narrow numbers are what it reads. All of it is operations of the library, so that the
reference computes the numbers of the reduced model. Weights that the model holds as codes with scales stay codes where
they are those of the precision, and on a GPU with bf16, which would make more bytes of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.dtype import BF16, F8E4M3, F8E5M2, F32, I4, I8, ElementType
from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Graph, Node, Operation, Tensor, Value
from lamella.graph.passes.decompose_all import decompose_all
from lamella.graph.passes.products import FixedTensors, KnownProducts, WeightedProduct, find_free_product
from lamella.graph.passes.sink_casts import AFTER, MOVING, SLICE, narrow_source
from lamella.graph.rewrite import Replacement, RewriteWalk, members, operands_of, rewrite
from lamella.ops.library import Library

GROUP = 32
"""Elements along the sum that share a scale of 4-bit numbers; a channel of fewer stays as it is."""
SMALLEST = 1e-30
"""Added to every scale, so that a row of zeros has one."""
GATHERING = ("moe._gather_tokens",)
"""Operators that move rows of their first input to several places: narrow numbers are fewer bytes to move."""
MULTIPLY, CAST = "math.mul", "layout.cast"
"""What makes numbers of codes."""
SHAPING = (*MOVING, "layout.reshape", "layout.squeeze", "layout.unsqueeze")
"""What brings those to the shape of a weight."""
BYTES = (F8E4M3, F8E5M2)
"""Reals that need a scale."""
_StoredKey: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]
"""A tensor, the path of its region, the axes that share a scale."""


def reduce_precision(
    model: Model,
    precision: str,
    all_products: bool = False,
    whole: frozenset[str] = frozenset(),
    streamed: frozenset[str] = frozenset(),
) -> Model:
    """The model whose products with weights compute in a precision of `REDUCTIONS`.

    With `all_products` those of two activations do too, where the precision is one of reals: tensor cores compute
    products of halves. Those that make the tensors of `whole` are rounded by the kernel that they are part of; of those
    that make the tensors of `streamed` it rounds what is made inside, and reads halves from outside.
    """
    flat = decompose_all(model)
    reducing = _Reducing(flat, REDUCTIONS[precision])
    reducing.all_products = all_products and REDUCTIONS[precision].activation == BF16
    if reducing.all_products:
        reducing.kept = (I4, I8, *BYTES)
    reducing.whole, reducing.streamed = whole, streamed
    reducing.cut = _cut_up(flat.graph) if reducing.all_products else frozenset()
    return replace(flat, graph=rewrite(flat.graph, reducing.visit))


@dataclass(frozen=True, slots=True)
class Reduction:
    """What a precision stores the factors of products in."""

    weight: ElementType
    activation: ElementType | None = None
    """None where activations stay as they are."""
    group: int | None = None
    """Elements along the sum that share a scale; a whole channel of the weight where nothing is said."""
    kept: tuple[ElementType, ...] = ()
    """Types of codes that stay where the model has them, with their scales."""


REDUCTIONS: Mapping[str, Reduction] = MappingProxyType(
    {
        "bf16": Reduction(BF16, BF16),
        "w8": Reduction(I8),
        "w4": Reduction(I4, group=GROUP),
        "fp8": Reduction(F8E4M3, kept=BYTES),
        "int8": Reduction(I8, I8),
    }
)
"""How each precision but f32 is made."""
FULL = "f32"
"""The precision of the graph as it is."""


class _Reducing:
    def __init__(self, model: Model, reduction: Reduction) -> None:
        self.library: Library = model.library
        self.reduction = reduction
        self.fixed = FixedTensors(model.graph, model.library)
        self.variables = {item.name for item in model.graph.variables}
        self.kept = reduction.kept
        """Types of codes that stay as they are."""
        self.products = KnownProducts(model.library, self.fixed)
        self.stored: dict[_StoredKey, _Stored] = {}
        """What is stored of each factor: a tensor, the path of its region, the axes that share a scale."""
        self.all_products = False
        self.whole: frozenset[str] = frozenset()
        self.streamed: frozenset[str] = frozenset()
        self.cut: frozenset[str] = frozenset()
        """Tensors that are read in parts alone."""

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """A product with the narrow numbers of its factors."""
        self.fixed.add(node)
        if isinstance(node, Operation) and sum(_is_narrower(item, walk) for item in node.inputs) > 1:
            return None  # codes that tensor cores multiply as they are
        product = self.products.find(node) if isinstance(node, Operation) else None
        if product is None and self.all_products and isinstance(node, Operation):
            return self._reduce_both(node, walk)
        if product is None or product.result.element != F32 or _is_quantized(product):
            return None
        if self._is_stored(product.operand(product.weight), walk):
            return None
        calls, before = _Calls(self.library, walk), dict(self.stored)
        try:
            inputs = list(product.operation.inputs)
            inputs[product.weight] = self._weight(product, calls)
            inputs[product.activation] = self._activation(product, calls)
        except (
            Found
        ):  # it is too small, or a definition refuses what is asked of it: the product stays as it was
            self.stored = before
            return None
        for item in calls.made:
            self.fixed.add(item)
        made = (*calls.made, replace(product.operation, inputs=tuple(inputs)))
        nodes = tuple(replace(item, origin=item.origin or node.origin) for item in made)
        return Replacement(nodes, constants=tuple(calls.constants))

    def _reduce_both(self, operation: Operation, walk: RewriteWalk) -> Replacement | None:
        """A product of two activations with their narrow numbers."""
        places, (output, *_) = find_free_product(self.library, operation, self.fixed), operation.outputs
        if places is None or not isinstance(output, Tensor) or output.element != F32:
            return None
        if output.name in self.whole:
            return None
        calls, inputs = _Calls(self.library, walk), list(operation.inputs)
        for place in places:
            tensor = inputs[place]
            if isinstance(tensor, Tensor) and output.name in self.streamed and tensor.name in self.streamed:
                continue
            if not isinstance(tensor, Tensor) or tensor.element != F32 or tensor.quantization is not None:
                return None
            inputs[place] = self._narrow(tensor, BF16, (), calls)
        made = (*calls.made, replace(operation, inputs=tuple(inputs)))
        return Replacement(tuple(replace(item, origin=item.origin or operation.origin) for item in made))

    def _is_stored(self, weight: Tensor | None, walk: RewriteWalk) -> bool:
        """Whether a weight is codes of the model that stay, times their scales."""
        maker = None if weight is None else walk.maker(weight)
        while maker is not None and maker.operator in SHAPING:
            maker = walk.maker(maker.inputs[0])
        if maker is None or maker.operator != MULTIPLY:
            return False
        casts = [walk.maker(item) for item in maker.inputs]
        codes = [item.inputs[0] for item in casts if item is not None and item.operator == CAST]
        return any(
            isinstance(item, Tensor) and item.name in self.variables and item.element in self.kept
            for item in codes
        )

    def _weight(self, product: WeightedProduct, calls: _Calls) -> Argument:
        weight = product.operand(product.weight)
        if weight is None or weight.element != F32 or _row_length(weight, product.rows) < GROUP:
            raise Found
        along = tuple(axis for axis in range(len(weight.shape)) if axis != product.rows)
        group = self.reduction.group
        if group is None:
            return self._narrow(weight, self.reduction.weight, along, calls)
        extent = weight.shape[along[-1]] if along else 0
        if len(weight.shape) != 2 or not isinstance(extent, int) or extent % group:
            return self._narrow(weight, I8, along, calls)
        axis = along[0]
        split = (*weight.shape[:axis], extent // group, group, *weight.shape[axis + 1 :])
        parts = calls.call("layout.reshape", (weight,), f"{weight.name}.groups", {"shape": split})
        codes = self._narrow(parts, self.reduction.weight, (axis + 1,), calls)
        return calls.call("layout.reshape", (codes,), f"{weight.name}.decoded", {"shape": weight.shape})

    def _activation(self, product: WeightedProduct, calls: _Calls) -> Argument:
        activation, element = product.operand(product.activation), self.reduction.activation
        if activation is None or element is None:
            return activation
        if activation.element != F32:
            raise Found
        along = tuple(axis for axis in range(len(activation.shape)) if axis not in product.kept)
        return self._narrow(activation, element, along, calls)

    def _narrow(self, tensor: Tensor, element: ElementType, along: tuple[int, ...], calls: _Calls) -> Tensor:
        """A tensor as its narrow numbers say it: stored once, made anew for each product."""
        key = tensor.name, calls.walk.path, along
        source = narrow_source(calls.walk, tensor)
        if source is not None and source.element == element:
            return calls.cast(source, F32, f"{tensor.name}.real")
        is_half = element.is_float and element not in BYTES
        if key not in self.stored and is_half:
            self._take_before(tensor, key, calls)
        if key not in self.stored and is_half:
            self._take_moved(tensor, element, key, calls)
        if key not in self.stored:
            self.stored[key] = (_store if is_half else _quantize)(tensor, element, along, calls)
        found = self.stored[key]
        decoded = calls.cast(found.codes, F32, f"{tensor.name}.real")
        if found.scale is None:
            return decoded
        return calls.call("math.mul", (decoded, found.scale), f"{tensor.name}.decoded")

    def _take_before(self, tensor: Tensor, key: _StoredKey, calls: _Calls) -> None:
        """The narrow numbers of a tensor that only waits for another one are those of what waits."""
        maker = calls.walk.maker(tensor)
        if maker is None or maker.operator != AFTER or not isinstance(maker.inputs[0], Tensor):
            return
        kept = self.stored.get((maker.inputs[0].name, *key[1:]))
        if kept is not None and kept.scale is None and isinstance(maker.inputs[1], Tensor):
            name = f"{tensor.name}.{kept.codes.element}"
            self.stored[key] = _Stored(calls.call(AFTER, (kept.codes, maker.inputs[1]), name))

    def _take_moved(self, tensor: Tensor, element: ElementType, key: _StoredKey, calls: _Calls) -> None:
        """The narrow numbers of a tensor that is moved are moved: who makes it stores them, and nothing else."""
        maker = calls.walk.maker(tensor) if self.all_products else None
        moved = maker is not None and maker.operator in (*MOVING, *GATHERING)
        source = maker.inputs[0] if maker is not None and moved else None
        if maker is None or not isinstance(source, Tensor) or source.element != F32 or source.quantization:
            return
        if maker.operator == AFTER or (maker.operator == SLICE and source.name not in self.cut):
            return
        own = source.name, *key[1:]
        if own not in self.stored:
            self._take_moved(source, element, own, calls)
        if own not in self.stored:
            self.stored[own] = _store(source, element, (), calls)
        inputs = (self.stored[own].codes, *(item for item in maker.inputs[1:] if isinstance(item, Tensor)))
        name = f"{tensor.name}.{element}"
        self.stored[key] = _Stored(calls.call(maker.operator, inputs, name, dict(maker.attributes)))


@dataclass(frozen=True, slots=True)
class _Stored:
    """The narrow numbers of a tensor, and what they are to be multiplied with."""

    codes: Tensor
    scale: Tensor | None = None


def _store(tensor: Tensor, element: ElementType, along: Sequence[int], calls: _Calls) -> _Stored:
    return _Stored(calls.cast(tensor, element, f"{tensor.name}.{element}"))


def _quantize(tensor: Tensor, element: ElementType, along: Sequence[int], calls: _Calls) -> _Stored:
    """Codes that reach their largest one where the tensor does, along the axes that share a scale."""
    name = tensor.name
    size = calls.call("math.abs", (tensor,), f"{name}.size")
    largest = calls.call("math.max_reduce", (size,), f"{name}.largest", {"axes": tuple(along)})
    most = element.largest if element.is_float else element.maximum
    step, least = calls.constant(1.0 / most), calls.constant(SMALLEST)
    scale = calls.call("math.axpb", (step, largest, least), f"{name}.scale")
    steps = calls.call("math.div", (tensor, scale), f"{name}.steps")
    whole = steps if element.is_float else calls.call("math.round", (steps,), f"{name}.rounded")
    return _Stored(calls.cast(whole, element, f"{name}.{element}"), scale)


@dataclass(slots=True)
class _Calls:
    """New operations in the order in which they are called."""

    library: Library
    walk: RewriteWalk
    made: list[Operation] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)

    def call(
        self,
        operator: str,
        inputs: tuple[Tensor, ...],
        name: str,
        attributes: Mapping[str, Value] | None = None,
        types: Mapping[str, ElementType] | None = None,
    ) -> Tensor:
        """Call an operator of one result."""
        names = [self.walk.fresh(name)]
        self.made.append(call(self.library, operator, inputs, attributes or {}, names, types))
        (found,) = self.made[-1].outputs
        if not isinstance(found, Tensor):
            raise Found
        return found

    def cast(self, tensor: Tensor, element: ElementType, name: str) -> Tensor:
        """A tensor in another type."""
        return self.call("layout.cast", (tensor,), name, types={"R": element})

    def constant(self, value: float) -> Tensor:
        """A number."""
        found = Constant(Tensor(self.walk.fresh("c"), F32, ()), value)
        self.constants.append(found)
        return found.tensor


def _cut_up(graph: Graph) -> frozenset[str]:
    """The tensors that only slices read."""
    parts, others = set[str](), {item.name for item in members(graph.outputs)}
    others |= {item.value.name for item in graph.updates}
    for node in graph.nodes:
        is_part = isinstance(node, Operation) and node.operator == SLICE
        (parts if is_part else others).update(item.name for item in operands_of(node))
    return frozenset(parts - others)


def _is_narrower(tensor: Argument, walk: RewriteWalk) -> bool:
    """Whether a tensor is one of reals of 8 bits, widened."""
    source = narrow_source(walk, tensor)
    return source is not None and source.element.bits == 8


def _row_length(weight: Tensor, rows: int) -> int:
    """How many elements of a weight each channel has; 0 where that is not known."""
    known = [extent for axis, extent in enumerate(weight.shape) if axis != rows and isinstance(extent, int)]
    return prod(known) if len(known) == len(weight.shape) - 1 else 0


def _is_quantized(product: WeightedProduct) -> bool:
    """Whether the model itself says how a tensor of a product is quantised."""
    found = (product.result, product.operand(product.weight), product.operand(product.activation))
    return any(item is not None and item.quantization is not None for item in found)
