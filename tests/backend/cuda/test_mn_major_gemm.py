"""GEMM for Hopper with MN-major operands: the interpreter runs their text, NumPy judges."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.kernels.target import find_target
from tests.backend.cuda.test_tensor_core_gemm import plan, write_graph

CASES = {
    "both": (("[64,64]", "[64,128]", "[64,128]"), "transA=true", "mk,mn->kn"),
    "the left one": (("[64,64]", "[64,64]", "[64,64]"), "transA=true, transB=true", "mk,nm->kn"),
    "the right one": (("[64,64]", "[64,128]", "[64,128]"), "transA=false", "km,mn->kn"),
}


def graph_of(folder: Path, case: str, many: int = 1) -> tuple[Path, list[tuple[int, ...]]]:
    """A product of two activations, with so many times the rows, columns and steps."""
    shapes, told, _ = CASES[case]
    sizes = [tuple(many * int(item) for item in shape[1:-1].split(",")) for shape in shapes]
    a, b, y = (f"real[{','.join(map(str, item))}]" for item in sizes)
    lines = f"y = linalg.matmul{{{told}}}(a, b);"
    return write_graph(folder, f"@input {{ a: {a}; b: {b}; }} @output {{ y: {y}; }}", lines), sizes


def draw(sizes: list[tuple[int, ...]], case: str) -> tuple[dict[str, Array], Array]:
    """Factors, and their product after they were rounded."""
    random = np.random.default_rng(4)
    given = {
        name: random.standard_normal(size).astype(np.float32) for name, size in zip("ab", sizes, strict=False)
    }
    halves = [item.astype(ml_dtypes.bfloat16).astype(np.float64) for item in given.values()]
    want: Array = np.einsum(CASES[case][2], *halves)
    return given, want


@pytest.mark.parametrize("case", CASES)
def test_no_kernel_lays_what_warpgroups_turn(case: str, tmp_path: Path) -> None:
    path, sizes = graph_of(tmp_path, case)
    made = plan(path)
    products = [item for item in made.program.functions if "CoopMulAdd" in repr(item)]
    assert len(products) == 1
    assert not any("packed" in item.value.name for item in products[0].parameters)
    given, want = draw(sizes, case)
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    np.testing.assert_allclose(run(**given)["y"], want, rtol=1e-4, atol=1e-4)
    compiled = emit(made.program, find_target("sm_90a"))
    assert sum(item.pipeline is not None for item in compiled.entries) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("many", [1, 16])
def test_a_device_turns_tiles(case: str, many: int, tmp_path: Path) -> None:
    path, sizes = graph_of(tmp_path, case, many)
    given, want = draw(sizes, case)
    run = lamella.compile(path, backend="cuda", precision="bf16")
    np.testing.assert_allclose(run(**given)["y"], want, rtol=1e-3, atol=1e-3)
