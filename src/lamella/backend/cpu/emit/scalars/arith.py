"""`arith.…`: functions of one, two or three operands on scalars, and on cooperative matrices by component."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import gcd
from types import MappingProxyType

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.integers import WIDTHS
from lamella.backend.cpu.emit.scalars import complexes
from lamella.backend.cpu.emit.scalars.floats import narrow, widen
from lamella.backend.cpu.emit.scalars.lanes import lanes_of, level, map_columns, vector_of, vectors_of
from lamella.backend.cpu.emit.scalars.vectors import Vector
from lamella.backend.cpu.emit.scalars.whole import apply_integers, combine_integers
from lamella.backend.cpu.emit.values import Lanes, Matrix
from lamella.lang.tensor.check.kinds import PARTS
from lamella.lang.tensor.nodes import Arith


def emit_arith(here: Here, instruction: Arith) -> Lanes | Matrix:
    """`arith.FUNCTION %a, … : T`."""
    values = [here.values[value.name] for value in instruction.operands]
    matrices = [value for value in values if isinstance(value, Matrix)]
    scalars = [value for value in values if isinstance(value, Lanes)]
    if matrices:
        return _compute_matrix(here, instruction, scalars, matrices)
    if instruction.function == "select":
        return select(here, *scalars)
    if len(scalars) == 1:
        return compute_unary(here, instruction.function, scalars[0])
    return combine(here, instruction.function, *scalars)


def _compute_matrix(here: Here, instruction: Arith, scalars: list[Lanes], matrices: list[Matrix]) -> Matrix:
    """All components alike; what chooses between matrices is the same for the whole subgroup."""
    if instruction.function == "select":
        return map_columns(instruction.type, partial(_pick, _first_lane(here, scalars[0])), here, *matrices)
    operate = compute_unary if len(matrices) == 1 else combine
    return map_columns(instruction.type, partial(_named, operate, instruction.function), here, *matrices)


def _named(operate: Callable[..., Lanes], function: str, here: Here, *columns: Lanes) -> Lanes:
    return operate(here, function, *columns)


# --- two operands -------------------------------------------------------------------------------------------


def combine(here: Here, function: str, left: Lanes, right: Lanes) -> Lanes:
    """`left FUNCTION right` for any function of two operands and any type that it takes.

    The operands have as many lanes each, any number, or one of them is uniform.
    """
    if left.element in WIDTHS:
        return combine_integers(here, function, left, right)
    left, right = level(here, left, right)
    if left.element == "bool":
        return apply_integers(here, function, left, right)
    operands = vectors_of(here, left), vectors_of(here, right)
    if left.element in PARTS:
        return lanes_of(left.element, *complexes.BINARY[function](*operands))
    return lanes_of(left.element, _combine_floats(function, left.element, operands[0][0], operands[1][0]))


def _combine_floats(function: str, element: str, left: Vector, right: Vector) -> Vector:
    if element == "bf16":
        return narrow(_combine_floats(function, "f32", widen(left), widen(right)))
    if function in ("min", "max"):
        return left.call(f"{function}num", right)
    if function == "rem" and left.kind == "half":
        wide = left.cast("fpext", "float").apply("srem", right.cast("fpext", "float"))
        return wide.cast("fptrunc", "half")
    return left.apply(WORDS[function], right)


WORDS = MappingProxyType({"add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "rem": "srem"})


# --- one operand --------------------------------------------------------------------------------------------


def compute_unary(here: Here, function: str, value: Lanes) -> Lanes:
    """`FUNCTION value` for any function of one operand and any type that it takes."""
    if value.element in WIDTHS:
        return _compute_integer(here, function, value)
    parts = vectors_of(here, value)
    if value.element == "bool":
        return lanes_of("bool", parts[0] ^ 1)
    if value.element in PARTS:
        element = PARTS[value.element] if function in ("abs", "re", "im") else value.element
        return lanes_of(element, *COMPLEX[function](parts))
    if value.element == "bf16":
        return lanes_of("bf16", parts[0] & 0x7FFF if function == "abs" else parts[0] ^ -0x8000)
    return lanes_of(value.element, abs(parts[0]) if function == "abs" else -parts[0])


def _compute_integer(here: Here, function: str, value: Lanes) -> Lanes:
    if function in ("neg", "not"):
        whole = integers.number(0 if function == "neg" else -1, value.element)
        return combine_integers(here, "sub", whole, value)
    if isinstance(value.constant, int):
        return combine_integers(
            here, "mul", value, integers.number(-1 if value.constant < 0 else 1, value.element)
        )
    value = value if value.parts else integers.spread(here, value)
    return lanes_of(value.element, abs(vector_of(here, value)))


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


def select(here: Here, condition: Lanes, then: Lanes, otherwise: Lanes) -> Lanes:
    """`then` where the condition holds, else `otherwise`."""
    if condition.constant is not None:
        return then if condition.constant else otherwise
    if condition.is_uniform:
        found = _pick(condition, here, *level(here, then, otherwise))
        divisor = gcd(then.divisor, otherwise.divisor) if found.is_uniform else 1
        return replace(found, divisor=max(1, divisor))
    return _pick(condition, here, *level(here, condition, then, otherwise)[1:])


def _pick(condition: Lanes, here: Here, then: Lanes, otherwise: Lanes) -> Lanes:
    chosen = vector_of(here, condition)
    pairs = zip(vectors_of(here, then), vectors_of(here, otherwise), strict=True)
    return lanes_of(then.element, *(chosen.choose(*pair) for pair in pairs))


def _first_lane(here: Here, value: Lanes) -> Lanes:
    if value.is_uniform:
        return value
    vector = vector_of(here, value)
    return replace(value, count=1, parts=(here.out.value(f"extractelement {vector.typed}, i64 0"),))
