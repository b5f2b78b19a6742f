"""Arithmetic, comparisons, casts and functions: exact Python integers, float64 rounded once, torch for bf16."""

from __future__ import annotations

import cmath
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from tests.support.backend.interpreter.kernels import COMPLEX, DTYPES, FLOATS, INTEGERS, Array, compile_text

os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
import torch

TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64}


def compute(instruction: str, element: str, result: str, *operands: Array) -> Array:
    """Apply an instruction to each element of some vectors with a foreach."""
    count = len(operands[0])
    names = "ab"[: len(operands)]
    parameters = "".join(f"%{name}: memref<{element}x{count}>, " for name in names)
    loads = "\n".join(f"  %v{name} = load %{name}[%i] : {element}" for name in names)
    values = ", ".join(f"%v{name}" for name in names)
    kernels = compile_text(
        f"func @f({parameters}%c: memref<{result}x{count}>) {{\n"
        f"  %zero = constant 0 : index\n  %n = constant {count} : index\n"
        f"  foreach (%i)=(%zero),(%n) {{\n{loads}\n"
        f"  %r = {instruction} {values} : {result}\n  store %r, %c[%i]\n  }}\n}}"
    )
    found = np.zeros(count, DTYPES[result])
    kernels.f(*operands, found)
    return found


def wrap(value: int, element: str) -> int:
    bits = 8 * DTYPES[element].itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


EXACT: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": truncated,
    "rem": lambda a, b: a - b * truncated(a, b),
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}
REAL: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rem": math.fmod,
    "min": lambda a, b: b if math.isnan(a) else a if math.isnan(b) else min(a, b),
    "max": lambda a, b: b if math.isnan(a) else a if math.isnan(b) else max(a, b),
}


