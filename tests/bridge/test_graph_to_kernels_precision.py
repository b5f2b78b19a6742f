"""Products in reduced precision: the numbers of codes that NumPy makes, on the reference and as kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import lamella
from lamella.backend.executor import GraphExecutable
from lamella.base.arrays import sign_extended
from lamella.base.placement import placement_of
from lamella.bridge.graph_to_kernels import graph_to_kernels
from lamella.graph.model import Model
from lamella.graph.passes.fuse import fuse
from lamella.graph.passes.reduce_precision import FULL, GROUP, REDUCTIONS, reduce_precision
from lamella.lang.tensor import write
from lamella.pipeline.comparison_options import PRECISIONS
from tests.support.graph.texts import model_of, small

Reals = npt.NDArray[np.float32]


def graph(body: str, inputs: str, outputs: str, variables: str) -> Model:
    """The model of a graph with variables."""
    return small(inputs, body, outputs, f"@variable {{ {variables} }}")


def compiled(model: Model, backend: str, **options: Any) -> GraphExecutable:
    """A model on a backend."""
    found = lamella.compile(model, backend=backend, **options)
    assert isinstance(found, GraphExecutable)
    return found


def codes(array: Reals, largest: int, axes: tuple[int, ...]) -> tuple[Reals, Reals]:
    """Integers up to the largest one, and their scale: the same along the axes."""
    size = np.abs(array).max(axis=axes, keepdims=True)
    scale = np.float32(1 / largest) * size + np.float32(1e-30)
    steps = array / scale
    return np.copysign(np.floor(np.abs(steps) + np.float32(0.5)), steps), scale


def decoded(array: Reals, largest: int, axes: tuple[int, ...]) -> Reals:
    """What the codes of an array say."""
    found, scale = codes(array, largest, axes)
    return found * scale


def in_groups(array: Reals) -> Reals:
    """What codes of 4 bits say of a matrix whose rows are channels."""
    groups = array.reshape(len(array), -1, GROUP)
    return decoded(groups, 7, (2,)).reshape(array.shape)


def in_bytes(array: Reals, axes: tuple[int, ...] = (1,)) -> Reals:
    """What codes of f8e4m3 say, the largest of which is 448."""
    size = np.abs(array).max(axis=axes, keepdims=True)
    scale = np.float32(1 / 448) * size + np.float32(1e-30)
    steps = np.clip(array / scale, -448, 448)
    found: Reals = steps.astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale
    return found


def in_bf16(array: Reals) -> Reals:
    """Numbers of bf16."""
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


def same(array: Reals) -> Reals:
    """As it is."""
    return array


ROWS: dict[str, tuple[Callable[[Reals], Reals], Callable[[Reals], Reals]]] = {
    "w8": (same, lambda weight: decoded(weight, 127, (1,))),
    "w4": (same, in_groups),
    "bf16": (in_bf16, in_bf16),
    "fp8": (same, in_bytes),
    "int8": (lambda rows: decoded(rows, 127, (1,)), lambda weight: decoded(weight, 127, (1,))),
}
"""What each precision makes of the rows of an activation and of the channels of a weight."""


def test_each_precision_is_an_option() -> None:
    assert (FULL, *REDUCTIONS) == PRECISIONS
    assert ROWS.keys() == REDUCTIONS.keys()


def product(rows: int, depth: int, channels: int, transposed: bool = True) -> Model:
    """Rows times a weight, a bias and a clamp."""
    shape = f"{channels}, {depth}" if transposed else f"{depth}, {channels}"
    return graph(
        f"t = linalg.matmul{{transB={str(transposed).lower()}}}(x, w); u = math.add(t, b); y = math.max(u, 0.0);",
        f"x: real[{rows}, {depth}];",
        f"y: real[{rows}, {channels}]",
        f"w: real[{shape}]; b: real[{channels}];",
    )


def draw(random: np.random.Generator, *shape: int) -> Reals:
    """Numbers of very different sizes from row to row, with a row of zeros."""
    found = random.standard_normal(shape) * np.exp(random.normal(0, 2, (shape[0], *[1] * (len(shape) - 1))))
    found[shape[0] // 2] = 0
    return found.astype(np.float32)


@pytest.mark.parametrize("precision", REDUCTIONS)
@pytest.mark.parametrize(
    ("rows", "depth", "channels", "transposed"),
    [(1, 96, 70, True), (7, 64, 33, True), (30, 160, 64, False), (3, 36, 40, True)],
)
def test_products_compute_with_the_codes(
    precision: str, rows: int, depth: int, channels: int, transposed: bool
) -> None:
    model, random = product(rows, depth, channels, transposed), np.random.default_rng(rows)
    x, w, b = draw(random, rows, depth), draw(random, channels, depth), draw(random, channels)
    narrow = dict(ROWS)
    if depth % GROUP:
        narrow["w4"] = narrow["w8"]  # groups that do not divide the sum: a scale for each channel
    left, right = (part(item) for part, item in zip(narrow[precision], (x, w), strict=True))
    expected = np.maximum(left.astype(np.float64) @ right.T.astype(np.float64) + b, 0)
    run = compiled(model, "cpu", precision=precision, threads=2)
    reference = compiled(reduce_precision(model, precision), "reference")
    for item in (run, reference):
        item.state["w"], item.state["b"] = w if transposed else np.ascontiguousarray(w.T), b
        np.testing.assert_allclose(item(x=x)["y"], expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())
    assert {item.where for item in placement_of(run)} == {"kernel"}


@pytest.mark.parametrize("precision", REDUCTIONS)
def test_convolutions_compute_with_the_codes(precision: str) -> None:
    model = graph(
        "y = nn.conv{stride=[2, 1], padding=[1, 1, 1, 1]}(x, w);",
        "x: real[2, 8, 9, 7];",
        "y: real[2, 24, 5, 7]",
        "w: real[24, 8, 3, 3];",
    )
    random = np.random.default_rng(5)
    x, w = draw(random, 2, 8, 9, 7), draw(random, 24, 8, 3, 3)
    run, plain = compiled(model, "cpu", precision=precision), compiled(model, "reference")
    run.state["w"] = w
    said = {"bf16": in_bf16(w), "fp8": in_bytes(w, (1, 2, 3))}
    plain.state["w"] = said.get(precision, decoded(w, 127, (1, 2, 3)))
    narrow = {"bf16": in_bf16(x), "int8": decoded(x, 127, (1, 2, 3))}
    expected = plain(x=narrow.get(precision, x))["y"]
    np.testing.assert_allclose(run(x=x)["y"], expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())
    assert {item.where for item in placement_of(run)} == {"kernel"}


def test_short_sums_stay_as_they_are() -> None:
    model = product(4, GROUP - 1, 40)
    assert reduce_precision(model, "w8").graph.nodes == reduce_precision(model, "bf16").graph.nodes


def test_codes_of_a_weight_are_made_once() -> None:
    model = graph(
        "y = linalg.matmul{transB=true}(x, w); n = math.neg(x); z = linalg.matmul{transB=true}(n, w);",
        "x: real[3, 64];",
        "y: real[3, 40]; z: real[3, 40]",
        "w: real[40, 64];",
    )
    names = [node.operator for node in reduce_precision(model, "w8").graph.operations()]
    assert (names.count("math.max_reduce"), names.count("math.mul")) == (1, 2)


@pytest.mark.parametrize(
    ("precision", "packed"),
    [
        ("w8", "i8x32x64x2"),
        ("w4", "i8x32x16x2x2"),
        ("bf16", "bf16x2x32x32x2"),
        ("fp8", "f8e4m3x32x64x2"),
        ("int8", "i8x4x32x16x2"),
    ],
)
def test_kernels_read_the_codes(precision: str, packed: str) -> None:
    kernels = graph_to_kernels(fuse(reduce_precision(product(9, 64, 64), precision)))
    assert f"%packed: memref<{packed}>" in write(kernels.program)


def test_all_codes_of_4_bits_come_back() -> None:
    """Also the one that a symmetric quantisation never makes."""
    model = graph(
        "q = layout.cast<i4>(c); w = layout.cast<real>(q); y = linalg.matmul{transB=true}(x, w);",
        "x: real[2, 64];",
        "y: real[2, 48]",
        "c: real[48, 64];",
    )
    random = np.random.default_rng(0)
    given, x = random.integers(-8, 8, (48, 64)).astype(np.float32), draw(random, 2, 64)
    run = compiled(model, "cpu")
    run.state["c"] = given
    np.testing.assert_allclose(run(x=x)["y"], x @ given.T, rtol=1e-5, atol=1e-4)


TABLE = [-1.0, -0.7, -0.52, -0.4, -0.28, -0.18, -0.09, 0.0, 0.08, 0.16, 0.25, 0.34, 0.44, 0.56, 0.72, 1.0]


@pytest.mark.parametrize(("rows", "channels"), [(1, 96), (5, 40)])
def test_kernels_look_codes_up_in_a_table(rows: int, channels: int) -> None:
    """Two codes in a byte, one table in the kernel, a scale for each group."""
    numbers = ", ".join(map(str, TABLE))
    model = graph(
        f"n = quant.look_up{{numbers=[{numbers}]}}(q); d = math.mul(n, s);"
        f"w = layout.flatten{{axis=1, rank=2}}(d); y = linalg.matmul{{transB=true}}(x, w);",
        f"x: real[{rows}, 128];",
        f"y: real[{rows}, {channels}]",
        f"q: i4[{channels}, 2, 64]; s: real[{channels}, 2, 1];",
    )
    random = np.random.default_rng(rows)
    given, scales = random.integers(-8, 8, (channels, 2, 64)), random.random((channels, 2, 1))
    x = draw(random, rows, 128)
    weight = (np.array(TABLE)[given + 8] * scales).reshape(channels, 128)
    for backend in ("reference", "cpu"):
        run = compiled(model, backend)
        run.state["q"] = sign_extended(given.astype(ml_dtypes.int4))
        run.state["s"] = scales.astype(np.float32)
        wanted = x.astype(np.float64) @ weight.T
        np.testing.assert_allclose(run(x=x)["y"], wanted, rtol=2e-5, atol=2e-5 * np.abs(wanted).max())
    text = write(graph_to_kernels(fuse(model)).program)
    assert "cooperative_matrix_apply" in text
    assert "%packed: memref<i8x32x32x2" in text


INTEGERS = """import layout;
operator dot {
    @input { a: i8[m, k]; b: i8[n, k]; }
    @output { c: int[m, n]; }
    @lower { c[i, j] += a[i, l] * b[j, l], i < m, j < n, l < k; }
}
graph G {
    @input { x: i8[4, 2048]; }
    @variable { w: i8[48, 2048]; }
    @output { y: int[4, 48]; }
    @compose { t = dot(x, w); r = layout.cast<real>(t); y = layout.cast<int>(r); }
}
"""


def test_products_of_integers_stay_integers() -> None:
    """Beyond what f32 can count, and whatever reads the sum."""
    model, random = model_of(INTEGERS), np.random.default_rng(2)
    x, w = (random.integers(100, 128, (rows, 2048)).astype(np.int8) for rows in (4, 48))
    run = compiled(model, "cpu")
    run.state["w"] = w
    exact = x.astype(np.int64) @ w.astype(np.int64).T
    assert exact.max() > 1 << 24
    assert np.array_equal(run(x=x)["y"], exact.astype(np.float32).astype(np.int64))


@pytest.mark.parametrize("depth", [64, 36, 35])
def test_codes_without_scales_are_summed(depth: int) -> None:
    model = graph(
        "a = layout.cast<real>(x); b = layout.cast<real>(w); y = linalg.matmul{transB=true}(a, b);",
        f"x: i8[4, {depth}];",
        "y: real[4, 48]",
        f"w: i8[48, {depth}];",
    )
    random = np.random.default_rng(depth)
    x, w = (random.integers(-128, 128, (rows, depth)).astype(np.int8) for rows in (4, 48))
    run = compiled(model, "cpu")
    run.state["w"] = w
    assert np.array_equal(run(x=x)["y"], x.astype(np.float32) @ w.astype(np.float32).T)


def test_integers_wrap_to_4_bits() -> None:
    model = graph(
        "q = layout.cast<i4>(c); y = layout.cast<int>(q);", "x: real[2];", "y: int[40]", "c: int[40];"
    )
    run = compiled(model, "cpu")
    run.state["c"] = np.arange(-20, 20)
    assert np.array_equal(run(x=np.zeros(2, np.float32))["y"], (np.arange(-20, 20) + 8) % 16 - 8)
    assert {item.where for item in placement_of(run)} == {"kernel"}


def test_the_text_of_a_reduced_model_reads_back(tmp_path: Path) -> None:
    model = product(3, 64, 40)
    random = np.random.default_rng(1)
    weights = {"w": draw(random, 40, 64), "b": draw(random, 40)}
    whole = Model(model.graph, model.library, data=weights)
    lamella.save(whole, tmp_path / "model")
    text = lamella.lower(tmp_path / "model", "sknd", after="reduce_precision", precision="w4")
    lamella.save(text, tmp_path / "reduced")
    x = draw(random, 3, 64)
    again = lamella.compile(tmp_path / "reduced", backend="reference")(x=x)["y"]
    run = lamella.compile(tmp_path / "model", backend="cpu", precision="w4")(x=x)["y"]
    np.testing.assert_allclose(run, again, rtol=2e-5, atol=2e-5 * np.abs(again).max())
