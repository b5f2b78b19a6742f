"""The operators of `quant`, judged by NumPy, torch and onnxruntime."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.draws import Array, arrays, axis_of, shapes
from tests.support.judges.harness import near, one, refuse
from tests.support.judges.onnx_node import run_node
from tests.support.judges.registry import Given, Refusal, judged

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

Data = st.DataObject
Numbers = tuple[int, ...]
POINT, RANGE = "quant.zero_point_linear_quantize", "quant.min_max_linear_quantize"
SCALES = (0.25, 0.5, 1.0, 2.0)
CODES: tuple[dict[str, bool], ...] = (
    {"signed": True, "symmetric": False},
    {"signed": True, "symmetric": True},
    {"signed": False},
)
ZERO: dict[str, Given] = {"zero_point": 0, "scale": 1.0, "bits": 8}
ENDS: dict[str, Given] = {"min": 0.0, "max": 1.0, "bits": 8}

REFUSALS = (
    *(
        Refusal(name, fragment, ((2, 3),), {**flags, **attributes})
        for name, flags in ((POINT, ZERO), (RANGE, ENDS))
        for fragment, attributes in (
            ("'bits' must lie in [1, 63]", {"bits": 0}),
            ("'bits' must lie in [1, 63]", {"bits": 64}),
            ("a signed symmetric code needs at least 2 bits", {"bits": 1, "symmetric": True}),
            ("'channel_axis' must lie in", {"channel_axis": 2}),
            ("'channel_axis' must lie in", {"channel_axis": -3}),
        )
    ),
    Refusal(POINT, "every 'scale' must be positive", ((2, 3),), {**ZERO, "scale": (1.0, 0.0, 1.0)}),
    Refusal(RANGE, "every 'min' must be below its 'max'", ((2, 3),), {**ENDS, "min": (0.0, 1.0, 0.5)}),
)


def _round(values: Array) -> Array:
    """The nearest integer, halves away from zero."""
    return np.asarray(np.sign(values) * np.floor(np.abs(values) + 0.5))


def _codes(bits: int, signed: bool, symmetric: bool = False) -> tuple[int, int]:
    """The smallest and the largest code."""
    if not signed:
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)) + symmetric, 2 ** (bits - 1) - 1


def _along(values: Array, axis: int, rank: int) -> Array:
    return values.reshape(-1, *(1,) * (rank - 1 - axis % rank))


@judged("numpy", POINT)
@given(shapes(1, 4, 1), st.integers(2, 8), st.sampled_from(CODES), st.data())
def test_zero_points(shape: Numbers, bits: int, code: dict[str, bool], data: Data) -> None:
    array, axis = data.draw(arrays(shape, ("float32", "float64"), -40, 40)), data.draw(axis_of(len(shape)))
    low, high = _codes(bits, **code)
    scale = tuple(data.draw(st.sampled_from(SCALES)) for _ in range(shape[axis]))
    zero = tuple(data.draw(st.integers(low, high)) for _ in range(shape[axis]))
    steps, origin = (_along(np.array(item, np.float64), axis, len(shape)) for item in (scale, zero))
    expected = (np.clip(origin + _round(array / steps), low, high) - origin) * steps
    found = one(POINT, array, zero_point=zero, scale=scale, bits=bits, channel_axis=axis, **code)
    near(found, expected.astype(array.dtype))


@judged("numpy", RANGE)
@given(shapes(1, 4, 1), st.integers(2, 8), st.sampled_from(CODES), st.data())
def test_ranges(shape: Numbers, bits: int, code: dict[str, bool], data: Data) -> None:
    array, axis = data.draw(arrays(shape, ("float64",))), data.draw(axis_of(len(shape)))
    low = tuple(data.draw(st.integers(-8, 3)) + 0.1 for _ in range(shape[axis]))
    high = tuple(data.draw(st.integers(4, 9)) + 0.3 for _ in range(shape[axis]))
    least, most = (_along(np.array(item), axis, len(shape)) for item in (low, high))
    levels = 2**bits - 1 - (code["signed"] and code.get("symmetric", False))
    step = (most - least) / levels
    place = (np.clip(array, least, most) - least) / step
    clear = np.abs(place % 1 - 0.5) > 1e-6
    found = one(RANGE, array, min=low, max=high, bits=bits, channel_axis=axis, **code)
    near(found[clear], (least + step * _round(place))[clear])


@judged("torch", POINT)
@given(shapes(0, 3), st.integers(0, 99), st.sampled_from((0.1, 0.37, 1.3)), st.integers(-9, 9))
def test_whole_tensors(shape: Numbers, seed: int, scale: float, zero: int) -> None:
    """A tensor without channels is quantised as a whole; drawn values are not halves, which torch rounds to even."""
    array = np.random.default_rng(seed).uniform(-20, 20, shape).astype(np.float32)
    expected = torch.fake_quantize_per_tensor_affine(torch.tensor(array), scale, zero, -128, 127)
    near(one(POINT, array, zero_point=zero, scale=scale, bits=8), expected.numpy(), 1e-4)


@judged("onnxruntime", POINT)
@given(st.tuples(st.integers(1, 3), st.integers(1, 4)), st.booleans(), st.integers(0, 99))
def test_codes_of_onnx(shape: Numbers, signed: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    array = random.uniform(-20, 20, shape).astype(np.float32)
    scale = random.uniform(0.05, 0.5, shape[1]).astype(np.float32)
    zero = (
        random.integers(-9, 9, shape[1]).astype(np.int8)
        if signed
        else random.integers(0, 99, shape[1]).astype(np.uint8)
    )
    (codes,) = run_node("QuantizeLinear", (array, scale, zero), axis=1)
    (expected,) = run_node("DequantizeLinear", (codes, scale, zero), axis=1)
    flags: dict[str, Given] = {"zero_point": tuple(zero.tolist()), "scale": tuple(scale.tolist())}
    near(one(POINT, array, **flags, bits=8, signed=signed), expected, 1e-4)


def test_values_beyond_all_codes() -> None:
    array = np.array([-np.inf, -1e38, 1e38, np.inf], np.float32)
    near(
        one(POINT, array, zero_point=5, scale=1e-3, bits=8),
        np.array([-0.133, -0.133, 0.122, 0.122], np.float32),
    )


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
