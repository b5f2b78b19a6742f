"""im2col: convolutions of few channels on tensor cores, where packing the windows pays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.bridge.graph_to_kernels import product_variants
from lamella.lang.tensor import write
from tests.backend.cuda.test_tensor_core_gemm import plan, write_graph
from tests.support.gpu.driver import emulated_device

PACKED = "%packed_columns"
"""What the matrix of packed windows is called in a kernel."""


def convolution(image: str, weight: str, output: str, attributes: str) -> tuple[str, str]:
    """A convolution with a bias, and a function of it."""
    shapes = (
        f"@input {{ x: real[{image}]; }} @variable {{ w: real[{weight}]; b: real[{weight.split(',')[0]}]; }}"
    )
    return (
        f"{shapes} @output {{ y: real[{output}]; }}",
        f"z = nn.conv{{{attributes}}}(x, w, b); y = nn.relu(z);",
    )


CASES = {
    "three channels, two pixels apart": convolution(
        "2,3,22,20", "64,3,7,7", "2,64,11,10", "padding=3, stride=2"
    ),
    "five channels": convolution("1,5,12,12", "40,5,3,3", "1,40,12,12", "padding=1"),
    "windows that do not overlap": convolution("1,3,32,32", "48,3,4,4", "1,48,8,8", "stride=4"),
}


def uses_im2col(path: Path) -> bool:
    """Whether a matrix product reads packed windows."""
    text = write(plan(path).program)
    return "cooperative_matrix_load" in text and PACKED in text


@pytest.mark.parametrize("case", CASES)
def test_a_gpu_computes_the_same(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_variants, "IM2COL_LAUNCH_S", 0.0)
    monkeypatch.setattr(product_variants, "THREAD_SPEED", 1.0)
    path = write_graph(tmp_path, *CASES[case])
    assert uses_im2col(path)
    judge = lamella.compile(path, backend="reference", seed=1)
    shape = [int(item) for item in CASES[case][0].partition("real[")[2].partition("]")[0].split(",")]
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    with emulated_device():
        run = lamella.compile(path, backend="cuda", precision="bf16", seed=1)
        found = run(x=x)["y"].copy()
    np.testing.assert_allclose(found, judge(x=x)["y"], atol=0.1)


@pytest.mark.parametrize(
    ("case", "pays"),
    [
        (convolution("8,3,224,224", "64,3,7,7", "8,64,112,112", "padding=3, stride=2"), True),
        (convolution("1,32,256,256", "32,32,3,3", "1,32,256,256", "padding=1"), True),
        (convolution("1,3,32,32", "16,3,3,3", "1,16,32,32", "padding=1"), False),
        (convolution("8,64,112,112", "64,1,3,3", "8,64,112,112", "padding=1, groups=64"), False),
        (convolution("1,32,10,10", "32,16,3,3", "1,32,10,10", "padding=1, groups=2"), False),
    ],
)
def test_where_it_pays(case: tuple[str, str], pays: bool, tmp_path: Path) -> None:
    assert uses_im2col(write_graph(tmp_path, *case)) == pays
