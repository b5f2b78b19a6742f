r"""The functions of scalars, applied to arrays element by element.

Integers are 64 bits wide, signed, and wrap around (unsigned 64-bit elements too are computed with as signed ones); `/`
floors, `\` rounds up, `%` has the sign of the divisor. A real that becomes an integer is truncated; infinities and what
lies outside go to the nearest integer, NaN becomes 0. Minimum and maximum are NaN as soon as one operand is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from lamella.base import arrays
from lamella.base.arrays import Array, element_type_of
from lamella.base.dtype import I64

# --- the error function, which NumPy has not: two Chebyshev series, good to the last bits of a double ---------


_NEAR_END, _FAR_END, _MIDDLE = 1.5, 6.0, 2.0
# erf(x) / x, as a series in x² over [0, 1.5²].
_NEAR = (
    *(0.851089471310623, -0.2378512126782037, 0.03469122300310841, -0.004264102804485269),
    *(0.0004409197933299432, -3.901387128623381e-05, 3.005756784960929e-06, -2.0467950137813437e-07),
    *(1.247436826254426e-08, -6.875751819093192e-10, 3.45768610393445e-11, -1.598235818776436e-12),
    *(6.833570402307017e-14, -2.7176425140092373e-15, 1.0100781017991405e-16, -3.52341093596377e-18),
)
# (1 - erf(x)) · exp(x²), as a series in (x - 2) / (x + 2) over [1.5, 6]; beyond it a double is 1.
_FAR = (
    *(0.1967652342087633, -0.11379523161988798, 0.010403692607749223, -0.0006103349962023126),
    *(1.212989620645114e-05, 1.1460137795870853e-06, -6.486758686902113e-08, -3.745595395031941e-09),
    *(2.8341397624473485e-10, 2.116787758596006e-11, -1.119908849113571e-12, -1.5241080839412388e-13),
    *(1.7182845513243109e-15, 1.0701760095930372e-15, 3.879011299669143e-17, -5.68960837350124e-18),
)


BLOCK = 4096
"""Elements that are computed at once: few enough for all terms to stay in the nearest cache."""


def erf(values: Array) -> Array:
    """The error function of each element, computed in double precision and rounded once."""
    found = np.empty(values.shape, values.dtype)
    given, taken = np.ravel(values), found.reshape(-1)
    for start in range(0, given.size, BLOCK):
        taken[start : start + BLOCK] = _erf(np.asarray(given[start : start + BLOCK], np.float64))
    return found


def _erf(wide: Array) -> Array:
    size = np.minimum(np.abs(wide), _FAR_END)
    found = size * _series(_NEAR, size * size, 0.0, _NEAR_END**2)
    far = np.flatnonzero(~(size < _NEAR_END))
    if far.size:
        away = size[far]
        ends = [(end - _MIDDLE) / (end + _MIDDLE) for end in (_NEAR_END, _FAR_END)]
        tail = _series(_FAR, (away - _MIDDLE) / (away + _MIDDLE), *ends) * np.exp(-away * away)
        found[far] = 1.0 - tail
    return np.asarray(np.copysign(found, wide))


def _series(factors: tuple[float, ...], place: Array, low: float, high: float) -> Array:
    """The sum of a Chebyshev series over an interval, by Clenshaw's recurrence."""
    scaled = (2.0 * place - (low + high)) / (high - low)
    twice = 2.0 * scaled
    last, before = np.zeros_like(scaled), np.zeros_like(scaled)
    spare = np.empty_like(scaled)
    for factor in factors[:0:-1]:
        np.multiply(twice, last, out=spare)
        np.subtract(spare, before, out=spare)
        np.add(spare, factor, out=spare)
        last, before, spare = spare, last, before
    return np.asarray(scaled * last - before + factors[0])


Real: TypeAlias = "np.dtype[np.float32] | np.dtype[np.float64]"
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
INTEGER = np.dtype(np.int64)
BOOLEAN = np.dtype(np.bool_)


def computing_type(dtype: np.dtype[np.generic], real: Real) -> np.dtype[np.generic]:
    """The type in which elements of a stored type are computed with: 64-bit integers, one real type, bool."""
    if dtype in (real, INTEGER, BOOLEAN):
        return dtype
    element = element_type_of(dtype)
    return real if element is not None and element.is_float else INTEGER


def apply_function(function: str, operands: Sequence[Array]) -> Array:
    """Apply a function of the language, not `cast`, to arrays that broadcast together."""
    return find_function(function, operands[0].dtype == INTEGER)(*operands)


def find_function(function: str, integers: bool) -> Callable[..., Array]:
    """The NumPy function of one of the language, not `cast`; some are others where the first operand is integers."""
    if integers and function in _OF_INTEGERS:
        return _OF_INTEGERS[function]
    return _FUNCTIONS[function]


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


# --- products of matrices ------------------------------------------------------------------------------------

EXACT = 1 << 53
"""Integers below it are doubles, and so are their sums."""
SMALL = 1 << 14
"""Products of so few elements take longer to convert than to compute."""


def multiply_matrices(left: Array, right: Array) -> Array:
    """A product of matrices or of batches of them; integers go through doubles where all sums are exact in them."""
    if left.dtype != INTEGER or left.size + right.size < SMALL:
        return np.asarray(np.matmul(left, right))
    # NumPy hands doubles to BLAS, integers to a plain loop.
    if _largest(left) * _largest(right) * left.shape[-1] >= EXACT:
        return np.asarray(np.matmul(left, right))
    found = np.matmul(left.astype(DOUBLE), right.astype(DOUBLE))
    return np.asarray(found.astype(INTEGER))


def _largest(values: Array) -> int:
    return max(-int(values.min()), int(values.max())) if values.size else 0
