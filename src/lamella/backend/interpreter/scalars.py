"""Single numbers: what `arithmetic` says of arrays, for one number of a known type, several times as fast.

NumPy's functions and conversions of one number take ten times as long as its operators and Python's numbers do. The
bits are the same: products, sums and roundings through double precision are exact where this module uses it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from lamella.backend.arguments import dtype_of
from lamella.backend.interpreter import arithmetic
from lamella.backend.interpreter.arithmetic import (
    BF16,
    BINARY,
    MATH,
    Number,
    convert,
    is_complex,
    is_integer,
    make_integer,
)
from lamella.lang.tensor.rules import running as rules
from lamella.ops.fault import Fault

Function: TypeAlias = Callable[..., Number]
Scalar: TypeAlias = Any
"""A number of NumPy, whose operators type checkers do not know all of."""
NATIVE = frozenset({np.float16, np.float32, np.float64})
"""Types whose numbers Python's floats hold."""
SMALL = frozenset({np.int8, np.int16, np.int32})
"""Integers that a double holds, so that a float of single precision is rounded once."""


# --- conversions --------------------------------------------------------------------------------------------


@cache
def conversion(source: type, element: str) -> Function:
    """What converts numbers of a NumPy type to an element type."""
    target = dtype_of(element)
    made: Any = target.type
    if np.dtype(source) == target:
        return _same
    if issubclass(source, np.integer) and is_integer(target):
        if np.dtype(source).itemsize < target.itemsize:
            return lambda value: made(int(value))
        return lambda value: make_integer(int(value), element)
    if source in NATIVE and is_integer(target):
        return _truncation(element)
    if (source in NATIVE or source in SMALL) and made in NATIVE:
        return lambda value: made(float(value))
    if source is BF16.type and made in (np.float32, np.float64):
        return lambda value: made(float(value))
    if source is np.float32 and target == BF16:
        return lambda value: made(value)
    return lambda value: convert(value, element)


def _same(value: Number) -> Number:
    return value


def _truncation(element: str) -> Function:
    made: Any = dtype_of(element).type
    bounds = np.iinfo(made)
    low, high = float(bounds.min), float(bounds.max)
    least, most = made(bounds.min), made(bounds.max)

    def truncated(value: Scalar) -> Number:
        number = float(value)
        if low < number < high:
            found: Number = made(int(number))
            return found
        clamped: Number = made(0) if number != number else most if number > 0 else least
        return clamped

    return truncated


def converter(element: str) -> Function:
    """What converts numbers of any type to an element type."""

    def converted(value: Scalar) -> Number:
        source: Any = type(value)
        return conversion(source, element)(value)

    return converted


# --- functions ----------------------------------------------------------------------------------------------


def binary(function: str, element: str) -> Function:
    """`arith.FUNCTION` of two numbers of an element type."""
    dtype = dtype_of(element)
    if dtype == BF16 or is_complex(dtype):
        return lambda left, right: arithmetic.compute_binary(function, left, right)
    if function in PLAIN:
        return PLAIN[function]
    if is_integer(dtype) and function in INTEGER:
        return INTEGER[function](8 * dtype.itemsize)
    if dtype.kind == "f" and function == "div":
        return operator.truediv
    return BINARY[function]


def fused(element: str) -> Function:
    """`arith.fma` of three numbers of an element type: in double precision, rounded once."""
    made: Any = dtype_of(element).type
    if made not in NATIVE:
        return arithmetic.compute_fused
    return lambda left, right, added: made(float(left) * float(right) + float(added))


def mathematics(function: str, element: str) -> Function:
    """`math.FUNCTION` of numbers of an element type."""
    made: Any = dtype_of(element).type
    if made not in NATIVE:
        return lambda *operands: arithmetic.compute_math(function, operands, element)
    computed = MATH[function.removeprefix("native_")]

    def rounded(*operands: Scalar) -> Number:
        found: Number = made(float(computed(*[np.float64(item) for item in operands])))
        return found

    return rounded


def _least(left: Scalar, right: Scalar) -> Number:
    found: Number = left if left < right or right != right else right
    return found


def _most(left: Scalar, right: Scalar) -> Number:
    found: Number = left if left > right or right != right else right
    return found


def _remainder(_: int) -> Function:
    def remainder(left: Scalar, right: Scalar) -> Number:
        if not right:
            raise Fault(rules.DIVIDED_BY_ZERO, function="arith.rem")
        rest = abs(int(left)) % abs(int(right))
        found: Number = type(left)(-rest if left < 0 else rest)
        return found

    return remainder


def _quotient(_: int) -> Function:
    return BINARY["div"]


def _shift(word: str, shifted: Function) -> Callable[[int], Function]:
    def of_width(bits: int) -> Function:
        def shift(left: Scalar, right: Scalar) -> Number:
            if not 0 <= right < bits:
                values = {"function": word, "type": f"{bits}-bit integer", "amount": int(right)}
                raise Fault(rules.SHIFT_AMOUNT, **values)
            return shifted(left, right)

        return shift

    return of_width


PLAIN: Mapping[str, Function] = MappingProxyType(
    {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "min": _least,
        "max": _most,
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
    }
)
INTEGER: Mapping[str, Callable[[int], Function]] = MappingProxyType(
    {
        "rem": _remainder,
        "shl": _shift("arith.shl", operator.lshift),
        "shr": _shift("arith.shr", operator.rshift),
    }
)