@pytest.mark.parametrize("function", EXACT)
@pytest.mark.parametrize("element", INTEGERS)
@given(data=st.data())
def test_integers_are_exact_modulo_their_range(function: str, element: str, data: st.DataObject) -> None:
    bits = 8 * DTYPES[element].itemsize
    value = st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    second = st.integers(0, bits - 1) if function in ("shl", "shr") else value
    if function in ("div", "rem"):
        second = second.filter(bool)
    left, right = (
        data.draw(st.lists(value, min_size=4, max_size=4)),
        data.draw(st.lists(second, min_size=4, max_size=4)),
    )
    arrays = [np.array(item, DTYPES[element]) for item in (left, right)]
    found = compute(f"arith.{function}", element, element, *arrays)
    assert found.tolist() == [wrap(EXACT[function](a, b), element) for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize("function", REAL)
@pytest.mark.parametrize("element", FLOATS)
def test_floats_are_rounded_once(function: str, element: str) -> None:
    """Double precision holds the result of one operation on narrower types well enough to round it again."""
    random = np.random.default_rng(7)
    left, right = (random.standard_normal(200).astype(DTYPES[element]) for _ in range(2))
    left[0] = right[1] = np.nan
    found = compute(f"arith.{function}", element, element, left, right)
    expected = [REAL[function](float(a), float(b)) for a, b in zip(left, right, strict=True)]
    judged = torch.tensor(expected, dtype=torch.float64).to(TORCH[element]).double().numpy()
    assert np.array_equal(found.astype(np.float64), judged, equal_nan=True)


@pytest.mark.parametrize("element", COMPLEX)
@pytest.mark.parametrize("function", ["add", "sub", "mul", "div"])
def test_complex_numbers(function: str, element: str) -> None:
    random = np.random.default_rng(8)
    left, right = (
        (random.standard_normal(50) + 1j * random.standard_normal(50)).astype(DTYPES[element]) for _ in "ab"
    )
    found = compute(f"arith.{function}", element, element, left, right)
    expected = np.array([REAL[function](complex(a), complex(b)) for a, b in zip(left, right, strict=True)])
    assert np.allclose(
        found, expected, rtol=4e-7 if element == "c32" else 1e-15, atol=1e-6 if element == "c32" else 1e-14
    )


def test_known_values() -> None:
    """Values that are published for the folding of constants."""
    left, right = np.array([3 + 2j], np.complex64), np.array([-1 + 5j], np.complex64)
    quotient = compute("arith.div", "c32", "c32", left, right)[0]
    published = complex(float.fromhex("0x1.13b13cp-2"), float.fromhex("-0x1.4ec4eep-1"))
    assert abs(quotient - published) <= 2.0**-24
    assert float(compute("arith.abs", "c32", "f32", left)[0]).hex() == "0x1.cd82b40000000p+1"
    exponentials = compute("math.exp", "f32", "f32", np.array([1, -2], np.float32))
    assert [float(item).hex() for item in exponentials] == ["0x1.5bf0a80000000p+1", "0x1.152aaa0000000p-3"]
    assert compute("cast", "i32", "i16", np.array([32768], np.int32))[0] == -32768


@pytest.mark.parametrize("element", COMPLEX)
def test_parts_of_complex_numbers(element: str) -> None:
    values = np.array([3 - 4j, -1 + 0.5j], DTYPES[element])
    part = {"c32": "f32", "c64": "f64"}[element]
    assert compute("arith.re", element, part, values).tolist() == [3, -1]
    assert compute("arith.im", element, part, values).tolist() == [-4, 0.5]
    assert compute("arith.conj", element, element, values).tolist() == [3 + 4j, -1 - 0.5j]
    assert compute("arith.neg", element, element, values).tolist() == [-3 + 4j, 1 - 0.5j]
    assert compute("arith.abs", element, part, values)[0] == 5
    expected = [cmath.exp(complex(item)) for item in values]
    assert np.allclose(compute("math.exp", element, element, values), expected, rtol=1e-6)


@pytest.mark.parametrize("element", INTEGERS)
def test_unary_integers(element: str) -> None:
    low = -(1 << (8 * DTYPES[element].itemsize - 1))
    values = np.array([low, -1, 0, 5], DTYPES[element])
    assert compute("arith.neg", element, element, values).tolist() == [low, 1, 0, -5]
    assert compute("arith.abs", element, element, values).tolist() == [low, 1, 0, 5]
    assert compute("arith.not", element, element, values).tolist() == [~low, 0, -1, -6]


@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("target", [*INTEGERS, *FLOATS, *COMPLEX])
def test_casts(source: str, target: str) -> None:
    random = np.random.default_rng(9)
    values = (random.integers(-128, 128, 64) / (1 if source in INTEGERS else 3)).astype(DTYPES[source])
    found = compute("cast", source, target, values)
    expected: list[Any]
    if target in INTEGERS:
        expected = [wrap(math.trunc(float(item)), target) for item in values]
    elif target in FLOATS:
        expected = (
            torch.tensor([float(item) for item in values], dtype=torch.float64)
            .to(TORCH[target])
            .double()
            .tolist()
        )
    else:
        expected = [complex(DTYPES[target].type(float(item))) for item in values]
    assert found.astype(np.complex128 if target in COMPLEX else np.float64).tolist() == expected


@pytest.mark.parametrize("target", ["i8", "i16", "i32", "i64"])
def test_casts_of_what_no_integer_comes_near(target: str) -> None:
    bounds = np.iinfo(DTYPES[target])
    values = np.array([1e30, -1e30, np.inf, -np.inf, np.nan])
    found = compute("cast", "f64", target, values)
    assert found.tolist() == [bounds.max, bounds.min, bounds.max, bounds.min, 0]


@pytest.mark.parametrize("element", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("function", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(function: str, element: str) -> None:
    pairs = [(1, 2), (2, 1), (3, 3), (-1, 0)]
    kernels = compile_text(
        f"func @f(%a: {element}, %b: {element}, %out: memref<i32>) {{\n"
        f"  %c = cmp.{function} %a, %b : bool\n"
        "  %r = if %c -> (i32) {\n    %one = constant 1 : i32\n    yield (%one)\n"
        "  } else {\n    %zero = constant 0 : i32\n    yield (%zero)\n  }\n  store %r, %out[]\n}"
    )
    for a, b in pairs:
        out = np.zeros((), np.int32)
        kernels.f(a, b, out)
        assert bool(out) == getattr(a, f"__{function}__")(b)


@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "native_exp",
        "exp2",
        "log",
        "log2",
        "sin",
        "cos",
        "tan",
        "tanh",
        "sqrt",
        "erf",
        "floor",
        "ceil",
        "round",
        "rsqrt",
        "sigmoid",
    ],
)
@pytest.mark.parametrize("element", FLOATS)
def test_functions(name: str, element: str) -> None:
    values = np.linspace(0.1, 4, 37).astype(DTYPES[element])
    found = compute(f"math.{name}", element, element, values)
    judge = getattr(torch, name.removeprefix("native_"))
    expected = judge(torch.tensor(values.astype(np.float64))).to(TORCH[element]).double().numpy()
    assert np.allclose(found.astype(np.float64), expected, rtol=1e-15 if element == "f64" else 0)


@pytest.mark.parametrize("function", ["div", "rem"])
def test_division_by_zero_is_a_finding(function: str) -> None:
    with pytest.raises(LamellaError, match=f"TEN224.*arith.{function}"):
        compute(f"arith.{function}", "i32", "i32", np.array([4], np.int32), np.array([0], np.int32))


@pytest.mark.parametrize("amount", [-1, 32])
def test_shifts_beyond_the_width_are_a_finding(amount: int) -> None:
    with pytest.raises(LamellaError, match=f"TEN225.*by {amount}"):
        compute("arith.shl", "i32", "i32", np.array([4], np.int32), np.array([amount], np.int32))


def test_constants_wrap_and_round() -> None:
    out8, out16 = np.zeros((), np.int8), np.zeros((), DTYPES["bf16"])
    kernels = compile_text(
        "func @f(%a: memref<i8>, %b: memref<bf16>) {\n  %x = constant 300 : i8\n  store %x, %a[]\n"
        "  %y = constant 1.005859375 : bf16\n  store %y, %b[]\n}"
    )
    kernels.f(out8, out16)
    assert (int(out8), float(out16)) == (44, 1.0078125)
