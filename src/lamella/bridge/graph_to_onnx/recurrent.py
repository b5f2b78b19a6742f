"""Recurrent networks as ONNX's own: loops whose step is that of an LSTM, a GRU or an RNN become one node.

A step is known by what it computes: its results are written as expressions of its state, of the item it scans and of
what it reads from outside, sums and products in one order. The node computes the products with weights of its inputs
itself, whether a step does or the items are such products, as in `unstack(linear(x, W, b))`. Everything else stays a
Loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from lamella.base.dtype import F32
from lamella.bridge.graph_to_onnx.emitter import Given, Value
from lamella.bridge.graph_to_onnx.scope import Scope
from lamella.graph.nodes import Argument, Loop, Node, Operation, Pack, Region, Tensor, tensors

LONGEST = 2000
"""Characters of an expression that may be one of these steps."""
PLAIN = frozenset(("nn.sigmoid", "nn.relu", "math.tanh", "math.sub", "nn.linear"))
SORTED = frozenset(("math.add", "math.mul"))
LINEAR = frozenset(("nn.linear", "aten.linear"))
OUTSIDE, NOTHING = "o", "-"


# --- steps as expressions -------------------------------------------------------------------------------------


def _call(name: str, *operands: str) -> str:
    """An expression; what does not depend on an order has one."""
    return f"{name}({','.join(sorted(operands) if f'math.{name}' in SORTED else operands)})"


def _part(axis: int, place: int, count: int, whole: str) -> str:
    return f"split{axis}.{place}/{count}({whole})"


def _rnn(x: str, function: str) -> tuple[str, ...]:
    h = _call(function, _call("add", x, _call("linear", "i0", OUTSIDE, NOTHING)))
    return h, h


def _gru(x: str, bias: str, before_reset: bool) -> tuple[str, ...]:
    def product(gate: int, state: str = "i0", more: str = NOTHING) -> str:
        return _call("linear", state, _part(0, gate, 3, OUTSIDE), more)

    z, r = (_call("sigmoid", _call("add", _part(1, gate, 3, x), product(gate))) for gate in (0, 1))
    inner = (
        _call("mul", r, product(2, "i0", bias)) if before_reset else product(2, _call("mul", r, "i0"), bias)
    )
    n = _call("tanh", _call("add", _part(1, 2, 3, x), inner))
    h = _call("add", n, _call("mul", z, _call("sub", "i0", n)))
    return h, h


def _lstm(x: str, places: Sequence[int]) -> tuple[str, ...]:
    gates = _call("add", x, _call("linear", "i0", OUTSIDE, NOTHING))
    parts = [_part(1, place, 4, gates) for place in places]
    i, o, f = (_call("sigmoid", item) for item in parts[:3])
    c = _call("add", _call("mul", f, "i1"), _call("mul", i, _call("tanh", parts[3])))
    h = _call("mul", o, _call("tanh", c))
    return h, c, h


def _given(item: str) -> tuple[str, ...]:
    """What a step may make of its item: nothing, since it is a product with weights already, or that product."""
    return item, _call("linear", item, OUTSIDE, OUTSIDE), _call("linear", item, OUTSIDE, NOTHING)


@dataclass(frozen=True, slots=True)
class _Kind:
    """The node that a step is one of, its attributes, and where it has the gates that ONNX has in order."""

    op_type: str
    gates: tuple[int, ...]
    attributes: Mapping[str, Given] = field(default_factory=dict)


STEPS: Mapping[tuple[str, ...], _Kind] = MappingProxyType(
    {_rnn(x, "tanh"): _Kind("RNN", (0,)) for x in _given("i1")}
    | {_rnn(x, "relu"): _Kind("RNN", (0,), {"activations": ("Relu",)}) for x in _given("i1")}
    | {
        _gru(x, bias, before): _Kind("GRU", (0, 1, 2), {"linear_before_reset": int(before)})
        for x in _given("i1")
        for bias in (OUTSIDE, NOTHING)
        for before in (True, False)
    }
    # ONNX has input, output, forget, cell; most others input, forget, cell, output.
    | {_lstm(x, gates): _Kind("LSTM", gates) for x in _given("i2") for gates in ((0, 1, 2, 3), (0, 3, 1, 2))}
)
"""The steps that are known, by what they give."""


@dataclass(slots=True)
class _RegionReader:
    """Writes what a region computes as expressions, and collects what it reads from outside."""

    made: Mapping[str, tuple[Operation, int]]
    known: dict[str, str]
    outside: dict[str, Tensor] = field(default_factory=dict)
    products: dict[str, Operation] = field(default_factory=dict)
    """Products with weights, by what is multiplied."""

    def read(self, item: Tensor) -> str | None:
        """The expression of a tensor; None where it is none of these steps."""
        if item.quantization is not None:
            return None  # it is rounded between the steps
        if item.name not in self.known:
            found = self._made(*self.made[item.name]) if item.name in self.made else self._take(item)
            if found is None or len(found) > LONGEST:
                return None
            self.known[item.name] = found
        return self.known[item.name]

    def _take(self, item: Tensor) -> str:
        self.outside[item.name] = item
        return OUTSIDE

    def _made(self, node: Operation, place: int) -> str | None:
        operands = [self._operand(item) for item in node.inputs]
        words = [item for item in operands if item is not None]
        if len(words) != len(operands):
            return None
        if node.operator == "layout.split":
            return self._split(node, place, words[0])
        if node.operator == "math.axpby":
            return _call("add", _call("mul", *words[:2]), _call("mul", *words[2:]))
        if node.operator not in PLAIN | SORTED:
            return None
        if node.operator in LINEAR:
            self.products[words[0]] = node
        return _call(node.operator.rpartition(".")[2], *words)

    def _operand(self, item: Argument) -> str | None:
        if item is None:
            return NOTHING
        return self.read(item) if isinstance(item, Tensor) else None

    def _split(self, node: Operation, place: int, whole: str) -> str | None:
        """A part of a tensor that is divided into equal ones along an axis."""
        parts, axis = tensors(node.outputs[0]), dict(node.attributes).get("axis")
        same = all(item.shape == parts[0].shape for item in parts)
        return _part(axis, place, len(parts), whole) if isinstance(axis, int) and same else None


def _read(region: Region) -> tuple[_Kind, _RegionReader] | None:
    """The kind of step that a region is, and what it reads; None where it is none of these."""
    if not all(isinstance(node, Operation) for node in region.nodes):
        return None
    made = {
        item.name: (node, place)
        for node in region.nodes
        if isinstance(node, Operation)
        for place, item in enumerate(item for output in node.outputs for item in tensors(output))
    }
    reader = _RegionReader(made, {item.name: f"i{place}" for place, item in enumerate(region.inputs)})
    found = [reader.read(item) for item in region.outputs]
    kind = STEPS.get(tuple(item for item in found if item is not None))
    return None if kind is None or None in found else (kind, reader)


# --- nodes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A loop that is a recurrent network: the node it becomes, and what that reads."""

    kind: _Kind
    x: Tensor | None
    """What is multiplied with the weights; None where that are the items as they are scanned."""
    weights: Tensor
    bias: Tensor | None
    recurrent: Tensor
    state_bias: Tensor | None
    start: tuple[Tensor, ...]
    size: int
    """The width of the state."""


