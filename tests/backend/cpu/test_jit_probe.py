"""Matrix tiles: the answer is a trial's, given once, and a crash of the trial is a no."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from lamella.backend.cpu import jit as probing
from lamella.backend.cpu.jit import ObjectCache, Processor, assembly, has_tiles, host_machine
from lamella.backend.cpu.jit.machine import llvm

TILED = Processor("x86_64-unknown-linux-gnu", "sapphirerapids", "+amx-tile,+amx-bf16,+amx-int8")
TEXT = """
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tdpbf16ps(i8, i8, i8)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.tilerelease()
define void @f(ptr %c, ptr %a, ptr %d, i64 %s) {
  call void @llvm.x86.ldtilecfg(ptr %c)
  call void @llvm.x86.tilezero(i8 0)
  call void @llvm.x86.tileloadd64(i8 1, ptr %a, i64 %s)
  call void @llvm.x86.tileloadd64(i8 2, ptr %a, i64 %s)
  call void @llvm.x86.tdpbf16ps(i8 0, i8 1, i8 2)
  call void @llvm.x86.tilestored64(i8 0, ptr %d, i64 %s)
  call void @llvm.x86.tilerelease()
  ret void
}"""


class Trials:
    """Counts trials and gives an answer."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.count = 0

    def __call__(self) -> bool:
        self.count += 1
        return self.answer


def test_the_bytes_of_the_trial_are_what_llvm_writes() -> None:
    binding = llvm()
    writer = binding.Target.from_triple(TILED.triple).create_target_machine(
        cpu=TILED.cpu, features=TILED.features
    )
    content = binding.ObjectFileRef.from_data(writer.emit_object(binding.parse_assembly(TEXT)))
    (code,) = [bytes(part.data()) for part in content.sections() if part.is_text() and part.size()]
    assert code.hex() == probing.CODE
    assert "tdpbf16ps" in assembly(TEXT, TILED)


@pytest.mark.parametrize("answer", [True, False])
def test_the_answer_is_kept(answer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials, cache = Trials(answer), ObjectCache(tmp_path)
    monkeypatch.setattr(probing, "try_tiles", trials)
    monkeypatch.setattr(probing, "grant_tiles", lambda: True)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert [has_tiles(TILED, cache) for _ in range(3)] == [answer] * 3
    assert trials.count == 1
    assert has_tiles(TILED) is answer
    assert trials.count == 2


def test_without_leave_or_features_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = Trials(True)
    monkeypatch.setattr(probing, "try_tiles", trials)
    monkeypatch.setattr(probing, "grant_tiles", lambda: False)
    assert not has_tiles(TILED)
    assert not has_tiles(Processor(TILED.triple, "x86-64-v4", "+avx512f"))
    assert trials.count == 0


@pytest.mark.parametrize(
    "trial", ["import os; os.kill(os.getpid(), 4)", "raise SystemExit(1)", "bad syntax("]
)
def test_a_trial_that_dies_is_a_no(trial: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "TRIAL", trial)
    assert not probing.try_tiles()


def test_a_missing_interpreter_is_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert not probing.try_tiles()


def test_the_host_answers() -> None:
    """A processor that claims no tiles has none; a fresh process agrees with this one."""
    command = "from lamella.backend.cpu.jit import *; print(has_tiles(host_machine(), open_cache()))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    answer = has_tiles(host_machine())
    assert done.stdout.strip() == str(answer)
    assert not answer or host_machine().has("amx-tile")
