"""Each pass gives a program without errors that computes the same: the interpreter is the judge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from lamella.backend.interpreter import compile_program
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.source import Source
from lamella.kernels.passes import PASSES, lower
from lamella.kernels.rewrite import walk
from lamella.kernels.target import TARGETS, find_target
from lamella.lang.tensor import check, parse, write
from lamella.lang.tensor.nodes import Blas, Foreach, Program
from tests.support.backend.interpreter.kernels import Array, draw_array
from tests.support.strategies.tensor_kernels import Kernel, kernels

ROOT = Path(__file__).parents[2]
TARGET = find_target("cpu-avx512")
GOOD = sorted(
    [*(ROOT / "tests/lang/tensor/good").glob("*.tensor"), *(ROOT / "examples/kernels").glob("*.tensor")]
)
NAMES = [item.name for item in PASSES]


def read(text: str) -> Program:
    """The program of a text without errors."""
    parsed = parse(Source("kernels.tensor", text))
    assert not errors([*parsed.findings, *check(parsed.program)]), parsed.findings
    return parsed.program


def make_arrays(kernel: Kernel) -> list[Array]:
    random = np.random.default_rng(7)
    return [draw_array(random, kernel.element, shape) for shape in kernel.shapes]


def run(program: Program, kernel: Kernel, seed: int | None = None) -> list[bytes]:
    """The bytes of the arrays behind a run."""
    arrays = make_arrays(kernel)
    compile_program(program, seed=seed).f(*arrays, 3)
    return [np.ascontiguousarray(item).tobytes() for item in arrays]


@given(kernels())
def test_every_pass_keeps_the_numbers(kernel: Kernel) -> None:
    program = read(kernel.text)
    expected, before = run(program, kernel), program
    for name in NAMES:
        lowered = lower(program, TARGET, name)
        if lowered == before:
            continue
        before = lowered
        found = errors(check(lowered))
        assert not found, f"{name}: {found[0]}\n{write(lowered)}"
        assert parse(Source("lowered.tensor", write(lowered))).program == lowered
        assert run(lowered, kernel, seed=5) == expected, f"{name}\n{kernel.text}\n{write(lowered)}"


@given(kernels(depth=1))
@settings(max_examples=10)
def test_every_target(kernel: Kernel) -> None:
    program = read(kernel.text)
    expected = run(program, kernel)
    for target in TARGETS.values():
        lowered = lower(program, target)
        assert run(lowered, kernel, seed=1) == expected, f"{target.name}\n{write(lowered)}"


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", NAMES)
def test_programs_stay_right(path: Path, name: str) -> None:
    program = parse(Source(path.name, path.read_text(encoding="utf-8"))).program
    if errors(check(program)):
        pytest.skip("the program is not one that is compiled")
    lowered = lower(program, TARGET, name)
    assert not errors(check(lowered)), f"{errors(check(lowered))[0]}\n{write(lowered)}"


@given(kernels())
def test_nothing_is_left_that_machine_code_does_not_know(kernel: Kernel) -> None:
    (function,) = lower(read(kernel.text), TARGET).functions
    assert not [item for item in walk(function.body) if isinstance(item.instruction, Blas | Foreach)]


def test_an_unknown_pass_is_refused() -> None:
    with pytest.raises(LamellaError, match="there is no pass 'inline'"):
        lower(read("func @f() {\n}\n"), TARGET, "inline")


def test_passes_are_pure() -> None:
    program = read("func @f(%A: memref<f32x4>) {\n%a = constant 1.0 : f32\naxpby.n %a, %A, %a, %A\n}\n")
    text = write(program)
    assert write(lower(program, TARGET)) == write(lower(program, TARGET))
    assert write(program) == text
