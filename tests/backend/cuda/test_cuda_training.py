"""Steps of training as they are planned for a GPU: the processor runs their launch lists, its own plan judges."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import lamella
from lamella.backend.cpu import compile_program
from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.run.lists import NativeMachine
from lamella.backend.cpu.run.memory import SharedArena
from lamella.backend.cpu.run.proving import ProvingSource
from lamella.backend.cuda.compile import fit_kernels
from lamella.backend.cuda.memory import ListBuffers
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.cli import lamella as command
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import find_target
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer
from tests.support.backend.fake_driver import fake_device

MODEL = Path(lamella.__file__).parent / "models/models/qwen3.module"
TINY = {
    "vocab_size": 40, "d_model": 64, "n_layers": 1, "num_heads": 2, "num_kv_heads": 1, "head_dim": 16, "d_ff": 24,
    "max_seq": 64, "tie": True,
}  # fmt: skip
BATCH, LENGTH = 1, 128
RATE = 1e-2


def draw() -> dict[str, Array]:
    """A batch in which some tokens stand several times."""
    tokens = np.random.default_rng(2).integers(0, TINY["vocab_size"], (BATCH, LENGTH + 1))
    return {"token_ids": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}


def plan(trainer: Trainer, options: Options) -> KernelGraph:
    """The kernels of a step for Hopper."""
    model = specialise_shapes(trainer.graphs[0].model, {"B": BATCH, "T": LENGTH})
    made = to_kernels(prepare(model, options, True), options, {}, True, find_target("sm_90a"))
    return fit_kernels(made)


def _never(*_: object) -> None:
    raise AssertionError("a launch ran outside of a list")


def test_a_step_planned_for_a_gpu() -> None:
    config = {**TINY, "max_seq": LENGTH}
    options = Options(config=config, model="Qwen3", seed=0, recipe="bf16", precision="bf16")
    # The judge computes attention in f32, and everything else as the recipe says.
    judge = Trainer(MODEL, StepSettings(), "cpu", replace(options, precision="f32"))
    made = plan(judge, options)
    text = emit(made.program, find_target("sm_90a"))
    # Both ways: four products of the block and the scores of tokens, with what their factors and weights get back.
    assert sum(item.pipeline is not None for item in text.entries) >= 12
    machine = NativeMachine(ProvingSource(compile_program(made.program)), SharedArena())
    executable: Any = compile_graph(made, _never, machine=machine)
    executable.state.update({name: np.array(array) for name, array in judge.executables[0].state.items()})
    numbers = {"rate": RATE, "unbias_mean": 10.0, "unbias_root": 1000.0**0.5}
    given = {name: np.float32(numbers[name]) for name in executable.inputs if name in numbers}
    found, want = executable(**draw(), **given), judge.step(draw(), RATE)
    np.testing.assert_allclose(found["loss"], want.loss, rtol=2e-3)
    state = judge.executables[0].state
    means = [name for name in state if name.endswith(".mean")]
    assert len(means) > 8
    for name in means:  # a tenth of the gradients
        far = np.linalg.norm(executable.state[name] - state[name]) / np.linalg.norm(state[name])
        assert far < 2e-2, (name, far)


def trained(folder: Path, *words: str) -> Result:
    """What the command says of one step of the tiny model."""
    data = folder / "tokens.npy"
    np.save(data, np.arange(LENGTH + 1) % TINY["vocab_size"])
    sizes = [word for name, size in TINY.items() for word in ("--set", f"{name}={str(size).lower()}")]
    given = ["--model", "Qwen3", *sizes, "--set", f"max_seq={LENGTH}", "--batch", "1", "--steps", "1"]
    where = ["--data", str(data), "--sequence", str(LENGTH)]
    return CliRunner().invoke(command, ["train", str(MODEL), *where, *given, *words])


def test_the_command_takes_a_precision_where_a_gpu_computes(tmp_path: Path) -> None:
    """Steps in bf16 launch other kernels than those in f32; no other precision has steps, and no other backend."""
    kernels = []
    for precision in ("f32", "bf16"):
        with fake_device() as device:
            found = trained(tmp_path, "--backend", "cuda", "--recipe", "bf16", "--precision", precision)
        assert found.exit_code == 0, found.output
        kernels.append({symbol for symbol, _ in device.launches})
    assert kernels[0] - kernels[1]
    assert kernels[1] - kernels[0]
    refused = trained(tmp_path, "--backend", "cuda", "--precision", "w8")
    assert refused.exit_code == 1
    assert "steps of training are not taken in 'w8'" in refused.output
    refused = trained(tmp_path, "--precision", "bf16")
    assert refused.exit_code == 2
    assert "--precision cannot have an effect without --backend cuda" in refused.output


def test_activations_are_offloaded_to_memory_that_the_device_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a budget has no room for lies in pinned memory, and its kernels have that address."""
    plans: list[ListBuffers] = []

    class Buffers(ListBuffers):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            plans.append(self)

    monkeypatch.setattr("lamella.backend.cuda.lists.ListBuffers", Buffers)
    with fake_device():
        refused = trained(tmp_path, "--backend", "cuda", "--memory-budget", "1KB")
        least = re.search(r"a step takes ([\d,.]+) KB even where", refused.output)
        assert least is not None, refused.output
        budget = float(least[1].replace(",", "")) * 1.02
        found = trained(tmp_path, "--backend", "cuda", "--memory-budget", f"{budget:.0f}KB")
        assert found.exit_code == 0, found.output
        assert re.search(r"\d+ tensors in pinned memory", found.output)
        (moved,) = (item for item in plans if item.plan.outside)
        assert all(moved.start(name) >= moved._outer.address for name in moved.plan.outside if moved._outer)


@pytest.mark.gpu
@pytest.mark.parametrize(("recipe", "far"), [("f32", 1e-5), ("bf16", 1e-2)])
def test_losses_on_a_gpu(recipe: str, far: float) -> None:
    options = Options(config={**TINY, "max_seq": LENGTH}, model="Qwen3", seed=0)
    narrow = options if recipe == "f32" else replace(options, recipe=recipe, precision="bf16")
    wide = replace(narrow, precision="f32")
    ours, judge = (
        Trainer(MODEL, StepSettings(), backend, item) for backend, item in (("cuda", narrow), ("cpu", wide))
    )
    for _ in range(20):
        np.testing.assert_allclose(ours.step(draw(), 1e-3).loss, judge.step(draw(), 1e-3).loss, rtol=far)
