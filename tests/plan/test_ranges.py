"""Exact ranges and exact search against enumeration."""

from __future__ import annotations

import random
from itertools import product

import pytest

from lamella.base.dim import TooComplex
from lamella.lang.nem.resolved import Index
from lamella.plan.diophantine import StepBudget, solve
from lamella.plan.ranges import bounds, extremes, search
from tests.support.plan.build import index, operation, plus, variable

Box = dict[int, tuple[int, int]]


def budget(steps: int = 100_000) -> StepBudget:
    return StepBudget(steps, steps)


def random_index(chance: random.Random, variables: int, depth: int = 0) -> Index:
    """Sums of variables, remainders and quotients, also nested, sometimes with varying divisors or products."""
    found = index(chance.randint(-20, 20))
    for _ in range(chance.randint(1, 3)):
        term = variable(chance.randrange(variables))
        if depth < 2 and chance.random() < 0.6:
            sign = chance.choice(("mod", "mod", "/", "/", "*"))
            inner = random_index(chance, variables, depth + 1)
            right: Index | int = chance.choice((-5, -2, 2, 3, 4, 7, 12))
            if chance.random() < 0.1:
                right = plus(index(chance.choice((-9, 9))), term)
            term = operation(sign, inner, term if sign == "*" else right)
        found = plus(found, term, chance.choice((-9, -3, -1, 1, 2, 4, 10)))
    return found


def random_box(chance: random.Random, variables: int) -> Box:
    firsts = [chance.randint(-6, 6) for _ in range(variables)]
    return {number: (first, first + chance.randint(0, 12)) for number, first in enumerate(firsts)}


def values(of: Index, box: Box) -> dict[tuple[int, ...], int] | None:
    """Every value by iteration; None where one divides by zero."""
    ranges = [range(first, last + 1) for first, last in box.values()]
    try:
        return {point: of.at(dict(enumerate(point))) for point in product(*ranges)}
    except ZeroDivisionError:
        return None


@pytest.mark.parametrize("part", range(4))
def test_extremes_and_search_are_exact(part: int) -> None:
    chance = random.Random(part)
    found = missed = 0
    for _ in range(150):
        variables = chance.randint(1, 3)
        of, box = random_index(chance, variables), random_box(chance, variables)
        known = values(of, box)
        if known is None:
            with pytest.raises(ZeroDivisionError):
                extremes(of, box, budget())
            continue
        (low, first), (high, last) = extremes(of, box, budget())
        assert (low, high) == (min(known.values()), max(known.values()))
        assert (of.at(first), of.at(last)) == (low, high)
        assert bounds(of, box)[0] <= low
        assert bounds(of, box)[1] >= high
        start = chance.randint(low - 5, high + 5)
        end = start + chance.choice((0, 0, 1, 5))
        point = search(of, box, start, end, budget())
        assert (point is not None) == any(start <= value <= end for value in known.values())
        if point is not None:
            assert start <= of.at(point) <= end
            assert all(box[number][0] <= point[number] <= box[number][1] for number in box)
        found += point is not None
        missed += point is None
    assert min(found, missed) > 10


def test_one_inequality_is_solved_exactly() -> None:
    chance = random.Random(7)
    answers = [0, 0]
    for _ in range(1500):
        count = chance.randint(0, 4)
        terms = {v: chance.choice((-60, -35, -12, -5, -1, 1, 3, 8, 21, 60)) for v in range(count)}
        box = {v: (first := chance.randint(-4, 4), first + chance.randint(0, 6)) for v in range(count)}
        low = chance.randint(-70, 70)
        high = low + chance.choice((0, 0, 1, 3, 20))
        ranges = [range(box[v][0], box[v][1] + 1) for v in range(count)]
        exists = any(low <= 5 + sum(terms[v] * n for v, n in enumerate(p)) <= high for p in product(*ranges))
        found = solve(5, terms, box, low, high, budget())
        assert (found is not None) == exists
        answers[exists] += 1
        if found is not None:
            assert low <= 5 + sum(terms[v] * found[v] for v in terms) <= high
            assert all(box[v][0] <= found[v] <= box[v][1] for v in terms)
    assert min(answers) > 200


def test_two_variables_of_any_range_take_few_steps() -> None:
    """Euclid decides: x and y with 10^18 combinations, against the known solution of the congruence."""
    large = 10**9
    a, b = 1_000_003, 999_983
    for target in (a * 123_456_789 - b * 987_654_321, 17, -1):
        steps = budget(50)
        found = solve(0, {0: a, 1: -b}, {0: (0, large), 1: (0, large)}, target, target, steps)
        assert found is not None
        assert a * found[0] - b * found[1] == target
    # The least x with a·x ≡ 1 modulo b is the only one below b.
    least = pow(a, -1, b)
    assert solve(0, {0: a, 1: -b}, {0: (0, least - 1), 1: (0, large)}, 1, 1, budget(50)) is None
    assert solve(0, {0: a, 1: -b}, {0: (0, least), 1: (0, large)}, 1, 1, budget(50)) is not None


def test_long_loops_take_few_steps() -> None:
    slot = plus(operation("mod", variable(0), 2), operation("/", variable(0), 1000), 64)
    box = {0: (0, 10**15 - 1)}
    steps = budget(200)
    (low, _), (high, last) = extremes(slot, box, steps)
    assert (low, high) == (0, 64 * (10**12 - 1) + 1)
    assert slot.at(last) == high
    assert search(slot, box, 64 * 10**12, 64 * 10**12 + 9, budget(200)) is None


def test_variables_that_occur_together_count_as_one() -> None:
    """The counter of a nest in a ring of 101 slots, then one whose values have gaps."""
    place = plus(plus(variable(0), variable(1), 1000), variable(2), 10**6)
    later = plus(place, index(1))
    apart = plus(operation("mod", place, 101), operation("mod", later, 101), -1)
    box = {0: (0, 999), 1: (0, 999), 2: (0, 999)}
    assert search(apart, box, 0, 0, budget(2000)) is None
    assert search(apart, box, 100, 100, budget(2000)) is not None
    gaps = operation("mod", plus(plus(index(), variable(0), 6), variable(1), 10), 7)
    assert search(gaps, {0: (0, 1), 1: (0, 1)}, 1, 1, budget(2000)) is None
    assert search(gaps, {0: (0, 1), 1: (0, 1)}, 2, 2, budget(2000)) == {0: 1, 1: 1}


def test_what_is_too_irregular_is_said_to_be() -> None:
    even = plus(index(), operation("*", variable(0), variable(1)), 2)
    of = operation("mod", even, 1_000_000)
    box = {0: (0, 10**9), 1: (0, 10**9)}
    with pytest.raises(TooComplex):
        search(of, box, 1, 1, StepBudget(1000, 1000))
    assert bounds(of, box) == (0, 999_999)
