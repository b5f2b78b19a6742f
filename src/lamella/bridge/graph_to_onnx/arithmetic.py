"""Functions of scalars over ONNX values that broadcast together; what is known and small is computed at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import BOOL, F32, F64, I32, I64, ElementType
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_onnx.doubles import DOUBLES
from lamella.bridge.graph_to_onnx.emitter import Emitter, Value, data_type

FOLDED = 1 << 14
"""Elements of a value that is computed before the run; larger ones are computed by nodes."""


def apply(emitter: Emitter, function: str, operands: Sequence[Value], element: ElementType) -> Value:
    """A function of the language (not `cast`) of values that broadcast together."""
    folded = _fold(emitter, function, operands, element)
    if folded is not None:
        return folded
    simple = _simplified(function, operands) or _clipped(emitter, function, operands)
    if simple is not None:
        return simple
    kind = "real" if operands[-1].element.is_float else "bool" if operands[-1].element == BOOL else "int"
    special = _SPECIAL.get((function, kind))
    if special is not None:
        return special(emitter, *operands)
    if kind == "real" and operands[-1].element == F64 and function in DOUBLES:
        return DOUBLES[function](emitter, operands[0])
    op_type = _NODES.get(function)
    if op_type is None:
        raise Unsupported(f"the function {function} of {kind}")
    return emitter.add(op_type, operands, element)


# --- what is known before the run -----------------------------------------------------------------------------


def _fold(emitter: Emitter, function: str, operands: Sequence[Value], element: ElementType) -> Value | None:
    arrays = [item.known for item in operands if item.known is not None]
    rule = _FOLDS.get(function)
    if rule is None or len(arrays) != len(operands):
        return None
    if int(np.prod(np.broadcast_shapes(*(item.shape for item in arrays)), dtype=np.int64)) > FOLDED:
        return None
    integers = arrays[0].dtype.kind in "iu"
    if integers and function in ("/", "\\", "%") and not arrays[1].all():
        return None
    with np.errstate(all="ignore"):
        found = (_INTEGER_FOLDS.get(function, rule) if integers else rule)(*arrays)
    return emitter.constant(np.asarray(found).astype(numpy_dtype(element)))


def _simplified(function: str, operands: Sequence[Value]) -> Value | None:
    """One operand that is the result: `x + 0`, `x * 1`, `x / 1`, `x && true`; 0 for -0 is the same number."""
    neutral = _NEUTRAL.get(function)
    if len(operands) != 2 or neutral is None:
        return None
    left, right = operands
    if _is_single(right, neutral):
        return left
    return right if function in ("+", "*", "&&", "||") and _is_single(left, neutral) else None


def _clipped(emitter: Emitter, function: str, operands: Sequence[Value]) -> Value | None:
    """A value held between two numbers as one node: `(x >> low) << high`, in either order."""
    other = {"<<": "Max", ">>": "Min"}.get(function)
    if other is None or not operands[0].element.is_float or not _is_number(operands[1]):
        return None
    op_type, inner = emitter.maker(operands[0])
    if op_type != other or inner[0] is None or inner[1] is None or not _is_number(inner[1]):
        return None
    low, high = (inner[1], operands[1]) if function == "<<" else (operands[1], inner[1])
    if low.known is None or high.known is None or not low.known <= high.known:
        return None
    return emitter.add("Clip", (inner[0], low, high), operands[0].element)


def _is_number(value: Value) -> bool:
    return value.known is not None and value.known.ndim == 0


def _is_single(value: Value, number: int) -> bool:
    return value.known is not None and value.known.ndim == 0 and bool(value.known == number)


_NEUTRAL: Mapping[str, int] = MappingProxyType({"+": 0, "-": 0, "*": 1, "/": 1, "&&": 1, "||": 0})


def _round_away(values: Array) -> Array:
    whole = np.trunc(values)
    return np.asarray(np.where(np.abs(values - whole) >= 0.5, whole + np.sign(values), whole))


_INTEGER_FOLDS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "/": np.floor_divide,
        "\\": lambda left, right: -np.floor_divide(-left, right),
        "%": np.remainder,
        "round": np.positive,
    }
)
_FOLDS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        **{"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod},
        **{"\\": lambda left, right: np.ceil(left / right), "neg": np.negative, "abs": np.abs},
        **{"<<": np.minimum, ">>": np.maximum, "<": np.less, "<=": np.less_equal, ">": np.greater},
        **{">=": np.greater_equal, "==": np.equal, "!=": np.not_equal, "&&": np.logical_and},
        **{"||": np.logical_or, "^": np.logical_xor, "=>": np.less_equal, "!": np.logical_not},
        **{"?:": np.where, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "floor": np.floor},
        **{"ceil": np.ceil, "round": _round_away, "sign": np.sign},
    }
)

# --- nodes ----------------------------------------------------------------------------------------------------

_NODES: Mapping[str, str] = MappingProxyType(
    {
        **{"+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "**": "Pow", "<<": "Min", ">>": "Max"},
        **{"neg": "Neg", "abs": "Abs", "sign": "Sign", "sqrt": "Sqrt", "exp": "Exp", "log": "Log"},
        **{"erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos"},
        **{"atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh"},
        **{"acosh": "Acosh", "atanh": "Atanh", "floor": "Floor", "ceil": "Ceil", "?:": "Where"},
        **{"<": "Less", "<=": "LessOrEqual", ">": "Greater", ">=": "GreaterOrEqual", "==": "Equal"},
        **{"&&": "And", "||": "Or", "^": "Xor", "!": "Not"},
    }
)
"""Functions that ONNX has under a name of its own."""

Special: TypeAlias = Callable[..., Value]


def _modulus(emitter: Emitter, left: Value, right: Value) -> Value:
    return emitter.add("Mod", (left, right), left.element)


def _floor_divide(emitter: Emitter, left: Value, right: Value) -> Value:
    """Division that rounds down: that of ONNX rounds towards zero, which is the same for what is exact."""
    exact = emitter.add("Sub", (left, _modulus(emitter, left, right)), left.element)
    return emitter.add("Div", (exact, right), left.element)


def _ceil_divide(emitter: Emitter, left: Value, right: Value) -> Value:
    turned = _floor_divide(emitter, emitter.add("Neg", (left,), left.element), right)
    return emitter.add("Neg", (turned,), left.element)


def _real_remainder(emitter: Emitter, left: Value, right: Value) -> Value:
    return emitter.add("Mod", (left, right), left.element, fmod=1)


def _real_ceiling(emitter: Emitter, left: Value, right: Value) -> Value:
    return emitter.add("Ceil", (emitter.add("Div", (left, right), left.element),), left.element)


def _unequal(emitter: Emitter, left: Value, right: Value) -> Value:
    return emitter.add("Not", (emitter.add("Equal", (left, right), BOOL),), BOOL)


def _implies(emitter: Emitter, left: Value, right: Value) -> Value:
    return emitter.add("Or", (emitter.add("Not", (left,), BOOL), right), BOOL)


def _fraction(emitter: Emitter, value: Value) -> Value:
    return emitter.add("Sub", (value, truncate(emitter, value)), value.element)


def truncate(emitter: Emitter, value: Value) -> Value:
    """A real without its fraction."""
    size = emitter.add("Floor", (emitter.add("Abs", (value,), value.element),), value.element)
    return emitter.add("Mul", (size, emitter.add("Sign", (value,), value.element)), value.element)


def _round(emitter: Emitter, value: Value) -> Value:
    """Halves go away from zero; ONNX's own rounds them to even."""
    size = emitter.add("Abs", (value,), value.element)
    whole = emitter.add("Floor", (size,), value.element)
    rest = emitter.add("Sub", (size, whole), value.element)
    half, one = emitter.number(0.5, value.element), emitter.number(1, value.element)
    up = emitter.add("GreaterOrEqual", (rest, half), BOOL)
    more = emitter.add("Where", (up, one, emitter.number(0, value.element)), value.element)
    rounded = emitter.add("Add", (whole, more), value.element)
    return emitter.add("Mul", (rounded, emitter.add("Sign", (value,), value.element)), value.element)


