"""The element-wise operators of `math`, judged by NumPy and torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.alignment import Aligned, aligned
from tests.support.judges.draws import ANY, FLOATS, INTEGERS, Array, arrays, filled, shapes
from tests.support.judges.harness import near, one, run, same
from tests.support.judges.registry import judged

# Emulated processors announce matrix tiles that they cannot run.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

Data = st.DataObject
Function = Callable[..., Array]
NUMBERS = (*FLOATS, *INTEGERS)

REAL = MappingProxyType(
    {
        "math.rcp": (torch.reciprocal, 0.25, 9),
        "math.sqrt": (torch.sqrt, 0, 9),
        "math.rsqr": (lambda x: torch.reciprocal(torch.square(x)), 0.25, 9),
        "math.rsqrt": (torch.rsqrt, 0.25, 9),
        "math.exp": (torch.exp, -9, 9),
        "math.log": (torch.log, 0, 9),
        "math.log2": (torch.log2, 0, 9),
        "math.sin": (torch.sin, -9, 9),
        "math.cos": (torch.cos, -9, 9),
        "math.tan": (torch.tan, -1.5, 1.5),
        "math.sinh": (torch.sinh, -9, 9),
        "math.cosh": (torch.cosh, -9, 9),
        "math.tanh": (torch.tanh, -9, 9),
        "math.asin": (torch.asin, -1, 1),
        "math.acos": (torch.acos, -1, 1),
        "math.atan": (torch.atan, -9, 9),
        "math.asinh": (torch.asinh, -9, 9),
        "math.acosh": (torch.acosh, 1, 9),
        "math.atanh": (torch.atanh, -0.999, 0.999),
        "math.floor": (torch.floor, -9, 9),
        "math.ceil": (torch.ceil, -9, 9),
    }
)
"""Functions of one real argument, and the range they are asked about."""


@judged("torch", *REAL)
@pytest.mark.parametrize("operator", REAL)
@given(shapes(), st.sampled_from(FLOATS), st.integers(0, 999))
def test_real_functions(operator: str, shape: tuple[int, ...], dtype: str, seed: int) -> None:
    function, low, high = REAL[operator]
    array = np.asarray(np.random.default_rng(seed).uniform(low, high, shape), dtype)
    with np.errstate(divide="ignore", over="ignore"):
        expected = function(torch.from_numpy(array.astype(np.float64))).numpy().astype(dtype)
    near(one(operator, array), expected)


@judged("torch", *REAL)
@pytest.mark.parametrize("operator", REAL)
def test_real_functions_in_double_precision(operator: str) -> None:
    function, low, high = REAL[operator]
    array = np.random.default_rng(7).uniform(low, high, 100).astype(np.float32)
    (found,) = run(operator, (array,), compute="f64")
    assert isinstance(found, np.ndarray)
    expected = function(torch.from_numpy(array.astype(np.float64))).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@judged("numpy", "math.round")
def test_round_takes_halves_away_from_zero() -> None:
    array = np.asarray([-2.5, -1.5, -0.5, -0.25, 0.0, 0.5, 1.5, 2.5, 2.75, 1e9], np.float32)
    expected = np.asarray([-3, -2, -1, 0, 0, 1, 2, 3, 3, 1e9], np.float32)
    same(np.abs(one("math.round", array)), np.abs(expected))
    assert np.all(one("math.round", array) * array >= 0)


@judged("torch", "math.round")
@given(shapes(), st.data())
def test_round_away_from_halves(shape: tuple[int, ...], data: Data) -> None:
    array = np.asarray(data.draw(arrays(shape)) + np.float32(0.125))
    same(one("math.round", array), torch.round(torch.from_numpy(array)).numpy())


NUMERIC: MappingProxyType[str, Function] = MappingProxyType(
    {"math.neg": np.negative, "math.sqr": np.square, "math.abs": np.abs, "math.sign": np.sign}
)


@judged("numpy", *NUMERIC)
@pytest.mark.parametrize("operator", NUMERIC)
@given(shapes(), st.data())
def test_numeric_functions(operator: str, shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, (*FLOATS, "int64", "int32", "int8")))
    same(one(operator, array), NUMERIC[operator](array))


@judged("numpy", "math.iden", "math.not")
@given(shapes(), st.data())
def test_identity_and_negation(shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, ANY))
    same(one("math.iden", array), array)
    truth = np.asarray(array != 0)
    same(one("math.not", truth), np.asarray(~truth))


ARITHMETIC: MappingProxyType[str, Function] = MappingProxyType(
    {
        "math.add": np.add,
        "math.sub": np.subtract,
        "math.mul": np.multiply,
        "math.min": np.minimum,
        "math.max": np.maximum,
    }
)
ALIGNS = ("lhs_align", "rhs_align")


def _wide(function: Function, arguments: tuple[Array, ...]) -> Array:
    """What NumPy makes of arguments; half precision is computed in single precision."""
    dtype = arguments[0].dtype
    if dtype == np.float16:
        arguments = tuple(item.astype(np.float32) for item in arguments)
    return np.asarray(function(*arguments)).astype(dtype)


@judged("numpy", *ARITHMETIC)
@pytest.mark.parametrize("operator", ARITHMETIC)
@given(aligned(2, [(*FLOATS, "int64", "int32", "int8")], -5, 5))
def test_arithmetic(operator: str, case: Aligned) -> None:
    found = one(operator, *case.arrays, **case.attributes(*ALIGNS))
    same(found, _wide(ARITHMETIC[operator], case.padded))


@judged("numpy", "math.div", "math.mod")
@given(aligned(2, [(*FLOATS, "int64", "int32", "int8")], -5, 5))
def test_division(case: Aligned) -> None:
    left, right = (np.where(item == 0, item.dtype.type(3), item) for item in case.arrays)
    x, y = (np.where(item == 0, item.dtype.type(3), item) for item in case.padded)
    whole = left.dtype.kind == "i"
    aligns = case.attributes(*ALIGNS)
    near(one("math.div", left, right, **aligns), _wide(np.floor_divide if whole else np.divide, (x, y)))
    near(one("math.mod", left, right, **aligns), _wide(np.mod if whole else np.fmod, (x, y)))


@judged("numpy", "math.pow")
@given(aligned(2, [(*FLOATS, "int64", "int32")], 0, 4))
def test_power(case: Aligned) -> None:
    found = one("math.pow", *case.arrays, **case.attributes(*ALIGNS))
    near(found, _wide(np.power, case.padded))


COMPARISONS: MappingProxyType[str, Function] = MappingProxyType(
    {
        "math.lt": np.less,
        "math.gt": np.greater,
        "math.le": np.less_equal,
        "math.ge": np.greater_equal,
        "math.eq": np.equal,
        "math.ne": np.not_equal,
    }
)


@judged("numpy", *COMPARISONS)
@pytest.mark.parametrize("operator", COMPARISONS)
@given(aligned(2, [NUMBERS], -2, 2))
def test_comparisons(operator: str, case: Aligned) -> None:
    same(one(operator, *case.arrays, **case.attributes(*ALIGNS)), COMPARISONS[operator](*case.padded))


@judged("numpy", *COMPARISONS)
@pytest.mark.parametrize("operator", COMPARISONS)
@given(st.tuples(*[st.sampled_from([FLOATS, INTEGERS])] * 2), st.data())
def test_comparisons_of_different_types(
    operator: str, dtypes: tuple[tuple[str, ...], ...], data: Data
) -> None:
    case = data.draw(aligned(2, list(dtypes), -2, 2))
    same(one(operator, *case.arrays, **case.attributes(*ALIGNS)), COMPARISONS[operator](*case.padded))


LOGIC: MappingProxyType[str, Function] = MappingProxyType(
    {
        "math.and": np.logical_and,
        "math.or": np.logical_or,
        "math.xor": np.logical_xor,
        "math.eq": np.equal,
        "math.ne": np.not_equal,
    }
)


@judged("numpy", *LOGIC)
@pytest.mark.parametrize("operator", LOGIC)
@given(aligned(2, [("bool",)]))
def test_logic(operator: str, case: Aligned) -> None:
    same(one(operator, *case.arrays, **case.attributes(*ALIGNS)), LOGIC[operator](*case.padded))


@judged("numpy", "math.add", "math.mul")
def test_a_channel_vector_is_aligned_by_1() -> None:
    x, channel = filled((2, 3, 4, 5), "float32", 0), filled((3,), "float32", 1)
    same(one("math.add", x, channel, rhs_align=1), x + channel[:, None, None])
    same(one("math.mul", channel, x, lhs_align=-2), x * channel[:, None, None])


@judged("numpy", "math.add")
def test_a_number_is_an_argument() -> None:
    x = filled((2, 3), "float32", 0)
    same(one("math.add", x, 1.5), x + np.float32(1.5))
    same(one("math.sub", 2, np.asarray([3, 4])), np.asarray([-1, -2]))


@judged("numpy", "math.select")
@given(st.data())
def test_select(data: Data) -> None:
    dtype = data.draw(st.sampled_from(ANY))
    case = data.draw(aligned(3, [["bool"], [dtype], [dtype]]))
    names = ("cond_align", "lhs_align", "rhs_align")
    same(one("math.select", *case.arrays, **case.attributes(*names)), np.where(*case.padded))


@judged("numpy", "math.axpb", "math.axpby")
@given(st.booleans(), st.sampled_from(FLOATS), st.data())
def test_weighted_sums(both: bool, dtype: str, data: Data) -> None:
    case = data.draw(aligned(4 if both else 3, [[dtype]], -3, 3))
    names = ("a_align", "x_align", "b_align", "y_align")[: len(case.arrays)]
    a, x, b, *rest = (item.astype(np.float64) for item in case.padded)
    expected = a * x + (b * rest[0] if both else b)
    found = one("math.axpby" if both else "math.axpb", *case.arrays, **case.attributes(*names))
    near(found, expected.astype(dtype))


@judged("numpy", "math.clamp")
@given(aligned(3, [NUMBERS], -5, 5))
def test_clamp(case: Aligned) -> None:
    x, low, high = case.padded
    found = one("math.clamp", *case.arrays, **case.attributes("val_align", "min_align", "max_align"))
    same(found, np.where(x < low, low, np.where(x > high, high, x)))


@judged("torch", "math.clamp")
@given(shapes(), st.data())
def test_clamp_between_ordered_numbers(shape: tuple[int, ...], data: Data) -> None:
    array = data.draw(arrays(shape, ("float32",)))
    same(one("math.clamp", array, -1.5, 2.0), torch.clamp(torch.from_numpy(array), -1.5, 2.0).numpy())
