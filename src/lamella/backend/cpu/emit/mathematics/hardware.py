"""Functions of single precision where a GPU has instructions for the powers and reciprocals that they are made of.

They stay inside the errors that are stated for all machines: a power is right to two units in the last place, and
stands only where it is added to something larger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.mathematics import erf as polynomials
from lamella.backend.cpu.emit.mathematics.exponentials import LOG2_E, at_most, polynomial, with_sign
from lamella.backend.cpu.emit.scalars.lanes import Vector

NEAR = 0.55
"""Below, the hyperbolic tangent is a polynomial: a difference from 1 would lose its digits."""
NEAR_TANH = (-0.33332958817481995, 0.13320942223072052, -0.05268411710858345, 0.016458706930279732)
"""(tanh(x) / x - 1) / x² as a function of x²."""
FAR = 12.0
"""Above, it is 1 to all digits."""


def instruction(x: Vector, name: str) -> Vector:
    """What an instruction of one operand gives."""
    return replace(x, operand=x.out.value(f'call float asm "{name}.f32 $0, $1;", "=f,f"(float {x.operand})'))


def tanh(context: EmitContext, x: Vector) -> Vector:
    """The hyperbolic tangent: 1 - 2 / (exp(2|x|) + 1), or a polynomial."""
    size, square = abs(x), x * x
    small = x.fma(square * polynomial(square, NEAR_TANH), x)
    power = instruction(at_most(size, FAR) * (2.0 * LOG2_E), "ex2.approx.ftz")
    large = instruction(power + 1.0, "rcp.approx.ftz").fma(-2.0, 1.0)
    # NaN is neither near nor kept by the power's bound, and stays in the polynomial.
    return (size >= NEAR).choose(with_sign(large, x), small)


def erf(context: EmitContext, x: Vector) -> Vector:
    """The error function: 1 - 2^Q(|x|), or a polynomial."""
    size = abs(x)
    small = x.fma(polynomial(x * x, polynomials.SMALL[x.kind]), x)
    power = polynomial(at_most(size, 4.0), polynomials.SINGLE)
    large = (-instruction(power, "ex2.approx.ftz")) + 1.0
    return (size >= 1.0).choose(with_sign(large, x), small)


FUNCTIONS: Mapping[str, Callable[[EmitContext, Vector], Vector]] = MappingProxyType(
    {"tanh": tanh, "erf": erf}
)
