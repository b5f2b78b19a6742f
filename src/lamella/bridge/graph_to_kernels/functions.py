"""The functions of formulas as instructions of the tensor language.

Integers are i64, reals of one width, bool is bool. Division and remainder of integers round down; minimum and
maximum are NaN as soon as one operand is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from lamella.base.errors import Unsupported
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import Math, Scalar, Value
from lamella.lang.tensor.nodes.types import BOOL

I64 = Scalar("i64")
SMALLEST, LARGEST = -(1 << 63) + 1, (1 << 63) - 1

PLAIN = MappingProxyType({"+": "add", "-": "sub", "*": "mul"})
COMPARISONS = MappingProxyType({"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"})
MATHEMATICS = frozenset(
    [
        *("sqrt", "exp", "log", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
        *("tanh", "asinh", "acosh", "atanh", "round", "floor", "ceil", "sign"),
    ]
)


def apply(builder: Builder, function: str, kind: Scalar, operands: list[Value]) -> Value:
    """A function of operands of one type: i64, a real type or bool."""
    if function in COMPARISONS and kind != BOOL:
        return builder.compare(COMPARISONS[function], *operands)
    if kind == BOOL:
        return _of_booleans(builder, function, operands)
    if function in PLAIN:
        return builder.arith(PLAIN[function], *operands, type_=kind)
    if function in ("neg", "abs"):
        return builder.arith(function, *operands, type_=kind)
    if kind == I64:
        return _of_integers(builder, function, operands)
    return _of_reals(builder, function, kind, operands)


# --- reals --------------------------------------------------------------------------------------------------


def _of_reals(builder: Builder, function: str, kind: Scalar, operands: list[Value]) -> Value:
    if function in ("/", "%"):
        return builder.arith("div" if function == "/" else "rem", *operands, type_=kind)
    if function == "\\":
        return mathematics(builder, "ceil", kind, builder.arith("div", *operands, type_=kind))
    if function == "**":
        return mathematics(builder, "pow", kind, *operands)
    if function in ("<<", ">>"):
        return extreme(builder, "min" if function == "<<" else "max", kind, *operands)
    if function == "frac":
        whole = mathematics(builder, "trunc", kind, *operands)
        return builder.arith("sub", operands[0], whole, type_=kind)
    if function in MATHEMATICS:
        return mathematics(builder, function, kind, *operands)
    raise Unsupported(f"it uses '{function}'")


def mathematics(builder: Builder, function: str, kind: Scalar, *operands: Value) -> Value:
    """`math.function`."""
    return builder.value(Math(function, operands, kind))


def extreme(builder: Builder, function: str, kind: Scalar, left: Value, right: Value) -> Value:
    """The smaller or larger of two numbers, NaN as soon as one is."""
    if kind == I64:
        return builder.arith(function, left, right, type_=kind)
    if builder.is_number(left):
        left, right = right, left
    # What a comparison with NaN leaves is `left`: processors have this choice as one instruction.
    chosen = builder.compare("gt" if function == "max" else "lt", right, left)
    found = builder.arith("select", chosen, right, left, type_=kind)
    if builder.is_number(right):
        return found
    return builder.arith("select", builder.compare("eq", right, right), found, right, type_=kind)


# --- integers -----------------------------------------------------------------------------------------------


def _of_integers(builder: Builder, function: str, operands: list[Value]) -> Value:
    if function in _INTEGERS:
        return _INTEGERS[function](builder, *operands)
    raise Unsupported(f"it uses '{function}' of integers")


def _differing_signs(builder: Builder, left: Value, right: Value) -> tuple[Value, Value]:
    """The remainder of a division, and whether it has another sign than the divisor."""
    rest = builder.arith("rem", left, right, type_=I64)
    zero = builder.constant(0, I64)
    mixed = builder.arith("xor", rest, right, type_=I64)
    other = builder.compare("lt", mixed, zero)
    return rest, builder.arith("and", other, builder.compare("ne", rest, zero), type_=BOOL)


def _floor_divide(builder: Builder, left: Value, right: Value) -> Value:
    quotient = builder.arith("div", left, right, type_=I64)
    _, differs = _differing_signs(builder, left, right)
    below = builder.arith("sub", quotient, builder.constant(1, I64), type_=I64)
    return builder.arith("select", differs, below, quotient, type_=I64)


def _ceil_divide(builder: Builder, left: Value, right: Value) -> Value:
    """One more than the quotient rounded down where there is a remainder."""
    floor = _floor_divide(builder, left, right)
    rest = builder.arith("rem", left, right, type_=I64)
    more = builder.arith("add", floor, builder.constant(1, I64), type_=I64)
    exact = builder.compare("eq", rest, builder.constant(0, I64))
    return builder.arith("select", exact, floor, more, type_=I64)


def _remainder(builder: Builder, left: Value, right: Value) -> Value:
    rest, differs = _differing_signs(builder, left, right)
    moved = builder.arith("add", rest, right, type_=I64)
    return builder.arith("select", differs, moved, rest, type_=I64)


def _sign(builder: Builder, value: Value) -> Value:
    one = builder.constant(1, I64)
    return builder.arith(
        "max", builder.arith("min", value, one, type_=I64), builder.constant(-1, I64), type_=I64
    )


_INTEGERS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        "/": _floor_divide,
        "\\": _ceil_divide,
        "%": _remainder,
        "<<": lambda builder, left, right: builder.arith("min", left, right, type_=I64),
        ">>": lambda builder, left, right: builder.arith("max", left, right, type_=I64),
        "sign": _sign,
        "round": lambda builder, value: value,
        "floor": lambda builder, value: value,
        "ceil": lambda builder, value: value,
    }
)


# --- bool ---------------------------------------------------------------------------------------------------


def _of_booleans(builder: Builder, function: str, operands: list[Value]) -> Value:
    if function == "!":
        return negation(builder, operands[0])
    left, right = operands
    words = {"&&": "and", "||": "or", "^": "xor", "!=": "xor"}
    if function in words:
        return builder.arith(words[function], left, right, type_=BOOL)
    if function == "==":
        return negation(builder, builder.arith("xor", left, right, type_=BOOL))
    if function in ("=>", "<="):
        return builder.arith("or", negation(builder, left), right, type_=BOOL)
    if function == ">=":
        return builder.arith("or", left, negation(builder, right), type_=BOOL)
    if function in ("<", ">"):
        lower, upper = (left, right) if function == "<" else (right, left)
        return builder.arith("and", negation(builder, lower), upper, type_=BOOL)
    raise Unsupported(f"it uses '{function}' of bool")


def negation(builder: Builder, value: Value) -> Value:
    """`arith.not`."""
    return builder.arith("not", value, type_=BOOL)


# --- conversions --------------------------------------------------------------------------------------------


def convert(builder: Builder, value: Value, source: Scalar, target: Scalar) -> Value:
    """`cast` of a formula: a real becomes the nearest integer towards zero, NaN becomes 0."""
    if source == target:
        return value
    if target == BOOL:
        return builder.compare("ne", value, _zero(builder, source))
    if source == BOOL:
        one = builder.constant(1, I64) if target == I64 else builder.constant(1.0, target)
        return builder.arith("select", value, one, _zero(builder, target), type_=target)
    if target == I64:
        return _to_integer(builder, value, source)
    return builder.cast(value, target)


def _zero(builder: Builder, kind: Scalar) -> Value:
    return builder.constant(0, I64) if kind == I64 else builder.constant(0.0, kind)


def _to_integer(builder: Builder, value: Value, source: Scalar) -> Value:
    bound = builder.constant(float(1 << 63), source)
    lower = builder.constant(-float(1 << 63), source)
    inside = builder.arith(
        "and", builder.compare("lt", value, bound), builder.compare("gt", value, lower), type_=BOOL
    )
    safe = builder.arith("select", inside, value, builder.constant(0.0, source), type_=source)
    found = builder.cast(safe, I64)
    above = builder.compare("ge", value, bound)
    found = builder.arith("select", above, builder.constant(LARGEST, I64), found, type_=I64)
    smallest = builder.arith("sub", builder.constant(SMALLEST, I64), builder.constant(1, I64), type_=I64)
    return builder.arith("select", builder.compare("le", value, lower), smallest, found, type_=I64)