def _same(emitter: Emitter, value: Value) -> Value:
    return value


def _power(emitter: Emitter, base: Value, exponent: Value) -> Value:
    """Powers of integers; a negative exponent gives the reciprocal without its fraction: 0, 1 or -1."""
    zero, one, two = (emitter.number(item, I64) for item in (0, 1, 2))
    whole = emitter.add("Pow", (base, emitter.add("Max", (exponent, zero), I64)), I64)
    if exponent.known is not None and (exponent.known >= 0).all():
        return whole
    odd = emitter.add("Equal", (emitter.add("Mod", (exponent, two), I64), one), BOOL)
    unit = emitter.add("Equal", (emitter.add("Abs", (base,), I64), one), BOOL)
    sign = emitter.add("Where", (odd, base, one), I64)
    turned = emitter.add("Where", (unit, sign, zero), I64)
    return emitter.add("Where", (emitter.add("Less", (exponent, zero), BOOL), turned, whole), I64)


def _select_bools(emitter: Emitter, condition: Value, then: Value, otherwise: Value) -> Value:
    first = emitter.add("And", (condition, then), BOOL)
    second = emitter.add("And", (emitter.add("Not", (condition,), BOOL), otherwise), BOOL)
    return emitter.add("Or", (first, second), BOOL)


def _order_of_bools(function: str) -> Special:
    def compare(emitter: Emitter, left: Value, right: Value) -> Value:
        wide = [cast(emitter, item, I32) for item in (left, right)]
        return apply(emitter, function, wide, BOOL)

    return compare


_SPECIAL: Mapping[tuple[str, str], Special] = MappingProxyType(
    {
        ("/", "int"): _floor_divide,
        ("\\", "int"): _ceil_divide,
        ("%", "int"): _modulus,
        ("**", "int"): _power,
        ("round", "int"): _same,
        ("%", "real"): _real_remainder,
        ("\\", "real"): _real_ceiling,
        ("round", "real"): _round,
        ("frac", "real"): _fraction,
        ("=>", "bool"): _implies,
        ("?:", "bool"): _select_bools,
        **{("!=", kind): _unequal for kind in ("int", "real", "bool")},
        **{(sign, "bool"): _order_of_bools(sign) for sign in ("<", "<=", ">", ">=")},
        ("<<", "bool"): lambda emitter, left, right: emitter.add("And", (left, right), BOOL),
        (">>", "bool"): lambda emitter, left, right: emitter.add("Or", (left, right), BOOL),
    }
)
"""Functions that take several nodes, by the type of their last operand."""


def cast(emitter: Emitter, value: Value, element: ElementType) -> Value:
    """A value in another type: integers wrap around, reals lose their fraction."""
    if value.element == element:
        return value
    if value.known is not None and value.known.size <= FOLDED and not value.element.is_float:
        return emitter.constant(value.known.astype(numpy_dtype(element)))
    if value.known is not None and element in (F32, F64):
        return emitter.constant(value.known.astype(numpy_dtype(element)))
    return emitter.add("Cast", (value,), element, to=data_type(element))
