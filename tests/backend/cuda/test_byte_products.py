"""Products with weights of reals of 8 bits, as FP8 checkpoints store them, planned for a GPU; NumPy is the judge.

Up to 7 vectors read the codes as they lie, 16 bytes at once, and the scales of rows, blocks or the whole come behind;
more columns are those of tensor cores, which read them as bf16.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.jit import MACHINES, assembly
from lamella.backend.cuda.compile import with_sizes
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import find_target
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options
from tests.backend.cuda.test_tensor_core_gemm import write_graph

DTYPES: dict[str, Any] = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}
GROUPS = {"the whole": 0, "rows": 0, "blocks of 128": 128, "blocks of 32": 32}
"""Neighbours along the sum that share a scale, or 0 for all of them."""
SHAPES = {
    "whole blocks of codes": (1, 1024, 6),
    "several vectors": (3, 640, 5),
    "the most vectors": (7, 384, 4),
    "subgroups that share a sum": (1, 2688, 3),
    "several rows of a subgroup": (1, 256, 34),
}
"""Tokens, elements of the sum, rows."""
Shape = tuple[int, int, int]


def write(folder: Path, shape: Shape, element: str, scales: str, before: str = "") -> Path:
    """A layer with scaled codes, a bias, and what is added to it."""
    tokens, width, rows = shape
    group = GROUPS[scales] or width
    counts = {"the whole": "1,1,1", "rows": f"{rows},1,1"}.get(scales, f"{rows},{width // group},1")
    variables = f"c: {element}[{rows},{width // group},{group}]; s: real[{counts}]; g: real[{width}]; b: real[{rows}];"
    shapes = f"@input {{ x: real[{tokens},{width}]; }} @variable {{ {variables} }}"
    shapes += f" @output {{ y: real[{tokens},{rows}]; }}"
    lines = "r = layout.cast<real>(c); k = math.mul(r, s);"
    lines += f" w = layout.reshape{{shape=[{rows},{width}]}}(k); {before or 'n = math.mul(x, 1.0);'}"
    return write_graph(
        folder, shapes, f"{lines} p = linalg.matmul{{transB=true}}(n, w); z = math.add(p, b); y = nn.silu(z);"
    )


def plan(path: Path, precision: str = "f32") -> KernelGraph:
    """The kernels of a graph for a small Hopper, whose subgroups take several rows of 34."""
    model: Any = lamella.load(path)
    options, target = Options(precision=precision), replace(find_target("sm_90a"), multiprocessors=1)
    made = to_kernels(prepare(model, options, True), options, {}, True, target)
    return replace(made, program=with_sizes(made.program))


def draw(shape: Shape, element: str, scales: str, seed: int) -> dict[str, Array]:
    """Vectors, codes of all sizes with their scales, a bias, and the weights of a norm."""
    tokens, width, rows = shape
    group, random = GROUPS[scales] or width, np.random.default_rng(seed)
    codes = random.standard_normal((rows, width // group, group)) * np.exp2(
        random.integers(-12, 8, (rows, 1, 1))
    )
    counts = {"the whole": (1, 1, 1), "rows": (rows, 1, 1)}.get(scales, (rows, width // group, 1))
    found = {
        "x": random.standard_normal((tokens, width)),
        "s": np.exp(random.standard_normal(counts)) / 64,
        "g": random.standard_normal(width),
        "b": random.standard_normal(rows),
    }
    singles: dict[str, Array] = {key: item.astype(np.float32) for key, item in found.items()}
    return {**singles, "c": np.clip(codes, -448, 448).astype(DTYPES[element])}


def judge(drawn: dict[str, Array], normed: bool = False) -> tuple[npt.NDArray[np.float64], float]:
    """What the layer gives, and how large the sums of its products are."""
    x, s, g, b, codes = (drawn[key].astype(np.float64) for key in "xsgbc")
    weight = (codes * s).reshape(len(codes), -1)
    if normed:
        x = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * g
    z = x @ weight.T + b
    size = float((np.abs(x) @ np.abs(weight).T + np.abs(b)).max())
    return z / (1 + np.exp(-np.clip(z, -500, 500))), size


def run(executable: Any, drawn: dict[str, Array]) -> Array:
    """What an executable gives with the drawn weights."""
    for key, value in drawn.items():
        if key != "x" and key in executable.state:
            executable.state[key] = value
    found: Array = executable(x=drawn["x"])["y"]
    return found


def interpreted(made: KernelGraph) -> Any:
    """The kernels on the interpreter."""
    return compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)


def codes_of(made: KernelGraph) -> list[Any]:
    """The parameters of kernels of each run that hold reals of 8 bits."""
    each = {item.kernel for calls in made.calls.values() for item in calls if not item.once}
    return [
        item
        for function in made.program.functions
        if function.name in each
        for item in function.parameters
        if getattr(item.type, "element", "") in DTYPES
    ]


@pytest.mark.parametrize(("scales", "element"), list(zip(GROUPS, cycle(DTYPES), strict=False)))
@pytest.mark.parametrize("name", SHAPES)
def test_vectors_meet_codes_of_8_bits(name: str, scales: str, element: str, tmp_path: Path) -> None:
    made = plan(write(tmp_path, SHAPES[name], element, scales))
    (codes,) = codes_of(made)
    assert codes.attributes.find("alignment") == 16
    drawn = draw(SHAPES[name], element, scales, 5)
    want, size = judge(drawn)
    np.testing.assert_allclose(run(interpreted(made), drawn), want, rtol=0, atol=2e-6 * size)


@given(
    st.integers(1, 7),
    st.sampled_from([32, 96, 128, 160, 544, 640]),
    st.integers(1, 9),
    st.sampled_from(list(GROUPS)),
    st.sampled_from(list(DTYPES)),
    st.integers(0, 99),
)
def test_any_few_vectors_and_codes_are_multiplied(
    tmp_path_factory: pytest.TempPathFactory,
    tokens: int,
    width: int,
    rows: int,
    scales: str,
    element: str,
    seed: int,
) -> None:
    shape = tokens, width if width % (GROUPS[scales] or width) == 0 else 256, rows
    drawn = draw(shape, element, scales, seed)
    want, size = judge(drawn)
    made = plan(write(tmp_path_factory.mktemp("drawn"), shape, element, scales))
    np.testing.assert_allclose(run(interpreted(made), drawn), want, rtol=0, atol=2e-6 * size)


@pytest.mark.parametrize("scales", GROUPS)
def test_a_norm_is_part_of_the_product(scales: str, tmp_path: Path) -> None:
    shape = 2, 640, 6
    path = write(tmp_path, shape, "f8e4m3", scales, "n, d = llm.rmsnorm{eps=0.00001}(x, g);")
    made = plan(path, "bf16")
    each = {item.kernel for calls in made.calls.values() for item in calls if not item.once}
    assert len(each) == 1
    drawn = draw(shape, "f8e4m3", scales, 6)
    want, _ = judge(drawn, normed=True)
    np.testing.assert_allclose(run(interpreted(made), drawn), want, rtol=0, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("scales", GROUPS)
def test_many_columns_are_those_of_tensor_cores(scales: str, element: str, tmp_path: Path) -> None:
    shape = 19, 256, 40
    made = plan(write(tmp_path, shape, element, scales), "bf16")
    compiled = emit(made.program, find_target("sm_90a"))
    assert any(item.pipeline is not None for item in compiled.entries)
    drawn = draw(shape, element, scales, 7)
    want, size = judge(drawn)
    np.testing.assert_allclose(run(interpreted(made), drawn), want, rtol=0, atol=2**-8 * size)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_codes_of_a_model_stay_in_reduced_precision(precision: str, tmp_path: Path) -> None:
    """They are fewer bytes than bf16, and are not rounded to other codes."""
    shape = SHAPES["several vectors"]
    made = plan(write(tmp_path, shape, "f8e5m2", "blocks of 128"), precision)
    assert [item.type.element for item in codes_of(made)] == ["f8e5m2"]
    drawn = draw(shape, "f8e5m2", "blocks of 128", 8)
    want, size = judge(drawn)
    np.testing.assert_allclose(run(interpreted(made), drawn), want, rtol=0, atol=2e-6 * size)


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("scales", GROUPS)
def test_the_assembler_takes_pairs(scales: str, element: str, tmp_path: Path) -> None:
    """16 codes are one load and 8 conversions; no byte is taken apart."""
    made = plan(write(tmp_path, SHAPES["whole blocks of codes"], element, scales))
    compiled = emit(made.program, find_target("sm_90a"))
    text = assembly(compiled.text, MACHINES["sm_90a"])
    symbol = next(item.symbol for item in compiled.entries if item.name == made.program.functions[-1].name)
    kernel = text[text.index(f".visible .entry {symbol}(") + 1 :].partition(".visible .entry")[0]
    loads = len(re.findall(r"ld\.global(?:\.nc)?(?:\.[\w:]+)*\.v4\.[bu]32", kernel))
    pairs = kernel.count(f"cvt.rn.f16x2.{element[2:]}x2")
    assert pairs == 1024 // 32 // 2
    assert loads == 1024 // 32 // 16 + 1024 // 32 // 4
    assert "prmt" not in kernel
    found = shutil.which("ptxas")
    if found is None:
        pytest.skip("ptxas is not installed; the wheel nvidia-cuda-nvcc-cu12 has it")
    path = tmp_path / "kernels.ptx"
    path.write_text(text)
    done = subprocess.run(
        [found, "-arch", "sm_90a", path, "-o", tmp_path / "kernels.cubin"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("scales", GROUPS)
@pytest.mark.parametrize("name", SHAPES)
def test_a_device_computes_with_codes_of_8_bits(name: str, scales: str, element: str, tmp_path: Path) -> None:
    drawn = draw(SHAPES[name], element, scales, 9)
    want, size = judge(drawn)
    found = run(lamella.compile(write(tmp_path, SHAPES[name], element, scales), backend="cuda"), drawn)
    np.testing.assert_allclose(found, want, rtol=0, atol=2e-6 * size)


@pytest.mark.gpu
@pytest.mark.parametrize("element", DTYPES)
def test_a_device_widens_every_code(element: str, tmp_path: Path) -> None:
    places = range(8)
    lines = [
        "%l = builtin.subgroup_local_id : i32",
        "%i = cast %l : index",
        "%eight = constant 8 : index",
        "%first = arith.mul %i, %eight : index",
        *(f"%c{item} = constant {item} : index" for item in places),
        *(f"%p{item} = arith.add %first, %c{item} : index" for item in places),
        *(f"%v{item} = load %x[%p{item}] : {element}" for item in places),
        *(f"%w{item} = cast %v{item} : f32" for item in places),
        *(f"store %w{item}, %y[%p{item}]" for item in places),
    ]
    sizes = "attributes{subgroup_size=32, work_group_size=[32,1]}"
    head = f"func @widen(%x: memref<{element}x256>, %y: memref<f32x256>) {sizes} {{\n  parallel {{\n    "
    path = tmp_path / "widen.tensor"
    path.write_text(head + "\n    ".join(lines) + "\n  }\n}\n")
    codes = np.arange(256, dtype=np.uint8).view(DTYPES[element])
    found = np.zeros(256, np.float32)
    kernels: Any = lamella.compile(path, backend="cuda")
    kernels.widen(codes, found)
    np.testing.assert_array_equal(found, codes.astype(np.float32))
