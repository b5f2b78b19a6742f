"""`@memory(stream)` and `(offload)`: tensors in files, in memory around their uses alone; every bit stays the same."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import lamella
from lamella.backend.cpu.run import file_moves
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.mapping import FileMemory, copy_to_file, map_of, release_pages, write_through
from lamella.graph.model import Streaming
from lamella.pipeline.module.watch import WatchableExecutable
from lamella.pipeline.options import Options
from lamella.train import Trainer, trainable
from lamella.train.memory import plan_memory
from lamella.train.settings import StepSettings

TEXT = """
module Layer(d: int):
  params:
    w: [d, d] {w}
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      (x, w) -> matmul(transpose=NT) -> h {h}
      h -> silu() -> a
      (x, a) -> add() -> y

model Net(d: int = 256, n: int = 3):
  params:
    layers: [n] x Layer(d)
    head: [4, d]
  forward:
    in: x: [B, d]
    out: logits: [B, 4]
    graph:
      x -> StackedBlocks(layers, n) -> z
      (z, head) -> matmul(transpose=NT) -> logits
"""
RANDOM = np.random.default_rng(0)
BATCH: dict[str, Array] = {
    "x": RANDOM.standard_normal((8, 256)).astype(np.float32),
    "targets": RANDOM.integers(0, 4, 8),
}
PAGES = 256 * 256 * 4
"""The bytes of one parameter, which are whole pages."""


def written(folder: Path, w: str = "", h: str = "") -> Path:
    path = folder / "net.module"
    path.write_text(TEXT.format(w=w, h=h), encoding="utf-8")
    return path


def trainer_of(folder: Path, **marks: str) -> Trainer:
    return Trainer(written(folder, **marks), StepSettings(), "cpu", Options(seed=1))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[float], dict[str, Array]]:
    """The losses and the state of a training in memory."""
    trainer = trainer_of(tmp_path_factory.mktemp("plain"))
    losses = [trainer.step(BATCH, 1e-3).loss for _ in range(3)]
    return losses, {name: np.array(item) for name, item in trainer.state.items()}


def resident() -> int:
    """The bytes of files without a name that this process has in memory."""
    total, is_own = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_own = line.endswith("(deleted)")
        elif is_own and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total


MARKS = {
    "stream": {"w": "@memory(stream)"},
    "offload": {"w": "@memory(offload, async=false)"},
    "unasked": {"w": "@memory(stream, prefetch=false)"},
    "activations": {"h": "@memory(offload, priority=2)"},
}


@pytest.mark.parametrize("name", MARKS)
def test_steps_are_the_same_and_memory_is_given_back(
    name: str, plain: tuple[list[float], dict[str, Array]], tmp_path: Path
) -> None:
    before = resident()
    trainer = trainer_of(tmp_path, **MARKS[name])
    assert [trainer.step(BATCH, 1e-3).loss for _ in range(3)] == plain[0]
    assert resident() <= before + 2 * PAGES  # of nine such arrays
    for key, array in plain[1].items():
        assert np.array_equal(array, trainer.state[key]), key
    streamed = {key for key, item in trainer.state.items() if isinstance(map_of(item), FileMemory)}
    slots = ("", ".mean", ".square")
    owners = {f"layers.{number}.w{slot}" for number in range(3) for slot in slots}
    assert streamed == (set() if name == "activations" else owners)


def test_a_state_that_is_loaded_lies_in_files_again(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, w="@memory(stream)")
    trainer.step(BATCH, 1e-3)
    kept = {name: np.array(item) for name, item in trainer.state.items()}
    following = trainer.step(BATCH, 1e-3)
    trainer.load_state(kept)
    assert trainer.step(BATCH, 1e-3) == following
    assert isinstance(map_of(trainer.state["layers.0.w"]), FileMemory)


def test_the_plan_tells_what_is_streamed(tmp_path: Path) -> None:
    options = Options(shape={"B": 8})
    source = trainable(written(tmp_path, "@memory(stream)"), options)
    assert plan_memory(source, StepSettings(), options).streamed == 9 * PAGES


def moves_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **marks: str) -> list[tuple[str, int]]:
    """What happens to the memory of files in the second step of a training, with the addresses of arrays."""
    trainer = trainer_of(folder, **marks)
    trainer.step(BATCH, 1e-3)
    found: list[tuple[str, int]] = []

    def note(word: str) -> Any:
        original = getattr(file_moves, word)

        def call(array: Array, *more: Any) -> None:
            found.append((word, array.ctypes.data))
            original(array, *more)

        return call

    for word in ("fetch_pages", "enter_pages", "release_pages"):
        monkeypatch.setattr(file_moves, word, note(word))
    trainer.step(BATCH, 1e-3)
    return found


def test_policies_say_what_is_asked_for_and_what_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for ahead, unless the run waits or nobody asks; released between uses, unless it stays to the last."""
    counts: dict[str, dict[str, int]] = {}
    for mode in ("stream", "stream, async=false", "stream, prefetch=false", "offload"):
        with monkeypatch.context() as patch:
            words = [word for word, _ in moves_of(tmp_path, patch, w=f"@memory({mode})")]
        counts[mode] = {word: words.count(word) for word in set(words)}
    assert counts["stream"]["fetch_pages"] > 0
    assert "fetch_pages" not in counts["stream, async=false"]
    assert counts["stream, async=false"]["enter_pages"] == counts["stream"]["enter_pages"]
    assert counts["stream, prefetch=false"]["enter_pages"] < counts["stream"]["enter_pages"]
    assert counts["offload"]["release_pages"] < counts["stream"]["release_pages"]


def test_a_disk_without_room_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    array = copy_to_file(np.zeros(4))
    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(InputError, match="no room for memory in files: No space left"):
        write_through(array, np.ones(4))


def test_lower_priorities_go_first(tmp_path: Path) -> None:
    """Of parameter and slots, which an update reads at once, that of the lower priority goes first."""
    path = written(tmp_path, "@memory(stream, priority=5)")
    source = trainable(path, Options())
    assert {item.priority for item in source.model.streams.values()} == {5}
    go = file_moves.Move(file_moves.GO, "a", Streaming(priority=1))
    later = go._replace(policy=Streaming(priority=2))
    come = go._replace(kind=file_moves.ENTER)
    assert sorted((come, later, go), key=file_moves.Move.order) == [go, later, come]


def test_what_is_written_through_a_file_is_there() -> None:
    array = copy_to_file(np.arange(4096, dtype=np.float32).reshape(64, 64))
    release_pages(array)
    assert np.array_equal(array, np.arange(4096).reshape(64, 64))
    write_through(array[8:16], np.full((8, 64), -1, np.float32))
    assert array[8:16].max() == -1
    assert array[16, 0] == 16 * 64


def test_a_model_that_runs_streams_too(tmp_path: Path) -> None:
    """Parameters that come and go are read as they lie: nothing is packed once and kept."""
    x = BATCH["x"]
    wanted = lamella.compile(str(written(tmp_path)), backend="cpu", seed=1)(x=x)["logits"]
    exe = lamella.compile(str(written(tmp_path, "@memory(stream)")), backend="cpu", seed=1)
    for _ in range(2):
        np.testing.assert_allclose(exe(x=x)["logits"], wanted, rtol=1e-5)
    assert isinstance(map_of(cast(WatchableExecutable, exe).state["layers.1.w"]), FileMemory)
