"""Random layers of transformers, with caches, pages and experts; and the gradients of random networks."""

from __future__ import annotations

import random
from math import sqrt

import numpy as np

from lamella.base.dtype import F32
from lamella.graph.gradient import differentiate
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor, tensors
from lamella.graph.rewrite import members
from tests.support.bridge.groups import known
from tests.support.bridge.layers import (
    MOST,
    ROOM,
    RUNS,
    RandomNetwork,
    Step,
    activation,
    random_image_network,
    random_row_network,
    random_wide_network,
    residual,
)


def _product(net: RandomNetwork, x: Tensor, width: int) -> Tensor:
    """A product with a weight, and perhaps a bias."""
    depth = known(x)[-1]
    found = net.builder.call("linalg.matmul", x, net.weight(width, depth, fan=depth), transB=True)
    return net.builder.call("math.add", found, net.weight(width)) if net.random.random() < 0.3 else found


def _split(net: RandomNetwork, x: Tensor, *sizes: int) -> tuple[Tensor, ...]:
    """Parts of the last dimension."""
    parts = members(net.builder.call_all("layout.split", x, axis=len(x.shape) - 1, sizes=sizes))
    return tuple(item for item in parts if isinstance(item, Tensor))


def _norm(net: RandomNetwork, x: Tensor) -> Tensor:
    """A norm of the last dimension with weights."""
    width = known(x)[-1]
    kind = net.random.choice(("aten.layer_norm", "aten.rms_norm", "llm.rmsnorm"))
    if kind == "llm.rmsnorm":
        found = net.builder.call_all(kind, x, net.weight(width), eps=0.1)[0]
        assert isinstance(found, Tensor)
        return found
    weights = [net.weight(width) for _ in range(2 if kind == "aten.layer_norm" else 1)]
    return net.builder.call(kind, x, *weights, normalized_shape=(width,), eps=0.1)


