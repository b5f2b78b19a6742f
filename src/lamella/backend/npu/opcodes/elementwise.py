"""Elementwise opcodes.

Floats: computed once in double, rounded to f32 and then to the type, which equals f32 arithmetic for + - * / sqrt and
is the nearest f32 for the functions. Quantised integers: real numbers in double, stored with saturation. Plain
integers: wrap-around, which is reported; `div` truncates to zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from lamella.backend.npu.opcodes.call import OpcodeCall, element_of
from lamella.backend.npu.opcodes.quantised import (
    is_float,
    real_values,
    scales_of_type,
    store_real,
    wrap_integers,
)
from lamella.base import arrays, dtype
from lamella.base.arrays import Array
from lamella.lang.nem.rules import OVERFLOW, RUN_DIVISION

_erfc = np.frompyfunc(math.erfc, 1, 1)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)


def _gelu(x: Array) -> Array:
    """With erfc, because 1 + erf loses all digits where x is far below zero."""
    return 0.5 * x * np.asarray(_erfc(-x / math.sqrt(2.0))).astype(np.float64)


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


REAL: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        **{"relu": _relu, "sigmoid": _sigmoid, "tanh": np.tanh, "exp": np.exp, "log": np.log},
        **{"sqrt": np.sqrt, "abs": np.abs, "neg": np.negative, "gelu": _gelu, "silu": _silu},
        **{"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide},
        **{"min": np.minimum, "max": np.maximum, "pow": np.power},
    }
)
WHOLE: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        **{"relu": _relu, "abs": np.abs, "neg": np.negative, "add": np.add, "sub": np.subtract},
        **{"mul": np.multiply, "min": np.minimum, "max": np.maximum},
    }
)
"""Opcodes whose 64-bit integer result, cut to the type, is the wrapped result."""


def map_elements(call: OpcodeCall) -> list[Array]:
    """Run an opcode that only its operands determine."""
    return _dispatch(call, REAL[call.opcode], WHOLE.get(call.opcode))


def relu(call: OpcodeCall) -> list[Array]:
    """Floats and plain integers: max(x, 0); quantised with one descriptor: max(q, zero_point)."""
    (x,), (y,) = call.inputs, call.outputs
    if y.quant is None or y.quant != x.type.quant:
        return map_elements(call)
    _, zero = scales_of_type(y)
    return [np.maximum(x.array, zero.astype(x.array.dtype))]


def leaky_relu(call: OpcodeCall) -> list[Array]:
    """Keep what is not negative, multiply the rest by alpha; plain integers truncate the product to zero."""
    alpha = call.number("alpha")

    def leak(x: Array) -> Array:
        return np.where(x < 0, x * alpha, x)

    def leak_whole(x: Array) -> Array:
        return np.where(x < 0, arrays.cast(x * alpha, dtype.I64), x)

    return _dispatch(call, leak, leak_whole)


def clamp(call: OpcodeCall) -> list[Array]:
    """Compute min(max(x, min_val), max_val); for plain integers the bounds are truncated to zero like a cast."""
    low, high = call.number("min_val"), call.number("max_val")

    def bound(x: Array) -> Array:
        return np.minimum(np.maximum(x, low), high)

    def bound_whole(x: Array) -> Array:
        return arrays.cast(bound(x.astype(np.float64)), dtype.I64)

    return _dispatch(call, bound, bound_whole)


def div(call: OpcodeCall) -> list[Array]:
    """Divide; plain integers truncate to zero, and dividing them by zero is an error (the quotient is then 0)."""

    def divide(a: Array, b: Array) -> Array:
        if (b == 0).any():
            call.report(RUN_DIVISION)
        size = np.abs(a) // np.where(b == 0, 1, np.abs(b))
        return np.where(b == 0, 0, np.where((a < 0) == (b < 0), size, -size))

    return _dispatch(call, np.divide, divide)


def power(call: OpcodeCall) -> list[Array]:
    """Raise to a power; plain integers wrap, a negative exponent is the truncated reciprocal."""

    def raise_whole(a: Array, b: Array) -> Array:
        if ((a == 0) & (b < 0)).any():
            call.report(RUN_DIVISION)
        reciprocal = np.where(np.abs(a) == 1, np.where(b % 2 == 0, 1, a), 0)
        _report_large_powers(call, a, b)
        found = np.where(b < 0, reciprocal, _power_of_bits(a, b))
        return arrays.wrap(found, element_of(call.outputs[0])).astype(np.int64)

    return _dispatch(call, np.power, raise_whole)


def _report_large_powers(call: OpcodeCall, base: Array, exponent: Array) -> None:
    """Report the first power that its type cannot hold; doubles tell which, as they are exact where it matters."""
    element = element_of(call.outputs[0])
    size = np.power(base.astype(np.float64), np.maximum(exponent, 0))
    outside = np.flatnonzero((size < element.minimum) | (size > element.maximum))
    if outside.size:
        first = f"{base.reshape(-1)[outside[0]]}^{exponent.reshape(-1)[outside[0]]}"
        call.report(OVERFLOW, elem=element.name, value=first)


def _power_of_bits(base: Array, exponent: Array) -> Array:
    """Square and multiply modulo 2^64; exponents have at most 32 bits."""
    found = np.ones_like(base)
    for bit in range(32):
        found = np.where(exponent >> bit & 1, found * base, found)
        base = base * base
    return found


def _dispatch(
    call: OpcodeCall, real: Callable[..., Array], whole: Callable[..., Array] | None
) -> list[Array]:
    """Run the real function, or the integer one where all operands are plain integers."""
    (y,) = call.outputs
    if whole is None or is_float(y) or _any_quant(call):
        return [store_real(real(*[real_values(item) for item in call.inputs]), y)]
    integers: Sequence[Array] = [item.array.astype(np.int64) for item in call.inputs]
    return [wrap_integers(whole(*integers), element_of(y), call.report)]


def _any_quant(call: OpcodeCall) -> bool:
    types = [*(item.type for item in call.inputs), *call.outputs]
    return any(type.quant is not None for type in types)
