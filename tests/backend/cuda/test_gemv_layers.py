"""GEMV with a norm as prologue and a gate as epilogue, planned for a GPU as one kernel each.

The interpreter runs them, the processor judges: in f32 to its last bits, in bf16 and with codes within what rounding a
vector makes, which one kernel does not do.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cuda.compile import with_sizes
from lamella.backend.executor.kernels import compile_graph
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Program
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options
from tests.backend.cuda.test_cuda_text import assemble_on
from tests.backend.cuda.test_tensor_core_gemm import draw_inputs, write_graph

Precision = Literal["f32", "bf16", "w8", "w4", "fp8"]
ROUNDED = {"f32": 1e-5, "bf16": 2**-7, "w8": 2**-7, "w4": 2**-7, "fp8": 2**-7}
"""What may differ, in the largest number of the result."""


def normed(tokens: int, width: int, rows: int) -> tuple[str, str]:
    """A root mean square norm before a layer, whose result is added to what was normalised elsewhere."""
    shapes = f"@input {{ x: real[{tokens},{width}]; r: real[{tokens},{rows}]; }}"
    shapes += (
        f" @variable {{ g: real[{width}]; w: real[{rows},{width}]; }} @output {{ y: real[{tokens},{rows}]; }}"
    )
    return (
        shapes,
        "n, d = llm.rmsnorm(x, g); z = linalg.matmul{transB=true}(n, w); y = math.add(r, z);",
    )


def gated(tokens: int, width: int, rows: int, gate: str, before: str = "") -> tuple[str, str]:
    """A layer both halves of whose rows a gate joins."""
    shapes = f"@input {{ x: real[{tokens},{width}]; }} @variable {{ g: real[{width}]; w: real[{2 * rows},{width}]; }}"
    shapes += f" @output {{ y: real[{tokens},{rows}]; }}"
    first = before or "n = math.mul(x, 1.0);"
    return shapes, f"{first} z = linalg.matmul{{transB=true}}(n, w); {gate}"


NORM = "n, d = llm.rmsnorm(x, g);"
SLICES = " [a, b] = layout.split{axis=1, count=2}(z);"
CASES = {
    "a norm": normed(1, 512, 10),
    "a norm that subgroups share": normed(1, 1024, 10),
    "norms of two vectors that subgroups share": normed(2, 1024, 5),
    "a norm of several vectors": normed(5, 128, 9),
    "a norm of the most vectors": normed(7, 64, 11),
    "a norm of an odd width": normed(2, 328, 9),
    "a norm of an odd width that subgroups share": normed(1, 1048, 6),
    "a norm and a gate": gated(1, 1024, 6, "y = llm.split_swiglu(z);", NORM),
    "a norm and a gate of two vectors": gated(2, 128, 7, "y = llm.split_swiglu(z);", NORM),
    "a gate of slices": gated(1, 128, 10, SLICES + " s = nn.silu(a); y = math.mul(s, b);"),
    "a gate of three vectors": gated(3, 128, 9, SLICES + " y = llm.geglu(a, b);"),
}
CODED = ("a norm", "a norm of an odd width", "a norm and a gate of two vectors")
RUNS = [(name, item) for name in CASES for item in ROUNDED if item in ("f32", "bf16") or name in CODED]


def plan(path: Path, precision: str) -> KernelGraph:
    """The kernels of a graph for a small Hopper, whose subgroups take several rows."""
    model: Any = lamella.load(path)
    options, target = Options(precision=precision), replace(find_target("sm_90a"), multiprocessors=1)
    made = to_kernels(prepare(model, options, True), options, {}, True, target)
    return replace(made, program=with_sizes(made.program))


def kernels_of(made: KernelGraph) -> list[str]:
    """The kernels that run for each call: those that read or make what a call hands over or takes."""
    each = [item for calls in made.calls.values() for item in calls if not item.once]
    return [item.kernel for item in each if set("xryn") & {operand.name for operand in item.operands}]


@pytest.mark.parametrize(("name", "precision"), RUNS)
def test_a_layer_of_few_vectors_is_one_kernel(name: str, precision: Precision, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *CASES[name])
    made = plan(path, precision)
    # A vector that no norm stands before is rounded where it is made, here by a kernel of its own.
    assert len(kernels_of(made)) == (2 if precision == "bf16" and "norm" not in name else 1)
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = draw_inputs(made, np.random.default_rng(5))
    want = lamella.compile(path, backend="cpu", precision=precision)(**given)["y"]
    np.testing.assert_allclose(run(**given)["y"], want, rtol=0, atol=ROUNDED[precision] * np.abs(want).max())


def test_a_product_of_halves_is_two_instructions_for_each(tmp_path: Path) -> None:
    """A multiply-add is one, which no assembler makes of a product and a sum, and so is widening a weight."""
    made = plan(write_graph(tmp_path, *CASES["a norm"]), "bf16")
    text = emit(made.program, find_target("sm_90a")).text
    assert "llvm.fma.f32" in text
    assert "mov.b32 $0, {$1, $2};" in text


@pytest.mark.parametrize(
    ("width", "rows", "bounded"), [(1024, 1536, True), (768, 1536, False), (1024, 1531, False)]
)
def test_a_bound_of_registers_spills_nothing(width: int, rows: int, bounded: bool, tmp_path: Path) -> None:
    """What is left over of a sum or of rows takes registers that nobody counts: there is no bound then."""
    path = write_graph(tmp_path, *normed(1, width, rows))
    made = plan(path, "bf16")
    names = kernels_of(made)
    program = Program(tuple(item for item in made.program.functions if item.name in names))
    text = emit(program, find_target("sm_90a")).text
    assert ("nvvm.maxnreg" in text) == bounded
    assert not assemble_on("sm_90a", text, tmp_path)


APART = {
    "many vectors": normed(16, 64, 40),
    "a norm that others read": (
        "@input { x: real[1,64]; } @variable { g: real[64]; w: real[40,64]; }"
        " @output { y: real[1,40]; n: real[1,64]; }",
        "n, d = llm.rmsnorm(x, g); y = linalg.matmul{transB=true}(n, w);",
    ),
    "a layer norm": (
        "@input { x: real[1,64]; } @variable { g: real[64]; b: real[64]; w: real[40,64]; } @output { y: real[1,40]; }",
        "n = aten.layer_norm{normalized_shape=[64]}(x, g, b); y = linalg.matmul{transB=true}(n, w);",
    ),
    "a gate of what is given": (
        "@input { x: real[4,8,6,6]; n: real[4,6,1,1]; } @variable { w: real[8,6,1,1]; } @output { y: real[4,8,6,6]; }",
        "c = nn.conv(n, w); s = nn.sigmoid(c); z = math.mul(x, s); u = math.tanh(z); y = math.add(u, x);",
    ),
}


@pytest.mark.parametrize("name", APART)
def test_what_is_no_scale_of_few_vectors_stays_before_their_product(name: str, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *APART[name])
    made = plan(path, "f32")
    assert len(kernels_of(made)) > 1
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = draw_inputs(made, np.random.default_rng(5))
    want = lamella.compile(path, backend="cpu")(**given)["y"]
    np.testing.assert_allclose(run(**given)["y"], want, rtol=1e-5, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "precision"), RUNS)
def test_a_device_computes_the_same_layer(name: str, precision: Precision, tmp_path: Path) -> None:
    path = write_graph(tmp_path, *CASES[name])
    given = draw_inputs(plan(path, precision), np.random.default_rng(6))
    found, want = (
        lamella.compile(path, backend=item, precision=precision)(**given)["y"] for item in ("cuda", "cpu")
    )
    np.testing.assert_allclose(found, want, rtol=0, atol=ROUNDED[precision] * np.abs(want).max())
