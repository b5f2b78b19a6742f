"""The error function.

Below 1 it is an odd polynomial; above, 1 - exp(Q(|x|)), or 1 less a power of 2, with polynomials Q next to the
logarithm of erfc.
"""

from __future__ import annotations

from types import MappingProxyType

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.mathematics.exponentials import exp, near_exp2
from lamella.backend.cpu.emit.mathematics.polynomials import (
    at_most,
    clamp,
    nearest,
    polynomial,
    power_of_two,
    with_sign,
)
from lamella.backend.cpu.emit.scalars.vectors import Vector

SMALL = MappingProxyType(
    {
        "float": (
            0.12837916584835094603,
            -0.37612626666720331023,
            0.11283594715160217732,
            -0.026854212010626412443,
            0.0051890874234339739861,
            -0.00080168642871658695293,
            0.000078758750626854883411,
        ),
        "double": (
            0.12837916709551257377,
            -0.37612638903183748056,
            0.11283791670954878666,
            -0.026866170645076793248,
            0.0052239776248180144673,
            -0.00085483269808337899052,
            0.00012055331111642710923,
            -0.000014925595266831181565,
            1.6461000484121368033e-6,
            -1.6350312701054695011e-7,
            1.4659775274047435814e-8,
            -1.137284885679167367e-9,
            5.9571761477489114044e-11,
        ),
    }
)
"""erf(x) / x - 1 as a function of x² up to 1."""
SINGLE = (
    0.0004618615766698807,
    -1.630582171493444,
    -0.911532311288859,
    -0.1588119897709087,
    0.03811764189002414,
    -0.0068666459689287335,
    0.0008610085165154421,
    -6.644770978074627e-05,
    2.361910227018601e-06,
)
"""log2(erfc(a)) for a from 1 to 4."""
LOW = (
    -5.3649412646166375547,
    -4.4181608059944142009,
    -0.92375084182378065436,
    -0.016465118136930998018,
    0.003570756345567689488,
    -0.00073239938580371494472,
    0.00013530933877695071093,
    -0.00002070642896547178589,
    1.9521826856420577595e-6,
    2.0362775459973461652e-7,
    -1.731914680680390557e-7,
    5.7822692824429835963e-8,
    -1.395602656746862575e-8,
    2.5167545159499509839e-9,
    -2.7734053395167388633e-10,
    -3.3043016956195221169e-11,
    4.1042668346396375135e-11,
    -1.1976694391588328344e-11,
)
"""log(erfc(a)) as a function of a - 2 for a from 1 to 3."""
HIGH = (
    -22.349768303435940757,
    -9.2124012752852428806,
    -0.97836288965926493999,
    -0.0028252608649082239142,
    0.00039943384052268007996,
    -0.000057982909346856586335,
    8.4320369756839252794e-6,
    -1.2103528559565680004e-6,
    1.6948419158626741942e-7,
    -2.2836243252743566583e-8,
    2.9353764434215650507e-9,
    -3.6580343563383377212e-10,
    3.5570741254617567215e-11,
)
"""log(erfc(a)) as a function of a - 9/2 for a from 3 to 6."""


def erf(context: EmitContext, x: Vector) -> Vector:
    """The error function."""
    size = abs(x)
    small = x.fma(polynomial(x * x, SMALL[x.kind]), x)
    large = _single(size) if x.kind == "float" else 1.0 - exp(context, _log_complement(size))
    return (size < 1.0).choose(small, with_sign(large, x))


def _single(size: Vector) -> Vector:
    """1 - 2^Q(a) in single precision, where no power is out of range."""
    power = polynomial(at_most(size, 4.0), SINGLE)
    count, exponent = nearest(power, 1.0)
    return (-near_exp2(power - count)).fma(power_of_two(exponent, size.kind), 1.0)


def _log_complement(size: Vector) -> Vector:
    """log(erfc(a)) for a above 1; where erf is 1 to all digits, anything small enough."""
    low = polynomial(clamp(size, 1.0, 3.0) - 2.0, LOW)
    high = polynomial(clamp(size, 3.0, 6.0) - 4.5, HIGH)
    return (size < 3.0).choose(low, high)
