"""Normalisations that are written out, as the one operator that targets have: sums of squares stay in one place.

    x · rsqrt(mean(x²) + ε) · w            = rms_norm(x, w)
    (x − mean(x)) / sqrt(var + ε) · w + b  = layer_norm(x, w, b)

In narrow types the squares of a normalisation that is written out overflow, those inside one operator do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lamella.base.errors import Found
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor, Value
from lamella.graph.passes.dce import dce
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite
from lamella.ops.library import Library

RMS, LAYER = "aten.rms_norm", "aten.layer_norm"


def raise_norms(model: Model) -> Model:
    """The model with each normalisation of rows as one operation."""
    return dce(replace(model, graph=rewrite(model.graph, _Raising(model.library).visit)))


class _Raising:
    def __init__(self, library: Library) -> None:
        self.library = library

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """A normalisation in the place of the operation that ends it."""
        if not isinstance(node, Operation) or len(node.outputs) != 1 or not _is_plain(node):
            return None
        for found in self._forms(node, walk):
            try:
                (output,) = node.outputs
                made = call(
                    self.library, found.operator, found.inputs, dict(found.attributes), [_name(output)]
                )
            except Found:  # the operator refuses what should be one of its calls; the node stays as it was
                continue
            if made.outputs == node.outputs:
                return Replacement((replace(made, origin=node.origin),))
        return None

    def _forms(self, node: Operation, walk: RewriteWalk) -> Iterator[Operation]:
        if node.operator == "math.mul":
            for one, other in (node.inputs, node.inputs[::-1]):
                yield from _rms(one, other, walk)
                yield from _weighted(one, other, walk)
        elif node.operator == "math.div":
            yield from _layer(node.inputs[0], node.inputs[1], walk)
        elif node.operator == "math.add":
            for one, other in (node.inputs, node.inputs[::-1]):
                yield from _shifted(one, other, walk)


def _rms(x: Argument, factor: Argument, walk: RewriteWalk) -> Iterator[Operation]:
    """A tensor times the reciprocal root of the mean of its squares."""
    stable = _only(factor, "math.rsqrt", walk)
    found = _stabilised(stable, walk)
    if found is not None and _square_of(_mean_of(found[0], walk), walk) == x and isinstance(x, Tensor):
        yield Operation(RMS, (x, None), (), _shape(x, found[1]))


def _layer(centred: Argument, root: Argument, walk: RewriteWalk) -> Iterator[Operation]:
    """A tensor less its mean over the root of the mean of the squares of that."""
    found = _stabilised(_only(root, "math.sqrt", walk), walk)
    less = walk.maker(centred)
    if found is None or less is None or less.operator != "math.sub" or not _is_plain(less):
        return
    x, mean = less.inputs
    squares = _square_of(_mean_of(found[0], walk), walk)
    if squares == centred and _mean_of(mean, walk) == x and isinstance(x, Tensor):
        yield Operation(LAYER, (x, None, None), (), _shape(x, found[1]))


def _weighted(normal: Argument, weight: Argument, walk: RewriteWalk) -> Iterator[Operation]:
    maker = walk.maker(normal)
    if (
        maker is not None
        and maker.operator in (RMS, LAYER)
        and maker.inputs[1] is None
        and _is_row(weight, normal)
    ):
        yield replace(maker, inputs=(maker.inputs[0], weight, *maker.inputs[2:]))


def _shifted(normal: Argument, bias: Argument, walk: RewriteWalk) -> Iterator[Operation]:
    maker = walk.maker(normal)
    if maker is not None and maker.operator == LAYER and maker.inputs[2] is None and _is_row(bias, normal):
        yield replace(maker, inputs=(*maker.inputs[:2], bias))


def _only(argument: Argument, operator: str, walk: RewriteWalk) -> Argument:
    """What an operator of one input was called with."""
    maker = walk.maker(argument)
    return maker.inputs[0] if maker is not None and maker.operator == operator else None


def _stabilised(argument: Argument, walk: RewriteWalk) -> tuple[Argument, float] | None:
    """A tensor and the small number that is added to it."""
    maker = walk.maker(argument)
    if maker is None or maker.operator != "math.add":
        return None
    for one, other in (maker.inputs, maker.inputs[::-1]):
        constant = walk.constant(other)
        if constant is not None and isinstance(constant.value, float) and 0 < constant.value < 1:
            return one, constant.value
    return None


def _mean_of(argument: Argument, walk: RewriteWalk) -> Argument:
    """What the means along the last dimension are those of."""
    maker = walk.maker(argument)
    if maker is None or maker.operator != "math.mean_reduce" or not isinstance(maker.inputs[0], Tensor):
        return None
    given, rank = dict(maker.attributes), len(maker.inputs[0].shape)
    last = given.get("axes") in ((-1,), (rank - 1,)) and not given.get("squeeze")
    return maker.inputs[0] if last else None


def _square_of(argument: Argument, walk: RewriteWalk) -> Argument:
    """What squares are those of."""
    maker = walk.maker(argument)
    if maker is None or argument is None:
        return None
    if maker.operator == "math.sqr" or (maker.operator == "math.mul" and maker.inputs[0] == maker.inputs[1]):
        return maker.inputs[0]
    power = walk.constant(maker.inputs[1]) if maker.operator == "math.pow" else None
    return maker.inputs[0] if power is not None and power.value == 2.0 else None


def _shape(x: Tensor, eps: float) -> tuple[tuple[str, Value], ...]:
    return (("normalized_shape", x.shape[-1:]), ("eps", eps))


def _is_row(weight: Argument, normal: Argument) -> bool:
    """Whether a tensor has one number for each element of a row."""
    if not isinstance(weight, Tensor) or not isinstance(normal, Tensor):
        return False
    return weight.shape == normal.shape[-1:]


def _is_plain(node: Operation) -> bool:
    """Whether the operands of an operation meet at their last dimensions."""
    return all(value is None for name, value in node.attributes if name.endswith("_align"))


def _name(argument: Argument) -> str:
    return argument.name if isinstance(argument, Tensor) else ""
