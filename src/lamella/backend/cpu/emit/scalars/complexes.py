"""Arithmetic of complex numbers: two parts, the plain formulas, no scaling except for the absolute value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from lamella.backend.cpu.emit.scalars.lanes import Vector

Pair: TypeAlias = tuple[Vector, ...]
"""The real and the imaginary part."""
EXPONENT = 52
LARGEST = 0x7FD
"""The exponent field of a double whose reciprocal power of two is still normal."""


def add(left: Pair, right: Pair) -> Pair:
    """The sum."""
    return tuple(a + b for a, b in zip(left, right, strict=True))


def subtract(left: Pair, right: Pair) -> Pair:
    """The difference."""
    return tuple(a - b for a, b in zip(left, right, strict=True))


def multiply(left: Pair, right: Pair) -> Pair:
    """The product."""
    (a, b), (c, d) = left, right
    return a * c - b * d, a * d + b * c


def divide(left: Pair, right: Pair) -> Pair:
    """The quotient: the product with the conjugate, by the square of the absolute value."""
    (a, b), (c, d) = left, right
    square = c * c + d * d
    return (a * c + b * d) / square, (b * c - a * d) / square


def absolute(value: Pair) -> Vector:
    """The absolute value, at most 1 ulp off; it overflows only where the result does."""
    if value[0].kind == "float":
        wide = tuple(part.cast("fpext", "double") for part in value)
        root = (wide[0] * wide[0] + wide[1] * wide[1]).call("sqrt").cast("fptrunc", "float")
        return _infinite(value, root)
    first, second = (abs(part) for part in value)
    largest = (first > second).choose(first, second)
    field = largest.bits().apply("lshr", EXPONENT).call("umax", 1).call("umin", LARGEST)
    up, down = field << EXPONENT, (0x7FE - field) << EXPONENT
    small = [part * down.cast("bitcast", "double") for part in (first, second)]
    root = small[0].fma(small[0], small[1] * small[1]).call("sqrt")
    return _infinite(value, root * up.cast("bitcast", "double"))


def _infinite(value: Pair, root: Vector) -> Vector:
    """Where a part is infinite the absolute value is, even beside NaN."""
    limit = float("inf")
    return (abs(value[0]).equals(limit) | abs(value[1]).equals(limit)).choose(root.like(limit), root)


BINARY: Mapping[str, Callable[[Pair, Pair], Pair]] = MappingProxyType(
    {"add": add, "sub": subtract, "mul": multiply, "div": divide}
)
