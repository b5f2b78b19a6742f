"""The numbers of quantised weights from their formulas, one element at a time, and arrays to try them on."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import product

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from hypothesis.strategies import SearchStrategy

from lamella.base.arrays import Array
from lamella.lang.nac import nodes as n

TYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int16", "int8", "uint8", "bool")
"""The names of element types by their codes."""


def single(value: float) -> float:
    """A double rounded to single precision; products and quotients of singles are rounded once in all."""
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


def scale_of(values: Sequence[float], of_zeros: float) -> float:
    """max|w| / 127."""
    return single(max((abs(value) for value in values), default=0.0) / 127.0) or single(of_zeros)


def code_of(value: float, scale: float, least: int) -> int:
    """The nearest code, of two the even one."""
    return max(least, min(127, round(single(value / scale))))


def drawn(dtype: str = "float32", least: int = 0, most: int = 4) -> SearchStrategy[Array]:
    """Arrays of a floating type: zeros, small and large numbers, ties between codes, no elements."""
    numpy_type = np.dtype(getattr(ml_dtypes, dtype, dtype))
    ties = st.integers(-260, 260).map(lambda value: value / 2)
    width = {"float64": 64, "float32": 32}.get(dtype, 16)
    bound = 60000.0 if dtype != "float64" else 1e30
    numbers = st.one_of(st.floats(-bound, bound, width=64 if width == 64 else 16), ties, st.just(0.0))
    shapes = array_shapes(min_dims=least, max_dims=most, min_side=0, max_side=9)
    made = arrays(np.float64, shapes, elements=numbers, fill=st.just(0.0))
    return made.map(lambda values: values.astype(numpy_type))


def flat(values: Array) -> list[float]:
    """Elements as doubles, the last axis first."""
    return [float(values[index]) for index in product(*map(range, values.shape))]


def tensor_of(values: Array, quantization: n.Quantization | None = None) -> n.Tensor:
    """A tensor with the bytes of an array."""
    code = TYPES.index(str(values.dtype))
    return n.Tensor(1, code, values.shape, quantization or n.Unscaled(), values.tobytes())


def same_bits(ours: Array, wanted: Sequence[float]) -> bool:
    """Whether an array of singles has exactly these numbers."""
    return ours.dtype == np.float32 and ours.tobytes() == struct.pack(f"<{len(wanted)}f", *wanted)


def decibels(wanted: Sequence[float], found: Sequence[float]) -> float:
    """The ratio of signal to noise."""
    noise = math.fsum((a - b) ** 2 for a, b in zip(wanted, found, strict=True))
    return 10 * math.log10(math.fsum(a * a for a in wanted) / noise) if noise else math.inf
