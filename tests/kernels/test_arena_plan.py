"""Buffer allocation: none that are live together share a byte, and halos meet only their like."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.kernels.arena_plan import place_buffers
from lamella.kernels.launches import Buffer, BufferView, Launch, LaunchList


def chain(numbers: list[int], reach: list[int]) -> LaunchList:
    """Launch i writes buffer i, and reads those before it that reach so far."""
    sizes = [64 * (1 + number) for number in numbers]
    buffers = {
        f"b{at}": Buffer(size, number) for at, (size, number) in enumerate(zip(sizes, numbers, strict=True))
    }
    launches = []
    for at in range(len(numbers)):
        read = [other for other in range(at) if other + reach[other] >= at]
        views = tuple(BufferView(f"b{item}", "i8", (sizes[item],), (1,)) for item in (at, *read))
        launches.append(Launch(f"k{at}", views, (0,)))
    return LaunchList(buffers, tuple(launches), {}, {})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=12), st.booleans())
def test_places(drawn: list[tuple[int, int]], is_step: bool) -> None:
    numbers, reach = [item[0] for item in drawn], [item[1] for item in drawn]
    whole = replace(chain(numbers, reach), overwritten=frozenset({"b0"} if is_step else ()))
    plan = place_buffers(whole, ())
    last = [min(at + reach[at], len(drawn) - 1) for at in range(len(drawn))]
    for places, total in ((plan.own, plan.own_bytes), (plan.shared, plan.shared_bytes)):
        spans = {int(name[1:]): (start, start + whole.buffers[name].size) for name, start in places.items()}
        assert all(end <= total for _, end in spans.values())
        for first, (begin, end) in spans.items():
            for second, (other, stop) in spans.items():
                if first < second and begin < stop and other < end:
                    assert last[first] < second, "alive together"
                    assert numbers[first] == numbers[second] or places is plan.shared
                    assert begin == other or places is plan.shared
    assert {*plan.own} == {f"b{at}" for at, number in enumerate(numbers) if number}


@pytest.mark.parametrize(("numbers", "size"), [([1, 1, 1, 1], 256), ([1, 2, 1, 2], 320), ([1, 2, 3, 1], 576)])
def test_halos_of_one_number_take_turns(numbers: list[int], size: int) -> None:
    assert place_buffers(chain(numbers, [1] * 4), ()).own_bytes == size
