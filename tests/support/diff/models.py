"""Random small models of the kinds that are ported every day."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.dtype import F32, I64
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.ops.library import Library

Random = np.random.Generator
LIBRARY = Library()


class Sketch:
    """A model under construction, with random numbers for its variables."""

    def __init__(self, random: Random, name: str) -> None:
        self.random = random
        self.build = Builder(LIBRARY, name)
        self.data: dict[str, Array] = {}

    def weight(self, name: str, *shape: int, scale: float | None = None, around: float = 0.0) -> Tensor:
        """A variable of random numbers."""
        width = scale if scale is not None else 1 / math.sqrt(shape[-1])
        tensor = self.build.variable(name, F32, shape)
        numbers = around + width * self.random.standard_normal(shape)
        self.data[tensor.name] = numbers.astype(np.float32)
        return tensor

    def integers(self, name: str, values: npt.ArrayLike) -> Tensor:
        """A variable of integers."""
        array = np.asarray(values, np.int64)
        tensor = self.build.variable(name, I64, array.shape)
        self.data[tensor.name] = array
        return tensor

    def finish(self, *outputs: Tensor) -> Model:
        """The model."""
        return Model(self.build.finish(*outputs), self.build.library, self.data)

    # --- pieces ---------------------------------------------------------------------------------------------

    def linear(self, x: Tensor, width: int) -> Tensor:
        """A fully connected layer, with its bias apart, inside or not at all."""
        call, last = self.build.call, x.shape[-1]
        assert isinstance(last, int)
        kind = self.random.integers(3) if len(x.shape) == 2 else 0
        if kind == 0:
            turned = bool(self.random.integers(2))
            w = self.weight("w", *((width, last) if turned else (last, width)))
            y = call("linalg.matmul", x, w, transB=turned)
            return call("llm.bias_add", y, self.weight("b", width, scale=0.5))
        if kind == 1:
            return call("nn.linear", x, self.weight("w", width, last), self.weight("b", width, scale=0.5))
        return call("linalg.matmul", x, self.weight("w", last, width))

    def norm(self, x: Tensor) -> Tensor:
        """A layer or root-mean-square norm, whole or in its parts."""
        call, last = self.build.call, x.shape[-1]
        assert isinstance(last, int)
        gain = self.weight("gain", last, scale=0.3, around=1.0)
        kind = self.random.integers(3)
        if kind == 0:
            found = self.build.call_all("llm.rmsnorm", x, gain, eps=1e-5)[0]
        elif kind == 1:
            shift = self.weight("shift", last, scale=0.3)
            found = self.build.call_all("llm.layernorm", x, gain, shift, eps=1e-5)[0]
        else:
            square = call("math.mean_reduce", call("math.mul", x, x), axes=[len(x.shape) - 1])
            root = call("math.rsqrt", call("math.add", square, 1e-5))
            found = call("math.mul", call("math.mul", x, root), gain)
        assert isinstance(found, Tensor)
        return found

    def activation(self, x: Tensor) -> Tensor:
        """One of the usual elementwise functions."""
        name = str(self.random.choice(["nn.gelu", "nn.relu", "nn.silu", "math.tanh", "llm.gelu"]))
        return self.build.call(name, x)


def mlp(random: Random) -> Model:
    """Fully connected layers with norms, activations and a residual."""
    sketch = Sketch(random, "mlp")
    width = int(random.integers(4, 9)) * 2
    x = sketch.build.input("x", F32, (int(random.integers(3, 6)), width))
    h = sketch.linear(x, width)
    for _ in range(int(random.integers(1, 4))):
        y = sketch.activation(sketch.linear(sketch.norm(h), width))
        h = sketch.build.call("math.add", h, sketch.linear(y, width))
    z = sketch.linear(h, width)
    return sketch.finish(sketch.build.call("nn.softmax", z, axes=[1]))


def convolutions(random: Random) -> Model:
    """Convolutions with norms and pools, then a classifier."""
    sketch = Sketch(random, "convolutions")
    call = sketch.build.call
    channels = int(random.integers(3, 6))
    h = sketch.build.input("x", F32, (2, channels, 9, 9))
    for _ in range(int(random.integers(1, 3))):
        w = sketch.weight("kernel", channels, channels, 3, 3, scale=0.25)
        h = call("nn.conv", h, w, sketch.weight("b", channels, scale=0.5), padding=[1, 0, 1, 2])
        mean, variance = (
            sketch.weight(name, channels, scale=0.1, around=1.0) for name in ("mean", "variance")
        )
        h = call("nn.batch_norm", h, mean, variance, epsilon=1e-3)
        h = sketch.activation(h)
    h = call("nn.avg_pool", h, axes=[2, 3], size=[3, 3], stride=[2, 2], padding=[0, 0, 0, 0])
    h = call("layout.flatten", h, axis=1)
    return sketch.finish(sketch.linear(h, 7))


def angles(count: int, columns: int, base: float = 10_000.0) -> npt.NDArray[np.float32]:
    """Cosines and sines of rotary embeddings."""
    turns = np.arange(count)[:, None] * base ** (-np.arange(columns) / columns)
    return np.stack([np.cos(turns), np.sin(turns)], -1).astype(np.float32)


def attention(random: Random) -> Model:
    """A block of attention with rotary embeddings, by one operator or in its parts."""
    sketch = Sketch(random, "attention")
    call = sketch.build.call
    heads, width, count = int(random.integers(2, 4)), 8, int(random.integers(5, 9))
    x = sketch.build.input("x", F32, (1, count, heads * width))
    h = sketch.norm(x)
    q, k, v = (_heads(sketch, sketch.linear(h, heads * width), heads) for _ in range(3))
    freqs = sketch.weight("freqs", 2 * count, width // 2, 2)
    sketch.data[freqs.name] = angles(2 * count, width // 2)
    places = sketch.integers("places", np.arange(count) + 1)
    q, k = (
        item for item in sketch.build.call_all("llm.rope", q, k, freqs, places) if isinstance(item, Tensor)
    )
    if random.integers(2):
        window = int(random.integers(2, count - 1))
        mixed = sketch.build.call_all("llm.flash_attention", q, k, v, causal=True, window_size=window)[0]
        assert isinstance(mixed, Tensor)
    else:
        scores = call("math.mul", call("linalg.matmul", q, k, transB=True), 1 / math.sqrt(width))
        hidden = np.triu(np.full((count, count), -1e9), 1)
        mask = sketch.build.constant(tuple(map(float, hidden.reshape(-1))), F32, (1, 1, count, count))
        weights = call("nn.softmax", call("math.add", scores, mask), axes=[3])
        mixed = call("linalg.matmul", weights, v)
    y = call("layout.transpose", mixed, perm=[0, 2, 1, 3])
    y = sketch.linear(call("layout.flatten", y, axis=2), heads * width)
    return sketch.finish(call("math.add", x, y))


def _heads(sketch: Sketch, x: Tensor, heads: int) -> Tensor:
    width = x.shape[-1]
    assert isinstance(width, int)
    parted = sketch.build.call("layout.unflatten", x, axis=2, shape=[heads, width // heads])
    return sketch.build.call("layout.transpose", parted, perm=[0, 2, 1, 3])


def recurrent(random: Random) -> Model:
    """An LSTM between two layers."""
    sketch = Sketch(random, "recurrent")
    width, hidden, batch = int(random.integers(3, 6)), int(random.integers(3, 6)), 2
    x = sketch.build.input("x", F32, (5, batch, width))
    cells = (
        sketch.weight("wi", 4 * hidden, width, scale=0.7),
        sketch.weight("wh", 4 * hidden, hidden, scale=0.7),
        sketch.weight("wb", 4 * hidden, scale=0.7),
    )
    start = [sketch.build.constant(0.0, F32, (batch, hidden)) for _ in range(2)]
    last = sketch.build.call_all("nn.lstm", x, *cells, *start)[1]
    assert isinstance(last, Tensor)
    return sketch.finish(sketch.linear(sketch.activation(last), width))


def gated(random: Random) -> Model:
    """A gated feed-forward block, its gate by one operator or in its parts."""
    sketch = Sketch(random, "gated")
    call = sketch.build.call
    width, inner = int(random.integers(3, 6)) * 2, int(random.integers(4, 8)) * 2
    x = sketch.build.input("x", F32, (2, 3, width))
    h = sketch.norm(x)
    gate, up = (call("linalg.matmul", h, sketch.weight(name, width, inner)) for name in ("gate", "up"))
    kind = random.integers(3)
    if kind == 0:
        y = call("llm.swiglu", gate, up)
    elif kind == 1:
        y = call("llm.geglu", gate, up)
    else:
        y = call("math.mul", call("nn.silu", gate), up)
    y = call("linalg.matmul", y, sketch.weight("down", inner, width))
    return sketch.finish(call("math.add", x, sketch.norm(y)))


def decode(random: Random) -> Model:
    """A step of decoding: keys and values are put into caches, and a query sees what was seen."""
    sketch = Sketch(random, "decode")
    call = sketch.build.call
    heads, width, room = 2, 8, 8
    x = sketch.build.input("x", F32, (1, 1, heads * width))
    q, k, v = (_heads(sketch, sketch.linear(x, heads * width), heads) for _ in range(3))
    seen = sketch.integers("seen", int(random.integers(3, 6)))
    freqs = sketch.weight("freqs", room, width // 2, 2)
    sketch.data[freqs.name] = angles(room, width // 2)
    at = sketch.integers("at", sketch.data[seen.name].reshape(1))
    q, k = (item for item in sketch.build.call_all("llm.rope", q, k, freqs, at) if isinstance(item, Tensor))
    caches = [sketch.weight(name, 1, heads, room, width, scale=1.0) for name in ("keys", "values")]
    keys, values = (
        call("llm.remember", cache, item, seen) for cache, item in zip(caches, (k, v), strict=True)
    )
    mixed = sketch.build.call_all("llm.flash_attention", q, keys, values, None, seen, causal=True)[0]
    assert isinstance(mixed, Tensor)
    y = call("layout.flatten", call("layout.transpose", mixed, perm=[0, 2, 1, 3]), axis=2)
    return sketch.finish(call("math.add", x, sketch.linear(y, heads * width)))


def quantised(random: Random) -> Model:
    """Numbers that are rounded to steps between layers."""
    sketch = Sketch(random, "quantised")
    call = sketch.build.call
    width = int(random.integers(4, 8)) * 2
    x = sketch.build.input("x", F32, (4, width))
    h = sketch.linear(x, width)
    steps = call("math.mul", h, 8.0)
    rounded = call(str(random.choice(["math.round", "math.floor"])), steps)
    h = call("math.mul", call("math.clamp", rounded, -12.0, 12.0), 0.125)
    middle = call("math.mean_reduce", h, axes=[1])
    h = call("math.sub", h, middle)
    return sketch.finish(sketch.linear(sketch.activation(h), width))


def embedded(random: Random) -> Model:
    """Tokens and positions looked up, joined and mixed, with several heads of queries for each of keys."""
    sketch = Sketch(random, "embedded")
    call = sketch.build.call
    count, width, heads = int(random.integers(4, 7)), 8, 2
    ids = sketch.build.input("ids", I64, (1, count))
    tokens = call("llm.embedding", ids, sketch.weight("tokens", 11, heads * width, scale=1.0))
    table = sketch.weight("positions", 2 * count, heads * width, scale=1.0)
    first = int(random.integers(0, 3))
    rows = call("layout.slice", table, axes=[0], begin=[first], end=[first + count])
    h = call("math.add", tokens, call("layout.unsqueeze", rows, axes=[0]))
    parts = call("layout.concat", (h, call("math.tanh", h)), axis=2)
    q = _heads(sketch, sketch.linear(parts, 2 * heads * width), 2 * heads)
    k, v = (_heads(sketch, sketch.linear(sketch.norm(parts), heads * width), heads) for _ in range(2))
    mixed = sketch.build.call_all("llm.flash_attention", q, k, v, causal=True)[0]
    assert isinstance(mixed, Tensor)
    y = call("layout.flatten", call("layout.transpose", mixed, perm=[0, 2, 1, 3]), axis=2)
    pooled = call("math.mean_reduce", sketch.linear(y, 8), axes=[1], squeeze=True)
    return sketch.finish(sketch.linear(pooled, 5))


KINDS: Mapping[str, Callable[[Random], Model]] = {
    item.__name__: item
    for item in (mlp, convolutions, attention, recurrent, gated, decode, quantised, embedded)
}
