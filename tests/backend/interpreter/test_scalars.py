"""Single numbers are computed with as arrays are: the bits of NumPy's functions and conversions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from lamella.backend.arguments import DTYPES, dtype_of
from lamella.backend.interpreter import arithmetic, scalars
from lamella.backend.interpreter.arithmetic import Number
from lamella.ops.fault import Fault

PLAIN = [
    0.0,
    -0.0,
    0.5,
    -1.5,
    2.5,
    100.0,
    65519.0,
    65520.0,
    2.0**31 - 1,
    2.0**31,
    -(2.0**63),
    1e-8,
    3e38,
    1e308,
]
SPECIAL = [float("nan"), float("inf"), float("-inf")]


def numbers(element: str) -> list[Number]:
    """Numbers of a type: special ones, and some of random bits."""
    dtype, random = dtype_of(element), Random(element)
    if dtype.kind == "b":
        return [np.False_, np.True_]
    bits = list(np.frombuffer(random.randbytes(12 * dtype.itemsize), dtype))
    if dtype.kind == "i":
        bounds = np.iinfo(dtype)
        return [*np.array([0, 1, -1, 7, -50, bounds.min, bounds.max], dtype), *bits]
    with np.errstate(all="ignore"):
        return [*np.array([*PLAIN, *SPECIAL]).astype(dtype), *bits]


def outcome(function: Callable[..., Number], *operands: Number) -> object:
    """The type and bits of a result, where NaN is NaN and the zeros are one; or the fault."""
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(function(*operands))
    except Fault as fault:
        return fault.rule.code, fault.values
    return found.dtype, "nan" if np.isnan(found.astype(complex)) else found.item()


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_conversions(element: str) -> None:
    for source in DTYPES:
        if not np.issubdtype(dtype_of(source), np.complexfloating) or dtype_of(element).kind == "c":
            for item in numbers(source):
                want = outcome(lambda value: arithmetic.convert(value, element), item)
                assert outcome(scalars.converter(element), item) == want, (source, item)


@pytest.mark.parametrize("element", [name for name, dtype in DTYPES.items() if dtype.kind in "if"])
@pytest.mark.parametrize("function", arithmetic.BINARY)
def test_functions_of_two_numbers(function: str, element: str) -> None:
    if function in ("and", "or", "xor", "shl", "shr") and dtype_of(element).kind == "f":
        return
    for left in numbers(element):
        for right in numbers(element)[::2]:
            want = outcome(lambda a, b: arithmetic.compute_binary(function, a, b), left, right)
            assert outcome(scalars.binary(function, element), left, right) == want, (left, right)


@pytest.mark.parametrize("element", [name for name, dtype in DTYPES.items() if dtype.kind == "f"])
def test_functions_of_floats(element: str) -> None:
    given = numbers(element)

    def judge(function: str, *operands: Number) -> object:
        return outcome(lambda *items: arithmetic.compute_math(function, items, element), *operands)

    for left, right, added in zip(given, reversed(given), given[3:] + given[:3], strict=True):
        want = outcome(arithmetic.compute_fused, left, right, added)
        assert outcome(scalars.fused(element), left, right, added) == want, (left, right, added)
        for name in arithmetic.MATH:
            operands = (left, right) if name == "pow" else (left,)
            found = outcome(scalars.mathematics(name, element), *operands)
            assert found == judge(name, *operands), (name, operands)
