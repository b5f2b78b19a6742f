"""Extents that are not known before the run: integer expressions in normal form, with the range they stay in.

An extent is a plain `int` where it is known. Otherwise it is a `Dim`: a polynomial over symbols and over the parts that
no polynomial can say (quotients, remainders, minima, choices). Two equal polynomials are one extent, however spelled.
"""

from __future__ import annotations

from lamella.base.dim.arithmetic import (
    add,
    ceil_divide,
    choose,
    floor_divide,
    larger,
    mul,
    remainder,
    smaller,
    sub,
)
from lamella.base.dim.form import (
    Atom,
    Condition,
    Dim,
    Extent,
    Logic,
    Monomial,
    Part,
    Symbol,
    Test,
    TooComplex,
    Truth,
    Values,
    symbol,
)
from lamella.base.dim.known import substitute, substitute_truth, symbols
from lamella.base.dim.ranges import bounds
from lamella.base.dim.truth import both, differ, either, equal, is_same, less, less_equal, negate

__all__ = [
    "Atom",
    "Condition",
    "Dim",
    "Extent",
    "Logic",
    "Monomial",
    "Part",
    "Symbol",
    "Test",
    "TooComplex",
    "Truth",
    "Values",
    "add",
    "both",
    "bounds",
    "ceil_divide",
    "choose",
    "differ",
    "either",
    "equal",
    "floor_divide",
    "is_same",
    "larger",
    "less",
    "less_equal",
    "mul",
    "negate",
    "remainder",
    "smaller",
    "sub",
    "substitute",
    "substitute_truth",
    "symbol",
    "symbols",
]
