"""`math.…`: which function computes it, and in which precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.mathematics import (
    arcs,
    circles,
    complexes,
    errors,
    exponentials,
    logarithms,
    powers,
    rounding,
)
from lamella.backend.cpu.emit.scalars.floats import change
from lamella.backend.cpu.emit.scalars.lanes import lanes_of, level, vectors_of
from lamella.backend.cpu.emit.scalars.vectors import Vector
from lamella.backend.cpu.emit.values import Lanes
from lamella.lang.tensor.check.kinds import PARTS
from lamella.lang.tensor.nodes import Math

Function: TypeAlias = Callable[..., Vector]
"""Of the place of emission and of vectors of one kind."""

SINGLE: Mapping[str, Function] = MappingProxyType(
    {
        "exp": exponentials.exp,
        "exp2": exponentials.exp2,
        "log": logarithms.log,
        "log2": logarithms.log2,
        "tanh": exponentials.tanh,
        "sigmoid": exponentials.sigmoid,
        "erf": errors.erf,
        "sqrt": rounding.instruction("sqrt"),
        "rsqrt": rounding.rsqrt,
        "floor": rounding.instruction("floor"),
        "ceil": rounding.instruction("ceil"),
        "trunc": rounding.instruction("trunc"),
        "round": rounding.round_away,
        "sign": rounding.sign,
    }
)
"""Functions in single and in double precision."""
DOUBLE: Mapping[str, Function] = MappingProxyType(
    {
        "sin": circles.sin,
        "cos": circles.cos,
        "tan": circles.tan,
        "asin": arcs.asin,
        "acos": arcs.acos,
        "atan": arcs.atan,
        "sinh": exponentials.sinh,
        "cosh": exponentials.cosh,
        "asinh": logarithms.asinh,
        "acosh": logarithms.acosh,
        "atanh": logarithms.atanh,
        "pow": powers.power,
    }
)
"""Functions in double precision only; narrower types go through it and are rounded once more."""
SHORT: Mapping[str, Function] = MappingProxyType(
    {
        **DOUBLE,
        "sin": partial(circles.sin, short=True),
        "cos": partial(circles.cos, short=True),
        "tan": partial(circles.tan, short=True),
        "pow": powers.short_power,
    }
)
"""The same for narrower types, where some may be shorter."""
COMPLEX = MappingProxyType({"exp": complexes.exp, "exp2": complexes.exp2})


def emit_math(here: Here, instruction: Math) -> Lanes:
    """`math.exp %a : f32`; a `native_` function is the one without the word before it."""
    function = instruction.function.removeprefix("native_")
    operands = level(here, *(here.scalar(value.name) for value in instruction.operands))
    return compute(here, function, *operands)


def compute(here: Here, function: str, *operands: Lanes) -> Lanes:
    """A function of values with as many lanes each."""
    element = operands[0].element
    if element in PARTS:
        part = PARTS[element]
        wide = tuple(change(item, part, "f64") for item in vectors_of(here, operands[0]))
        return lanes_of(element, *(change(item, "f64", part) for item in COMPLEX[function](here, wide)))
    wanted = "f64" if function in DOUBLE or element == "f64" else "f32"
    values = [change(vectors_of(here, item)[0], element, wanted) for item in operands]
    functions = DOUBLE if element == "f64" else SHORT
    found = (functions.get(function) or SINGLE[function])(here, *values)
    return lanes_of(element, change(found, wanted, element))