def find_recurrent(loop: Loop, makers: Mapping[str, Node]) -> Recurrent | None:
    """The recurrent network that a loop is; `makers` are the nodes around it by the names of what they make."""
    if loop.condition is not None or loop.count is not None or loop.index or len(loop.scans) != 1:
        return None
    step = _read(loop.body)
    if step is None:
        return None
    kind, reader = step
    inside = reader.products.get(f"i{len(loop.carried)}")
    product = inside or _product(loop.scans[0], makers)
    if product is None:
        return None
    x, weights, bias = (item if isinstance(item, Tensor) else None for item in (*product.inputs, None)[:3])
    own = [item for item in reader.outside.values() if item not in (weights, bias)]
    matrices = [item for item in own if len(item.shape) == 2]
    vectors = [item for item in own if len(item.shape) == 1]
    if x is None or weights is None or len(matrices) != 1 or len(vectors) > 1:
        return None
    everything = (x, weights, bias, matrices[0], *vectors, *loop.carried)
    if any(item is not None and item.element != F32 for item in everything):
        return None
    size, state_bias = matrices[0].shape[1], vectors[0] if vectors else None
    if len(x.shape) != (2 if inside else 3) or not isinstance(size, int):
        return None
    return Recurrent(kind, None if inside else x, weights, bias, matrices[0], state_bias, loop.carried, size)


