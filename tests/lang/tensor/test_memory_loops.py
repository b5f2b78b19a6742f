"""Loops that may not end: what is said of them is what happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.source import Source
from lamella.lang.tensor import check, parse


def noted(body: str) -> bool:
    """Whether a loop is said not to end for certain."""
    program, findings = parse(Source("loop.tensor", f"func @f(%n: i8, %s: i8) {{\n{body}\n}}"))
    found = [*findings, *check(program)]
    assert not [item for item in found if item.severity == "error"]
    return "TEN149" in {item.code for item in found}


def ends(begin: int, end: int, step: int) -> bool:
    """Whether a loop over i8 ends, one trip after the other."""
    seen = set()
    while begin < end and begin not in seen:
        seen.add(begin)
        begin = (begin + step + 128) % 256 - 128
    return begin >= end


@given(st.integers(-128, 127), st.integers(-128, 127), st.integers(1, 127))
def test_known_bounds(begin: int, end: int, step: int) -> None:
    lines = [
        f"%{name} = constant {value} : i8" for name, value in zip("abc", (begin, end, step), strict=True)
    ]
    found = noted("\n".join([*lines, "for %i:i8=%a,%b,%c {}"]))
    assert found or ends(begin, end, step)
    steps = range(begin, end, step)
    assert found == bool(steps and steps[-1] + step > 127)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("for %i:i8=%s,%n,%s {}", True),
        ("for %i:i8=%s,%n {}", False),
        ("%1 = constant 1 : i8\n%t = arith.max %s, %1 : i8\nfor %i:i8=%s,%n,%t {}", False),
        ("%0 = constant 0 : i8\n%c = cmp.gt %s, %0 : bool\nif %c { for %i:i8=%0,%n,%s {} }", False),
        ("%0 = constant 0 : i8\n%c = cmp.ge %s, %0 : bool\nif %c { for %i:i8=%0,%n,%s {} }", True),
        ("%2 = builtin.subgroup_size : i32\n%3 = constant 7 : i32\nfor %i:i32=%3,%2,%2 {}", False),
        ("%3 = constant 3 : i8\n%9 = constant 126 : i8\nfor %i:i8=%n,%9,%3 {}", True),
        ("%3 = constant 3 : i8\n%9 = constant 120 : i8\nfor %i:i8=%n,%9,%3 {}", False),
    ],
)
def test_what_is_proved(body: str, found: bool) -> None:
    assert noted(body) == found
