"""Mathematical functions in LLVM text: polynomials of our own on vectors of any length, with stated errors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lamella.backend.cpu.emit.mathematics.dispatch import compute, emit_math
from lamella.base.records import dataclass

# --- how far results may be from the true ones, in units of the last place of the result --------------------


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The largest error in ulp, for results in single and in double precision."""

    single: float
    double: float


EXACT = Accuracy(0.0, 0.0)
ROUNDED = Accuracy(0.5, 0.5)

ACCURACY: Mapping[str, Accuracy] = MappingProxyType(
    {
        "exp": Accuracy(1.0, 1.0),
        "exp2": Accuracy(1.0, 1.0),
        "log": Accuracy(1.0, 1.0),
        "log2": Accuracy(1.0, 1.0),
        "sin": Accuracy(0.6, 1.0),
        "cos": Accuracy(0.6, 1.0),
        "tan": Accuracy(0.6, 2.5),
        "asin": Accuracy(0.6, 2.5),
        "acos": Accuracy(0.6, 1.5),
        "atan": Accuracy(0.6, 2.5),
        "sinh": Accuracy(0.6, 2.5),
        "cosh": Accuracy(0.6, 2.0),
        "tanh": Accuracy(3.0, 3.0),
        "asinh": Accuracy(0.6, 2.5),
        "acosh": Accuracy(0.6, 3.0),
        "atanh": Accuracy(0.6, 3.0),
        "pow": Accuracy(0.6, 1.5),
        "sqrt": ROUNDED,
        "rsqrt": Accuracy(1.5, 1.5),
        "erf": Accuracy(1.5, 1.5),
        "sigmoid": Accuracy(2.5, 2.5),
        "floor": EXACT,
        "ceil": EXACT,
        "trunc": EXACT,
        "round": EXACT,
        "sign": EXACT,
    }
)
"""By function; `native_` functions have the errors of those without the word."""


__all__ = ["ACCURACY", "Accuracy", "compute", "emit_math"]
