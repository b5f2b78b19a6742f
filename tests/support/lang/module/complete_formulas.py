"""What the complete declarations compute, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def relu(x: Array) -> Array:
    """The positive part."""
    return np.maximum(x, 0.0)


def silu(x: Array) -> Array:
    """X · σ(x)."""
    found: Array = x / (1 + np.exp(-x))
    return found


def gelu(x: Array) -> Array:
    """X · Φ(x)."""
    found: Array = x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    return found


def gelu_tanh(x: Array) -> Array:
    """X · Φ(x) by way of tanh."""
    found: Array = x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    return found


def softmax(x: Array) -> Array:
    """Shares along the last dimension."""
    grown = np.exp(x - x.max(-1, keepdims=True))
    found: Array = grown / grown.sum(-1, keepdims=True)
    return found


def flip(x: Array) -> Array:
    """The last two dimensions exchanged."""
    return x.swapaxes(-1, -2)


def rms(x: Array, weight: Array, eps: float) -> Array:
    """X over the root of its mean square."""
    found: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight
    return found


def layer(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """X with mean 0 and variance 1."""
    centred = x - x.mean(-1, keepdims=True)
    found: Array = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps) * weight + bias
    return found


def gated(x: Array, up: Array, down: Array, activation: Callable[[Array], Array]) -> Array:
    """Two halves of one projection, the first activated, their product projected."""
    gate, value = np.split(x @ up.T, 2, -1)
    return (activation(gate) * value) @ down.T


def experts(x: Array, offsets: Array, up: Array, down: Array) -> Array:
    """Rows between two offsets go through the weights of their group."""
    bounds = offsets.astype(int)
    parts = [
        gated(x[low:high], up[group], down[group], silu) for group, (low, high) in enumerate(pairwise(bounds))
    ]
    return np.concatenate(parts)


def route(x: Array, gate: Array, top: int, coefficient: float) -> list[Array]:
    """Weights and indices of the experts of each row, and the loss of an uneven load."""
    shares = softmax(x @ gate.T)
    indices = np.argsort(-shares, -1, kind="stable")[:, :top]
    weights = np.take_along_axis(shares, indices, -1)
    counts = np.bincount(indices.reshape(-1), minlength=len(gate))
    loss = coefficient * len(gate) * float((counts / len(x) * shares.mean(0)).sum())
    return [weights / weights.sum(-1, keepdims=True), indices.astype(np.float64), np.asarray(loss)]


def sort_rows(x: Array, indices: Array) -> list[Array]:
    """The rows in the order of their experts, and the slot that each comes from."""
    slots = np.argsort(indices.reshape(-1), kind="stable")
    return [x[slots // indices.shape[-1]], slots.astype(np.float64)]


def mixture(x: Array, gate: Array, up: Array, down: Array) -> Array:
    """Each row through its two experts."""
    rows = x.reshape(-1, x.shape[-1])
    weights, indices, _ = route(rows, gate, 2, 0.0)
    found = np.zeros_like(rows)
    for number, row in enumerate(rows):
        for weight, index in zip(weights[number], indices[number].astype(int), strict=True):
            found[number] += weight * gated(row[None], up[index], down[index], silu)[0]
    return found.reshape(x.shape)


def convolve(x: Array, kernel: Array) -> Array:
    """Each channel with its own kernel, which looks back only."""
    size, length = kernel.shape[-1], x.shape[-1]
    padded = np.pad(x, ((0, 0), (0, 0), (size - 1, 0)))
    taken = [kernel[:, 0, j, None] * padded[:, :, j : j + length] for j in range(size)]
    found: Array = np.sum(taken, axis=0)
    return found


def cut(x: Array, heads: int) -> Array:
    """`[B, T, H·D]` as `[B, H, T, D]`."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def join(x: Array) -> Array:
    """`[B, H, T, D]` as `[B, T, H·D]`."""
    moved = x.transpose(0, 2, 1, 3)
    return moved.reshape(*moved.shape[:2], -1)


def rotate(x: Array, theta: float = 10000.0) -> Array:
    """Halves of each head turned by the angles of their position."""
    half = x.shape[-1] // 2
    angles = np.outer(np.arange(x.shape[2]), theta ** (-np.arange(half) / half))
    first, second = x[..., :half], x[..., half:]
    turned = (
        first * np.cos(angles) - second * np.sin(angles),
        first * np.sin(angles) + second * np.cos(angles),
    )
    return np.concatenate(turned, -1)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Causal attention; heads of keys serve several heads of queries."""
    share = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, share, 1), np.repeat(v, share, 1)
    scores = q @ flip(k) / math.sqrt(q.shape[-1])
    hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
    return softmax(np.where(hidden, -np.inf, scores)) @ v


def attend(x: Array, mixed: Array, out: Array) -> Array:
    """Self-attention of four heads with two for keys and values, with turned queries and keys."""
    q, k, v = np.split(x @ mixed.T, [8, 12], -1)
    found = attention(rotate(cut(q, 4)), rotate(cut(k, 2)), cut(v, 2))
    return join(found) @ out.T


def cross_entropy(logits: Array, labels: npt.NDArray[np.int64]) -> Array:
    """The mean negative logarithm of the share of each label."""
    shares = softmax(logits).reshape(-1, logits.shape[-1])
    return np.asarray(-np.log(shares[np.arange(len(shares)), labels.reshape(-1)]).mean())
