"""Steps of training as they are planned for a GPU: the interpreter runs the kernels, the processor judges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.cuda.compile import with_sizes
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import find_target
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer

MODEL = Path(lamella.__file__).parent / "models/models/qwen3.module"
TINY = {
    "vocab_size": 40, "d_model": 64, "n_layers": 1, "num_heads": 2, "num_kv_heads": 1, "head_dim": 16, "d_ff": 24,
    "max_seq": 64, "tie": True,
}  # fmt: skip
BATCH, LENGTH = 1, 32


def draw() -> dict[str, Array]:
    tokens = np.random.default_rng(2).integers(0, TINY["vocab_size"], (BATCH, LENGTH + 1))
    return {"token_ids": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}


def plan(trainer: Trainer, options: Options) -> KernelGraph:
    """The kernels of a step for Hopper."""
    model = specialise_shapes(trainer.graphs[0].model, {"B": BATCH, "T": LENGTH})
    made = to_kernels(prepare(model, options, True), options, {}, True, find_target("sm_90a"))
    return replace(made, program=with_sizes(made.program))


@pytest.fixture(scope="module")
def options() -> Options:
    return Options(config=TINY, model="Qwen3", seed=0, recipe="bf16", precision="bf16")


@pytest.fixture(scope="module")
def trainer(options: Options) -> Trainer:
    """The judge, which computes attention in f32 and everything else as the recipe says."""
    return Trainer(MODEL, StepSettings(), "cpu", replace(options, precision="f32"))


def test_a_step_planned_for_a_gpu(trainer: Trainer, options: Options) -> None:
    made = plan(trainer, options)
    text = emit(made.program, find_target("sm_90a"))
    pipelines = [item.name for item in text.entries if item.pipeline is not None]
    # Both ways: four products of the block and the scores of tokens, with what their factors and weights get back.
    assert len(pipelines) >= 10
    runner = interpreter.compile_program(made.program)
    executable: Any = compile_graph(made, runner.call)
    executable.state.update({name: np.array(array) for name, array in trainer.executables[0].state.items()})
    numbers = {"rate": 1e-2, "unbias_mean": 10.0, "unbias_root": 1000.0**0.5}
    given = {name: np.float32(numbers[name]) for name in executable.inputs if name in numbers}
    found = executable(**draw(), **given)
    want = trainer.step(draw(), 1e-2)
    np.testing.assert_allclose(found["loss"], want.loss, rtol=2e-3)
    state = trainer.executables[0].state
    means = [name for name in state if name.endswith(".mean")]
    assert len(means) > 8
    for name in means:  # a tenth of the gradients
        far = np.linalg.norm(executable.state[name] - state[name]) / np.linalg.norm(state[name])
        assert far < 2e-2, (name, far)
