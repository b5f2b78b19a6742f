"""Scales of narrow factors stand behind their product, whose factors are then what lies in memory.

    (real(p) * s) · (real(q) * t) = (real(p) · real(q)) * (s * t)       p, q of 8 bits, s and t one number each

What rounds is the sum of codes instead of that of numbers, so this is for a precision that is reduced: tensor cores
multiply codes as they are. Elements may be moved between a scale and the product, or wait for something.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lamella.base.dtype import F8E4M3, F8E5M2, F32
from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor
from lamella.graph.passes.dce import dce
from lamella.graph.passes.products import find_factors
from lamella.graph.passes.sink_casts import AFTER, CAST, CASTS
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite
from lamella.ops.library import Library

CODES = (F8E4M3, F8E5M2)
DECODE, MULTIPLY = "llm.dequantize", "math.mul"
MOVING = ("layout.flatten", "layout.unflatten", "layout.transpose", "layout.reshape", AFTER)
"""Operators that give the elements of their first input, perhaps elsewhere or later."""


def hoist_scales(model: Model) -> Model:
    """The model whose products of scaled codes are scaled products of codes."""
    return dce(replace(model, graph=rewrite(model.graph, partial(_visit, model.library))))


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A tensor that is some codes times a number, moved."""

    codes: Tensor
    scale: Tensor
    moves: tuple[Operation, ...]


def _visit(library: Library, node: Node, walk: RewriteWalk) -> Replacement | None:
    if not isinstance(node, Operation):
        return None
    try:
        made = _decoded(library, node) or _hoisted(library, node, walk)
    except Found:
        return None
    if made is None:
        return None
    return Replacement(tuple(replace(item, origin=item.origin or node.origin) for item in made))


def _decoded(library: Library, node: Operation) -> list[Operation] | None:
    """What only widens codes, as the cast that it is."""
    if node.operator != DECODE or dict(node.attributes)["scale"] != 1.0:
        return None
    (source, *_), (output,) = node.inputs, node.outputs
    widens = isinstance(source, Tensor) and isinstance(output, Tensor) and source.element in CODES
    if not widens or not isinstance(output, Tensor) or not output.element.is_float:
        return None
    return [call(library, CAST, (source,), {}, [output.name], {"R": output.element})]


def _hoisted(library: Library, node: Operation, walk: RewriteWalk) -> list[Operation] | None:
    """A product of codes, and its scales behind it."""
    scaled = [_find_scaled(item, walk) for item in node.inputs]
    if sum(item is not None for item in scaled) < 2 or len(node.outputs) != 1:
        return None
    (output,), places = node.outputs, find_factors(library, node)
    factors = [scaled[place] for place in places or ()]
    if not isinstance(output, Tensor) or output.element != F32 or len(factors) != 2 or None in factors:
        return None
    made, inputs = list[Operation](), list(node.inputs)
    # Of other inputs the product reads the shape alone: they need not be numbers either.
    for place, item in enumerate(scaled):
        if item is not None:
            inputs[place] = _moved_codes(library, item, walk, made)
    product = replace(
        node, inputs=tuple(inputs), outputs=(replace(output, name=walk.fresh(f"{output.name}.codes")),)
    )
    scales = tuple(_shaped(library, item.scale, len(output.shape), walk, made) for item in factors if item)
    both = _result(call(library, MULTIPLY, scales, {}, [walk.fresh(f"{output.name}.scale")]), made)
    return [*made, product, call(library, MULTIPLY, (*product.outputs, both), {}, [output.name])]


def _shaped(library: Library, scale: Tensor, rank: int, walk: RewriteWalk, made: list[Operation]) -> Tensor:
    """One number in as many dimensions as the product has."""
    if len(scale.shape) == rank:
        return scale
    name = walk.fresh(f"{scale.name}.one")
    return _result(call(library, "layout.reshape", (scale,), {"shape": (1,) * rank}, [name]), made)


def _find_scaled(tensor: Argument, walk: RewriteWalk) -> _Scaled | None:
    moves, maker = list[Operation](), walk.maker(tensor)
    while maker is not None and maker.operator in MOVING:
        moves.append(maker)
        maker = walk.maker(maker.inputs[0])
    if maker is None or maker.operator != MULTIPLY:
        return None
    for codes, scale in (maker.inputs, maker.inputs[::-1]):
        cast = walk.maker(codes)
        if cast is None or cast.operator not in CASTS or not isinstance(scale, Tensor):
            continue
        (source,) = cast.inputs
        one = all(extent == 1 for extent in scale.shape) and scale.element == F32
        if isinstance(source, Tensor) and source.element in CODES and one:
            return _Scaled(source, scale, tuple(reversed(moves)))
    return None


def _moved_codes(library: Library, item: _Scaled, walk: RewriteWalk, made: list[Operation]) -> Tensor:
    """The codes of a factor, moved as it was, in a cast of its own."""
    codes = item.codes
    for move in item.moves:
        name = walk.fresh(f"{codes.name}.moved")
        others = [_awaited(other, walk) for other in move.inputs[1:]]
        moved = call(library, move.operator, (codes, *others), dict(move.attributes), [name])
        codes = _result(moved, made)
    return _result(call(library, CAST, (codes,), {}, [walk.fresh(f"{codes.name}.real")], {"R": F32}), made)


def _awaited(token: Argument, walk: RewriteWalk) -> Argument:
    """What elements wait for: the codes of a scaled tensor are there before it is."""
    scaled = _find_scaled(token, walk)
    return token if scaled is None else scaled.codes


def _result(operation: Operation, made: list[Operation]) -> Tensor:
    """The one tensor that an operation gives, which is one more that is made."""
    (found,) = operation.outputs
    if not isinstance(found, Tensor):
        raise Found
    made.append(operation)
    return found
