"""Widening casts stand right before what reads them, one for each reader: what lies in memory is narrow.

    y = cast<f32>(x), a = f(y), b = flatten(y), c = g(b)
      = a = f(cast<f32>(x)), c = g(cast<f32>(flatten(x)))

A cast to a wider type loses nothing, so it may stand behind what only moves elements; a kernel that reads the narrow
tensor casts on the way. Products of tensors that are halves become products of halves. A cast to a narrower type stands
before what only joins tensors, where they are made:

    cast<bf16>(concat(a, b)) = concat(cast<bf16>(a), cast<bf16>(b))
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lamella.base.errors import Found
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor
from lamella.graph.passes.dce import dce
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite
from lamella.ops.library import Library

CASTS = ("layout.cast", "optim.cast")
CAST = CASTS[0]
CONCAT, SLICE = "layout.concat", "layout.slice"
AFTER = "misc.after"
MOVING = (AFTER, "layout.flatten", "layout.unflatten", "layout.transpose", SLICE)
"""Operators whose first input is moved, and not changed."""


def sink_casts(model: Model) -> Model:
    """The model whose widening casts have one reader each."""
    return dce(replace(model, graph=rewrite(model.graph, partial(_visit, model.library))))


def narrow_source(walk: RewriteWalk, tensor: Argument) -> Tensor | None:
    """The narrow reals that a tensor is a wide copy of."""
    maker = walk.maker(tensor)
    if maker is None or maker.operator not in CASTS or not isinstance(tensor, Tensor):
        return None
    (source,) = maker.inputs
    if not isinstance(source, Tensor) or source.quantization is not None or tensor.quantization is not None:
        return None
    widens = source.element.is_float and tensor.element.is_float and source.element.bits < tensor.element.bits
    return source if widens else None


def _visit(library: Library, node: Node, walk: RewriteWalk) -> Replacement | None:
    if not isinstance(node, Operation):
        return None
    if node.operator in CASTS:
        return _joined(library, node, walk)
    sources = [narrow_source(walk, item) for item in node.inputs]
    if not any(sources):
        return _cut_late(library, node, walk) if node.operator == AFTER else None
    if node.operator == AFTER:
        # What is waited for is there as soon as its narrow numbers are.
        node = replace(node, inputs=(node.inputs[0], sources[1] or node.inputs[1]))
        sources = [sources[0], None]
    try:
        moved = _moved(library, node, sources[0], walk) if node.operator in MOVING and sources[0] else None
        made = moved or _with_casts(library, node, sources, walk)
    except Found:
        return None
    return Replacement(tuple(replace(item, origin=item.origin or node.origin) for item in made))


def _cut_late(library: Library, node: Operation, walk: RewriteWalk) -> Replacement | None:
    """A part of what waits, instead of a part that waits: who reads it finds it in the whole."""
    source, token = node.inputs
    (output,) = node.outputs
    if not isinstance(output, Tensor) or not isinstance(source, Tensor) or not isinstance(token, Tensor):
        return None
    try:
        made = _late(library, source, token, output.name, walk)
    except Found:
        return None
    made = [replace(item, origin=item.origin or node.origin) for item in made]
    return Replacement(tuple(made)) if len(made) > 1 else None


def _late(library: Library, source: Tensor, token: Tensor, name: str, walk: RewriteWalk) -> list[Operation]:
    """What gives a tensor not before another one is there; of a part of a third one, that part of what waits."""
    maker = walk.maker(source)
    whole = maker.inputs[0] if maker is not None and maker.operator == SLICE else None
    if maker is None or not isinstance(whole, Tensor) or walk.maker(whole) is None:
        return [call(library, AFTER, (source, token), {}, [name])]
    late = call(library, AFTER, (whole, token), {}, [walk.fresh(f"{whole.name}_later")])
    part = call(library, SLICE, (*late.outputs, *maker.inputs[1:]), dict(maker.attributes), [name])
    return [late, part]


def _joined(library: Library, node: Operation, walk: RewriteWalk) -> Replacement | None:
    """Narrow tensors joined, instead of joined ones that are made narrow; the wide ones are left to other readers."""
    (source,), (output,) = node.inputs, node.outputs
    maker = walk.maker(source)
    if (
        maker is None
        or maker.operator != CONCAT
        or not isinstance(source, Tensor)
        or not isinstance(output, Tensor)
    ):
        return None
    (parts,) = maker.inputs
    narrows = (
        source.element.is_float and output.element.is_float and output.element.bits < source.element.bits
    )
    if not narrows or not isinstance(parts, tuple) or output.quantization or source.quantization:
        return None
    try:
        element = output.element
        casts = [
            call(library, node.operator, (item,), {}, [walk.fresh(f"{item.name}.{element}")], {"R": element})
            for item in parts
        ]
        joined = tuple(item for one in casts for item in one.outputs if isinstance(item, Tensor))
        whole = call(library, CONCAT, (joined,), dict(maker.attributes), [output.name])
    except Found:
        return None
    return Replacement(tuple(replace(item, origin=item.origin or node.origin) for item in (*casts, whole)))


def _moved(library: Library, node: Operation, source: Tensor, walk: RewriteWalk) -> list[Operation] | None:
    """What moves elements, of narrow ones, and the cast behind it."""
    (output,) = node.outputs
    if not isinstance(output, Tensor) or output.quantization is not None:
        return None
    name = walk.fresh(f"{output.name}.{source.element}")
    if node.operator == AFTER and isinstance(node.inputs[1], Tensor):
        made = _late(library, source, node.inputs[1], name, walk)
    else:
        made = [call(library, node.operator, (source, *node.inputs[1:]), dict(node.attributes), [name])]
    types = {"R": output.element}
    return [*made, call(library, CAST, made[-1].outputs, {}, [output.name], types)]


def _with_casts(
    library: Library, node: Operation, sources: list[Tensor | None], walk: RewriteWalk
) -> list[Operation]:
    """An operation that reads casts of its own."""
    made, inputs = list[Operation](), list(node.inputs)
    if node.operator == AFTER:
        (output,) = node.outputs
        return (
            [call(library, AFTER, node.inputs, {}, [output.name])] if isinstance(output, Tensor) else [node]
        )
    for place, (source, given) in enumerate(zip(sources, node.inputs, strict=True)):
        if source is not None and isinstance(given, Tensor):
            name = walk.fresh(f"{given.name}.own")
            made.append(call(library, CAST, (source,), {}, [name], {"R": given.element}))
            (inputs[place],) = made[-1].outputs
    return [*made, replace(node, inputs=tuple(inputs))]
