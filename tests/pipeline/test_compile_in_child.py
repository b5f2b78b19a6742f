"""Large graphs are compiled in a child of the process: the same numbers, and no compiler in its memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.base.child_process import run_in_child
from lamella.base.watching import COMPILING
from lamella.graph.data.safetensors import write_safetensors
from lamella.pipeline.backends import cpu

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has children that can work")

SIZE = 1024
TEXT = f"""\
import linalg, layout;
graph Large {{
    @input {{ x: real[1, {SIZE}]; }}
    @variable {{ w: real[{SIZE}, {SIZE}]; }}
    @output {{ y: real[1, {SIZE}]; }}
    @compose {{ y = linalg.matmul(x, w); }}
}}
graph Found {{
    @input {{ x: real[1, {SIZE}]; }}
    @variable {{ w: real[{SIZE}, {SIZE}]; }}
    @output {{ y: int[~, ~]; }}
    @compose {{ h = linalg.matmul(x, w); y = layout.nonzero(h); }}
}}
"""
PROCESS = """
import json, sys, threading, time
import numpy as np
import lamella
if sys.argv[2] == "threads":
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
run = lamella.compile(sys.argv[1], model="Large", threads=1)
y = run(x=np.ones((1, 1024), np.float32))["y"]
loaded = "libllvmlite" in open("/proc/self/maps").read(), "lamella.backend.cpu.emission" in sys.modules
print(json.dumps([*loaded, y[0].tolist()]))
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of two graphs with 4 MiB of weights."""
    found = tmp_path_factory.mktemp("large") / "large.sknd"
    found.write_text(TEXT)
    weights = np.random.default_rng(3).standard_normal((SIZE, SIZE)).astype("f4")
    write_safetensors(found.with_suffix(".safetensors"), {"w": weights})
    return found


def weights_of(file: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The numbers that every process reads."""
    assert file.with_suffix(".safetensors").exists()
    return np.random.default_rng(3).standard_normal((SIZE, SIZE)).astype("f4")


@pytest.mark.parametrize("way", ["alone", "threads"])
def test_a_process_has_a_compiler_only_where_threads_of_others_run(
    way: str, file: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "LAMELLA_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", PROCESS, str(file), way]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    library, compiler, y = json.loads(done.stdout)
    assert (library, compiler) == ((False, False) if way == "alone" else (True, True))
    np.testing.assert_allclose(y, weights_of(file).sum(0), rtol=0, atol=1e-3)


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What became of each child, with an empty cache."""
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "cache"))
    ended: list[bool] = []

    def counted(work: Callable[[Callable[[bytes], None]], None], told: Callable[[bytes], None]) -> bool:
        ended.append(run_in_child(work, told))
        return ended[-1]

    monkeypatch.setattr(cpu, "may_fork", lambda: True)
    monkeypatch.setattr(cpu, "run_in_child", counted)
    return ended


def test_who_looks_on_is_told_by_the_child(file: Path, children: list[bool]) -> None:
    seen: list[tuple[int, int]] = []
    before = COMPILING.set(lambda done, total: seen.append((done, total)))
    try:
        lamella.compile(file, model="Large", threads=1)
    finally:
        COMPILING.reset(before)
    assert children == [True]
    assert seen[-1][0] == seen[-1][1] > 0


def test_what_cannot_be_kept_is_tried_in_a_child_once(file: Path, children: list[bool]) -> None:
    x = np.ones((1, SIZE), np.float32)
    for _ in range(2):
        found = lamella.compile(file, model="Found", threads=1)(x=x)["y"]
        assert found.shape == (2, SIZE)
    assert children == [True]


def test_where_a_child_ends_the_process_compiles(
    file: Path, children: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, compile_here = os.getpid(), cpu._compile_here

    def fails(*given: object) -> object:
        if os.getpid() != owner:
            os.kill(os.getpid(), signal.SIGKILL)
        return compile_here(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(cpu, "_compile_here", fails)
    y = lamella.compile(file, model="Large", threads=1)(x=np.ones((1, SIZE), np.float32))["y"]
    assert children == [False]
    np.testing.assert_allclose(y[0], weights_of(file).sum(0), rtol=0, atol=1e-3)


def test_a_child_that_raises_has_not_come_to_its_end() -> None:
    told: list[bytes] = []

    def work(tell: Callable[[bytes], None]) -> None:
        tell(b"begun")
        raise KeyboardInterrupt

    assert not run_in_child(work, told.append)
    assert told == [b"begun"]
