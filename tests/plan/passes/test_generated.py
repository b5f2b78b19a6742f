"""Passes on random programs: what was safe stays safe or is refused by the verifier, and the numbers are the same."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.npu import compile_plan, random_inputs
from lamella.base.source import Source
from lamella.lang.nem import write
from lamella.lang.nem.resolved import Loop, Plan
from lamella.plan.advise import fix
from lamella.plan.passes.hoist import hoist
from lamella.plan.passes.propose import widen_window
from lamella.plan.timing import simulate
from lamella.plan.verify import verify
from tests.support.plan.passes.generated import Chain, Writer
from tests.support.plan.passes.programs import assert_same_numbers, is_safe, read, reread

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
            made = widen_window(document, plan, loop, loop.window + 1 + seed % 3)
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


@given(st.integers(0, 10**6))
def test_a_chain_through_l2_gets_the_slots_that_reach_its_bound(seed: int) -> None:
    chain = Chain(seed)
    _, before = read(chain.text())
    fixed = fix(Source("chain.nem", chain.text()))
    assert fixed is not None
    document, after = read(write(fixed.document))
    assert write(document) == write(fixed.document)
    assert verify(after) == []
    _assert_same_tiles(chain, before, after)
    first, last = simulate(before), simulate(after)
    assert last.cycles <= first.cycles
    if _more_slots_fit(chain, after):
        assert last.ratio < 1.03


def _assert_same_tiles(chain: Chain, before: Plan, after: Plan) -> None:
    """The results are the same in any order, and the buffers in transit end with the last tile in its slot."""
    inputs = random_inputs(before, 1)
    wanted = compile_plan(before)(**inputs)
    slots = {item.name: item.size // chain.size for item in after.buffers}
    for found in (compile_plan(after)(**inputs), compile_plan(after, order="random", seed=1)(**inputs)):
        assert list(found) == list(wanted)
        assert np.array_equal(found["Y"], wanted["Y"])
        for name in ("XM", "YM"):
            old, new = (array[name].reshape(-1, chain.size) for array in (wanted, found))
            last = chain.tiles - 1
            assert np.array_equal(new[last % slots[name]], old[last % chain.slots])


def _more_slots_fit(chain: Chain, after: Plan) -> bool:
    """Whether another slot for every buffer would still fit the memories of npm_lite."""
    more = 1 + max(item.size // chain.size for item in after.buffers if item.memory == "L1")
    return more * 2 * chain.size <= 1 << 20 and more * (chain.stages + 1) * chain.size <= 512 << 10
