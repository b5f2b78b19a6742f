"""Kernels for the tests: from text, and arrays of every layout to run them on."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from lamella.backend.interpreter import InterpretedKernels, Trace, compile_program
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.lang.tensor import parse

Array = npt.NDArray[Any]
DTYPES = {
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "index": np.dtype(np.int64),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c32": np.dtype(np.complex64),
    "c64": np.dtype(np.complex128),
}
STORED_DTYPES = {
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
"""Those of types that nothing is computed in."""
INTEGERS = ("i8", "i16", "i32", "i64", "index")
FLOATS = ("bf16", "f16", "f32", "f64")
COMPLEX = ("c32", "c64")
EPSILON = {
    "bf16": 2.0**-8,
    "f16": 2.0**-11,
    "f32": 2.0**-24,
    "f64": 2.0**-53,
    "c32": 2.0**-23,
    "c64": 2.0**-52,
}


def compile_text(
    text: str,
    *,
    limits: Limits = DEFAULT,
    check_bounds: bool = False,
    seed: int | None = None,
    trace: Trace | None = None,
) -> InterpretedKernels:
    """The kernels of a text that has no errors."""
    parsed = parse(Source("kernels.tensor", text))
    assert not [item for item in parsed.findings if item.severity == "error"], parsed.findings
    return compile_program(parsed.program, limits=limits, check_bounds=check_bounds, seed=seed, trace=trace)


def draw_array(random: np.random.Generator, element: str, shape: tuple[int, ...], pad: int = 0) -> Array:
    """An array of small numbers, first mode fastest, with unused elements behind each column."""
    whole = (shape[0] + pad, *shape[1:]) if shape else shape
    values: Array = random.integers(-8, 9, whole).astype(np.float64)
    if element not in INTEGERS:
        values = values / 4 + random.standard_normal(whole) / 8
    if element in COMPLEX:
        values = values + 1j * random.integers(-8, 9, whole) / 4
    array = np.array(np.asarray(values).astype(({**DTYPES, **STORED_DTYPES})[element]), order="F")
    return array[: shape[0]] if shape else array


def widen(array: Array, element: str) -> Array:
    """The same numbers in the widest type of their kind."""
    if element in INTEGERS:
        return array.astype(np.int64)
    return array.astype(np.complex128 if element in COMPLEX else np.float64)
