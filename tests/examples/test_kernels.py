"""The kernels of the examples: the interpreter and machine code against NumPy and torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamella
from lamella.backend.named import NamedKernels
from lamella.base.arrays import Array
from lamella.base.source import Source
from lamella.lang.tensor import parse, write
from tests.support.repository import ROOT

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import torch.nn.functional as F

FOLDER = ROOT / "examples" / "kernels"
FILES = sorted(FOLDER.glob("*.tensor"))
BASIS = (56, 35, 20, 10, 4, 1)
"""How many basis functions in space there are of degree 5, 4 and so on."""


@cache
def kernels_of(name: str, backend: str) -> NamedKernels:
    """The kernels of a file on a backend."""
    found = lamella.compile(FOLDER / f"{name}.tensor", backend=backend)
    assert isinstance(found, NamedKernels)
    return found


def both(name: str) -> Iterator[NamedKernels]:
    """The kernels of a file in the interpreter and as machine code."""
    return (kernels_of(name, backend) for backend in ("interpreter", "cpu"))


def draw(seed: int, *shape: int) -> Array:
    """Random numbers of single precision, the first mode the contiguous one."""
    drawn: Array = np.random.default_rng(seed).normal(size=shape).astype("f4", order="F")
    return drawn


def rows_of(seed: int, *shape: int) -> torch.Tensor:
    """Random rows as torch has them."""
    return torch.from_numpy(np.ascontiguousarray(draw(seed, *shape)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_is_wrong_with_them(path: Path) -> None:
    assert [item.severity for item in lamella.check(path) if item.severity != "note"] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_they_are_canonical(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    program, _ = parse(Source(path.name, text))
    assert write(program) == text


@given(st.integers(0, 93))
@settings(max_examples=10)
def test_fibonacci(count: int) -> None:
    expected = [0, 1]
    while len(expected) < count:
        expected.append(expected[-1] + expected[-2])
    for kernels in both("fibonacci"):
        numbers = np.full(count, -1, np.int64)
        kernels.fibonacci(numbers)
        assert numbers.tolist() == expected[:count]


@pytest.mark.parametrize("count", [1, 5])
def test_fused(count: int) -> None:
    a = [draw(i, 16, 8) for i in range(count)]
    b, c, d = draw(100, 8, 8), draw(101, 8, 16), draw(102, 16, 16, count)
    expected = np.stack([d[:, :, i] + 2.5 * a[i] @ b.T @ c for i in range(count)], 2)
    for kernels in both("fused"):
        found = d.copy(order="F")
        kernels.fused_kernel(2.5, a, b, c, found, groups=count)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def predict(dt: float, k: list[Array], a: Array, q: Array) -> Array:
    """What the chain of `ader.tensor` computes for one element, in double precision."""
    weight, derivative = dt, q.astype("f8")
    found: Array = dt * derivative
    for order, (wide, narrow) in enumerate(pairwise(BASIS), 2):
        steps = [k[i].astype("f8")[:narrow, :wide] @ derivative @ a[:, :, i].astype("f8") for i in range(3)]
        derivative = steps[0] + steps[1] + steps[2]
        weight *= dt / order
        found[:narrow] += weight * derivative
    return found


def test_ader() -> None:
    count, dt = 3, 0.25
    k = [draw(i, 35, 56) for i in range(3)]
    a, q = draw(3, 9, 9, 3, count), draw(4, 56, 9, count)
    expected = np.stack([predict(dt, k, a[..., i], q[..., i]) for i in range(count)], 2)
    for kernels in both("ader"):
        found = np.full((56, 9, count), np.nan, "f4", order="F")
        kernels.ader(dt, *k, a, q, found, groups=count)
        np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("backend", "heads", "queries", "keys"),
    [("interpreter", 1, 64, 128), ("cpu", 1, 64, 128), ("cpu", 1, 64, 64), ("cpu", 3, 128, 320)],
)
def test_flash_attention(backend: str, heads: int, queries: int, keys: int) -> None:
    q, k, v = (2 * rows_of(i, heads, n, 64) for i, n in enumerate((queries, keys, keys)))
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double()).numpy()
    found = np.full((heads, queries, 64), np.nan, "f4")
    arrays = [item.T for item in (q.numpy(), k.numpy(), v.numpy(), found)]
    kernels_of("flash_attention", backend).flash_attention(*arrays, groups=heads * queries // 64)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


def test_flash_attention_wants_whole_blocks() -> None:
    arrays = [np.zeros((64, 96, 1), "f4", order="F") for _ in range(4)]
    for kernels in both("flash_attention"):
        with pytest.raises(lamella.LamellaError, match="shape_gcd"):
            kernels.flash_attention(*arrays)


@given(st.integers(1, 4), st.sampled_from([1, 7, 63, 64, 65, 128, 200]), st.integers(0, 2**16))
@settings(max_examples=8)
def test_rows(count: int, width: int, seed: int) -> None:
    x, r = 2 * rows_of(seed, count, width), rows_of(seed + 1, count, width)
    scale, shift = rows_of(seed + 2, width), rows_of(seed + 3, width)
    width_of = (width,)
    calls = {
        "softmax": ((x,), torch.softmax(x, 1)),
        "layernorm": ((x, scale, shift, 1e-5), F.layer_norm(x, width_of, scale, shift, 1e-5)),
        "residual_rmsnorm": ((x, r, scale, 1e-5), F.rms_norm(x + r, width_of, scale, 1e-5)),
        "bias_gelu": ((x, shift), F.gelu(x + shift, approximate="tanh")),
    }
    for kernels in both("rows"):
        for name, (given_to, expected) in calls.items():
            found = np.full((count, width), np.nan, "f4")
            arrays = [item.numpy().T if isinstance(item, torch.Tensor) else item for item in given_to]
            kernels.call(name, [*arrays, found.T], count)
            # A row of one number has no variance: the factor is large and so is the error.
            tolerance = 1e-3 if width == 1 else 1e-5
            np.testing.assert_allclose(found, expected.numpy(), rtol=tolerance, atol=tolerance)


@given(st.sampled_from([5, 64, 200, 1000]), st.sampled_from([0, 1, 63]), st.integers(0, 2**16))
@settings(max_examples=8)
def test_layernorm_of_rows_whose_squares_are_large(width: int, place: int, seed: int) -> None:
    x, one, zero = 300 + rows_of(seed, 2, width), torch.ones(width), torch.zeros(width)
    x[1, place % width] = -1e4
    expected = F.layer_norm(x.double(), (width,), eps=1e-5).numpy()
    for kernels in both("rows"):
        found = np.empty((2, width), "f4")
        kernels.layernorm(x.numpy().T, one.numpy(), zero.numpy(), 1e-5, found.T, groups=2)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
