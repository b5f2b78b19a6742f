"""Compiled graphs of a GPU that are kept: launched as they were, without a compiler, and only for the same graph."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import lamella
from lamella.backend.cuda import assembler, build, driver
from lamella.backend.cuda.assembler import settle
from lamella.backend.cuda.binaries import finished
from lamella.backend.cuda.compile import device_target
from lamella.backend.cuda.modules import assemble_ptx
from lamella.backend.executor.kernels import KernelExecutable
from lamella.backend.executor.stored import StoredExecutable
from lamella.base.child_process import PARKED
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.object_cache import open_cache
from lamella.base.source import Source
from lamella.lang.tensor import parse
from lamella.pipeline import api
from lamella.pipeline.backends import cuda, kernels
from lamella.pipeline.decoding import Sampling
from lamella.pipeline.module.generate import Generator
from lamella.pipeline.options import Options
from lamella.train import StepSettings, Trainer
from tests.support.backend.fake_driver import FakeDriver, fake_device

LAYERS = """
import math, nn;
graph Layers {
    @input { x: real[4, 64]; }
    @variable { w: real[96, 64]; v: real[32, 96]; total: real[4, 32]; }
    @output { y: real[4, 32]; }
    @compose {
        h = nn.linear(x, w, 0.0);
        a = nn.relu(h);
        o = nn.linear(a, v, 0.0);
        y = math.add(o, SCALE);
        next = math.add(total, y);
    }
    @update { total = next; }
}
"""
KERNELS = Path(__file__).parent / "kernels.tensor"
MODEL = Path(lamella.__file__).parent / "models/models/qwen3.module"
TINY = {
    "vocab_size": 40, "d_model": 64, "n_layers": 1, "num_heads": 2, "num_kv_heads": 1, "head_dim": 16, "d_ff": 24,
    "max_seq": 64, "tie": True,
}  # fmt: skip
X = np.linspace(-1, 1, 256, dtype=np.float32).reshape(4, 64)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "objects"))
    return tmp_path / "objects"


@pytest.fixture
def device(store: Path) -> Iterator[FakeDriver]:
    with fake_device() as found:
        yield found


def written(folder: Path, scale: str = "2.0") -> Path:
    path = folder / "layers.sknd"
    path.write_text(LAYERS.replace("SCALE", scale))
    return path


def refuse(*_: object, **__: object) -> Any:
    raise AssertionError("something is compiled")


def launched(device: FakeDriver, path: Path, calls: int = 3) -> tuple[Any, list[tuple[str, int]]]:
    """A model on the device, and what some calls of it launch."""
    device.launches = []
    run = lamella.compile(path, backend="cuda")
    for _ in range(calls):
        run(x=X)
    return run, device.launches


def test_a_kept_graph_launches_the_same(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    compiled, want = launched(device, path)
    assert isinstance(compiled, KernelExecutable)
    assert want
    monkeypatch.setattr(cuda, "late_compiler", refuse)
    found, got = launched(device, path)
    assert isinstance(found, StoredExecutable)
    assert got == want
    assert found.placement == compiled.placement


def test_a_device_is_opened_once_while_a_model_is_read(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, is_open = list[str](), threading.Event()
    describe, read = driver._describe, api.read

    def note(version: int) -> driver.Device:
        opened.append(threading.current_thread().name)
        is_open.set()
        return describe(version)

    def read_behind(*given: Any) -> Any:
        is_open.wait(60)
        return read(*given)

    monkeypatch.setattr(driver, "_describe", note)
    monkeypatch.setattr(api, "read", read_behind)
    lamella.compile(written(tmp_path), backend="cuda")
    assert opened == [PARKED]


def test_another_graph_or_precision_is_compiled(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(device, written(tmp_path))
    monkeypatch.setattr(cuda, "late_compiler", refuse)
    with pytest.raises(AssertionError, match="compiled"):
        lamella.compile(written(tmp_path, "3.0"), backend="cuda")
    with pytest.raises(AssertionError, match="compiled"):
        lamella.compile(written(tmp_path), backend="cuda", precision="bf16")


def test_code_of_another_version_of_the_package_is_not_found(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(device, written(tmp_path))
    monkeypatch.setattr(cuda, "late_compiler", refuse)
    monkeypatch.setattr("lamella.pipeline.backends.graph_keys.fingerprint", lambda *_: "other")
    with pytest.raises(AssertionError, match="compiled"):
        lamella.compile(written(tmp_path), backend="cuda")


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_entry_is_compiled_anew(
    device: FakeDriver, store: Path, tmp_path: Path, damage: str
) -> None:
    path = written(tmp_path)
    _, want = launched(device, path)
    for item in store.iterdir():
        content = item.read_bytes()
        if damage == "gone" and b'"lists"' not in content:
            item.unlink()  # the code alone
        elif damage == "cut":
            item.write_bytes(content[: len(content) // 2])
        elif damage == "changed":
            item.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    found, got = launched(device, path)
    assert isinstance(found, KernelExecutable)
    assert got == want


def test_kernels_are_compiled_once_for_all_programs(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers: list[int] = []
    write_all = build._write_all

    def count(writer: Any, new: Sequence[int]) -> Any:
        numbers.append(len(new))
        return write_all(writer, new)

    monkeypatch.setattr(build, "_write_all", count)
    launched(device, written(tmp_path))
    first = sum(numbers)
    numbers.clear()
    launched(device, written(tmp_path, "3.0"))  # one number is another one
    assert 0 < sum(numbers) < first


def test_the_same_kernels_are_found_while_they_are_assembled(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, may_end = list[int](), threading.Event()
    write_all = build._write_all

    def count(writer: Any, new: Sequence[int]) -> Any:
        numbers.append(len(new))
        return write_all(writer, new)

    def assemble_late(*given: Any) -> bytes:
        may_end.wait(60)
        return assemble_ptx(*given)

    monkeypatch.setattr(build, "_write_all", count)
    monkeypatch.setattr(build, "assemble_ptx", assemble_late)
    program, target = parse(Source("kernels", KERNELS.read_text())).program, device_target()
    first, second = (build.build_program(program, target, open_cache()) for _ in range(2))
    may_end.set()
    settle()
    assert numbers == [len(program.functions), 0]
    assert not assembler._waiting
    monkeypatch.setattr(build, "_build", refuse)
    third = build.build_program(program, target, open_cache())
    codes = [
        {name: finished(code) for name, code in item.contents.items()} for item in (first, second, third)
    ]
    assert codes[0] == codes[1] == codes[2]
    assert first.entries == second.entries == third.entries


def test_code_that_the_driver_refuses_is_told_when_it_is_launched_and_not_kept(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_code(*_: object) -> bytes:
        raise InputError("the driver refuses it")

    path = written(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(build, "assemble_ptx", refuse_code)
        run = lamella.compile(path, backend="cuda")
        with pytest.raises(InputError, match="the driver refuses it"):
            run(x=X)
    settle()
    assert not assembler._waiting
    assert isinstance(launched(device, path)[0], KernelExecutable)


def step(device: FakeDriver) -> tuple[Trainer, list[tuple[str, int]]]:
    options = Options(config=TINY, model="Qwen3", seed=0, recipe="bf16", precision="bf16")
    tokens = np.random.default_rng(2).integers(0, 40, (1, 17))
    device.launches = []
    made = Trainer(MODEL, StepSettings(), "cuda", options)
    made.step({"token_ids": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}, 1e-3)
    return made, device.launches


def test_a_step_of_training_is_found_again(device: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    _, want = step(device)
    monkeypatch.setattr(kernels, "prepare", refuse)
    _, got = step(device)
    assert want
    assert got == want


def test_who_wants_to_see_the_steps_of_a_kept_graph_sees_them(device: FakeDriver) -> None:
    text = "import math; graph G { @input { x: real[n|8, 4]; } @output { y: real[n, 4]; } @compose { "
    path = Path(os.environ["LAMELLA_CACHE"]).parent / "open.sknd"
    path.write_text(text + "a = math.exp(x); y = math.sin(a); } }")
    x = np.ones((3, 4), np.float32)
    seen = []
    for _ in range(2):
        run = cast(KernelExecutable, lamella.compile(path, backend="cuda"))
        run(x=x)
        seen.append([(item.operator, item.kernel, item.groups) for item in run.profile({"x": x})])
        run(x=x)
    assert seen[0]
    assert seen[0] == seen[1]


def test_slots_come_to_the_device_as_zeros(device: FakeDriver) -> None:
    made, _ = step(device)
    slots = {name: item for name, item in made.state.items() if name.endswith((".mean", ".square"))}
    weights = sum(item.nbytes for item in made.parameters.values())
    assert slots
    assert weights <= device.to_device < 2 * weights
    assert all(not item.any() for item in slots.values())  # this device computes nothing


def test_prompts_and_tokens_are_found_again(device: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def text(generator: Generator) -> list[tuple[str, int]]:
        device.launches = []
        list(generator.run([1, 2, 3, 4], Sampling(max_tokens=4)))
        return device.launches

    options = Options(config=TINY, model="Qwen3", seed=0, backend="cuda")
    first = Generator(MODEL, 16, options, "cuda")
    want, graphs = text(first), device.graphs
    again = text(first)
    assert 0 < len(again) < len(want)  # what weights become was launched once
    # The prompt and its first token ran launch by launch, and are graphs from now on; further tokens were one already.
    assert device.graphs == graphs + 2
    assert text(first) == again
    assert device.graphs == graphs + 2
    monkeypatch.setattr(kernels, "prepare", refuse)
    assert text(Generator(MODEL, 16, options, "cuda")) == want


# --- numbers, on a GPU ---------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_kept_graph_gives_the_same_bits(store: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    first, second = lamella.compile(path, backend="cuda"), lamella.compile(path, backend="cuda")
    assert isinstance(second, StoredExecutable)
    reference = lamella.compile(path, backend="reference")
    for _ in range(3):
        want = first(x=X)["y"]
        np.testing.assert_array_equal(second(x=X)["y"], want)
        np.testing.assert_allclose(want, reference(x=X)["y"], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(second.state["total"], first.state["total"])  # type: ignore[attr-defined]


@pytest.mark.gpu
def test_a_kept_step_gives_the_same_losses(store: Path) -> None:
    tokens = np.random.default_rng(2).integers(0, 40, (1, 17))
    batch = {"token_ids": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}
    options = Options(config=TINY, model="Qwen3", seed=0, recipe="bf16", precision="bf16")
    losses = [
        [made.step(batch, 1e-2).loss for _ in range(4)]
        for made in (Trainer(MODEL, StepSettings(), "cuda", options) for _ in range(2))
    ]
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]


@pytest.mark.gpu
def test_a_kept_generation_gives_the_same_tokens(store: Path) -> None:
    options = Options(config=TINY, model="Qwen3", seed=0, backend="cuda")
    judge = Generator(MODEL, 16, Options(config=TINY, model="Qwen3", seed=0), "cpu")
    sampling, prompts = Sampling(max_tokens=8), ([1, 2, 3, 4], [7, 7, 2, 9], [1, 2, 3, 4])
    want = [list(judge.run(item, sampling)) for item in prompts]
    for _ in range(2):
        found = Generator(MODEL, 16, options, "cuda")
        assert [list(found.run(item, sampling)) for item in prompts] == want


@pytest.mark.gpu
@pytest.mark.parametrize("count", ["3", "n|8"])
def test_what_is_wrong_is_told_by_a_kept_graph_too(store: Path, tmp_path: Path, count: str) -> None:
    path = tmp_path / "picked.sknd"
    size = count.partition("|")[0]
    path.write_text(
        f"import layout; graph Picked {{ @input {{ x: real[4, 6]; keep: int[{count}]; }} "
        f"@output {{ y: real[{size}, 6]; }} "
        "@compose { y = layout.gather{axis=0}(x, keep); } }"
    )
    x = np.ones((4, 6), np.float32)
    for _ in range(2):
        run = lamella.compile(path, backend="cuda")
        np.testing.assert_array_equal(run(x=x, keep=np.array([3, 0, 1]))["y"], x[:3])
        with pytest.raises(LamellaError):
            run(x=x, keep=np.array([3, 0, 9]))
