r"""The functions of scalars, applied to arrays element by element.

Integers are 64 bits wide, signed, and wrap around (unsigned 64-bit elements too are computed with as signed ones); `/`
floors, `\` rounds up, `%` has the sign of the divisor. A real that becomes an integer is truncated; infinities and what
lies outside go to the nearest integer, NaN becomes 0. Minimum and maximum are NaN as soon as one operand is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from lamella.backend.reference.formula.erf import erf
from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.dtype import I64

Real: TypeAlias = "np.dtype[np.floating[Any]]"
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
INTEGER = np.dtype(np.int64)
BOOLEAN = np.dtype(np.bool_)


def apply_function(function: str, operands: Sequence[Array]) -> Array:
    """Apply a function of the language, not `cast`, to arrays that broadcast together."""
    return find_function(function, operands[0].dtype == INTEGER)(*operands)


def find_function(function: str, integers: bool) -> Callable[..., Array]:
    """The NumPy function of one of the language, not `cast`; some are others where the first operand is integers."""
    if integers and function in _OF_INTEGERS:
        return _OF_INTEGERS[function]
    return _FUNCTIONS[function]


def is_function(function: str) -> bool:
    """Whether a formula can apply it."""
    return function in _FUNCTIONS or function == "cast"


def convert(values: Array, kind: str, real: Real) -> Array:
    """`cast`: the values as int, real or bool."""
    if kind == "real":
        return values.astype(real, copy=False)
    if kind == "bool":
        return np.asarray(values != 0)
    if values.dtype.kind == "f":
        return arrays.cast(values, I64)
    return values.astype(INTEGER, copy=False)


def undefined(function: str, operands: Sequence[Array]) -> Array | None:
    """Where integers are divided by zero; None for functions that do not divide integers."""
    if operands[0].dtype != INTEGER:
        return None
    if function in _DIVISIONS:
        return np.asarray(operands[1] == 0)
    if function == "**":
        return np.asarray((operands[0] == 0) & (operands[1] < 0))
    return None


_DIVISIONS = ("/", "\\", "%")


def _ceil_divide(left: Array, right: Array) -> Array:
    quotient = np.floor_divide(left, right)
    return np.asarray(quotient + (quotient * right != left))


def _power(base: Array, exponent: Array) -> Array:
    """Powers of integers; a negative exponent gives the reciprocal without its fraction: 0, 1 or -1."""
    whole = np.power(base, np.maximum(exponent, 0))
    unit = np.abs(base) == 1
    odd = (exponent & 1) == 1
    return np.asarray(np.where(exponent < 0, np.where(unit, np.where(odd, base, 1), 0), whole))


def _round(values: Array) -> Array:
    """Halves go away from zero; what has no fraction stays, also where adding a half would not be exact."""
    whole = np.trunc(values)
    up = np.abs(values - whole) >= 0.5
    return np.asarray(np.where(up, whole + np.sign(values), whole))


def _fraction(values: Array) -> Array:
    return np.asarray(values - np.trunc(values))


def _select(condition: Array, then: Array, otherwise: Array) -> Array:
    return np.where(condition, then, otherwise)


_OF_INTEGERS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {"/": np.floor_divide, "\\": _ceil_divide, "%": np.remainder, "**": _power, "round": np.positive}
)
_FUNCTIONS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        **{"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod, "**": np.power},
        **{"\\": lambda left, right: np.ceil(left / right)},
        **{"<<": np.minimum, ">>": np.maximum, "neg": np.negative, "abs": np.abs, "sign": np.sign},
        **{"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal},
        **{"==": np.equal, "!=": np.not_equal},
        **{"&&": np.logical_and, "||": np.logical_or, "^": np.logical_xor, "!": np.logical_not},
        **{"=>": np.less_equal, "?:": _select},
        **{"sqrt": np.sqrt, "exp": np.exp, "log": np.log, "erf": erf},
        **{"sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos},
        **{"atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh},
        **{"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh},
        **{"round": _round, "floor": np.floor, "ceil": np.ceil, "frac": _fraction},
    }
)
