"""Functions of 64-bit reals that onnxruntime computes in 32 bits only, by those that it has in 64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf, exp, factorial, pi, sqrt
from types import MappingProxyType

import numpy as np

from lamella.base.dtype import F32, F64, I64
from lamella.bridge.graph_to_onnx.emitter import Emitter, Value, data_type

_STEPS = 32
"""Points of the table of the error function between two integers."""
_END = 6
"""Where the error function of a double is 1."""
_ORDER = 10
"""Terms of its series around a point: 64⁻¹⁰ is below the last bit."""


class _Doubles:
    """Arithmetic on 64-bit reals, written as it is read."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter

    def number(self, value: float) -> Value:
        return self.emitter.number(value, F64)

    def __call__(self, op_type: str, *operands: Value | float) -> Value:
        values = [item if isinstance(item, Value) else self.number(item) for item in operands]
        return self.emitter.add(op_type, values, F64)


def _tan(emitter: Emitter, x: Value) -> Value:
    do = _Doubles(emitter)
    return do("Div", do("Sin", x), do("Cos", x))


def _exponentials(op_type: str) -> Callable[[Emitter, Value], Value]:
    def emit(emitter: Emitter, x: Value) -> Value:
        do = _Doubles(emitter)
        return do("Mul", do(op_type, do("Exp", x), do("Exp", do("Neg", x))), 0.5)

    return emit


def _atan(emitter: Emitter, x: Value) -> Value:
    """The inverse tangent in 32 bits and one step of Newton's method, which doubles the digits."""
    do = _Doubles(emitter)
    # Beyond this a double is pi / 2, and infinity times a cosine would not be a number.
    inside = do("Max", do("Min", x, 1e17), -1e17)
    narrow = emitter.add("Cast", (inside,), F32, to=data_type(F32))
    guess = emitter.add("Cast", (emitter.add("Atan", (narrow,), F32),), F64, to=data_type(F64))
    cosine = do("Cos", guess)
    missing = do("Mul", do("Sub", do("Mul", inside, cosine), do("Sin", guess)), cosine)
    return do("Add", guess, missing)


def _asin(emitter: Emitter, x: Value) -> Value:
    do = _Doubles(emitter)
    root = do("Sqrt", do("Mul", do("Sub", 1.0, x), do("Add", 1.0, x)))
    return do("Mul", _atan(emitter, do("Div", x, do("Add", 1.0, root))), 2.0)


def _acos(emitter: Emitter, x: Value) -> Value:
    do = _Doubles(emitter)
    return do("Sub", pi / 2, _asin(emitter, x))


def _asinh(emitter: Emitter, x: Value) -> Value:
    do = _Doubles(emitter)
    size = do("Abs", x)
    root = do("Sqrt", do("Add", do("Mul", size, size), 1.0))
    return do("Mul", do("Log", do("Add", size, root)), do("Sign", x))


def _acosh(emitter: Emitter, x: Value) -> Value:
    do = _Doubles(emitter)
    root = do("Sqrt", do("Mul", do("Sub", x, 1.0), do("Add", x, 1.0)))
    return do("Log", do("Add", x, root))


def _atanh(emitter: Emitter, x: Value) -> Value:
    do = _Doubles(emitter)
    return do("Mul", do("Log", do("Div", do("Add", 1.0, x), do("Sub", 1.0, x))), 0.5)


def _erf(emitter: Emitter, x: Value) -> Value:
    """The error function by its series around the nearest point of a table."""
    do = _Doubles(emitter)
    size = do("Min", do("Abs", x), float(_END))
    place = emitter.add("Round", (do("Mul", size, float(_STEPS)),), F64)
    rest = do("Sub", size, do("Mul", place, 1.0 / _STEPS))
    number = emitter.add("Cast", (place,), I64, to=data_type(I64))
    rows = emitter.add("Gather", (emitter.constant(_erf_table()), number), F64, axis=0)
    wide = emitter.add("Unsqueeze", (rest, emitter.integers(-1)), F64)
    powers = emitter.add("Pow", (wide, emitter.constant(np.arange(_ORDER, dtype=np.float64))), F64)
    total = emitter.add("ReduceSum", (do("Mul", rows, powers), emitter.integers(-1)), F64, keepdims=0)
    return do("Mul", total, do("Sign", x))


def _erf_table() -> np.ndarray:
    """The coefficients of the series of the error function around each point, by Hermite's polynomials."""
    rows = []
    for number in range(_END * _STEPS + 1):
        point = number / _STEPS
        hermite = [1.0, 2 * point]
        for order in range(1, _ORDER):
            hermite.append(2 * point * hermite[order] - 2 * order * hermite[order - 1])
        slope = 2 / sqrt(pi) * exp(-point * point)
        rest = [slope * (-1) ** (n - 1) * hermite[n - 1] / factorial(n) for n in range(1, _ORDER)]
        rows.append([erf(point), *rest])
    return np.asarray(rows, np.float64)


DOUBLES: Mapping[str, Callable[[Emitter, Value], Value]] = MappingProxyType(
    {
        "tan": _tan,
        "sinh": _exponentials("Sub"),
        "cosh": _exponentials("Add"),
        "atan": _atan,
        "asin": _asin,
        "acos": _acos,
        "asinh": _asinh,
        "acosh": _acosh,
        "atanh": _atanh,
        "erf": _erf,
    }
)
"""The functions by their names in formulas."""
