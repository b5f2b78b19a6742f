"""Passes on random programs: what was safe stays safe or is refused by the verifier, and the numbers are the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lamella.base.source import Source
from lamella.lang.nem import write
from lamella.lang.nem.resolved import Loop
from lamella.plan.advise import fix
from lamella.plan.passes.deepen import deepen
from lamella.plan.passes.hoist import hoist
from tests.plan.passes.generated import Writer
from tests.plan.passes.programs import assert_same_numbers, is_safe, read, reread

BLOCK = 8
"""Programs of one example: about half of them are safe, one in ten has something to hoist."""

seeds = st.integers(0, 10**6).map(lambda start: range(start * BLOCK, (start + 1) * BLOCK))


@given(seeds)
def test_hoisting_keeps_programs_safe_and_their_numbers(block: range) -> None:
    for seed in block:
        document, plan = read(Writer(seed).text())
        made = hoist(document, plan) if is_safe(plan) else None
        if made is not None:
            _, after = reread(made, plan)
            assert hoist(*read(write(made))) is None
            assert after.instances() < plan.instances()


@given(seeds)
def test_deeper_windows_keep_the_numbers_of_programs_that_verify(block: range) -> None:
    for seed in block:
        document, plan = read(Writer(seed).text())
        loops = [item for item, _ in plan.walk() if isinstance(item, Loop)] if is_safe(plan) else []
        for loop in loops:
            made = deepen(document, plan, loop, loop.window + 1 + seed % 3)
            if made is not None:
                _, after = read(write(made))
                if is_safe(after):
                    assert_same_numbers(plan, after, seed)


@given(st.integers(0, 10**6))
def test_fixing_keeps_the_numbers(seed: int) -> None:
    text = Writer(seed).text()
    _, plan = read(text)
    fixed = fix(Source("test.nem", text))
    assert (fixed is not None) == is_safe(plan)
    if fixed is not None:
        reread(fixed.document, plan)
