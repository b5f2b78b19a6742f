"""Every attack gives its findings; work grows like the text, and memory stays small.

Work is counted in calls of Python functions, which no other process disturbs.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest

from lamella.backend.npu import compile_plan
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.nem.resolved import Plan
from lamella.pipeline.nem.program import Program, check_program, plan_of
from lamella.plan.bind import bind
from lamella.plan.expand import expand
from lamella.plan.timing import simulate
from tests.support.fuzz.nem_walk import judge
from tests.support.security.nem_attacks import ATTACKS, HEAD, Attack, lines, move

SIZE = 220
"""Above every limit of nesting."""
SMALL, TIMES = 60, 10
MEBIBYTE = 1 << 20


def check(text: str, device: str | None = "npm_pro") -> Program:
    program = check_program(Source("attack.nem", text), None, device)
    judge(program.findings)
    return program


def device_of(attack: Attack) -> str | None:
    """Texts that declare devices name their own target, or none."""
    return None if attack.make(1).startswith("include") else "npm_pro"


def count_calls(work: Callable[[], object]) -> int:
    """How many Python functions are called."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def named(attack: Attack) -> str:
    return attack.make.__name__


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_an_attack_gives_its_findings(attack: Attack) -> None:
    found = Counter(item.code for item in errors(check(attack.make(SIZE), device_of(attack)).findings))
    assert attack.codes <= set(found) <= attack.codes | attack.also, found


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_work_grows_like_the_text(attack: Attack) -> None:
    device = device_of(attack)
    check(attack.make(1), device)
    small = count_calls(lambda: check(attack.make(SMALL), device))
    large = count_calls(lambda: check(attack.make(SMALL * TIMES), device))
    assert large <= 2 * TIMES * small


@pytest.mark.parametrize("attack", ATTACKS, ids=named)
def test_memory_stays_small(attack: Attack) -> None:
    text = attack.make(SMALL * TIMES)
    check(attack.make(1), device_of(attack))
    tracemalloc.start()
    check(text, device_of(attack))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * MEBIBYTE + 500 * len(text)


# --- programs that are right and endless --------------------------------------------------------------------

ENDLESS = {
    "one loop": f"loop i in [0..999999999999999]:\n{move('(i mod 4) * 64')}endloop\n",
    "a nest": "".join(f"loop v{n} in [0..999999]:\n" for n in range(4)) + move() + "endloop\n" * 4,
    "many loops": lines(50, lambda n: f"loop i in [0..{10**9 + n}]:\n{move()}endloop\n"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_programs_end_at_a_limit(name: str) -> None:
    plan = plan_of(check(HEAD + ENDLESS[name]))
    stream, findings = bind(plan)
    assert stream is None
    assert [item.code for item in errors(findings)] == ["NEM176"]
    for run in (compile_plan, expand, lambda plan: compile_plan(plan, order="random")()):
        assert refused(run, plan) == ["NEM176"]


def refused(work: Callable[[Plan], object], plan: Plan) -> list[str]:
    with pytest.raises(LamellaError) as caught:
        work(plan)
    return [item.code for item in caught.value.findings]


def test_loops_without_tasks_take_no_time() -> None:
    """Empty ones, ones of waits alone, and ones around a loop that runs zero times."""
    text = (
        f"{HEAD}{move(token='t')}"
        "loop i in [0..999999999999999]:\nendloop\n"
        "loop i in [0..999999999999999]:\nwait(t)\nendloop\n"
        f"loop i in [0..999999999999999]:\nloop j in [5..4]:\n{move('64')}endloop\nendloop\n"
    )
    plan = plan_of(check(text))
    executable = compile_plan(plan)
    assert count_calls(executable) < 20_000
    compile_plan(plan, order="random")()
    assert simulate(plan).instances == 1
    stream, findings = bind(plan)
    assert stream is not None
    assert not errors(findings)


def test_waits_count_as_well() -> None:
    text = HEAD + "loop i in [0..1999]:\n" + move(token="t") + "wait(t)\n" * 100 + "endloop\n"
    plan = plan_of(check(text))
    few = Limits(max_expansion=2000)
    assert refused(lambda plan: expand(plan, few), plan) == ["NEM176"]
    assert len(expand(plan)) == 1 + 2000 * 103


def test_a_window_of_padding_takes_no_memory() -> None:
    """A kernel of 10^18 elements around four real ones."""
    shape = "elem=f16, shape=[1, {0}, {0}, 1], layout=NHWC"
    pool = (
        f"maxpool.sync in region(A, 0, 8) {shape.format(2)} out region(B, 0, 2) {shape.format(1)}"
        " kernel_shape=[1000000000, 1000000000] strides=[1, 1]"
        " pads=[499999999, 499999999, 499999999, 499999999]\n"
        "transfer.sync(dst=region(A, 8, 2), src=region(B, 0, 2))\n"
    )
    text = "program p:\nbuffer A : L2 (size=10)\nbuffer B : L1 (size=2)\n" + pool
    executable = compile_plan(plan_of(check(text, None)))
    values = np.array([1.5, -2.0, 7.25, 0.5, 0.0], np.float16)
    assert executable(A=values)["A"].view(np.float16).tolist() == [1.5, -2.0, 7.25, 0.5, 7.25]
