"""Arithmetic, comparisons and functions on numbers, as the language defines them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import ml_dtypes
import numpy as np

from lamella.backend.arguments import DTYPES, dtype_of
from lamella.base.arrays import Array, DType
from lamella.base.dtype import LANGUAGES
from lamella.lang.tensor.nodes import Number as Literal
from lamella.lang.tensor.nodes.types import STORED_FLOATS
from lamella.lang.tensor.rules import running as rules
from lamella.ops.fault import Fault

# --- numbers of the tensor language as NumPy holds them: element types, constants, conversions --------------


Number: TypeAlias = np.generic | Array

F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
BF16 = np.dtype(ml_dtypes.bfloat16)
THROUGH_SINGLE = {BF16, *map(dtype_of, STORED_FLOATS)}
"""Types whose casts go through f32."""
LARGEST = {name: np.float32(LANGUAGES["tensor"][name].largest) for name in STORED_FLOATS}
HALVES = {name: 1 << (8 * found.itemsize - 1) for name, found in DTYPES.items()}
"""For each element type, how many of the numbers of its bits are negative."""
MAKERS = {name: found.type for name, found in DTYPES.items()}
WIDER = MappingProxyType({"i8": "i32", "bf16": "f32", "f16": "f32"})


def element_name(dtype: DType) -> str:
    """The element type that a NumPy type holds; where two share one, the one that is a plain number."""
    return next(name for name, found in DTYPES.items() if found == dtype)


def accumulation(element: str) -> str:
    """The type in which collective instructions compute a result of an element type."""
    return WIDER.get(element, element)


def is_integer(dtype: DType) -> bool:
    """Whether a type is one of the integer types."""
    return dtype.kind == "i"


def is_complex(dtype: DType) -> bool:
    """Whether a type is one of the complex types."""
    return dtype.kind == "c"


def wrap_integer(value: int, element: str) -> int:
    """The low bits of an integer, read as a signed number of its type."""
    half = HALVES[element]
    return value if -half <= value < half else (value + half) % (2 * half) - half


def make_integer(value: int, element: str) -> Number:
    """A Python integer as a number of an integer type, modulo its range."""
    found: Number = MAKERS[element](wrap_integer(value, element))
    return found


def make_number(value: Literal, element: str) -> Number:
    """A constant of a scalar type; integers wrap, floating-point numbers are rounded."""
    if isinstance(value, tuple):
        found: Number = dtype_of(element).type(complex(*value))
        return found
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int) and is_integer(dtype_of(element)):
        return make_integer(value, element)
    return convert(np.float64(value), element)


def convert(value: Number, element: str) -> Number:
    """A number in another type: integers keep their low bits, floats are cut toward zero, narrow ones go through f32.

    What no integer of the type comes near is the nearest one, and NaN is 0; so are the largest floats of 8 bits.
    """
    target = dtype_of(element)
    if value.dtype == target:
        return value
    if not THROUGH_SINGLE.isdisjoint((value.dtype, target)):
        value = value.astype(F32)
        if target == F32:
            return value
    if is_integer(target) and value.dtype.kind == "f":
        return _truncate(value, target)
    if element in STORED_FLOATS:
        value = np.clip(value, -LARGEST[element], LARGEST[element])
    found: Number = value.astype(target)
    return found


def _truncate(value: Number, target: DType) -> Number:
    bounds = np.iinfo(target)
    whole = np.nan_to_num(np.trunc(np.asarray(value, F64)), nan=0.0)
    inside = np.where(whole <= float(bounds.min), bounds.min, whole.astype(target))
    found: Number = np.where(whole >= float(bounds.max), bounds.max, inside).astype(target)[()]
    return found


Unary: TypeAlias = Callable[[Number], Number]
Binary: TypeAlias = Callable[[Number, Number], Number]


def compute_binary(function: str, left: Number, right: Number) -> Number:
    """`arith.FUNCTION left, right`; bf16 is computed in f32 and rounded."""
    if left.dtype != BF16:
        return BINARY[function](left, right)
    return BINARY[function](left.astype(F32), right.astype(F32)).astype(BF16)


def compute_fused(left: Number, right: Number, added: Number) -> Number:
    """`arith.fma left, right, added`: the product of two numbers of single precision is exact in double precision."""
    wide = left.astype(F64) * right.astype(F64) + added.astype(F64)
    return wide.astype(left.dtype)


def compute_unary(function: str, operand: Number) -> Number:
    """`arith.FUNCTION operand`."""
    return UNARY[function](operand)


def compare(function: str, left: Number, right: Number) -> Number:
    """`cmp.FUNCTION left, right`."""
    return COMPARISONS[function](left, right)


def compute_math(function: str, operands: Sequence[Number], element: str) -> Number:
    """`math.FUNCTION operands`, computed in double precision and rounded to the type."""
    kind = np.dtype(np.complex128) if is_complex(operands[0].dtype) else F64
    wide = [operand.astype(kind) for operand in operands]
    return convert(np.asarray(MATH[function.removeprefix("native_")](*wide))[()], element)


def _round(operand: Number) -> Number:
    """The nearest whole number, halves away from zero; its sign stays."""
    whole = np.trunc(operand)
    up = np.abs(operand - whole) >= 0.5
    found: Number = np.copysign(np.abs(whole) + up, operand)
    return found


def _multiply(left: Number, right: Number) -> Number:
    """Complex numbers part by part: NumPy rounds once or twice as the processor has it."""
    if not is_complex(left.dtype):
        found: Number = operator.mul(left, right)
        return found
    product = np.empty(np.broadcast_shapes(np.shape(left), np.shape(right)), left.dtype)
    product.real = left.real * right.real - left.imag * right.imag
    product.imag = left.real * right.imag + left.imag * right.real
    return product[()]


def _divide(left: Number, right: Number) -> Number:
    """Integers truncate toward zero; complex numbers multiply by the conjugate, without scaling."""
    if is_integer(left.dtype):
        _refuse_zero("arith.div", right)
        down = operator.floordiv(left, right)
        rounded: Number = down + ((down < 0) & (down * right != left))
        return rounded
    if not is_complex(left.dtype):
        found: Number = operator.truediv(left, right)
        return found
    whole = _multiply(left, np.conj(right))
    square = right.real * right.real + right.imag * right.imag
    quotient = np.empty(np.shape(whole), left.dtype)
    quotient.real, quotient.imag = whole.real / square, whole.imag / square
    return quotient[()]


def _remainder(left: Number, right: Number) -> Number:
    """What truncating division leaves, with the sign of the dividend."""
    if is_integer(left.dtype):
        _refuse_zero("arith.rem", right)
    found: Number = np.fmod(left, right)
    return found


def _refuse_zero(function: str, divisor: Number) -> None:
    if not (np.all(divisor) if divisor.ndim else divisor):
        raise Fault(rules.DIVIDED_BY_ZERO, function=function)


def _shift(function: str, shift: Binary) -> Binary:
    def shifted(left: Number, right: Number) -> Number:
        bits = 8 * left.dtype.itemsize
        wrong = np.less(right, 0) | np.greater_equal(right, bits)
        if np.any(wrong):
            amount = int(np.asarray(right)[np.asarray(wrong)].flat[0])
            raise Fault(rules.SHIFT_AMOUNT, function=function, type=f"{bits}-bit integer", amount=amount)
        return shift(left, right)

    return shifted


def _part(name: str) -> Unary:
    def part(operand: Number) -> Number:
        found: Number = getattr(operand, name)
        return found

    return part


def _each(function: Callable[[float], float]) -> Unary:
    def applied(operand: Number) -> Number:
        return np.asarray([function(float(item)) for item in np.asarray(operand).flat]).reshape(operand.shape)

    return applied


def _power(base: Number, exponent: Number) -> Number:
    # NumPy takes the square root where all exponents are 0.5, which minus infinity has not.
    root = np.equal(exponent, 0.5) & np.equal(base, -np.inf)
    found: Number = np.where(root, np.inf, np.power(base, exponent)).astype(np.result_type(base, exponent))
    return found


BINARY: Mapping[str, Binary] = MappingProxyType(
    {
        "add": operator.add,
        "sub": operator.sub,
        "mul": _multiply,
        "div": _divide,
        "rem": _remainder,
        "min": np.fmin,
        "max": np.fmax,
        "shl": _shift("arith.shl", np.left_shift),
        "shr": _shift("arith.shr", np.right_shift),
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
    }
)
UNARY: Mapping[str, Unary] = MappingProxyType(
    {
        "abs": np.abs,
        "neg": np.negative,
        "not": np.invert,
        "conj": np.conj,
        "im": _part("imag"),
        "re": _part("real"),
    }
)
COMPARISONS: Mapping[str, Callable[..., Number]] = MappingProxyType(
    {
        "eq": operator.eq,
        "ne": operator.ne,
        "gt": operator.gt,
        "ge": operator.ge,
        "lt": operator.lt,
        "le": operator.le,
    }
)
MATH: Mapping[str, Callable[..., Number]] = MappingProxyType(
    {
        "exp": np.exp,
        "exp2": np.exp2,
        "log": np.log,
        "log2": np.log2,
        "sin": np.sin,
        "cos": np.cos,
        "tan": np.tan,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "tanh": np.tanh,
        "asinh": np.arcsinh,
        "acosh": np.arccosh,
        "atanh": np.arctanh,
        "pow": _power,
        "sqrt": np.sqrt,
        "rsqrt": lambda operand: 1 / np.sqrt(operand),
        "erf": _each(math.erf),
        "floor": np.floor,
        "ceil": np.ceil,
        "round": _round,
        "trunc": np.trunc,
        "sign": np.sign,
        "sigmoid": lambda operand: 1 / (1 + np.exp(np.negative(operand))),
    }
)
