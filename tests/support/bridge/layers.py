"""Random networks of a few layers: convolutions, products, pools and what stands between them, with their numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from math import prod, sqrt
from typing import Any, TypeAlias

import numpy as np

from lamella.backend.executor import GraphExecutable
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import BOOL, F32, I32, I64
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import members
from lamella.pipeline.backends.kernels import compile_open
from lamella.pipeline.options import Options
from tests.support.bridge.groups import known
from tests.support.judges.harness import library

TOLERANCE = 3e-5
"""Sums of a few hundred products in 32 bits, taken in another order, of numbers near 1."""
CHANNELS = (1, 3, 8, 16, 17, 33, 48)
ROOM, RUNS = 96, 2
"""How many positions caches have, and for how many runs they must do."""
ACTIVATIONS = ("nn.relu", "nn.gelu", "nn.sigmoid", "math.tanh")
Step: TypeAlias = "Callable[[RandomNetwork, Tensor], Tensor | None]"


class RandomNetwork:
    """A graph that grows by random layers; weights are variables, and its numbers stay near 1."""

    def __init__(self, seed: int, channels: tuple[int, ...] = CHANNELS) -> None:
        self.random = random.Random(seed)
        self.channels = channels
        self.builder = Builder(library("specification"), "G")
        self.fed: dict[str, Array] = {}
        self.weights: dict[str, Array] = {}
        self.made: list[Tensor] = []
        self.jumps = False
        """Whether something is chosen by what is computed, so that rounding may change it altogether."""
        self.head_sizes: tuple[int, ...] = (8, 16, 64, 64)
        self._seen: tuple[Tensor, Tensor] | None = None

    def feed(self, *shape: int) -> Tensor:
        """A new input."""
        tensor = self.builder.input(f"x{len(self.fed)}", F32, shape)
        self.fed[tensor.name] = self.draw(shape, 1.0)
        return tensor

    def weight(self, *shape: int, fan: int = 1, least: float | None = None) -> Tensor:
        """A new weight; what sums `fan` products with it stays near 1. Now and then it is an input."""
        is_input = self.random.random() < 0.15
        numbers = self.draw(shape, 1.5 / sqrt(fan))
        if least is not None:
            numbers = np.abs(numbers) + np.float32(least)
        if is_input:
            tensor = self.builder.input(f"x{len(self.fed)}", F32, shape)
            self.fed[tensor.name] = numbers
            return tensor
        tensor = self.builder.variable(f"w{len(self.weights)}", F32, shape)
        self.weights[tensor.name] = numbers
        return tensor

    def places(self, count: int, *shape: int, first: int = 0) -> Tensor:
        """An input of so many numbers from a first one on, in any order."""
        tensor = self.builder.input(f"x{len(self.fed)}", self.random.choice((I64, I32)), shape)
        numbers = np.random.default_rng(self.random.randrange(1 << 30)).integers(first, first + count, shape)
        self.fed[tensor.name] = np.asarray(numbers, numpy_dtype(tensor.element))
        return tensor

    def seen(self, count: int) -> tuple[Tensor, Tensor]:
        """How many tokens the runs before have seen, and the positions of those of this run."""
        if self._seen is None:
            before = self.builder.variable("seen", I64, ())
            self.weights["seen"] = np.asarray(self.random.randint(0, ROOM - RUNS * count))
            room = self.builder.call("layout.range", first=0, last=ROOM + 1)
            self.builder.update(before, self.builder.call("llm.advance", before, room, count=count))
            self._seen = before, self.builder.call("llm.positions", before, count=count)
        return self._seen

    def forget(self) -> None:
        """Nothing that the graph does changes its variables."""
        self._seen = None

    @property
    def remembers(self) -> bool:
        """Whether each run finds what the one before has left."""
        return self._seen is not None

    def remember(self, x: Tensor, seen: Tensor) -> Tensor:
        """A cache of heads, with those of this run put in."""
        batch, heads, _, width = known(x)
        cache = self.builder.variable(f"w{len(self.weights)}", F32, (batch, heads, ROOM, width))
        self.weights[cache.name] = self.draw((batch, heads, ROOM, width), 1.0)
        kept = self.builder.call("llm.remember", cache, x, seen)
        self.builder.update(cache, kept)
        return kept

    def draw(self, shape: tuple[int, ...], scale: float) -> Array:
        """Random numbers on both sides of 0."""
        numbers = np.random.default_rng(self.random.randrange(1 << 30))
        return np.asarray(numbers.uniform(-scale, scale, shape), np.float32)

    def sizes(self, low: int, high: int, count: int) -> tuple[int, ...]:
        """Random numbers."""
        return tuple(self.random.randint(low, high) for _ in range(count))

    def grow(self, steps: int, choices: tuple[Step, ...], most: int = 40_000) -> None:
        """Take random steps, most of them from the last tensor, to tensors of so many elements."""
        while steps:
            start = self.made[-1 if self.random.random() < 0.8 else 0]
            found = self.random.choice(choices)(self, start)
            if found is not None and prod(known(found)) <= most:
                self.made.append(found)
                steps -= 1

    def finish(self) -> Model:
        """The graph with its last tensor, and some others, as outputs."""
        others = self.made[1:-1]
        picked = self.random.sample(others, min(len(others), self.random.choice((0, 0, 1, 2))))
        return Model(self.builder.finish(self.made[-1], *picked), self.builder.library)


# --- layers of images -----------------------------------------------------------------------------------------


def _window(net: RandomNetwork, extents: tuple[int, ...]) -> dict[str, Any] | None:
    """The filter, stride, dilation and padding of a window that fits; the padding differs at both ends."""
    rank, chance = len(extents), net.random
    size = chance.choice(((1,) * rank, (3,) * rank, net.sizes(1, 3, rank)))
    stride = chance.choice(((1,) * rank, (2,) * rank, net.sizes(1, 3, rank)))
    dilation = chance.choice(((1,) * rank, (1,) * rank, net.sizes(1, 2, rank)))
    padding = chance.choice(
        ((0,) * 2 * rank, tuple(item // 2 for item in size) * 2, net.sizes(0, 2, 2 * rank))
    )
    rows = zip(extents, size, dilation, padding[:rank], padding[rank:], strict=True)
    if any(extent + low + high < (width - 1) * spread + 1 for extent, width, spread, low, high in rows):
        return None
    if any(low + high >= width for width, low, high in zip(size, padding, padding[rank:], strict=False)):
        return None
    return {"size": size, "stride": stride, "dilation": dilation, "padding": padding}


def _convolution(net: RandomNetwork, x: Tensor) -> Tensor | None:
    _, channels, *extents = known(x)
    window = _window(net, tuple(extents))
    if window is None:
        return None
    groups = net.random.choice([item for item in (1, 1, 1, 2, 3, channels) if channels % item == 0])
    size = window.pop("size")
    inner = channels // groups
    outer = (
        groups * net.random.choice((1, 1, 2))
        if groups == channels
        else net.random.choice(net.channels) * groups
    )
    filters = net.weight(outer, inner, *size, fan=inner * prod(size))
    bias = [net.weight(outer)] if net.random.random() < 0.5 else []
    return net.builder.call("nn.conv", x, filters, *bias, groups=groups, **window)


def _transposed_convolution(net: RandomNetwork, x: Tensor) -> Tensor | None:
    _, channels, *extents = known(x)
    rank = len(extents)
    size, stride = net.sizes(1, 4, rank), net.sizes(1, 3, rank)
    padding = tuple(min(width - 1, at) for width, at in zip(size * 2, net.sizes(0, 2, 2 * rank), strict=True))
    rows = zip(extents, size, stride, padding, padding[rank:], strict=False)
    if any((extent - 1) * step + width - low - high < 1 for extent, width, step, low, high in rows):
        return None
    groups = net.random.choice([item for item in (1, 1, 1, 2, channels) if channels % item == 0])
    outer = net.random.choice(net.channels) if groups < channels else net.random.choice((1, 2))
    filters = net.weight(channels, outer, *size, fan=channels // groups * prod(size))
    bias = [net.weight(outer * groups)] if net.random.random() < 0.5 else []
    return net.builder.call("nn.deconv", x, filters, *bias, stride=stride, padding=padding, groups=groups)


def _twins(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Two convolutions of one tensor that differ in their weights alone, and their sum."""
    _, channels, *extents = known(x)
    groups = net.random.choice([item for item in (1, 2, channels) if channels % item == 0])
    size = tuple(min(3, item) for item in extents)
    shape = groups * net.random.choice((1, 2)), channels // groups, *size
    pair = [net.builder.call("nn.conv", x, net.weight(*shape, fan=9), groups=groups) for _ in range(2)]
    return net.builder.call("math.sub", *pair)


