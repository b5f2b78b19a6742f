"""Advice: every change was tried, the numbers are those of the simulator, the result is a canonical safe program."""

from __future__ import annotations

import pytest

from lamella.base.source import Source
from lamella.lang.nem import write
from lamella.plan.advise import advise, fix
from lamella.plan.timing import simulate
from tests.support.plan.passes.programs import codes, example, read, reread

EXAMPLES = ["conv_relu", "gemm_bias_relu", "gemm_int4", "layernorm_softmax", "ring_cstl", "two_engines"]


def test_the_worked_pipeline() -> None:
    text, path = example("conv_relu", window=1)
    together, hoisting = advise(Source(path.name, text), path)
    assert (hoisting.before_cycles, hoisting.after_cycles) == (26888, 21512)
    assert hoisting.title == "hoist load_w before loop i"
    assert text.splitlines()[hoisting.line - 1].endswith("@debug(load_w)")
    assert hoisting.before_bytes - hoisting.after_bytes == 3 * 73728
    assert (together.before_cycles, together.after_cycles) == (26888, 17312)
    assert together.title == "hoist load_w before loop i; keep 2 iterations of loop i in flight"


def test_a_reload_is_hoisted_for_its_bytes_alone() -> None:
    text, path = example("conv_relu")
    (only,) = advise(Source(path.name, text), path)
    assert only.gain == (0, 3 * 73728)
    _, plan = read(write(only.document), path)
    assert codes(plan) == []


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("window", [None, 1])
def test_the_fixed_program_is_as_fast_as_promised_and_gives_the_same_numbers(
    name: str, window: int | None
) -> None:
    text, path = example(name, window)
    _, before = read(text, path)
    fixed = fix(Source(path.name, text), path)
    assert fixed is not None
    _, after = reread(fixed.document, before, path)
    told = [simulate(before).cycles] + [step.after_cycles for step in fixed.done]
    assert [step.before_cycles for step in fixed.done] == told[:-1]
    assert told == sorted(told, reverse=True)
    assert simulate(after).cycles == told[-1]
    again = fix(Source(path.name, write(fixed.document)), path)
    assert again is not None
    assert again.done == ()


@pytest.mark.parametrize("name", EXAMPLES)
def test_advice_is_sorted_true_and_always_the_same(name: str) -> None:
    text, path = example(name, 1)
    found = advise(Source(path.name, text), path)
    assert found == advise(Source(path.name, text), path)
    assert [item.gain for item in found] == sorted((item.gain for item in found), reverse=True)
    for item in found:
        assert item.gain > (0, 0)
        _, plan = read(write(item.document), path)
        assert simulate(plan).cycles == item.after_cycles


def test_the_device_of_the_caller_counts() -> None:
    text, path = example("conv_relu", window=1)
    fixed = fix(Source(path.name, text), path, device="npm_pro")
    assert fixed is not None
    assert fixed.done[0].before_cycles < 26888


def test_the_memory_of_the_device_limits_the_depth() -> None:
    text = """\
include "npm_lite.nem"
device npm_lite
buffer X : L2 (size=8 * 65536)
buffer Y : L2 (size=8 * 65536)
buffer L : L1 (size=COUNT * 65536)
loop i in [0..7] @max_in_flight(COUNT):
    t = transfer.async(dst=region(L, (i mod COUNT) * 65536, 65536), src=region(X, i * 65536, 65536))
    store.async(dst=region(Y, i * 65536, 65536), src=region(L, (i mod COUNT) * 65536, 65536), deps=[t])
endloop
"""
    tight = text.replace("buffer L", "buffer M : L1 (size=5 * 65536)\nbuffer L").replace("endloop", "")
    tight += "endloop\ntransfer.sync(dst=M, src=region(X, 0, 5 * 65536))\n"
    roomy = fix(Source("t.nem", text.replace("COUNT", "1")))
    narrow = fix(Source("t.nem", tight.replace("COUNT", "1")))
    assert roomy is not None
    assert narrow is not None
    assert "@max_in_flight(4)" in write(roomy.document)
    # 512 KB of L1, of which five eighths are taken.
    assert "@max_in_flight(3)" in write(narrow.document)


