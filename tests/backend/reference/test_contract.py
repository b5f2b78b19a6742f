"""Contractions by NumPy are what nested loops say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from lamella.backend.formula import contract
from lamella.backend.formula.scalars import DOUBLE
from lamella.base.arrays import Array
from lamella.ops.fault import Fault
from tests.support.backend.reference.drawing import Case, cases
from tests.support.backend.reference.running import run_contraction
from tests.support.backend.reference.steps import Refused, copy_tensors, run_slowly


def outcome(case: Case, slowly: bool) -> Array | None:
    """What the targets become, stacked; None where a step is refused."""
    tensors = copy_tensors(case.tensors)
    try:
        if slowly:
            run_slowly(case.contraction, tensors)
        else:
            run_contraction(case.contraction, tensors, DOUBLE)
    except (Refused, Fault):
        return None
    found = tensors["y"]
    return np.stack(found) if isinstance(found, tuple) else found


def compare(case: Case) -> None:
    expected, found = outcome(case, slowly=True), outcome(case, slowly=False)
    assert (expected is None) == (found is None), (expected, found)
    if expected is not None and found is not None:
        np.testing.assert_allclose(found, expected, 1e-9 if found.dtype == DOUBLE else 0)


@settings(max_examples=200)
@given(cases())
def test_any_contraction(case: Case) -> None:
    compare(case)


@given(cases(depth=1, own=False))
def test_simple_contraction(case: Case) -> None:
    compare(case)


@given(cases(depth=1, finite=True, own=False))
def test_in_small_parts(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contract, "BOX", 3)
        patch.setattr(contract, "OPERAND", 3)
        compare(case)
