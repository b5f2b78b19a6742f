"""The normal form of a model to be quantised: every product with its weight and bias, and nothing hidden in a compound.

Compounds are taken apart down to operators that have an integer form, or that run as one island of real numbers
(`WHOLE`); scales and shifts of channels go into weights; what is computed from weights alone is computed, and stored.
Normalisations that are written out become the one operator that targets have:

    x · rsqrt(mean(x²) + ε) · w            = rms_norm(x, w)
    (x − mean(x)) / sqrt(var + ε) · w + b  = layer_norm(x, w, b)

In narrow types the squares of a normalisation that is written out overflow, those inside one operator do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import Found
from lamella.graph.build import call
from lamella.graph.compose.decompose import decompose
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Graph, Node, Operation, Single, Tensor, Value
from lamella.graph.passes import PASSES
from lamella.graph.passes.dce import dce
from lamella.graph.passes.fold_constants import Evaluate, array_of
from lamella.graph.passes.products import FixedTensors
from lamella.graph.quantize.dividing import divide_products
from lamella.graph.quantize.spellings import SPELLINGS, spell_out
from lamella.graph.rewrite import (
    Replacement,
    RewriteWalk,
    members,
    operands_of,
    rename,
    results_of,
    rewrite,
    uses,
)
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


ROWS = frozenset(
    (
        *("nn.softmax", "aten.softmax", "aten.log_softmax", "aten.safe_softmax", "llm.softmax"),
        *("aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm", "aten.fused_rms_norm"),
        *("llm.layernorm", "llm.rmsnorm"),
    )
)
"""Compounds of several steps along rows, which targets compute in single precision whatever the type around them."""
WHOLE = ROWS | {"nn.avg_pool", "math.mean_reduce"}
"""Compounds that stay: targets have them, and real numbers stay inside."""
STEPS = (
    *("simplify", "cancel_transposes", "fold_transposes", "cse", "dce"),
    *("fold_batch_norm", "local_views", "cse", "dce"),
)
"""The passes that bring products, weights and biases together, in order."""
_FOLDED = re.compile(r"(\.(scaled|folded|shift)(_\d+)?)+$")


def to_normal_form(model: Model, evaluate: Evaluate) -> Model:
    """The model whose tensors codes are chosen for; weights must have data."""
    # A state that is given its own value is none: statistics of batch norms that are not trained.
    updates = tuple(item for item in model.graph.updates if item.value.name != item.variable.name)
    still = replace(model, graph=replace(model.graph, updates=updates))
    flat = spell_out(decompose(still, lambda name: name in WHOLE or name in SPELLINGS))
    flat = decompose(flat, lambda name: name in WHOLE)
    for name in STEPS:
        flat = PASSES[name](flat)
    flat = raise_norms(_computed(divide_products(flat), evaluate))
    for name in ("simplify", "dce", "variable_dce"):
        flat = PASSES[name](flat)
    return _shortened(flat)


def _computed(model: Model, evaluate: Evaluate) -> Model:
    """The model with everything that depends on weights alone as weights."""
    graph = model.graph
    fixed = FixedTensors(graph, model.library)
    known = _Known(model, evaluate)
    kept = [node for node in graph.nodes if not (fixed.add(node) and known.compute(node))]
    read = {item.name for node in kept for item in operands_of(node)}
    read |= {item.name for item in members(graph.outputs)} | {item.value.name for item in graph.updates}
    # Matrices in the text of a model are weights like others: those of a bilinear interpolation, say.
    matrices = [
        item for item in graph.constants if item.tensor.element.is_float and len(item.tensor.shape) > 1
    ]
    for item in matrices:
        known.know(item.tensor)
    made = [item for item in known.made.values() if item.name in read]
    # What is the same everywhere is a constant, which identities know: a mask that hides nothing goes away.
    uniform = {item.name: value for item in made if (value := _uniform(known.arrays[item.name])) is not None}
    constants = (
        *(item for item in graph.constants if item.tensor.name not in known.made),
        *(Constant(item, uniform[item.name]) for item in made if item.name in uniform),
    )
    weights = [item for item in made if item.name not in uniform]
    data = {**(model.data or {}), **{item.name: known.arrays[item.name] for item in weights}}
    variables = (*graph.variables, *weights)
    changed = replace(graph, nodes=tuple(kept), variables=variables, constants=constants)
    return _kept_outputs(replace(model, graph=changed, data=data), graph)


def _uniform(values: Array) -> Single | None:
    """The one finite value that an array is full of."""
    if not values.size or values.dtype.kind not in "biuf" or (values != values.flat[0]).any():
        return None
    found: Single = values.flat[0].item()
    return found if np.isfinite(values.flat[0]) else None


def _kept_outputs(model: Model, before: Graph) -> Model:
    """The model without what it computed of its own outputs: a variable cannot be one."""
    now = (*model.graph.variables, *(item.tensor for item in model.graph.constants))
    then = (*before.variables, *(item.tensor for item in before.constants))
    new = {item.name for item in now} - {item.name for item in then}
    if not new & {item.name for item in members(before.outputs)}:
        return model
    return replace(model, graph=before)


class _Known:
    """What operations on weights and constants give, computed as far as a walk has come."""

    def __init__(self, model: Model, evaluate: Evaluate) -> None:
        self._data = model.data or {}
        self._constants: Mapping[str, Constant] = {item.tensor.name: item for item in model.graph.constants}
        self._evaluate = evaluate
        self.arrays: dict[str, Array] = {}
        self.made: dict[str, Tensor] = {}

    def compute(self, node: Node) -> bool:
        """Compute an operation; False where an array or an extent is missing, or it makes more than plain tensors."""
        results = list(results_of(node))
        tensors = [item for item in results if isinstance(item, Tensor)]
        if not isinstance(node, Operation) or len(tensors) != len(results):
            return False
        if not all(isinstance(extent, int) for item in tensors for extent in item.shape):
            return False
        given = {item.name: self._array(item.name) for item in operands_of(node)}
        arrays = {name: array for name, array in given.items() if array is not None}
        if len(arrays) != len(given):
            return False
        found = self._evaluate(node, arrays)
        self.arrays.update({item.name: array for item, array in zip(tensors, found, strict=True)})
        self.made.update({item.name: item for item in tensors})
        return True

    def know(self, tensor: Tensor) -> None:
        """Take a constant as something that was computed, where its array is known."""
        array = self._array(tensor.name)
        if array is not None:
            self.arrays[tensor.name], self.made[tensor.name] = array, tensor

    def _array(self, name: str) -> Array | None:
        if name in self.arrays:
            return self.arrays[name]
        constant = self._constants.get(name)
        return array_of(constant) if constant is not None else self._data.get(name)


def _shortened(model: Model) -> Model:
    """The model whose folded weights are called as before, where nothing else is."""
    read, names = uses(model.graph), dict[str, str]()
    taken = {item.name for item in model.graph.variables} | set(read)
    for item in model.graph.variables:
        short = _FOLDED.sub("", item.name)
        if short != item.name and short not in taken and short not in names.values():
            names[item.name] = short
    data = {names.get(name, name): array for name, array in (model.data or {}).items()}
    return replace(model, graph=rename(model.graph, names), data=data) if names else model
