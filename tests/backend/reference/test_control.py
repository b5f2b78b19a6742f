"""Branches and loops give what the same loop in Python gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from lamella.base.limits import Limits
from tests.support.backend.reference.running import ready, run

BRANCH = """
graph G {
    @input { x: real[3]; c: bool[]; d: bool[]; }
    @output { y: real[3]; }
    @compose { y = if c then math.neg(x) elif d then math.sqr(x) else x; }
}
"""


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_branches_are_tested_in_order(first: bool, second: bool) -> None:
    x = np.array([1.0, 2.0, -3.0], np.float32)
    found = run(BRANCH, x=x, c=np.array(first), d=np.array(second))["y"]
    np.testing.assert_array_equal(found, -x if first else x * x if second else x)


FOLD = """
graph G {
    @input { xs: real[2]..(4); }
    @output { s: real[2]; }
    @compose { s = with a = 0.0 ..(1) for x : xs do math.add(a, x); }
}
"""

SCAN = """
graph G {
    @input { xs: real[2]..(3); z: real[2]; }
    @output { last: real[2]; all: real[2]..(3); }
    @compose {
        last, all..(3) = with a = z for x : xs do { b = math.add(a, x); c = math.sqr(b); yield b, c; };
    }
}
"""


def test_a_scan_carries_and_collects() -> None:
    xs = [np.array([k, k + 0.5], np.float32) for k in range(3)]
    given_items = {f"xs:{k + 1}": xs[k] for k in range(3)}
    found = run(SCAN, z=np.ones(2, np.float32), **given_items)
    total = np.ones(2, np.float32)
    for k, x in enumerate(xs):
        total = total + x
        np.testing.assert_array_equal(found[f"all:{k + 1}"], total * total)
    np.testing.assert_array_equal(found["last"], total)


COUNTED = """
graph G {
    @input { x: real[2]; n: int[]; }
    @output { y: real[2]; }
    @compose { y = with a = x do..(i -> n) { j = layout.cast<real>(i); b = math.add(a, j); yield b; }; }
}
"""


@given(st.integers(-2, 6))
def test_a_count_comes_from_a_tensor(n: int) -> None:
    found = run(COUNTED, x=np.zeros(2, np.float32), n=np.array(n))["y"]
    np.testing.assert_array_equal(found, np.full(2, sum(range(max(n, 0))), np.float32))


WHILE = """
graph G {
    @input { x: real[]; limit: real[]; }
    @output { y: real[]; }
    @compose { y = with a = x while math.lt(a, limit) do math.add(a, a); }
}
"""
DO_WHILE = WHILE.replace(
    "with a = x while math.lt(a, limit) do math.add(a, a)",
    "with a = x do math.add(a, a) while math.lt(a, limit)",
)


@pytest.mark.parametrize("start", [1.0, 3.0, 200.0])
def test_conditions_are_tested_before_or_after(start: float) -> None:
    before, after = start, start + start
    while before < 100.0:
        before += before
    while after < 100.0:
        after += after
    inputs = {"x": np.array(start, np.float32), "limit": np.array(100.0, np.float32)}
    assert run(WHILE, **inputs)["y"] == before
    assert run(DO_WHILE, **inputs)["y"] == after


def test_an_endless_loop_is_stopped() -> None:
    executable = ready(WHILE, limits=Limits(max_steps=50))
    with pytest.raises(LamellaError, match=r"SKR335.*has not ended after 50 steps"):
        executable(x=np.array(0.0, np.float32), limit=np.array(1.0, np.float32))


def test_nested_loops_see_what_is_around_them() -> None:
    text = """
    graph G {
        @input { x: real[2]; }
        @output { y: real[2]; }
        @compose {
            y = with a = x do..(3) { y1 = with b = a do..(2) { c = math.add(b, x); yield c; }; yield y1; };
        }
    }
    """
    x = np.array([1.0, -2.0], np.float32)
    np.testing.assert_array_equal(run(text, x=x)["y"], x * 7)
