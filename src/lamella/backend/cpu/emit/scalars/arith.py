"""`arith.…`: functions of one, two or three operands on scalars, and on cooperative matrices by component."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import gcd
from types import MappingProxyType

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import WIDTHS
from lamella.backend.cpu.emit.scalars import complexes
from lamella.backend.cpu.emit.scalars.lanes import (
    BITS,
    Vector,
    lanes_of,
    level,
    map_columns,
    narrow,
    vector_of,
    vectors_of,
    widen,
    wrap,
)
from lamella.backend.cpu.emit.values import MatrixValue, ScalarValue
from lamella.lang.tensor.check.kinds import PARTS
from lamella.lang.tensor.nodes import Arith

# --- arithmetic of integers: constants are folded, and no operand makes the machine trap --------------------


WIDEST = max(integers.WIDTHS.values())
CODE_BITS = 4
"""Bits of integers that are looked up where they become numbers."""
UPPER = WIDTHS["i32"] - CODE_BITS
"""How far the low bits of a 32-bit integer are shifted up for their sign."""


def combine_integers(
    context: EmitContext, function: str, left: ScalarValue, right: ScalarValue
) -> ScalarValue:
    """`left FUNCTION right` on integers of one type, with what is known about them."""
    if isinstance(left.constant, int) and isinstance(right.constant, int):
        folded = _fold(function, left.constant, right.constant, integers.WIDTHS[left.element])
        if folded is not None:
            return integers.number(wrap(folded, left.element), left.element)
    if function == "rem" and left.is_uniform and _is_multiple(left, right.constant):
        return integers.number(0, left.element)
    if _is_plain(context, left, right):
        if function in EVEN:
            return EVEN[function](context, left, right)
        if function == "shl" and _shifts(right, left.element):
            factor = wrap(1 << int(right.constant or 0), left.element)
            return integers.multiply(context, left, integers.number(factor, left.element))
    found = apply_integers(context, function, *level(context, left, right))
    return replace(found, divisor=_divisor(function, left, right)) if found.is_uniform else found


def apply_integers(context: EmitContext, function: str, left: ScalarValue, right: ScalarValue) -> ScalarValue:
    """`left FUNCTION right`, lane by lane."""
    return lanes_of(left.element, WRITE[function](vector_of(context, left), vector_of(context, right)))


def _is_plain(context: EmitContext, *values: ScalarValue) -> bool:
    """Whether values belong to lanes of work-items (not to columns of a matrix), and one is more than a vector."""
    known = any(value.is_uniform or value.base is not None for value in values)
    return known and all(value.count in (1, context.lanes) for value in values)


def _shifts(amount: ScalarValue, element: str) -> bool:
    constant = amount.constant
    return isinstance(constant, int) and 0 <= constant < integers.WIDTHS[element]


def _divisor(function: str, left: ScalarValue, right: ScalarValue) -> int:
    """What divides the result, as far as it follows from what divides the operands."""
    if function in ("min", "max", "rem"):
        return gcd(left.divisor, right.divisor)
    known = right.constant if isinstance(right.constant, int) else 0
    if function == "shr":
        known = 1 << known if 0 <= known < left.divisor.bit_length() else 0
    if function in ("div", "shr") and _is_multiple(left, known):
        return max(1, left.divisor // abs(known))
    return 1


def _is_multiple(value: ScalarValue, number: object) -> bool:
    """Whether a number is known and divides a value.

    What wrapped in a narrow type is a multiple of the power of two in its divisor, of nothing else.
    """
    if not isinstance(number, int) or number == 0 or value.divisor % number:
        return False
    return integers.WIDTHS[value.element] == WIDEST or number & (number - 1) == 0


# --- known operands -----------------------------------------------------------------------------------------


def _fold(function: str, left: int, right: int, bits: int) -> int | None:
    """The result for known operands; None where the language leaves it open."""
    if function in ("div", "rem") and right == 0:
        return None
    if function in ("shl", "shr") and not 0 <= right < bits:
        return None
    return FOLD[function](left, right)


def _cut(left: int, right: int) -> int:
    """The quotient, toward zero."""
    whole = abs(left) // abs(right)
    return whole if (left < 0) == (right < 0) else -whole


EVEN: Mapping[str, Callable[[EmitContext, ScalarValue, ScalarValue], ScalarValue]] = MappingProxyType(
    {"add": integers.add, "sub": integers.subtract, "mul": integers.multiply}
)
FOLD: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {
        "add": lambda left, right: left + right,
        "sub": lambda left, right: left - right,
        "mul": lambda left, right: left * right,
        "div": _cut,
        "rem": lambda left, right: left - right * _cut(left, right),
        "min": min,
        "max": max,
        "shl": lambda left, right: left << right,
        "shr": lambda left, right: left >> right,
        "and": lambda left, right: left & right,
        "or": lambda left, right: left | right,
        "xor": lambda left, right: left ^ right,
    }
)


# --- instructions -------------------------------------------------------------------------------------------


def _divide(left: Vector, right: Vector) -> Vector:
    return left.apply("sdiv", _harmless(left, right))


def _remainder(left: Vector, right: Vector) -> Vector:
    return left.apply("srem", _harmless(left, right))


def _harmless(left: Vector, right: Vector) -> Vector:
    """The divisor, with 1 where the machine would trap: it is 0, or -1 and the quotient does not fit.

    By 1 the least integer divides into itself without a rest, which is the quotient by -1, wrapped.
    """
    if _constant(right) not in (None, 0, -1):
        return right
    least = left.equals(-(1 << (BITS[left.kind] - 1))) & right.equals(-1)
    return (right.equals(0) | least).choose(right.like(1), right)


def _constant(value: Vector) -> int | None:
    """The integer in all lanes where it is written out."""
    text = value.operand.removeprefix(f"splat ({value.kind} ").removesuffix(")")
    return int(text) if text.lstrip("-").isdigit() else None


def _shift(word: str) -> Callable[[Vector, Vector], Vector]:
    def shift(left: Vector, right: Vector) -> Vector:
        if (_constant(right) or 0) in range(1, BITS[left.kind]):
            return left.apply(word, right)
        # Beyond the width LLVM gives poison; the language leaves the result open, not the rest of the program.
        return left.apply(word, right & (BITS[left.kind] - 1))

    return shift


def _plain(word: str) -> Callable[[Vector, Vector], Vector]:
    return lambda left, right: left.apply(word, right)


def _called(name: str) -> Callable[[Vector, Vector], Vector]:
    return lambda left, right: left.call(name, right)


WRITE: Mapping[str, Callable[[Vector, Vector], Vector]] = MappingProxyType(
    {
        **{word: _plain(word) for word in ("add", "sub", "mul", "and", "or", "xor")},
        "div": _divide,
        "rem": _remainder,
        "min": _called("smin"),
        "max": _called("smax"),
        "shl": _shift("shl"),
        "shr": _shift("ashr"),
    }
)


def emit_arith(context: EmitContext, instruction: Arith) -> ScalarValue | MatrixValue:
    """`arith.FUNCTION %a, … : T`."""
    values = [context.values[value.name] for value in instruction.operands]
    matrices = [value for value in values if isinstance(value, MatrixValue)]
    scalars = [value for value in values if isinstance(value, ScalarValue)]
    if matrices:
        return _compute_matrix(context, instruction, scalars, matrices)
    if instruction.function == "select":
        return select(context, *scalars)
    if instruction.function == "fma":
        return _fuse(context, *scalars)
    if len(scalars) == 1:
        return compute_unary(context, instruction.function, scalars[0])
    return combine(context, instruction.function, *scalars)


def _fuse(context: EmitContext, left: ScalarValue, right: ScalarValue, added: ScalarValue) -> ScalarValue:
    """A product and a sum that are rounded once; those of bf16 twice, through f32."""
    values = [vectors_of(context, item)[0] for item in level(context, left, right, added)]
    if left.element == "bf16":
        first, second, third = map(widen, values)
        return lanes_of("bf16", narrow(first.fma(second, third)))
    return lanes_of(left.element, values[0].fma(values[1], values[2]))


def _compute_matrix(
    context: EmitContext, instruction: Arith, scalars: list[ScalarValue], matrices: list[MatrixValue]
) -> MatrixValue:
    """All components alike; what chooses between matrices is the same for the whole subgroup."""
    if instruction.function == "select":
        return map_columns(
            instruction.type, partial(_pick, _first_lane(context, scalars[0])), context, *matrices
        )
    if instruction.function == "fma":
        return map_columns(instruction.type, _fuse, context, *matrices)
    operate = compute_unary if len(matrices) == 1 else combine
    found = map_columns(instruction.type, partial(_named, operate, instruction.function), context, *matrices)
    shifted = instruction.function in ("shl", "shr") and instruction.type == matrices[0].type
    return _with_codes(instruction.function, found, *matrices) if shifted else found


def _with_codes(function: str, found: MatrixValue, left: MatrixValue, right: MatrixValue) -> MatrixValue:
    """What was shifted, with what is known of the bits of its components."""
    above = 0 if right.number is None or found.type.element != "i32" else right.number
    if above == UPPER and function == "shl":
        return replace(found, codes=left.parts[0])
    if above == UPPER and function == "shr" and left.codes and left.bits is None:
        return replace(found, bits=CODE_BITS, codes=left.codes)
    if above and left.bits is not None and function == "shr" and left.bits - above == CODE_BITS:
        return replace(found, bits=CODE_BITS, codes=found.parts[0])
    return found


def _named(
    operate: Callable[..., ScalarValue], function: str, context: EmitContext, *columns: ScalarValue
) -> ScalarValue:
    return operate(context, function, *columns)


# --- two operands -------------------------------------------------------------------------------------------


def combine(context: EmitContext, function: str, left: ScalarValue, right: ScalarValue) -> ScalarValue:
    """`left FUNCTION right` for any function of two operands and any type that it takes.

    The operands have as many lanes each, any number, or one of them is uniform.
    """
    if left.element in WIDTHS:
        return combine_integers(context, function, left, right)
    left, right = level(context, left, right)
    if left.element == "bool":
        return apply_integers(context, function, left, right)
    operands = vectors_of(context, left), vectors_of(context, right)
    if left.element in PARTS:
        return lanes_of(left.element, *complexes.BINARY[function](*operands))
    found = _combine_floats(context, function, left.element, operands[0][0], operands[1][0])
    return lanes_of(left.element, found)


def _combine_floats(context: EmitContext, function: str, element: str, left: Vector, right: Vector) -> Vector:
    if element == "bf16":
        return narrow(_combine_floats(context, function, "f32", widen(left), widen(right)))
    if function in ("min", "max"):
        return left.call(f"{function}num", right)
    if function == "rem" and left.kind == "half":
        wide = (item.cast("fpext", "float") for item in (left, right))
        return _combine_floats(context, function, "f32", *wide).cast("fptrunc", "half")
    if function == "rem" and context.target.has_threads:
        return _divide_exactly(left, right)
    return left.apply(WORDS[function], right)


QUOTIENT = MappingProxyType({"float": 2.0**100, "double": 2.0**1000})
"""A quotient that does not overflow, by which two times leads from the largest to one that does not either."""


def _divide_exactly(left: Vector, right: Vector) -> Vector:
    """The remainder of a division of reals; on a GPU LLVM has x - trunc(x / y) y, whose quotient is rounded.

    q being trunc(x / y) as it is rounded, x - q y is a number without rounding. It may have another sign than x, and
    be as large as y still, where q is too large to be a whole number exactly: then it is divided again.
    """
    out, divisor = left.out, abs(right)
    begin, loop, more, done = out.block, out.label("divide"), out.label("more"), out.label("divided")
    start, rest = abs(left), replace(left, operand=out.name())
    out.jump(loop)
    out.begin(loop)
    hole = out.hole()
    out.branch((abs(rest) >= divisor).operand, more, done)
    out.begin(more)
    scaled, most = divisor, QUOTIENT[left.kind]
    for _ in range(2):
        larger = scaled * most
        scaled = (abs(rest) >= larger).choose(larger, scaled)
    following = (-(rest / scaled).call("trunc")).fma(scaled, rest)
    out.fill(
        hole,
        f"{rest.operand} = phi {left.type} [ {start.operand}, %{begin} ], [ {following.operand}, %{more} ]",
    )
    out.jump(loop)
    out.begin(done)
    found = (rest < 0.0).choose(rest + divisor, rest).call("copysign", left)
    return right.is_nan().choose(right, found)


WORDS = MappingProxyType({"add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "rem": "srem"})


# --- one operand --------------------------------------------------------------------------------------------


def compute_unary(context: EmitContext, function: str, value: ScalarValue) -> ScalarValue:
    """`FUNCTION value` for any function of one operand and any type that it takes."""
    if value.element in WIDTHS:
        return _compute_integer(context, function, value)
    parts = vectors_of(context, value)
    if value.element == "bool":
        return lanes_of("bool", parts[0] ^ 1)
    if value.element in PARTS:
        element = PARTS[value.element] if function in ("abs", "re", "im") else value.element
        return lanes_of(element, *COMPLEX[function](parts))
    if value.element == "bf16":
        return lanes_of("bf16", parts[0] & 0x7FFF if function == "abs" else parts[0] ^ -0x8000)
    return lanes_of(value.element, abs(parts[0]) if function == "abs" else -parts[0])


def _compute_integer(context: EmitContext, function: str, value: ScalarValue) -> ScalarValue:
    if function in ("neg", "not"):
        whole = integers.number(0 if function == "neg" else -1, value.element)
        return combine_integers(context, "sub", whole, value)
    if isinstance(value.constant, int):
        return combine_integers(
            context, "mul", value, integers.number(-1 if value.constant < 0 else 1, value.element)
        )
    value = value if value.parts else integers.spread(context, value)
    return lanes_of(value.element, abs(vector_of(context, value)))


COMPLEX: Mapping[str, Callable[[complexes.Pair], tuple[Vector, ...]]] = MappingProxyType(
    {
        "neg": lambda parts: (-parts[0], -parts[1]),
        "conj": lambda parts: (parts[0], -parts[1]),
        "abs": lambda parts: (complexes.absolute(parts),),
        "re": lambda parts: (parts[0],),
        "im": lambda parts: (parts[1],),
    }
)


# --- select -------------------------------------------------------------------------------------------------


def select(
    context: EmitContext, condition: ScalarValue, then: ScalarValue, otherwise: ScalarValue
) -> ScalarValue:
    """`then` where the condition holds, else `otherwise`."""
    if condition.constant is not None:
        return then if condition.constant else otherwise
    if condition.is_uniform:
        found = _pick(condition, context, *level(context, then, otherwise))
        divisor = gcd(then.divisor, otherwise.divisor) if found.is_uniform else 1
        return replace(found, divisor=max(1, divisor))
    return _pick(condition, context, *level(context, condition, then, otherwise)[1:])


def _pick(
    condition: ScalarValue, context: EmitContext, then: ScalarValue, otherwise: ScalarValue
) -> ScalarValue:
    chosen = vector_of(context, condition)
    pairs = zip(vectors_of(context, then), vectors_of(context, otherwise), strict=True)
    return lanes_of(then.element, *(chosen.choose(*pair) for pair in pairs))


def _first_lane(context: EmitContext, value: ScalarValue) -> ScalarValue:
    if value.is_uniform:
        return value
    vector = vector_of(context, value)
    return replace(value, count=1, parts=(context.out.value(f"extractelement {vector.typed}, i64 0"),))
