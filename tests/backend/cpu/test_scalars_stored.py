"""Floating-point numbers of 8 bits: all casts on the processor and the interpreter, judged by ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend import cpu, interpreter
from tests.support.backend.interpreter.kernels import STORED_DTYPES
from tests.support.differential.running import read

BACKENDS = {"cpu": cpu, "interpreter": interpreter}


def cast_text(source: str, target: str, count: int) -> str:
    """A cast of so many numbers."""
    return f"""
func @f(%x: memref<{source}x{count}>, %y: memref<{target}x{count}>) {{
  %0 = constant 0 : index
  %n = constant {count} : index
  foreach (%i):index=(%0),(%n) {{
    %v = load %x[%i] : {source}
    %w = cast %v : {target}
    store %w, %y[%i]
  }}
}}
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("element", STORED_DTYPES)
def test_all_codes_widen(element: str, backend: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(STORED_DTYPES[element])
    found = np.zeros(256, np.float32)
    BACKENDS[backend].compile_program(read(cast_text(element, "f32", 256))).call("f", [codes, found])
    np.testing.assert_array_equal(found, codes.astype(np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("element", STORED_DTYPES)
def test_numbers_are_rounded_to_even(element: str, backend: str) -> None:
    dtype = STORED_DTYPES[element]
    codes = np.arange(128, dtype=np.uint8).view(dtype).astype(np.float32)
    codes = codes[np.isfinite(codes)]
    middles = (codes[1:] + codes[:-1]) / 2
    given = np.concatenate([codes, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)])
    special = [0.0, np.inf, np.nan, 464.0, 465.0, 61440.0, 61439.0, 1e9, 1e-30, 2.0**-10, 2.0**-17]
    given = np.concatenate([given, np.array(special, np.float32)]).astype(np.float32)
    given = np.concatenate([given, -given])
    found = np.zeros(given.size, dtype)
    BACKENDS[backend].compile_program(read(cast_text("f32", element, given.size))).call("f", [given, found])
    most = float(codes.max())
    want = np.clip(given, -most, most).astype(dtype)
    np.testing.assert_array_equal(found.astype(np.float32), want.astype(np.float32))
