"""What instructions give where their operands are known: constants, or one of the operands.

Integers wrap as their types do. Floating-point arithmetic is left to the run, but for a factor of 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from lamella.base.limits import SMALLEST
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Arith, Number, Scalar, Type, Value
from lamella.lang.tensor.nodes.types import COMPLEX, FLOATS, INTEGERS

FORMATS = MappingProxyType({"f16": "e", "f32": "f", "f64": "d", "c32": "f", "c64": "d"})
EXACT = 1 << 53
"""Up to here a double holds every integer."""


def wrap(value: int, element: str) -> int:
    """The low bits of an integer as a signed number of its type."""
    half = 1 << (8 * BYTES[element] - 1)
    return (value + half) % (2 * half) - half


def _divide(left: int, right: int) -> int | None:
    """Division that truncates; None where there is no quotient."""
    if right == 0:
        return None
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _remainder(left: int, right: int) -> int | None:
    quotient = _divide(left, right)
    return None if quotient is None else left - quotient * right


def _shift(change: Callable[[int, int], int]) -> Callable[[int, int], int | None]:
    return lambda left, right: change(left, right) if 0 <= right < 64 else None


BINARY: Mapping[str, Callable[[int, int], int | None]] = MappingProxyType(
    {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": _divide,
        "rem": _remainder,
        "min": min,
        "max": max,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "shl": _shift(lambda a, b: a << b),
        "shr": _shift(lambda a, b: a >> b),
    }
)
UNARY: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {"neg": lambda a: -a, "not": lambda a: ~a, "abs": abs}
)


def fold_arith(function: str, operands: Sequence[Number], type_: Type) -> Number | None:
    """The value of integer or boolean arithmetic on constants; None where only the run tells."""
    if not isinstance(type_, Scalar) or function in ("select", "fma"):
        return None
    if type_.name == "bool":
        return _fold_bool(function, operands)
    values = [item for item in operands if isinstance(item, int)]
    if type_.name not in INTEGERS or len(values) != len(operands):
        return None
    if len(values) == 1:
        change = UNARY.get(function)
        return None if change is None else _writable(wrap(change(values[0]), type_.name))
    if function in ("shl", "shr") and not 0 <= values[1] < 8 * BYTES[type_.name]:
        return None
    found = BINARY[function](values[0], values[1])
    return None if found is None else _writable(wrap(found, type_.name))


def _writable(value: int) -> int | None:
    """The number itself; None for the one 64-bit integer that the language has no literal for."""
    return None if value == SMALLEST else value


def _fold_bool(function: str, operands: Sequence[Number]) -> Number | None:
    values = [bool(item) for item in operands]
    if function == "not":
        return not values[0]
    if function in ("and", "or", "xor"):
        return {"and": all(values), "or": any(values), "xor": values[0] != values[-1]}[function]
    return None


def simplify_arith(item: Arith, known: Sequence[Number | None]) -> Value | None:
    """The operand that arithmetic gives unchanged; None where it does not."""
    if item.function == "select":
        return None if known[0] is None else item.operands[1 if known[0] else 2]
    if len(item.operands) != 2 or not isinstance(item.type, Scalar):
        return None
    (left, right), (first, second) = item.operands, known
    if item.function == "mul" and _is(second, 1):
        return left
    if item.function == "mul" and _is(first, 1):
        return right
    if item.type.name not in INTEGERS:
        return None
    if item.function in ("add", "or", "xor") and first == 0:
        return right
    if second == 0 and item.function in ("add", "sub", "or", "xor", "shl", "shr"):
        return left
    return left if item.function == "div" and second == 1 else None


def _is(known: Number | None, number: int) -> bool:
    if known is None or isinstance(known, bool):
        return False
    return known == (float(number), 0.0) if isinstance(known, tuple) else known == number


# --- comparisons and casts ----------------------------------------------------------------------------------


def fold_compare(function: str, left: Number, right: Number, type_: Type | None) -> bool | None:
    """The value of a comparison of constants that their type holds exactly."""
    if not isinstance(type_, Scalar) or not (_is_exact(left, type_.name) and _is_exact(right, type_.name)):
        return None
    if isinstance(left, tuple) or isinstance(right, tuple):
        return {"eq": left == right, "ne": left != right}.get(function)
    return {
        "eq": left == right,
        "ne": left != right,
        "gt": left > right,
        "ge": left >= right,
        "lt": left < right,
        "le": left <= right,
    }[function]


def fold_cast(value: Number, source: Type | None, target: Type) -> Number | None:
    """A constant in another type, where both hold it exactly."""
    if not isinstance(source, Scalar) or not isinstance(target, Scalar):
        return None
    if isinstance(value, bool) or not _is_exact(value, source.name):
        return None
    found = _convert(value, target.name)
    return found if found is not None and _is_exact(found, target.name) else None


def _convert(value: Number, target: str) -> Number | None:
    if target in INTEGERS:
        return wrap(value, target) if isinstance(value, int) else None
    if isinstance(value, tuple):
        return value if target in COMPLEX else None
    if isinstance(value, int) and abs(value) > EXACT:
        return None
    return (float(value), 0.0) if target in COMPLEX else float(value)


def _is_exact(value: Number, element: str) -> bool:
    """Whether a type holds a constant as it is written."""
    if isinstance(value, tuple):
        return element in COMPLEX and all(_fits(part, element) for part in value)
    if isinstance(value, float):
        return element in FLOATS and _fits(value, element)
    return element == "bool" or (element in INTEGERS and wrap(value, element) == value)


def _fits(value: float, element: str) -> bool:
    """Whether a number is one of a floating-point type; a NaN or an infinity is left to the run."""
    if element == "bf16":
        return _fits(value, "f32") and struct.pack("<f", value)[:2] == b"\0\0"
    try:
        found: float = struct.unpack(FORMATS[element], struct.pack(FORMATS[element], value))[0]
    except OverflowError:
        return False
    return found == value and abs(value) != float("inf")
