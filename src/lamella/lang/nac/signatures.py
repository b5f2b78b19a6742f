"""The codes of a signature: what each argument of an operation is, and how a constant becomes one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lamella.lang.nac.nodes import ConstantValue

TENSOR_CODES: Mapping[str, str] = MappingProxyType(
    {
        **{"Q": "query", "K": "key", "V": "value", "M": "mask"},
        **{"B": "bias", "W": "weight", "T": "tensor", "P": "parameter"},
    }
)
"""The codes of arguments that other instructions compute."""

CONSTANT_CODES: Mapping[str, str] = MappingProxyType(
    {
        **{"A": "an axis", "S": "a shape", "i": "an integer", "f": "a number"},
        **{"b": "a truth value", "s": "a string", "c": "any constant"},
    }
)
"""The codes of arguments that are constants unless an offset says otherwise."""


class UnfitError(ValueError):
    """A constant cannot be what the code of its argument asks for."""


def has_constants(signature: str) -> bool:
    """Whether instructions of a signature carry a list of constants."""
    return any(code in CONSTANT_CODES for code in signature)


def coerce(code: str, value: ConstantValue) -> ConstantValue:
    """The value of a constant as the code of its argument wants it; UnfitError where it cannot be that.

    Real files hold 1.0 where an integer stands, and True where a number does: equal constants share a record there.
    """
    return _COERCIONS[code](value) if code in _COERCIONS else value


def _integer(value: ConstantValue) -> int:
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    raise UnfitError


def _number(value: ConstantValue) -> float:
    if isinstance(value, int | float):
        return _as_float(value)
    raise UnfitError


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise UnfitError from None


def _truth(value: ConstantValue) -> bool:
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise UnfitError


def _string(value: ConstantValue) -> str:
    if isinstance(value, str):
        return value
    raise UnfitError


def _shape(value: ConstantValue) -> tuple[int, ...] | tuple[float, ...]:
    """A list; of integers where all its numbers are whole, as a list of scales is not."""
    if not isinstance(value, tuple) or not all(math.isfinite(item) for item in value):
        raise UnfitError
    whole = all(float(item).is_integer() for item in value)
    return tuple(int(item) for item in value) if whole else value


_COERCIONS: Mapping[str, Callable[[ConstantValue], ConstantValue]] = MappingProxyType(
    {"A": _integer, "i": _integer, "f": _number, "b": _truth, "s": _string, "S": _shape}
)