def _gated(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Two products, one of which gates the other, and the product back; most of them behind a norm and added."""
    width = net.random.choice((8, 32, 48))
    gate, up = _split(net, _product(net, _norm(net, x), 2 * width), width, width)
    gate = net.builder.call(net.random.choice(("nn.silu", "nn.gelu", "nn.relu")), gate)
    found = _product(net, net.builder.call("math.mul", gate, up), known(x)[-1])
    return net.builder.call("math.add", x, found) if net.random.random() < 0.8 else found


def _heads_attention(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Attention of a sequence to itself and to what a cache remembers, with all that models put between."""
    batch, count, depth = known(x)
    chance, builder = net.random, net.builder
    shared, group, size = (
        chance.choice((1, 2)),
        chance.choice((1, 1, 2, 4)),
        chance.choice(net.head_sizes),
    )
    counts = (shared * group, shared, shared)
    packed = _product(net, _norm(net, x), sum(counts) * size)
    heads = []
    for part, many in zip(_split(net, packed, *(many * size for many in counts)), counts, strict=True):
        shaped = builder.call("layout.reshape", part, shape=(batch, count, many, size))
        heads.append(builder.call("layout.transpose", shaped, perm=(0, 2, 1, 3)))
    query, key, value = heads
    if chance.random() < 0.4:
        query, key = _norm(net, query), _norm(net, key)
    caches = chance.random() < 0.8 and RUNS * count <= ROOM
    seen, places = net.seen(count) if caches else (None, None)
    if chance.random() < 0.6:
        angles = net.weight(max(ROOM, count) + 1, chance.choice((size // 2, size // 4)), 2)
        turned = builder.call_all("llm.rope", query, key, angles, places, interleaved=chance.random() < 0.3)
        query, key = (item for item in turned if isinstance(item, Tensor))
    if seen is not None:
        key, value = (net.remember(item, seen) for item in (key, value))
    window = chance.choice((None, None, 5))
    found = builder.call_all("llm.flash_attention", query, key, value, None, seen, window_size=window)[0]
    assert isinstance(found, Tensor)
    together = builder.call("layout.transpose", found, perm=(0, 2, 1, 3))
    flat = builder.call("layout.reshape", together, shape=(batch, count, counts[0] * size))
    found = _product(net, flat, depth)
    return builder.call("math.add", x, found) if chance.random() < 0.8 else found


def _pages(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """Attention to keys and values that lie in pages which sequences share."""
    batch, count, depth = known(x)
    builder, size = net.builder, net.random.choice(net.head_sizes)
    shared, group = net.random.choice((1, 2)), net.random.choice((1, 2, 4))
    length, several = net.random.choice((4, 16)), net.random.randint(1, 9)
    if length * several < count:
        return None
    shaped = builder.call(
        "layout.reshape",
        _product(net, x, shared * group * size),
        shape=(batch, count, shared * group, size),
    )
    query = builder.call("layout.transpose", shaped, perm=(0, 2, 1, 3))
    keys, values = (net.weight(11, length, shared, size) for _ in range(2))
    lengths = net.places(length * several - count + 1, batch, first=count)
    found = builder.call("llm.paged_attention", query, keys, values, net.places(11, batch, several), lengths)
    together = builder.call("layout.transpose", found, perm=(0, 2, 1, 3))
    flat = builder.call("layout.reshape", together, shape=(batch, count, shared * group * size))
    return _product(net, flat, depth)


def _experts(net: RandomNetwork, x: Tensor) -> Tensor | None:
    """A mixture of experts, chosen for each token."""
    batch, count, depth = known(x)
    experts, chosen, width = (
        net.random.choice((4, 8, 16)),
        net.random.choice((1, 2, 4)),
        net.random.choice((8, 32, 64)),
    )
    net.jumps, builder = True, net.builder
    rows = builder.call("layout.reshape", x, shape=(batch * count, depth))
    routed = builder.call_all("moe.router", rows, net.weight(experts, depth, fan=depth), top_k=chosen)
    shares, indices = (item for item in routed[:2] if isinstance(item, Tensor))
    offsets = builder.call("moe.compute_offsets", indices, num_experts=experts)
    permuted, slots = (
        item for item in builder.call_all("moe.permute", rows, indices, offsets) if isinstance(item, Tensor)
    )
    raised = builder.call(
        "moe.grouped_gemm",
        permuted,
        net.weight(experts, 2 * width, depth, fan=depth),
        offsets,
        transpose="NT",
    )
    hidden = builder.call("llm.swiglu", *_split(net, raised, width, width))
    lowered = builder.call(
        "moe.grouped_gemm", hidden, net.weight(experts, depth, width, fan=width), offsets, transpose="NT"
    )
    found = builder.call("moe.unpermute", lowered, shares, slots)
    return builder.call("math.add", x, builder.call("layout.reshape", found, shape=(batch, count, depth)))


BLOCKS: tuple[Step, ...] = (
    _heads_attention, _heads_attention, _gated, _gated, _norm, residual, activation, _experts, _pages,
)  # fmt: skip


def random_token_network(seed: int, steps: int) -> tuple[Model, RandomNetwork]:
    """Layers of a transformer: a few tokens, or one, and what they have left behind."""
    net = RandomNetwork(seed)
    count = net.random.choice((1, 1, 1, 1, 2, 5, 16, 33))
    return _transformer(
        net, net.random.choice((1, 1, 1, 2, 3)), count, net.random.choice((16, 40, 64)), steps
    )


def random_prompt_network(seed: int, steps: int) -> tuple[Model, RandomNetwork]:
    """Layers of a transformer for tokens, heads and widths that are whole tiles."""
    net = RandomNetwork(seed)
    net.head_sizes = (64, 128)
    return _transformer(net, 1, net.random.choice((128, 128, 256)), net.random.choice((64, 128)), steps)


def _transformer(
    net: RandomNetwork, batch: int, count: int, width: int, steps: int
) -> tuple[Model, RandomNetwork]:
    """Words to vectors, some layers, and perhaps the scores of the words."""
    words = net.random.choice((17, 64))
    table = net.weight(words, width)
    net.made.append(net.builder.call("layout.gather", table, net.places(words, batch, count), axis=0))
    net.grow(min(steps, 4), BLOCKS, MOST)
    if net.random.random() < 0.5:
        last = net.builder.call("layout.slice", net.made[-1], axes=(1,), begin=(count - 1,), end=(count,))
        scores = net.builder.call("linalg.matmul", _norm(net, last), table, transB=True)
        net.made.append(net.builder.call("math.mul", scores, 1.0 / sqrt(width)))
    return net.finish(), net


def random_way_back(seed: int, steps: int) -> tuple[Model, RandomNetwork]:
    """The gradients of some tensors of another network."""
    chance = random.Random(seed)
    ways = (
        random_image_network,
        random_row_network,
        random_wide_network,
        random_token_network,
        random_prompt_network,
    )
    model, net = chance.choice(ways)(seed, steps)
    given = [
        item.name
        for item in (one for item in model.graph.inputs for one in tensors(item))
        if item.element is F32
    ]
    wanted = [*given, *(name for name in net.weights if net.weights[name].dtype == np.float32)]
    back = differentiate(model, chance.sample(wanted, chance.randint(1, min(4, len(wanted)))))
    for item in (one for given in back.graph.inputs for one in tensors(given)):
        if item.name not in net.fed:
            net.fed[item.name] = net.draw(known(item), 1.0)
    # A gradient jumps where a number that is rounded gets another sign.
    net.jumps = True
    net.forget()
    return back, net
