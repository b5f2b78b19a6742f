"""Affine forms compute what Python computes, and bounds are exact or safe."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.base.affine import (
    Affine,
    corners,
    divisors,
    hull,
    larger,
    multiply,
    smaller,
    truncated_remainder,
    weighted_sum,
)

NAMES = "abc"
NUMBERS = st.integers(-9, 9)
INTERVALS = st.tuples(st.integers(-6, 6), st.integers(0, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))
FORMS = st.builds(
    lambda constant, terms: Affine(constant, tuple(sorted((k, v) for k, v in terms.items() if v))),
    NUMBERS,
    st.dictionaries(st.sampled_from(NAMES), NUMBERS),
)
POINTS = st.fixed_dictionaries(dict.fromkeys(NAMES, NUMBERS))
BOXES = st.fixed_dictionaries(dict.fromkeys(NAMES, INTERVALS))


@settings(max_examples=100, deadline=None)
@given(FORMS, FORMS, NUMBERS, POINTS)
def test_sums_multiples_and_substitutions_have_the_value_of_their_parts(
    one: Affine[str], other: Affine[str], factor: int, point: dict[str, int]
) -> None:
    left, right = one.at(point), other.at(point)
    assert one.plus(other, factor).at(point) == left + factor * right
    assert (one - other).at(point) == left - right
    assert one.times(factor).at(point) == factor * left
    assert weighted_sum(3, [(one, factor), (other, -1)]).at(point) == 3 + factor * left - right
    assert one.replace("b", other).at(point) == one.at({**point, "b": right})
    assert (one - one) == Affine()


@settings(max_examples=100, deadline=None)
@given(FORMS, BOXES)
def test_bounds_of_a_form_are_reached_and_open_ends_stay_open(
    form: Affine[str], box: dict[str, tuple[int, int]]
) -> None:
    corner_values = [form.at(dict(zip(box, corner, strict=True))) for corner in product(*box.values())]
    assert form.bounds(box) == (min(corner_values), max(corner_values))
    assert form.open_bounds(box) == form.bounds(box)
    low, high = form.open_bounds({**box, "a": (None, box["a"][1])})
    sign = form.coefficient("a")
    assert (low is None) == (sign > 0)
    assert (high is None) == (sign < 0)


@settings(max_examples=100, deadline=None)
@given(FORMS, POINTS)
def test_a_tightened_form_is_negative_where_the_form_is(form: Affine[str], point: dict[str, int]) -> None:
    assert (form.tightened().at(point) >= 0) == (form.at(point) >= 0)


@settings(max_examples=100, deadline=None)
@given(INTERVALS, INTERVALS)
def test_intervals_hold_every_result(left: tuple[int, int], right: tuple[int, int]) -> None:
    bounds = {
        "*": multiply(left, right),
        "//": corners(lambda a, b: a // b, left, divisors(right)),
        "rem": truncated_remainder(left, right),
        "min": smaller(left, right),
        "max": larger(left, right),
    }
    for a, b in product(range(left[0], left[1] + 1), range(right[0], right[1] + 1)):
        results = {"*": a * b, "min": min(a, b), "max": max(a, b)}
        if b:
            rest = abs(a) % abs(b)
            results |= {"//": a // b, "rem": -rest if a < 0 else rest}
        for sign, result in results.items():
            assert bounds[sign][0] <= result <= bounds[sign][1]
        assert hull(left, right)[0] <= min(a, b)
        assert max(a, b) <= hull(left, right)[1]
