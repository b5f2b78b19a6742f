"""Which components of a cooperative matrix each work-item of a subgroup holds, and under which number.

An M×N matrix and S work-items: I = gcd(M, S) rows are held side by side, J is the least number of columns, N or more,
with which I·J is a multiple of S, and K = M / I. Work-item p holds as its component v the element p + v·S of an I×J×K
arrangement, whose element (i, j, k) is (i + k·I, j) of the matrix; of a matrix_b it is the element p + v·S column by
column. What lies behind the last column is no component.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from lamella.lang.tensor.nodes import Coopmatrix


def _columns(type_: Coopmatrix, lanes: int) -> int:
    """The columns of a matrix, rounded up so that all work-items hold as many components."""
    together = lanes // gcd(type_.rows, lanes)
    return -(-type_.columns // together) * together


def component_count(type_: Coopmatrix, lanes: int) -> int:
    """How many components each work-item of a subgroup holds."""
    return type_.rows * _columns(type_, lanes) // lanes


@lru_cache(1 << 12)
def component_places(type_: Coopmatrix, lanes: int, component: int) -> tuple[tuple[int, int] | None, ...]:
    """The row and column of a component of each work-item; None where it lies behind the last column."""
    return tuple(component_place(type_, lanes, lane, component) for lane in range(lanes))


def component_place(type_: Coopmatrix, lanes: int, lane: int, component: int) -> tuple[int, int] | None:
    """The row and column of a work-item's component; None where it lies behind the last column."""
    number = lane + component * lanes
    if type_.use == "matrix_b":
        column, row = divmod(number, type_.rows)
    else:
        side = gcd(type_.rows, lanes)
        block, rest = divmod(number, side * _columns(type_, lanes))
        column, row = divmod(rest, side)
        row += block * side
    return (row, column) if column < type_.columns else None
