"""What takes the measure of a tensor on a GPU, reads what is stored anyway; long sums are cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.executor.kernels import compile_graph
from lamella.bridge.graph_to_kernels import split_reductions
from lamella.graph.nodes import tensors
from tests.backend.cuda.test_tensor_core_gemm import draw_inputs, plan, write_graph

MEASURED = (
    "@input { c: real[2,40,24]; v: real[2,24,32]; q: real[40,32]; } @variable { w: real[96,64]; }"
    " @output { u: real[40,64]; m: real[1,1]; }",
    "p = linalg.matmul(c, v); e = math.tanh(p); s = math.mul(e, e); h = layout.transpose{perm=[1,0,2]}(s);"
    " f = layout.reshape{shape=[40,64]}(h); g = math.tanh(q); y = layout.concat{axis=1}([f, g]);"
    " a = math.abs(y); m = math.max_reduce{axes=[0,1]}(a); u = linalg.matmul(y, w);",
)


def test_what_is_stored_is_measured_where_it_lies(tmp_path: Path) -> None:
    """Magnitudes are not stored beside numbers, and heads that are joined lie row by row."""
    path = write_graph(tmp_path, *MEASURED)
    made = plan(path)
    stored = {item.name for node in made.model.graph.nodes for out in node.outputs for item in tensors(out)}
    assert {"y", "m"} <= stored
    assert "a" not in stored
    assert not made.layouts
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    want = lamella.compile(path, backend="cpu", precision="bf16")
    inputs = draw_inputs(made, np.random.default_rng(3))
    for name, array in want(**inputs).items():
        np.testing.assert_allclose(run(**inputs)[name], array, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("shape", "part"), [((64, 96), (1, 96)), ((2, 4096), (2, 32)), ((61, 48), (61, 2))])
def test_a_sum_over_all_is_cut_where_threads_read_neighbours(
    shape: tuple[int, int], part: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop of rows where it gives parts enough; else columns, as many as are read at once."""
    few = {"THREAD_SHARED_STEPS": 64, "THREAD_STEPS": 64, "FEW_PARTS": 32, "WIDE_PART": 32}
    for name, value in few.items():
        monkeypatch.setattr(split_reductions, name, value)
    rows, columns = shape
    shapes = f"@input {{ x: real[{rows},{columns}]; }} @output {{ m: real[1,1]; }}"
    made = plan(write_graph(tmp_path, shapes, "m = math.max_reduce{axes=[0,1]}(x);"))
    (calls,) = made.calls.values()
    sizes = [item.shape[0] for item in calls[0].operands if item.is_temporary]
    assert sizes == [rows * columns // (part[0] * part[1])]
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    assert run(x=x)["m"] == x.max()
