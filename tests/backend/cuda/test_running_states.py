"""Recurrences as they are planned for a GPU: a work-item holds its state, and NumPy judges the steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.rewrite import walk
from lamella.lang.tensor.nodes import For, Load
from tests.backend.cuda.test_tensor_core_gemm import plan

CHANNELS, STATES, STEPS = 6, 4, 19
SCAN = f"""import mamba;
graph Scan {{
    @input {{
        u: real[2, {CHANNELS}, {STEPS}]; delta: real[2, {CHANNELS}, {STEPS}];
        b: real[2, 1, {STATES}, {STEPS}]; c: real[2, 1, {STATES}, {STEPS}]; s: real[2, {CHANNELS}, {STATES}];
    }}
    @variable {{ a: real[{CHANNELS}, {STATES}]; d: real[{CHANNELS}]; e: real[{CHANNELS}]; }}
    @output {{ y: real[2, {CHANNELS}, {STEPS}]; last: real[2, {CHANNELS}, {STATES}]; }}
    @compose {{ y, last = mamba.selective_scan(u, delta, a, b, c, d, e, s); }}
}}
"""
BOTH_WAYS = """
operator ahead {
    @input { x: real[n, m]; w: real[n, m]; }
    @output { y: real[n + 1, m]; }
    @lower { y[0, j] = 0.5, j < m; y[i + 1, j] := w[i, j] * y[i, j] + x[i, j], i < n, j < m; }
}
operator back {
    @input { x: int[m, n]; }
    @output { y: int[m, n + 1]; }
    @lower { y[j, n] = j, j < m; y[j, n - 1 - i] := 3 * y[j, n - i] + x[j, n - 1 - i], i < n, j < m; }
}
graph Both {
    @input { x: real[11, 5]; w: real[11, 5]; k: int[7, 9]; }
    @output { y: real[12, 5]; z: int[7, 10]; }
    @compose { y = ahead(x, w); z = back(k); }
}
"""


def run_plan(path: Path) -> tuple[KernelGraph, Any]:
    """The kernels of a graph, and what runs them."""
    made = plan(path, "f32")
    return made, compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)


def judge_scan(given: dict[str, Array]) -> tuple[Array, Array]:
    """One step after the other."""
    wide = {name: item.astype(np.float64) for name, item in given.items()}
    steps = np.log1p(np.exp(wide["delta"] + wide["e"][None, :, None]))
    state, out = wide["s"].copy(), []
    for step in range(STEPS):
        dt, u = steps[:, :, step, None], wide["u"][:, :, step, None]
        state = np.exp(dt * wide["a"]) * state + dt * u * wide["b"][:, 0, :, step][:, None]
        mixed = (state * wide["c"][:, 0, :, step][:, None]).sum(-1)
        out.append(mixed + wide["d"] * wide["u"][:, :, step])
    return np.stack(out, -1), state


def draw_scan() -> dict[str, Array]:
    """Arrays for it, whose states fade."""
    random = np.random.default_rng(2)
    shapes = {
        "u": (2, CHANNELS, STEPS), "delta": (2, CHANNELS, STEPS), "b": (2, 1, STATES, STEPS),
        "c": (2, 1, STATES, STEPS), "s": (2, CHANNELS, STATES), "a": (CHANNELS, STATES), "d": (CHANNELS,),
        "e": (CHANNELS,),
    }  # fmt: skip
    found = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {**found, "a": -np.abs(found["a"])}


def run_scan(run: Any, given: dict[str, Array]) -> dict[str, Array]:
    """Outputs of an executable that gets its variables first."""
    given = dict(given)
    for name in "ade":
        run.state[name] = given.pop(name)
    return dict(run(**given))


def test_a_work_item_holds_its_state(tmp_path: Path) -> None:
    path = tmp_path / "scan.sknd"
    path.write_text(SCAN)
    made, run = run_plan(path)
    loops = [
        item.instruction
        for function in made.program.functions
        for item in walk(function.body)
        if isinstance(item.instruction, For) and "run_states" in function.name and item.instruction.carried
    ]
    assert len(loops) == 1
    read = {
        item.instruction.operand.name for item in walk(loops[0].body) if isinstance(item.instruction, Load)
    }
    assert len(read) == 3  # what steps are made of, and not the state
    given = draw_scan()
    found, (y, last) = run_scan(run, given), judge_scan(given)
    np.testing.assert_allclose(found["y"], y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["last"], last, rtol=1e-4, atol=1e-5)


def test_states_run_ahead_and_back(tmp_path: Path) -> None:
    path = tmp_path / "both.sknd"
    path.write_text(BOTH_WAYS)
    _, run = run_plan(path)
    random = np.random.default_rng(3)
    x, w = (random.standard_normal((11, 5)).astype(np.float32) for _ in range(2))
    k = random.integers(-4, 5, (7, 9))
    found = run(x=x, w=w, k=k)
    y = [np.full(5, 0.5)]
    for one, weight in zip(x, w, strict=True):
        y.append(weight * y[-1] + one)
    np.testing.assert_allclose(found["y"], y, rtol=1e-5, atol=1e-6)
    z = np.zeros((7, 10), np.int64)
    z[:, 9] = np.arange(7)
    for place in reversed(range(9)):
        z[:, place] = 3 * z[:, place + 1] + k[:, place]
    np.testing.assert_array_equal(found["z"], z)


@pytest.mark.gpu
def test_the_device_runs_states(tmp_path: Path) -> None:
    path = tmp_path / "scan.sknd"
    path.write_text(SCAN)
    given = draw_scan()
    found, (y, last) = run_scan(lamella.compile(path, backend="cuda"), given), judge_scan(given)
    np.testing.assert_allclose(found["y"], y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["last"], last, rtol=1e-4, atol=1e-5)
