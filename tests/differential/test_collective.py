"""Collective instructions of all pairs of types, forms, factors, layouts and sizes: NumPy judges both backends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from lamella.backend import cpu, interpreter
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.tensor import parse
from tests.support.backend.interpreter.kernels import INTEGERS, widen
from tests.support.differential.collective import FUNCTIONS, Array, Case, expect, make_arguments, write_case
from tests.support.differential.layouts import is_marked
from tests.support.differential.varieties import PROMOTION, make_cases

PARTS = 8
"""Each instruction is tested in so many parts; the kernels of a part are one program."""


def arrays_of(case: Case, arguments: Sequence[object]) -> list[Array]:
    """The arrays among arguments, the result last."""
    return [item for item in arguments[: len(case.elements)] if isinstance(item, np.ndarray)]


def judge(
    case: Case, kernels: interpreter.InterpretedKernels | cpu.CompiledKernels, name: str, seed: int
) -> None:
    """Run a kernel and compare its result with the formula; inputs stay what they are."""
    arguments = make_arguments(case, seed)
    before = [item.copy() for item in arrays_of(case, arguments)]
    value, bound = expect(case, before)
    kernels.call(name, arguments, case.launches)
    *inputs, result = arrays_of(case, arguments)
    assert all(np.array_equal(one, other) for one, other in zip(inputs, before, strict=False)), case
    assert all(is_marked(item) for item in (*inputs, result)), f"{case}\n{write_case(case, name)}"
    if case.result in INTEGERS:
        np.testing.assert_array_equal(result, value, err_msg=str(case))
        return
    distance = abs(widen(result, case.result) - value)
    assert np.all(distance <= bound), f"{case}\n{np.max(distance - bound)}\n{write_case(case, name)}"


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_pairs(function: str, part: int) -> None:
    cases = make_cases(function)[part::PARTS]
    text = "\n".join(write_case(case, f"k{number}") for number, case in enumerate(cases))
    parsed = parse(Source("kernels.tensor", text))
    assert not errors(parsed.findings), parsed.findings
    fast, slow = cpu.compile_program(parsed.program, threads=2), interpreter.compile_program(parsed.program)
    for number, case in enumerate(cases):
        judge(case, slow, f"k{number}", seed=number)
        judge(case, fast, f"k{number}", seed=number)


def test_there_are_about_a_thousand() -> None:
    counts = {function: len(make_cases(function)) for function in FUNCTIONS}
    assert sum(counts.values()) >= 1000, counts
    assert min(counts.values()) >= 100, counts


@pytest.mark.parametrize("function", FUNCTIONS)
def test_all_promotions_occur(function: str) -> None:
    found = {(case.elements[0], case.elements[-1]) for case in make_cases(function)}
    assert found == {(one, other) for one in PROMOTION for other in PROMOTION[one]}