def _border(net: RandomNetwork, x: Tensor) -> Tensor | None:
    shape = known(x)
    axes = tuple(range(2, len(shape)))
    sides = tuple(net.random.randint(0, min(2, shape[axis] - 1)) for axis in axes * 2)
    method = net.random.choice(("CONSTANT", "REFLECT", "REPLICATE", "SYMMETRIC"))
    return net.builder.call("layout.pad", x, axes=axes, padding=sides, method=method)


def _resize(net: RandomNetwork, x: Tensor) -> Tensor | None:
    shape = known(x)
    sizes = tuple(max(1, size + net.random.randint(-2, 5)) for size in shape[2:])
    operator = net.random.choice(("image.linear_resize", "image.nearest_resize"))
    return net.builder.call(operator, x, axes=tuple(range(2, len(shape))), size=sizes)


def _running(net: RandomNetwork, x: Tensor) -> Tensor | None:
    axis = net.random.randrange(len(x.shape))
    if net.random.random() < 0.5:
        found = net.builder.call("math.cumsum", x, axis=axis, reverse=net.random.random() < 0.5)
        return net.builder.call("math.mul", found, 1.0 / known(x)[axis])
    operator = net.random.choice(("aten._cummax_values", "aten._cummin_values"))
    return net.builder.call(operator, x, dim=axis)


