"""Numbers over a scale in a narrow type and back, as the scaling strategies choose the scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lamella.base.dtype import ElementType
from lamella.bridge.module_to_graph.calls.primitives import Request, make
from lamella.bridge.module_to_graph.nodes import Scaling
from lamella.bridge.module_to_graph.road import Place, Road
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.instantiate.nodes import Value
from lamella.lang.module.nodes import Primitive
from lamella.lang.module.rules.annotated import VALUE

PER_TOKEN, PER_CHANNEL, PER_BLOCK = "per_token", "per_channel", "per_block"
SMALLEST = 1e-12
"""The largest number of a tensor is taken to be at least this, so that zeros have a scale too."""


def quantized(
    tensor: Tensor, element: ElementType, scaling: Scaling, request: Request, is_weight: bool, road: Road
) -> Tensor:
    """The numbers of a tensor as the narrow type holds them, in the type that the tensor has."""
    shape, wide = tensor.shape, tensor
    axes = tuple(_axes(scaling, len(shape), is_weight))
    if scaling.strategy == PER_BLOCK and len(shape) > 1:
        blocked = _blocked(tensor, scaling.block, request)
        wide = _call("view", (tensor,), {"shape": blocked}, request, road)
        axes = (len(blocked) - 3, len(blocked) - 1)
    scale = _scale(wide, axes, element, scaling.margin, road) if shape else None
    narrow = wide if scale is None else _call("div", (wide, scale), {}, request, road)
    there = _call("quantize", (narrow,), {}, request, road, element)
    back = _call("dequantize", (there,), {}, request, road, tensor.element)
    found = back if scale is None else _call("mul", (back, scale), {}, request, road)
    return found if wide is tensor else _call("view", (found,), {"shape": shape}, request, road)


def _axes(scaling: Scaling, rank: int, is_weight: bool) -> range:
    """The dimensions that share one scale."""
    if scaling.strategy == PER_TOKEN:
        return range(rank - 1, rank)
    if scaling.strategy == PER_CHANNEL and is_weight:
        return range(1, rank)
    return range(rank)


def _scale(tensor: Tensor, axes: Sequence[int], element: ElementType, margin: float, road: Road) -> Tensor:
    """The largest number of each group over the largest of the narrow type; no gradient goes through it."""
    builder = road.builder
    largest = builder.call("math.max_reduce", builder.call("math.abs", tensor), axes=tuple(axes))
    held = builder.call("math.max", largest, builder.constant(SMALLEST, tensor.element))
    limit = element.largest if element.is_float else float(element.maximum)
    return builder.call("math.mul", held, builder.constant((1.0 + margin) / limit, tensor.element))


def _blocked(tensor: Tensor, block: tuple[int, int], request: Request) -> tuple[Value, ...]:
    """The shape of a tensor with its last two dimensions cut into blocks; open ones are cut into single rows."""
    *others, rows, columns = tensor.shape
    sizes: list[Value] = []
    for extent, size in ((rows, block[0]), (columns, block[1])):
        if isinstance(extent, int) and extent % size:
            found = f"({block[0]}, {block[1]}) for a tensor with the dimensions {rows} and {columns}"
            finding = VALUE.at(
                request.place.span,
                name="scaling",
                argument="block_size",
                found=found,
                wanted="one that divides them",
                repair="",
            )
            raise Problem(finding)
        sizes += [extent // size, size] if isinstance(extent, int) else [extent, 1]
    return (*others, *sizes)


def _call(
    name: str,
    inputs: tuple[Tensor, ...],
    attributes: dict[str, Value],
    request: Request,
    road: Road,
    element: ElementType | None = None,
) -> Tensor:
    """A primitive called on the way to another, where that one stands."""
    declared = request.frame.instance.scope.library.primitive(name)
    if declared is None or not isinstance(declared.declaration, Primitive):
        raise LookupError(name)
    place = Place(name, request.place.span, request.place.origin, request.frame)
    made = replace(
        request,
        primitive=declared.declaration,
        inputs=list(inputs),
        attributes=dict(attributes),
        targets=(),
        place=place,
        types={} if element is None else {"dtype": element},
        runtime={},
        kept=None,
    )
    found = make(made, road)[0]
    if found is None:
        raise LookupError(name)
    return found
