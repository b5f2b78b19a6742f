"""The static count of live tokens."""

from __future__ import annotations

from lamella.lang.nem.resolved import Item, Task
from lamella.plan.verify import check_tokens, count_tokens
from tests.support.plan.build import Builder, device, loop, wait


def some(build: Builder, count: int, *deps: Task) -> list[Task]:
    return [build.task("relu", [], [], deps) for _ in range(count)]


def test_a_token_lives_from_its_producer_to_its_last_waiter() -> None:
    build = Builder()
    first = some(build, 3)
    assert count_tokens(build.plan(first)).count == 0
    assert count_tokens(build.plan([*first, wait(*first)])).count == 3
    assert count_tokens(build.plan([first[0], wait(first[0]), first[1], wait(first[1])])).count == 1
    chain = [first[0]]
    for _ in range(5):
        chain += some(build, 1, chain[-1])
    assert count_tokens(build.plan(chain)).count == 2


def test_sync_tasks_wait_for_themselves() -> None:
    build = Builder()
    assert count_tokens(build.plan([build.task("relu", [], [], sync=True)])).count == 1


def test_iterations_in_flight_multiply() -> None:
    build = Builder()
    outer = some(build, 1)
    inner = some(build, 2)
    body: list[Item] = [*inner, wait(*inner), *some(build, 1, *outer)]
    for window, last, expected in ((1, 9, 3), (4, 9, 9), (4, 1, 5), (4, -1, 1)):
        plan = build.plan([*outer, loop(0, 0, last, window, body)])
        assert count_tokens(plan).count == expected
    twice = loop(1, 0, 9, 3, [loop(0, 0, 9, 2, body)])
    assert count_tokens(build.plan([*outer, twice])).count == 1 + 3 * 2 * 2


def test_the_limit_of_the_device() -> None:
    build = Builder()
    tasks = some(build, 3)
    body: list[Item] = [*tasks, wait(*tasks)]
    (finding,) = check_tokens(build.plan(body, device(tokens=2)))
    assert (finding.code, finding.severity) == ("NEM073", "warning")
    assert "up to 3 tokens are live at once" in finding.message
    assert list(check_tokens(build.plan(body, device(tokens=3)))) == []
    assert list(check_tokens(build.plan(body, device()))) == []
    assert list(check_tokens(build.plan(body))) == []