def _pool(net: RandomNetwork, x: Tensor) -> Tensor | None:
    window = _window(net, known(x)[2:])
    if window is None:
        return None
    operator = net.random.choice(("nn.max_pool", "nn.avg_pool"))
    if operator == "nn.avg_pool":
        del window["dilation"]
    return net.builder.call(operator, x, **window)


def _bias(net: RandomNetwork, x: Tensor) -> Tensor | None:
    shape = known(x)
    operator = net.random.choice(("math.add", "math.mul", "math.sub"))
    return net.builder.call(operator, x, net.weight(1, shape[1], *(1 for _ in shape[2:])))


def activation(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Some activation."""
    return net.builder.call(net.random.choice(ACTIVATIONS), x)


def residual(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """The sum with something of the same shape."""
    alike = [item for item in net.made if known(item) == known(x)]
    other = net.random.choice(alike) if alike else net.feed(*known(x))
    return net.builder.call("math.add", x, other)


def _concatenation(net: RandomNetwork, x: Tensor) -> Tensor | None:
    shape = known(x)
    alike = [item for item in net.made if known(item)[:1] + known(item)[2:] == shape[:1] + shape[2:]]
    return net.builder.call("layout.concat", (x, net.random.choice(alike)), axis=1) if alike else None


def _channels_last(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """A step on channels that lie last, most of them put back where they were: norms and products on every pixel."""
    rank = len(x.shape)
    last = net.builder.call("layout.transpose", x, perm=(0, *range(2, rank), 1))
    step = net.random.choice((_last_norm, _linear, _row_bias, residual))
    found = step(net, last)
    if found is None or net.random.random() < 0.2:
        return found
    return net.builder.call("layout.transpose", found, perm=(0, rank - 1, *range(1, rank - 1)))


def _last_norm(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """A norm over the last dimension."""
    mean = net.builder.call("math.mean_reduce", x, axes=(len(x.shape) - 1,))
    centred = net.builder.call("math.sub", x, mean)
    squares = net.builder.call("math.mul", centred, centred)
    variance = net.builder.call("math.mean_reduce", squares, axes=(len(x.shape) - 1,))
    scale = net.builder.call("math.rsqrt", net.builder.call("math.add", variance, 0.5))
    return net.builder.call("math.mul", centred, scale)


def _transposition(net: RandomNetwork, x: Tensor) -> Tensor | None:
    order = list(range(len(x.shape)))
    net.random.shuffle(order)
    return net.builder.call("layout.transpose", x, perm=tuple(order))


IMAGES: tuple[Step, ...] = (
    _convolution, _convolution, _convolution, _convolution, _transposed_convolution, _pool, _bias, activation,
    activation, residual, residual, _concatenation,
)  # fmt: skip
MORE_IMAGES: tuple[Step, ...] = (
    *IMAGES, _transposed_convolution, _twins, _border, _resize, _running, _channels_last, _channels_last,
    _transposition,
)  # fmt: skip
WIDE = (1, 2, 15, 16, 31, 32, 33, 40, 64, 65)
"""Channels round the sizes of vectors and panels."""


def random_image_network(seed: int, steps: int) -> tuple[Model, RandomNetwork]:
    """A network of convolutions and what stands between them, of rank 1 to 3."""
    net = RandomNetwork(seed)
    rank = net.random.choice((1, 2, 2, 2, 3))
    extents = net.sizes(3, {1: 40, 2: 12, 3: 6}[rank], rank)
    net.made.append(net.feed(net.random.choice((1, 1, 2)), net.random.choice(CHANNELS), *extents))
    net.grow(steps, IMAGES)
    return net.finish(), net


def random_wide_network(seed: int, steps: int) -> tuple[Model, RandomNetwork]:
    """A network of images of any shape, long and narrow ones too, with channels round the sizes of tiles."""
    net = RandomNetwork(seed)
    rank = net.random.choice((1, 2, 2, 2, 3))
    most = {1: 200, 2: 40, 3: 9}[rank]
    extents = tuple(net.random.choice((1, 2, net.random.randint(1, most))) for _ in range(rank))
    channels = net.random.choice(WIDE)
    if channels * prod(extents) > 20_000:
        extents = tuple(max(1, item // 2) for item in extents)
    net.made.append(net.feed(net.random.choice((1, 1, 2, 3)), channels, *extents))
    net.grow(steps, MORE_IMAGES)
    return net.finish(), net


# --- layers of rows -------------------------------------------------------------------------------------------


def _linear(net: RandomNetwork, x: Tensor) -> Tensor | None:
    depth, width = known(x)[-1], net.random.choice((1, 5, 16, 24, 33, 64))
    flipped = net.random.random() < 0.5
    weight = net.weight(*((width, depth) if flipped else (depth, width)), fan=depth)
    return net.builder.call("linalg.matmul", x, weight, transB=flipped)


def _batched_product(net: RandomNetwork, x: Tensor) -> Tensor | None:
    *batch, rows, depth = known(x)
    left, right = (net.random.random() < 0.4 for _ in range(2))
    summed = rows if left else depth
    width = net.random.choice((1, 7, 16, 19, 40))
    shape = (width, summed) if right else (summed, width)
    other = net.weight(*(batch if net.random.random() < 0.6 else [1 for _ in batch]), *shape, fan=summed)
    return net.builder.call("linalg.matmul", x, other, transA=left, transB=right)


def _own_product(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """The product of a tensor with itself, and of two that the network has made."""
    if len(x.shape) < 2:
        return None
    *batch, _, depth = known(x)
    others = [item for item in net.made if known(item)[:-2] == tuple(batch) and known(item)[-1] == depth]
    if not others:
        return None
    found = net.builder.call("linalg.matmul", x, net.random.choice(others), transB=True)
    return net.builder.call("math.mul", found, 1.0 / depth)


def _row_bias(net: RandomNetwork, x: Tensor) -> Tensor | None:
    shape = known(x)
    added = net.weight(*(1 for _ in shape[:-1]), shape[-1])
    return net.builder.call(net.random.choice(("math.add", "math.mul")), x, added)


def _scale(net: RandomNetwork, x: Tensor) -> Tensor | None:
    return net.builder.call("math.mul", x, net.random.choice((0.5, -1.0, 1.25)))


def _softmax(net: RandomNetwork, x: Tensor) -> Tensor | None:
    return net.builder.call("nn.softmax", x, axes=(net.random.randrange(len(x.shape)),))


def _reshape(net: RandomNetwork, x: Tensor) -> Tensor | None:
    shape = list(known(x))
    place = net.random.randrange(len(shape))
    divisors = [item for item in range(2, shape[place]) if shape[place] % item == 0]
    if len(shape) < 4 and divisors:
        step = net.random.choice(divisors)
        shape[place : place + 1] = [shape[place] // step, step]
    elif len(shape) > 2:
        place = net.random.randrange(len(shape) - 1)
        shape[place : place + 2] = [shape[place] * shape[place + 1]]
    return net.builder.call("layout.reshape", x, shape=tuple(shape))


def _attention(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Attention of some queries to keys and values, all heads or groups of them sharing these."""
    if len(x.shape) < 3:
        return None
    *batch, queries, depth = known(x)
    chance = net.random
    share = chance.choice([item for item in (1, 1, 2, 3) if batch[-1] % item == 0])
    heads = (*batch[:-1], batch[-1] // share)
    keys = chance.choice((queries, chance.randint(1, 40)))
    key = x if share == 1 and keys == queries and chance.random() < 0.3 else net.feed(*heads, keys, depth)
    value = net.feed(*heads, keys, chance.choice((depth, 7, 16)))
    masks = ("none", "causal", "bool", "float")
    mask = chance.choice(masks)
    given = (
        []
        if mask in masks[:2]
        else [_mask(net, mask, chance.choice(((queries, keys), (*batch, queries, keys))))]
    )
    words: dict[str, Any] = {"is_causal": mask == "causal", "enable_gqa": share > 1}
    return net.builder.call("aten.scaled_dot_product_attention", x, key, value, *given, **words)


def _mask(net: RandomNetwork, kind: str, shape: tuple[int, ...]) -> Tensor:
    """A mask that hides some keys, never the first one."""
    tensor = net.builder.input(f"x{len(net.fed)}", BOOL if kind == "bool" else F32, shape)
    numbers = np.random.default_rng(net.random.randrange(1 << 30))
    seen = np.asarray(numbers.random(shape) < 0.7)
    seen[..., 0] = True
    bias = np.where(seen, numbers.uniform(-1, 1, shape), net.random.choice((-1e4, -np.inf)))
    net.fed[tensor.name] = seen if kind == "bool" else bias.astype(np.float32)
    return tensor


ROWS: tuple[Step, ...] = (
    _linear, _linear, _linear, _attention, _batched_product, _own_product, _row_bias, _scale, _softmax, _transposition,
    _reshape, activation, residual,
)  # fmt: skip


def random_row_network(seed: int, steps: int) -> tuple[Model, RandomNetwork]:
    """A network of products and what stands between them, of rank 2 to 4."""
    net = RandomNetwork(seed)
    batch = net.sizes(1, 3, net.random.choice((0, 1, 1, 2)))
    net.made.append(net.feed(*batch, net.random.choice((1, 5, 16, 31)), net.random.choice((7, 16, 24, 50))))
    net.grow(steps, ROWS)
    return net.finish(), net


def random_attention(seed: int) -> tuple[Model, RandomNetwork]:
    """One attention of 1 to 40 queries, and what may follow it."""
    net = RandomNetwork(seed)
    batch = net.random.choice(((2,), (1, 3), (2, 2)))
    net.made.append(net.feed(*batch, net.random.randint(1, 40), net.random.choice((5, 8, 16, 24))))
    net.grow(1, (_attention,))
    net.grow(net.random.choice((0, 1, 2)), (activation, residual, _scale, _row_bias))
    return net.finish(), net


# --- what a GPU does in its own way --------------------------------------------------------------------------


def _axis(net: RandomNetwork, x: Tensor) -> tuple[int, int]:
    """Some axis, and its extent."""
    axis = net.random.randrange(len(x.shape))
    return axis, known(x)[axis]


def _masked(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Elements where a mask that stretches says so, else those of another tensor or a number."""
    shape = tuple(size if net.random.random() < 0.5 else 1 for size in known(x))
    mask = net.builder.call("math.gt", net.feed(*shape), net.random.choice((-0.5, 0.0, 0.5)))
    other = net.builder.call("math.neg", x) if net.random.random() < 0.5 else net.random.choice((0.0, -2.0))
    return net.builder.call("math.select", mask, *net.random.sample((x, other), 2))


def _scalar(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Something with a tensor of one number."""
    number = net.weight(*net.random.choice(((), (1,), (1,) * len(x.shape))))
    return net.builder.call(net.random.choice(("math.add", "math.mul", "math.max")), x, number)


def _pick(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Slices or elements at places that are given."""
    axis, extent = _axis(net, x)
    if net.random.random() < 0.5:
        counts = net.sizes(1, 9, net.random.choice((1, 1, 2) if len(x.shape) < 4 else (1,)))
        return net.builder.call("layout.gather", x, net.places(extent, *counts), axis=axis)
    shape = tuple(net.random.randint(1, 9) if at == axis else size for at, size in enumerate(known(x)))
    return net.builder.call("aten.gather", x, net.places(extent, *shape), dim=axis)


def _put(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Elements put, or added, where places say."""
    axis, extent = _axis(net, x)
    shape = tuple(net.random.randint(1, 9) if at == axis else size for at, size in enumerate(known(x)))
    places, new = net.places(extent, *shape), net.feed(*shape)
    if net.random.random() < 0.5:
        return net.builder.call("layout.scatter", x, places, new, axis=axis)
    return net.builder.call("aten.scatter_add", x, places, new, dim=axis)


def _best(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """The best elements along an axis, by their places or as they are."""
    axis, extent = _axis(net, x)
    if net.random.random() < 0.5:
        place = net.builder.call(net.random.choice(("math.argmax", "math.argmin")), x, axis=axis)
        return net.builder.call("aten.gather", x, place, dim=axis)
    count, largest = min(extent, net.random.choice((1, 2, 5, 8))), net.random.random() < 0.5
    found = net.builder.call_all("aten.topk", x, k=count, dim=axis, largest=largest)[0]
    return found if isinstance(found, Tensor) else None


def _steps(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Every so manieth slice, in this order or the other one; or all, turned round or moved on."""
    axis, extent = _axis(net, x)
    kind = net.random.choice(("slice", "back", "flip", "roll"))
    if kind == "slice":
        first, step = net.random.randint(0, min(3, extent - 1)), net.random.randint(2, 5)
        return net.builder.call(
            "layout.slice", x, axes=(axis,), begin=(first,), end=(extent,), stride=(step,)
        )
    if kind == "back":
        return net.builder.call(
            "layout.slice", x, axes=(axis,), begin=(extent - 1,), end=(-extent - 1,), stride=(-1,)
        )
    if kind == "flip":
        return net.builder.call("aten.flip", x, dims=(axis,))
    return net.builder.call("aten.roll", x, shifts=(net.random.randint(-5, 5),), dims=(axis,))


def _repeat(net: RandomNetwork, x: Tensor) -> Tensor | None:
    axis, _ = _axis(net, x)
    return net.builder.call("layout.tile", x, axes=(axis,), repeats=(net.random.randint(2, 4),))


def _logarithms(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Logarithms of a softmax, or of its sums."""
    axis, _ = _axis(net, x)
    if net.random.random() < 0.5:
        return net.builder.call("aten.log_softmax", x, dim=axis)
    return net.builder.call("aten.logsumexp", x, dim=(axis,), keepdim=True)


def _batch_norm(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """A norm of channels, by numbers that were measured or by those of groups of them."""
    channels = known(x)[1]
    shift, scale = net.weight(channels), net.weight(channels)
    if net.random.random() < 0.5:
        mean, variance = net.weight(channels), net.weight(channels, least=0.5)
        return net.builder.call("nn.batch_norm", x, mean, variance, shift, scale)
    groups = net.random.choice([item for item in (1, 2, 4, channels) if channels % item == 0])
    return net.builder.call("aten.group_norm", x, scale, shift, num_groups=groups, eps=0.1)


def _squeeze(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Channels that are weighed by what they are on average."""
    channels, axes = known(x)[1], tuple(range(2, len(x.shape)))
    inner, ones = net.random.choice((1, 4, 16)), (1,) * len(axes)
    found = net.builder.call("math.mean_reduce", x, axes=axes)
    for shape, activation in (((inner, channels), "nn.silu"), ((channels, inner), "nn.sigmoid")):
        found = net.builder.call(
            "nn.conv", found, net.weight(*shape, *ones, fan=shape[1]), net.weight(shape[0])
        )
        found = net.builder.call(activation, found)
    return net.builder.call("math.mul", x, found)


def _blocks(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Pixels to channels, channels to pixels, or channels of groups in turns."""
    _, channels, *extents = known(x)
    rank, first = len(extents), net.random.random() < 0.5
    if all(item % 2 == 0 for item in extents) and net.random.random() < 0.5:
        return net.builder.call("layout.space_to_depth", x, block_size=(2,) * rank, blocks_first=first)
    if channels % 2**rank == 0:
        return net.builder.call("layout.depth_to_space", x, block_size=(2,) * rank, blocks_first=first)
    return net.builder.call("layout.shuffle", x, axis=1, groups=3) if channels % 3 == 0 else None


def _reduction(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """A sum, mean or extreme over some axes, most of them joined with what it is of."""
    shape = known(x)
    axes = tuple(sorted(net.random.sample(range(len(shape)), net.random.randint(1, len(shape)))))
    operator = net.random.choice(
        ("math.sum_reduce", "math.mean_reduce", "math.max_reduce", "math.min_reduce")
    )
    found = net.builder.call(operator, x, axes=axes)
    if operator == "math.sum_reduce":
        found = net.builder.call("math.mul", found, 1.0 / prod(shape[axis] for axis in axes))
    if net.random.random() < 0.4:
        return found
    return net.builder.call(net.random.choice(("math.add", "math.mul", "math.sub")), x, found)


def _slice(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """A part of an axis, half of them at multiples of what a piece holds."""
    shape = known(x)
    axis = net.random.randrange(len(shape))
    first, last = sorted(net.random.randint(0, shape[axis]) for _ in range(2))
    if net.random.random() < 0.5:
        first, last = first // 16 * 16, min(shape[axis], -(-last // 16) * 16)
    return (
        net.builder.call("layout.slice", x, axes=(axis,), begin=(first,), end=(last,))
        if first < last
        else None
    )


def _stretch(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Tensors one behind the other along any axis."""
    shape = known(x)
    axis = net.random.randrange(len(shape))
    fits = [
        item
        for item in net.made
        if len(item.shape) == len(shape)
        and all(
            one == other or place == axis
            for place, (one, other) in enumerate(zip(known(item), shape, strict=True))
        )
    ]
    parts = (x, *(net.random.choice(fits) for _ in range(net.random.randint(1, 3))))
    return net.builder.call("layout.concat", parts, axis=axis)


def _gates(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """The parts of a tensor that gate each other."""
    shape = known(x)
    axis, count = net.random.randrange(len(shape)), net.random.choice((2, 3, 4))
    if shape[axis] % count:
        return None
    parts = members(net.builder.call_all("layout.split", x, axis=axis, count=count))
    first, *rest = (item for item in parts if isinstance(item, Tensor))
    for item in rest:
        first = net.builder.call("math.mul", net.builder.call("nn.sigmoid", first), item)
    return first


LONG: tuple[Step, ...] = (
    _linear, _own_product, _row_bias, _scale, _softmax, _transposition, _reshape, activation, activation, residual,
    _last_norm, _reduction, _reduction, _slice, _stretch, _gates, _running, _masked, _scalar, _pick, _put, _best,
    _steps, _repeat, _logarithms,
)  # fmt: skip
LARGE: tuple[Step, ...] = (
    *MORE_IMAGES, _reduction, _slice, _stretch, _gates, _masked, _scalar, _steps, _softmax, _batch_norm, _batch_norm,
    _squeeze, _blocks,
)  # fmt: skip
SIZES = (1, 2, 3, 8, 16, 31, 64, 100, 128, 333, 1024, 3000, 4096, 20_000)
MOST = 300_000
"""Elements of a tensor of a large network."""


def random_long_network(seed: int, steps: int) -> tuple[Model, RandomNetwork]:
    """A network of sums, parts and maps of tensors of any shape, long ones too."""
    net = RandomNetwork(seed)
    shape = [net.random.choice(SIZES) for _ in range(net.random.choice((2, 2, 2, 3, 4)))]
    while prod(shape) > MOST:
        shape[net.random.randrange(len(shape))] = net.random.choice(SIZES)
    net.made.append(net.feed(*shape))
    net.grow(steps, LONG, MOST)
    return net.finish(), net


def random_large_network(seed: int, steps: int) -> tuple[Model, RandomNetwork]:
    """A network of images as large as those of real networks behind their stems."""
    net = RandomNetwork(seed, (3, 16, 32, 48, 64, 64, 128))
    extent = net.random.choice((7, 12, 14, 28, 32, 56))
    channels = net.random.choice((*net.channels, 96))
    net.made.append(
        net.feed(net.random.choice((1, 1, 2, 4)), channels, extent, extent + net.random.choice((0, 0, 3)))
    )
    net.grow(steps, LARGE, 2 * MOST)
    return net.finish(), net


# --- running --------------------------------------------------------------------------------------------------


def run_network(
    model: Model, net: RandomNetwork, backend: str = "cpu", threads: int = 1
) -> Mapping[str, Array]:
    """What a network gives by kernels, after all passes, run twice: the second run finds what the first has left."""
    run = compile_open(model, backend, Options(threads=threads))
    load_weights(run, net)
    first = {name: array.copy() for name, array in run(**net.fed).items()}
    again = run(**net.fed)
    assert all(np.array_equal(array, again[name], equal_nan=True) for name, array in first.items())
    return first


def reference(model: Model, net: RandomNetwork, runs: int = 1) -> Mapping[str, Array]:
    """What a network gives on the reference, in 64 bits, in the last of some runs."""
    run = compile_model(model, dtype="f64")
    load_weights(run, net)
    for _ in range(runs - 1):
        run(**net.fed)
    return run(**net.fed)


def load_weights(run: GraphExecutable, net: RandomNetwork) -> None:
    """Give a network its weights."""
    for name, array in net.weights.items():
        run.state[name] = array.copy()


def compare(found: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float = TOLERANCE) -> None:
    """Two runs agree, as far as 32 bits allow where nothing else is said."""
    assert found.keys() == expected.keys()
    for name, other in expected.items():
        assert found[name].shape == other.shape, name
        scale = max(1.0, float(np.abs(other).max(initial=0.0)))
        np.testing.assert_allclose(found[name], other, rtol=tolerance, atol=tolerance * scale, err_msg=name)
