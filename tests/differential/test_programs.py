"""Random well-typed kernels: threads change nothing, every pass keeps their numbers, their text is all of them."""

from __future__ import annotations

import pytest
from hypothesis import given

from lamella.backend.cpu.jit import host_machine
from lamella.base.diagnostic import errors
from lamella.kernels.passes import PASSES, lower
from lamella.kernels.target import find_target
from lamella.lang.tensor import check, write
from tests.support.differential.running import agree, execute, execute_for, judge, read
from tests.support.strategies.tensor_programs import Kernel, kernels


@given(kernels())
def test_threads_change_nothing(kernel: Kernel) -> None:
    program = read(kernel.text)
    agree(kernel, execute(kernel, program), execute(kernel, program, threads=2))


@pytest.mark.skipif(host_machine().level not in ("avx2", "avx512"), reason="the processor has no AVX2")
@given(kernels())
def test_narrow_vectors_compute_the_same(kernel: Kernel) -> None:
    program = read(kernel.text)
    agree(kernel, judge(kernel, program), execute_for("cpu-avx2", kernel, program))


@given(kernels())
def test_work_items_have_no_order(kernel: Kernel) -> None:
    """The kernels themselves have one meaning: else they would judge nothing."""
    program = read(kernel.text)
    agree(kernel, judge(kernel, program), judge(kernel, program, seed=3))


@given(kernels())
def test_every_pass_keeps_the_numbers(kernel: Kernel) -> None:
    program, target = read(kernel.text), find_target("cpu-avx512")
    expected, before = judge(kernel, program), None
    for item in PASSES:
        lowered = lower(program, target, item.name)
        if lowered == before:  # most kernels have nothing to do for most passes
            continue
        before = lowered
        found = errors(check(lowered))
        assert not found, f"{item.name}: {found[0]}\n{write(lowered)}"
        agree(kernel, expected, judge(kernel, lowered, seed=5), f"{item.name}\n{write(lowered)}")


@given(kernels())
def test_text_is_the_program(kernel: Kernel) -> None:
    program = read(kernel.text)
    assert read(write(program)) == program
