"""Functions of the compiled subset mean in machine code what they mean in Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.compiled import Words, compile_functions

LARGE = 1000


def quotient(m: Words, left: int, right: int) -> int:
    """Quotient and remainder, both rounded down."""
    m[2] = left // right
    m[3] = left % right
    return left // right * right + left % right


def larger(m: Words, left: int, right: int) -> int:
    """Branches that return."""
    if left > right:
        return left
    elif left == right:
        return -1
    return right


def everything(m: Words) -> int:
    """Loops, breaks, conditions that stop early, calls, assignments to memory."""
    left = m[0]
    right = m[1]
    if right != 0 and (left // right > 2 or not left):
        m[4] = quotient(m, left, right)
    else:
        m[4] = -larger(m, left, right)
    total = 0
    i = 0
    while True:
        i += 1
        if i > 10 or total > LARGE:
            break
        total += i * left - right
    m[5] = total
    return total + i


RUN = compile_functions((quotient, larger, everything))
NUMBERS = st.integers(-(1 << 40), 1 << 40) | st.integers(-20, 20)


@given(NUMBERS, NUMBERS)
def test_machine_code_does_what_python_does(left: int, right: int) -> None:
    words = np.array([left, right, 0, 0, 0, 0], np.int64)
    plain = [left, right, 0, 0, 0, 0]
    assert RUN(words) == everything(plain)
    assert words.tolist() == plain


def other(m: Words) -> int:
    """A statement that the subset does not have."""
    for i in range(3):
        m[0] += i
    return 0


def test_what_is_not_of_the_subset_is_named() -> None:
    with pytest.raises(SyntaxError, match="other: for i in range"):
        compile_functions((other,))