def _product(scan: tuple[Tensor, ...] | Pack, makers: Mapping[str, Node]) -> Operation | None:
    """The product with weights whose rows are scanned."""
    first = scan.name if isinstance(scan, Pack) else scan[0].name if scan else ""
    apart = makers.get(first)
    if not isinstance(apart, Operation) or apart.operator != "layout.unstack" or apart.outputs != (scan,):
        return None
    whole = apart.inputs[0]
    rank = len(scan.shape if isinstance(scan, Pack) else scan[0].shape)
    if dict(apart.attributes).get("axis") != 0 or not isinstance(whole, Tensor) or rank != 2:
        return None
    if any(item.quantization is not None for item in (whole, *(scan if isinstance(scan, tuple) else ()))):
        return None
    found = makers.get(whole.name)
    return found if isinstance(found, Operation) and found.operator in LINEAR else None


def emit_recurrent(scope: Scope, found: Recurrent, items: Value) -> tuple[list[Value], Value]:
    """The last states of a recurrent network, and what all its steps give, one below the other."""
    emitter = scope.emitter
    first, second = emitter.integers(0), emitter.integers(1)

    def one_way(value: Value | None) -> Value | None:
        return None if value is None else emitter.add("Unsqueeze", (value, first), F32)

    weights, recurrent = (_ordered(scope, found, item) for item in (found.weights, found.recurrent))
    start = [one_way(scope.value(item)) for item in found.start]
    x = items if found.x is None else scope.value(found.x)
    results = emitter.add_all(
        found.kind.op_type,
        (x, one_way(weights), one_way(recurrent), one_way(_bias(scope, found)), None, *start),
        [F32] * (1 + len(start)),
        hidden_size=found.size,
        **found.kind.attributes,
    )
    steps = emitter.add("Squeeze", (results[0], second), F32)
    return [emitter.add("Squeeze", (item, first), F32) for item in results[1:]], steps


def _ordered(scope: Scope, found: Recurrent, item: Tensor) -> Value:
    """Weights or a bias with the rows of the gates as ONNX has them."""
    gates, value = found.kind.gates, scope.value(item)
    if gates == tuple(range(len(gates))):
        return value
    rows = np.arange(len(gates) * found.size).reshape(len(gates), found.size)[list(gates)].reshape(-1)
    return scope.emitter.add("Gather", (value, scope.emitter.constant(rows)), F32, axis=0)


def _bias(scope: Scope, found: Recurrent) -> Value | None:
    """The biases of the products with inputs, then of those with states."""
    if found.bias is None and found.state_bias is None:
        return None
    width = len(found.kind.gates) * found.size

    def of(item: Tensor | None, size: int) -> Sequence[Value]:
        zeros = scope.emitter.constant(np.zeros(size, np.float32))
        return [zeros if item is None else _ordered(scope, found, item)] if size else []

    inner = found.size if found.state_bias is not None else width
    parts = [*of(found.bias, width), *of(None, width - inner), *of(found.state_bias, inner)]
    return scope.emitter.add("Concat", parts, F32, axis=0)
