"""Laws of operations that only move elements, or only say a shape."""

from __future__ import annotations

from dataclasses import replace

from lamella.graph.nodes import Argument, Operation, Shape, Tensor, Value
from lamella.graph.passes.laws.reading import ATEN, before, inputs_of, is_static, output_of, volume
from lamella.graph.rewrite import Change, Walk

RESHAPING = frozenset(
    (
        *(f"layout.{name}" for name in ("reshape", "flatten", "unflatten", "squeeze", "unsqueeze")),
        *(f"aten.{name}" for name in ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze")),
    )
)


def gather_shapes(node: Operation, walk: Walk) -> Tensor | Operation | None:
    """Row-major order is the same before and after, so the first input can be given the last shape at once."""
    first = before(node.inputs[0], walk, RESHAPING)
    source, output = inputs_of(first or node)[0], node.outputs[0]
    if not isinstance(output, Tensor):
        return None
    if source.shape == output.shape:
        return source
    if first is None:
        return None
    if node.operator.startswith(ATEN):
        return _view(source, node, output.shape)
    positive = all(isinstance(extent, int) and extent > 0 for extent in (*source.shape, *output.shape))
    return _reshape(source, node, output.shape) if positive else None


def _reshape(source: Tensor, node: Operation, shape: Shape) -> Operation:
    attributes: tuple[tuple[str, Value], ...] = (("axis", 0), ("rank", len(source.shape)), ("shape", shape))
    return replace(node, operator="layout.reshape", inputs=(source,), attributes=attributes)


def _view(source: Tensor, node: Operation, shape: Shape) -> Operation | None:
    """One view for two; open extents must give the same volume by form, as its definition asks."""
    if not is_static((*source.shape, *shape)) and (
        (size := volume(source.shape)) is None or size != volume(shape)
    ):
        return None
    return replace(node, operator="aten.view", inputs=(source,), attributes=(("size", shape),))


def same_shape(node: Operation, walk: Walk) -> Tensor | None:
    """An operation that only repeats, surrounds, or cuts off, and does none of it where the shape stays."""
    source, output = inputs_of(node)[0], node.outputs[0]
    return source if isinstance(output, Tensor) and source.shape == output.shape else None


def put(node: Operation, walk: Walk) -> Tensor | None:
    """A tensor put in the place of all of another."""
    _, source = inputs_of(node)
    return source


def cut(node: Operation, walk: Walk) -> Tensor | None:
    """A slice of everything, forwards."""
    strides = dict(node.attributes).get("stride")
    forwards = isinstance(strides, tuple) and all(step == 1 for step in strides)
    return same_shape(node, walk) if forwards else None


def single(node: Operation, walk: Walk) -> Tensor | None:
    """An operation on a pack of one tensor; a sum begins with 0, which only integers do not notice."""
    pack = node.inputs[0]
    if not isinstance(pack, tuple) or len(pack) != 1:
        return None
    return None if node.operator == "math.sum_n" and pack[0].element.is_float else pack[0]


def undivided(node: Operation, walk: Walk) -> Tensor | None:
    """A tensor that is cut into one part."""
    pack = node.outputs[0]
    return inputs_of(node)[0] if isinstance(pack, tuple) and len(pack) == 1 else None


def undropped(node: Operation, walk: Walk) -> Change | None:
    """A tensor of which nothing is dropped, and where it was kept: everywhere."""
    output, mask = node.outputs
    if not isinstance(output, Tensor) or not isinstance(mask, Tensor) or not is_static(mask.shape):
        return None
    everywhere = Operation(
        "aten.ones", (), (mask,), (("size", mask.shape),), (("T", mask.element),), origin=node.origin
    )
    return Change((everywhere,), {output.name: inputs_of(node)[0]})


# --- what is made in the shape of another tensor --------------------------------------------------------------


def fill_zeros(node: Operation, walk: Walk) -> Operation | None:
    """Zeros of the shape of a tensor do not depend on it, where the shape is known."""
    return _made(node, "aten.zeros", ())


def fill_ones(node: Operation, walk: Walk) -> Operation | None:
    """Likewise ones."""
    return _made(node, "aten.ones", ())


def fill_value(node: Operation, walk: Walk) -> Operation | None:
    """Likewise one value."""
    return _made(node, "aten.full", node.inputs[1:])


def _made(node: Operation, operator: str, inputs: tuple[Argument, ...]) -> Operation | None:
    output = output_of(node)
    if output is None or not is_static(output.shape):
        return None
    return replace(node, operator=operator, inputs=inputs, attributes=(("size", output.shape),))
