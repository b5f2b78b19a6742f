"""Symbolic extents agree with plain integers for every value of their symbols."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lamella.base import dim
from lamella.base.dim import Condition, Dim, Extent, Logic, Test, TooComplex, Truth

RANGES = {"n": (0, 3), "m": (-2, 2), "k": (1, 4)}
POINTS = [
    dict(zip(RANGES, row, strict=True)) for row in product(*(range(a, b + 1) for a, b in RANGES.values()))
]
Brute = Callable[[dict[str, int]], int | None]
"""The same number by plain arithmetic; None where it divides by zero."""


def symbol(name: str) -> Extent:
    low, high = RANGES[name]
    return dim.symbol(name, high, low)


def plain(sign: str, left: int, right: int) -> int | None:
    if sign in "/\\%" and right == 0:
        return None
    results = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "/": lambda: left // right,
        "\\": lambda: -((-left) // right),
        "%": lambda: left - right * (left // right),
        "<<": lambda: min(left, right),
        ">>": lambda: max(left, right),
    }
    return results[sign]()


OPERATIONS: dict[str, Callable[[Extent, Extent], Extent]] = {
    **{"+": dim.add, "-": dim.sub, "*": dim.mul, "/": dim.floor_divide, "\\": dim.ceil_divide},
    **{"%": dim.remainder, "<<": dim.smaller, ">>": dim.larger},
}


@st.composite
def extents(draw: st.DrawFn, depth: int = 3) -> tuple[Extent, Brute]:
    """An extent, computed symbolically and by plain arithmetic."""
    if depth == 0 or draw(st.booleans()):
        if draw(st.booleans()):
            number = draw(st.integers(-4, 4))
            return number, lambda point: number
        name = draw(st.sampled_from(sorted(RANGES)))
        return symbol(name), lambda point: point[name]
    sign = draw(st.sampled_from(sorted(OPERATIONS)))
    left, left_brute = draw(extents(depth - 1))
    right, right_brute = draw(extents(depth - 1))

    def brute(point: dict[str, int]) -> int | None:
        first, second = left_brute(point), right_brute(point)
        return None if first is None or second is None else plain(sign, first, second)

    try:
        return OPERATIONS[sign](left, right), brute
    except ZeroDivisionError:
        assume(False)
        raise


def value(extent: Extent, point: dict[str, int]) -> int | None:
    try:
        found = dim.substitute(extent, point)
    except ZeroDivisionError:
        return None
    assert isinstance(found, int)
    return found


@given(extents())
def test_an_extent_has_the_value_of_its_arithmetic(pair: tuple[Extent, Brute]) -> None:
    extent, brute = pair
    for point in POINTS:
        expected = brute(point)
        if expected is not None:
            assert value(extent, point) == expected, (str(extent), point)


@given(extents())
def test_bounds_hold_every_value(pair: tuple[Extent, Brute]) -> None:
    extent, brute = pair
    low, high = dim.bounds(extent)
    values = [found for point in POINTS if (found := brute(point)) is not None]
    assert all(low <= found <= high for found in values), (str(extent), low, high)


COMPARISONS: dict[str, tuple[Callable[[Extent, Extent], Truth], Callable[[int, int], bool]]] = {
    "==": (dim.equal, lambda a, b: a == b),
    "<": (dim.less, lambda a, b: a < b),
    "<=": (dim.less_equal, lambda a, b: a <= b),
}


@given(extents(2), extents(2), st.sampled_from(sorted(COMPARISONS)), st.booleans())
def test_comparisons_agree_with_integers(
    left: tuple[Extent, Brute], right: tuple[Extent, Brute], sign: str, negated: bool
) -> None:
    symbolic, compare = COMPARISONS[sign]
    truth = symbolic(left[0], right[0])
    truth = dim.negate(truth) if negated else truth
    for point in POINTS:
        first, second = left[1](point), right[1](point)
        if first is not None and second is not None:
            assert dim.substitute_truth(truth, point) is (compare(first, second) ^ negated), (
                str(truth),
                point,
            )


def conditions() -> st.SearchStrategy[tuple[Truth, Callable[[dict[str, int]], bool]]]:
    name = st.sampled_from(sorted(RANGES))
    leaves = st.tuples(name, st.integers(-2, 4)).map(
        lambda pair: (dim.less(symbol(pair[0]), pair[1]), lambda point: point[pair[0]] < pair[1])
    )

    def joined(
        inner: st.SearchStrategy[tuple[Truth, Callable[[dict[str, int]], bool]]],
    ) -> st.SearchStrategy[tuple[Truth, Callable[[dict[str, int]], bool]]]:
        rules = [
            (dim.both, lambda a, b: a and b),
            (dim.either, lambda a, b: a or b),
            (dim.differ, lambda a, b: a != b),
        ]
        return st.tuples(st.sampled_from(rules), inner, inner).map(
            lambda item: (
                item[0][0](item[1][0], item[2][0]),
                lambda point: item[0][1](item[1][1](point), item[2][1](point)),
            )
        )

    return st.recursive(leaves, joined, max_leaves=6)


@given(conditions(), st.booleans())
def test_logic_agrees_with_truth_tables(
    pair: tuple[Truth, Callable[[dict[str, int]], bool]], negated: bool
) -> None:
    truth = dim.negate(pair[0]) if negated else pair[0]
    for point in POINTS:
        assert dim.substitute_truth(truth, point) is (pair[1](point) ^ negated), str(truth)


@given(conditions(), extents(2), extents(2))
def test_a_choice_takes_one_of_two(
    condition: tuple[Truth, Callable[[dict[str, int]], bool]],
    then: tuple[Extent, Brute],
    otherwise: tuple[Extent, Brute],
) -> None:
    chosen = dim.choose(condition[0], then[0], otherwise[0])
    for point in POINTS:
        expected = then[1](point) if condition[1](point) else otherwise[1](point)
        if expected is not None:
            assert value(chosen, point) == expected


@given(extents(2), extents(2), extents(2))
def test_equal_polynomials_are_one_extent(
    a: tuple[Extent, Brute], b: tuple[Extent, Brute], c: tuple[Extent, Brute]
) -> None:
    left = dim.mul(a[0], dim.add(b[0], c[0]))
    right = dim.add(dim.mul(c[0], a[0]), dim.mul(a[0], b[0]))
    assert left == right
    assert hash(left) == hash(right)
    assert dim.sub(left, right) == 0
    assert dim.is_same(left, right)


@given(extents())
def test_symbols_are_those_that_matter(pair: tuple[Extent, Brute]) -> None:
    extent, _ = pair
    known = {item.name for item in dim.symbols(extent)}
    rest = {name: number for name, number in POINTS[0].items() if name not in known}
    assert dim.substitute(extent, rest) == extent


def test_quotients_near_zero_are_within_bounds() -> None:
    n, m = dim.symbol("n", 10), dim.symbol("m", 3, -2)
    assert dim.bounds(dim.floor_divide(n, m)) == (-10, 10)
    assert dim.bounds(dim.ceil_divide(n, dim.symbol("k", 0, -4))) == (-10, 0)


def test_texts_are_the_language_s() -> None:
    n, m = dim.symbol("n", 10), dim.symbol("m", 10)
    assert str(dim.add(dim.mul(n, 2), -1)) == "2 * n - 1"
    assert str(dim.floor_divide(dim.add(n, 1), 2)) == "((n + 1) / 2)"
    assert str(dim.smaller(n, m)) == "(m << n)"
    assert str(dim.negate(dim.less(n, m))) == "m <= n"
    assert str(dim.choose(dim.equal(n, m), n, 1)) == "(n == m ? n : 1)"


def test_a_negated_condition_is_the_condition_again() -> None:
    n, m = dim.symbol("n", 10), dim.symbol("m", 10)
    for truth in (dim.less(n, m), dim.equal(n, m), dim.both(dim.less(n, m), dim.less(m, 3))):
        assert isinstance(truth, Test | Logic)
        assert dim.negate(dim.negate(truth)) == truth


def test_conditions_are_joined_flat_and_once() -> None:
    n = dim.symbol("n", 10)
    tests: list[Condition] = []
    for number in range(1, 5):
        truth = dim.less(n, number)
        assert isinstance(truth, Test)
        tests.append(truth)
    joined: Truth = True
    for item in [*tests, *tests]:
        joined = dim.both(joined, item)
    assert joined == Logic("&&", tuple(tests))


def test_division_by_zero_is_told_at_once() -> None:
    for rule in (dim.floor_divide, dim.ceil_divide, dim.remainder):
        with pytest.raises(ZeroDivisionError):
            rule(dim.symbol("n", 4), 0)


def grow(extent: Extent, rule: Callable[[Extent], Extent], times: int) -> Extent:
    for _ in range(times):
        extent = rule(extent)
    return extent


def test_exponential_growth_is_stopped() -> None:
    def split(extent: Extent) -> Extent:
        return dim.add(dim.floor_divide(extent, 2), dim.floor_divide(extent, 3))

    with pytest.raises(TooComplex):
        grow(dim.symbol("n", 1000), split, 100)


def test_deep_nesting_is_stopped() -> None:
    def halve(extent: Extent) -> Extent:
        return dim.add(dim.floor_divide(extent, 2), 1)

    assert isinstance(grow(dim.symbol("n", 1 << 60), halve, 20), Dim)
    with pytest.raises(TooComplex):
        grow(dim.symbol("n", 1 << 60), halve, 10_000)


def test_wide_products_are_stopped() -> None:
    total: Extent = 0
    for number in range(100):
        total = dim.add(total, dim.symbol(f"n{number}", 5))
    assert isinstance(total, Dim)
    with pytest.raises(TooComplex):
        dim.mul(total, dim.mul(total, total))


def test_high_powers_are_stopped() -> None:
    n = dim.symbol("n", 5)
    with pytest.raises(TooComplex):
        grow(n, lambda extent: dim.mul(extent, n), 10_000)
