"""The kernels of a program are compiled by several processes: the same objects, whoever takes which, and ends when."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lamella.backend.cpu import compile as compiling
from lamella.backend.cpu.host import host_target
from lamella.backend.cpu.jit import Processor, assemble
from lamella.base.child_process import run_in_child, share_with_children
from lamella.base.diagnostic import LamellaError
from lamella.base.source import Source
from lamella.base.watching import COMPILING
from lamella.lang.tensor import parse

if TYPE_CHECKING:
    from lamella.backend.cpu.compiled import KernelSymbol
    from lamella.lang.tensor.nodes import Program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has children that can work")

KERNELS = compiling.FEWEST_SHARED + 5
KERNEL = """\
func @scale_{number}(%x: memref<f32x{size}>) {{
  %a = constant {number}.5 : f32
  %0 = constant 0 : index
  %n = constant {size} : index
  foreach (%i):index=(%0),(%n) {{
    %v = load %x[%i] : f32
    %w = arith.mul %a, %v : f32
    store %w, %x[%i]
  }}
}}
"""


@pytest.fixture(scope="module")
def program() -> Program:
    """More kernels than one process takes at once."""
    text = "".join(KERNEL.format(number=number, size=16 + number) for number in range(KERNELS))
    return parse(Source("kernels", text)).program


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processors, and nobody else's threads."""
    monkeypatch.setattr(compiling, "count_processors", lambda: 2)
    monkeypatch.setattr(compiling, "may_fork", lambda: True)


def build_alone(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[KernelSymbol, ...], list[bytes]]:
    """What one process makes."""
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "may_fork", lambda: False)
        return compiling.build_objects(program, host_target())


@pytest.mark.usefixtures("two")
def test_two_processes_make_the_objects_of_one(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    before = COMPILING.set(lambda done, total: seen.append((done, total)))
    try:
        found = compiling.build_objects(program, host_target())
    finally:
        COMPILING.reset(before)
    assert found == build_alone(program, monkeypatch)
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] > 1


@pytest.mark.usefixtures("two")
def test_what_an_ended_child_took_is_compiled_all_the_same(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, owner = build_alone(program, monkeypatch), os.getpid()

    def ends(text: str, machine: Processor) -> bytes:
        if os.getpid() != owner:
            os.kill(os.getpid(), signal.SIGKILL)
        return assemble(text, machine)

    monkeypatch.setattr(compiling, "assemble", ends)
    assert compiling.build_objects(program, host_target()) == alone


@pytest.mark.usefixtures("two")
def test_what_is_wrong_is_told_whoever_compiles(program: Program) -> None:
    first, *rest = program.functions
    twice = replace(program, functions=(first, *rest, first))
    with pytest.raises(LamellaError, match="TEN"):
        compiling.build_objects(twice, host_target())


@pytest.mark.usefixtures("two")
def test_where_there_is_no_room_for_a_process_this_one_compiles(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses() -> int:
        raise BlockingIOError("resource temporarily unavailable")

    alone = build_alone(program, monkeypatch)
    monkeypatch.setattr(os, "fork", refuses)
    assert compiling.build_objects(program, host_target()) == alone
    assert not run_in_child(lambda _: None, lambda _: None)


def test_pieces_are_taken_once_and_work_of_those_who_fail_is_missing() -> None:
    owner = os.getpid()

    def work(numbers: Iterator[int]) -> bytes:
        return bytes(numbers)

    def fails(numbers: Iterator[int]) -> bytes:
        taken = bytes(numbers)
        if os.getpid() != owner:
            raise KeyboardInterrupt
        return taken

    assert sorted(b"".join(share_with_children(200, 2, work))) == list(range(200))
    assert len(share_with_children(200, 2, fails)) == 1


def test_kernels_of_other_programs_are_not_compiled_again(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they are called there; one whose text is new is compiled, and gives its own numbers."""
    texts: list[str] = []

    def counted(text: str, machine: Processor) -> bytes:
        texts.append(text)
        return assemble(text, machine)

    monkeypatch.setattr(compiling, "assemble", counted)
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "cache"))
    first, second, third, *_ = program.functions
    compiling.compile_program(replace(program, functions=(first, second)), threads=1)
    assert len(texts) == 2
    named = replace(first, name="named"), replace(second, name="other"), third
    made = compiling.compile_program(replace(program, functions=named), threads=1)
    assert len(texts) == 3
    for number, item in enumerate(named):
        numbers = np.ones(16 + number, np.float32)
        made.call(item.name, [numbers], 1)
        np.testing.assert_array_equal(numbers, np.full(16 + number, number + 0.5, np.float32))