def test_unbalanced_wishes_are_found() -> None:
    text, path = example("ring_cstl")
    titles = [item.title for item in advise(Source(path.name, text), path)]
    assert "let transfers choose their DMA" in titles


@pytest.mark.parametrize(
    "text",
    [
        "",
        "buffer A : L2 (size=0)\n",
        "loop i in [0..3]:\n",
        "buffer A : L2 (size=64)\nbuffer B : L1 (size=64)\n"
        "transfer.async(dst=B, src=A)\ntransfer.async(dst=A, src=B)\n",
    ],
)
def test_a_program_with_errors_gets_no_advice(text: str) -> None:
    assert advise(Source("t.nem", text)) == []
    assert fix(Source("t.nem", text)) is None


def test_a_program_that_is_as_good_as_can_be() -> None:
    text = "buffer A : L2 (size=64)\nbuffer B : L1 (size=64)\ntransfer.sync(dst=B, src=A)\n"
    fixed = fix(Source("t.nem", text))
    assert fixed is not None
    assert fixed.done == ()
    assert write(fixed.document) == text


def test_a_deep_nest_is_no_problem() -> None:
    heads = "".join(f"loop v{depth} in [0..0]:\n" for depth in range(198))
    text = (
        "buffer W : L2 (size=64)\nbuffer Y : L2 (size=256)\nbuffer L : L1 (size=64)\n"
        f"{heads}loop z in [0..3]:\ntransfer.sync(dst=L, src=W)\nstore.sync(dst=region(Y, z * 64, 64), src=L)\n"
        + "endloop\n"
        * 199
    )
    fixed = fix(Source("t.nem", text))
    assert fixed is not None
    assert fixed.done[0].title == "hoist transfer before loop v0"


CHAIN = """\
include "npm_lite.nem"
device npm_lite
buffer X : DDR (size=8 * 16384)
buffer Y : DDR (size=8 * 16384)
buffer XM : L2 (size=16384)
buffer YM : L2 (size=16384)
buffer XL : L1 (size=16384)
buffer HL : L1 (size=16384)
buffer YL : L1 (size=16384)
NAMED
loop i in [0..7]:
    a = transfer.async(dst=XM, src=region(X, i * 16384, 16384))
    b = transfer.async(dst=XL, src=XM, deps=[a])
    h = relu.async in region(XL, 0, 16384) TYPE out region(HL, 0, 16384) TYPE deps=[b]
    c = relu.async in region(HL, 0, 16384) TYPE out region(YL, 0, 16384) TYPE deps=[h]
    d = store.async(dst=YM, src=YL, deps=[c])
    LAST
endloop
"""
TYPE = "elem=i8, shape=[16384], layout=N"
DELIVER = "transfer.async(dst=region(Y, i * 16384, 16384), src=YM, deps=[d])"


def chain(last: str = DELIVER, named: str = "") -> Source:
    return Source("chain.nem", CHAIN.replace("LAST", last).replace("NAMED", named).replace("TYPE", TYPE))


def test_a_chain_through_l2_with_one_slot_gets_rings_and_the_advice_says_what_they_cost() -> None:
    found = advise(chain())
    best = found[0]
    assert best.title == "keep 4 iterations of loop i in flight"
    assert (best.before_cycles, best.after_cycles) == (27256, 17984)
    assert (
        "XM and YM get 4 slots, 131072 bytes of L2 and XL, HL and YL get 4 slots, 196608 bytes of L1"
        in best.why
    )
    assert "then the unit, sDMA, is binding: 17,984 cycles at least" in best.why
    _, plan = read(write(best.document))
    assert codes(plan) == []


@pytest.mark.parametrize(
    ("last", "named"),
    [
        ("", ""),
        (DELIVER, "let seen = region(YM, 0, 16384) elem=i8, shape=[16384], layout=N"),
        ("transfer.async(dst=region(Y, i * 16384, 8192), src=region(YM, 0, 8192), deps=[d])", ""),
    ],
    ids=["nobody reads it", "a region of it is named", "half of it is taken further"],
)
def test_a_buffer_of_l2_that_others_may_read_keeps_its_size(last: str, named: str) -> None:
    fixed = fix(chain(last, named))
    assert fixed is not None
    assert "buffer YM : L2 (size=16384)" in write(fixed.document)
