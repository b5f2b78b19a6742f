"""Fused operators of language models spelled as products, softmax and elementwise operators, which have codes.

    attention(q, k, v) = softmax(q · kᵀ · s + mask) · v
    rope(x)            = x · cos + (−x₂, x₁) · sin
    swiglu(g, u)       = silu(g) · u
    bias_add(x, b)     = x + b, which products take along

What only the run tells (positions in a cache, packed sequences, windows) keeps the operator's own masking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from lamella.base.dtype import F32
from lamella.base.errors import Found
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Node, Operation, Single, Tensor, Value, tensors
from lamella.graph.passes.dce import dce
from lamella.graph.rewrite import Replacement, RewriteWalk, rewrite, uses
from lamella.ops.library import Library

LARGEST_MASK = 4096
"""Elements of a mask that is written into the graph; a larger one is computed by the run."""


def spell_out(model: Model) -> Model:
    """The model without fused operators of language models, as far as their shapes are known."""
    return dce(replace(model, graph=rewrite(model.graph, _Spelling(model).visit)))


class _Spelling:
    def __init__(self, model: Model) -> None:
        self.library = model.library
        self.reads = uses(model.graph)

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """The spelling of an operation; None where it has none."""
        make = SPELLINGS.get(node.operator) if isinstance(node, Operation) else None
        if make is None or not isinstance(node, Operation):
            return None
        calls = SpellingCalls(self.library, walk, node, self.reads)
        try:
            known = make(calls)
        except Found:  # an operator refuses what should be one of its calls; the node stays as it was
            return None
        if not known:
            return None
        made = tuple(replace(item, origin=node.origin) for item in calls.made)
        return Replacement(made, constants=tuple(calls.constants))


@dataclass(slots=True)
class SpellingCalls:
    """New operations in the place of one, in the order in which they are called."""

    library: Library
    walk: RewriteWalk
    node: Operation
    reads: Mapping[str, int]
    made: list[Operation] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)

    def attribute(self, name: str) -> Value:
        """An attribute of the operation."""
        return dict(self.node.attributes).get(name)

    def input(self, place: int) -> Tensor:
        """An input that is there."""
        found = self.node.inputs[place]
        if not isinstance(found, Tensor) or not all(isinstance(size, int) for size in found.shape):
            raise Found
        return found

    def output(self, place: int = 0) -> Tensor:
        """An output of the operation."""
        return tensors(self.node.outputs[place])[0]

    def is_read(self, place: int) -> bool:
        """Whether something reads an output."""
        return bool(self.reads.get(self.output(place).name))

    def call(self, operator: str, *inputs: Argument, name: str = "", **attributes: Value) -> Tensor:
        """Call an operator of one result, under a name or a new one."""
        stem = name or self.walk.fresh(f"{self.output().name}.{operator.rpartition('.')[2]}")
        self.made.append(call(self.library, operator, inputs, attributes, [stem]))
        (found,) = self.made[-1].outputs
        if not isinstance(found, Tensor):
            raise Found
        return found

    def constant(self, value: Single | tuple[Single, ...], shape: tuple[int, ...] = ()) -> Tensor:
        """A constant of single precision."""
        tensor = Tensor(self.walk.fresh("c"), F32, shape)
        self.constants.append(Constant(tensor, value))
        return tensor

    def sizes(self, tensor: Tensor) -> tuple[int, ...]:
        """The extents of a tensor, which are known."""
        return tuple(size for size in tensor.shape if isinstance(size, int))


def _embedding(calls: SpellingCalls) -> bool:
    calls.call("layout.gather", calls.node.inputs[1], calls.node.inputs[0], name=calls.output().name, axis=0)
    return True


def _bias_add(calls: SpellingCalls) -> bool:
    calls.call("math.add", *calls.node.inputs, name=calls.output().name)
    return True


def _swiglu(calls: SpellingCalls) -> bool:
    opened = calls.call("nn.silu", calls.node.inputs[0])
    calls.call("math.mul", opened, calls.node.inputs[1], name=calls.output().name)
    return True


def _attention(calls: SpellingCalls) -> bool:
    (q, k, v), (packed, position) = map(calls.input, (0, 1, 2)), calls.node.inputs[3:5]
    if q.element != F32 or packed is not None or calls.is_read(1):
        return False
    if calls.attribute("window_size") is not None or calls.attribute("alibi_slopes") is not None:
        return False
    (_, heads, n, width), (_, shared, m, _) = calls.sizes(q), calls.sizes(k)
    grouped = calls.call("layout.unflatten", q, axis=1, shape=(shared, heads // shared))
    keys, values = (calls.call("layout.unsqueeze", item, axes=(2,)) for item in (k, v))
    products = calls.call("linalg.matmul", grouped, keys, None, transB=True)
    scale = calls.attribute("softmax_scale")
    factor = scale if isinstance(scale, float) else width**-0.5
    scores = calls.call("math.mul", products, calls.constant(factor))
    weights = calls.call("nn.softmax", _seen(calls, scores, position, (n, m)), axes=(-1,))
    mixed = calls.call("linalg.matmul", weights, values, None)
    calls.call("layout.flatten", mixed, name=calls.output().name, axis=1, rank=2)
    return True


def _seen(calls: SpellingCalls, scores: Tensor, position: Argument, extents: tuple[int, int]) -> Tensor:
    """Scores of what a query may see: the queries stand at the end of the keys, or at a position of the run."""
    n, m = extents
    if not calls.attribute("causal") or (position is None and n == 1):
        return scores
    if position is not None or n * m > LARGEST_MASK:
        return calls.call("llm._see", scores, None, position, causal=True, scale=1.0)
    hidden = tuple(0.0 if j <= i + m - n else -inf for i in range(n) for j in range(m))
    return calls.call("math.add", scores, calls.constant(hidden, (n, m)))


def _rope(calls: SpellingCalls) -> bool:
    q, k, freqs = map(calls.input, (0, 1, 2))
    (*_, width), (positions, angles, _) = calls.sizes(q), calls.sizes(freqs)
    if calls.attribute("interleaved") or calls.node.inputs[3] is not None or 2 * angles != width:
        return False
    if q.element != F32 or freqs.element != F32 or calls.sizes(q)[2] > positions:
        return False
    tables = [_table(calls, freqs, place, calls.sizes(q)[2]) for place in (0, 1)]
    for place, x in enumerate((q, k)):
        _turn(calls, x, tables, calls.output(place).name)
    return True


def _table(calls: SpellingCalls, freqs: Tensor, place: int, count: int) -> Tensor:
    """Cosines or sines of the first positions, once for each half of a vector."""
    begin, end = (0, place), (count, place + 1)
    part = calls.call("layout.slice", freqs, axes=(0, 2), begin=begin, end=end)
    flat = calls.call("layout.squeeze", part, axes=(2,))
    return calls.call("layout.concat", (flat, flat), axis=1)


def _turn(calls: SpellingCalls, x: Tensor, tables: Sequence[Tensor], name: str) -> None:
    half = calls.sizes(x)[-1] // 2
    first = calls.call("layout.slice", x, axes=(3,), begin=(0,), end=(half,))
    second = calls.call("layout.slice", x, axes=(3,), begin=(half,), end=(2 * half,))
    turned = calls.call("layout.concat", (calls.call("math.neg", second), first), axis=3)
    along, across = calls.call("math.mul", x, tables[0]), calls.call("math.mul", turned, tables[1])
    calls.call("math.add", along, across, name=name)


def _heads(calls: SpellingCalls) -> bool:
    first, count = calls.attribute("first"), calls.attribute("count")
    if not isinstance(first, int) or not isinstance(count, int):
        return False
    taken = calls.call("layout.slice", calls.input(0), axes=(2,), begin=(first,), end=(first + count,))
    calls.call("layout.transpose", taken, name=calls.output().name, perm=(0, 2, 1, 3))
    return True


SPELLINGS = {
    "llm._take_heads": _heads,
    "llm.embedding": _embedding,
    "llm.bias_add": _bias_add,
    "llm.swiglu": _swiglu,
    "llm.flash_attention": _attention,
    "llm.rope": _rope,
}
"""How fused operators are spelled; each says whether it can be."""
