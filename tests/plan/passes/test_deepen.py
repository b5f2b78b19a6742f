"""Deeper windows in NEM text: rings grow, rings begin, and what carries bytes between iterations is left alone."""

from __future__ import annotations

import pytest

from lamella.lang.nem.resolved import Loop, Plan
from lamella.plan.passes.propose import widen_window
from lamella.plan.passes.ring_buffers import find_rings
from tests.support.plan.passes.programs import example, is_safe, read, reread

HEAD = """\
program test:

buffer X : L2 (size=512)
buffer Y : L2 (size=512)
"""


def loop_of(plan: Plan, number: int = 0) -> Loop:
    return next(item for item, _ in plan.walk() if isinstance(item, Loop) and item.number == number)


def both(before: str, window: int, number: int = 0) -> str:
    """The program after deepening; all that `reread` asserts holds."""
    document, plan = read(HEAD + before)
    text, after = reread(widen_window(document, plan, loop_of(plan, number), window), plan)
    assert loop_of(after, number).window == window
    return text.removeprefix(HEAD)


def rings(before: str) -> list[tuple[str, int, int]]:
    _, plan = read(HEAD + before)
    return [(ring.buffer.name, ring.modulus, ring.slot) for ring in find_rings(plan, loop_of(plan))]


def test_a_ring_gets_more_slots() -> None:
    before = """\
buffer L : L1 (size=2 * 64)

loop i in [0..7] @max_in_flight(2):
    let x = region(L, (i mod 2) * 64, 64)
    a = transfer.async(dst=x, src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=x, deps=[a])
endloop
"""
    after = """\
buffer L : L1 (size=3 * 64)

loop i in [0..7] @max_in_flight(3):
    let x = region(L, (i mod 3) * 64, 64)
    a = transfer.async(dst=x, src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=x, deps=[a])
endloop
"""
    assert both(before, 3) == after


def test_a_constant_that_counts_the_slots_and_nothing_else_is_changed_itself() -> None:
    before = """\
const D = 2
buffer L : L1 (size=D * 64)
loop i in [0..7] @max_in_flight(D):
    a = transfer.async(dst=region(L, (i mod D) * 64, 64), src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=region(L, (i mod D) * 64, 64), deps=[a])
endloop
"""
    text = both(before, 4)
    assert text.lstrip("\n") == before.replace("const D = 2", "const D = 4")


def test_a_constant_that_means_something_else_too_is_kept() -> None:
    before = """\
const D = 2
buffer L : L1 (size=D * 64)
loop i in [0..D] @max_in_flight(D):
    a = transfer.async(dst=region(L, i mod D * 64, 64), src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=region(L, i mod D * 64, 64), deps=[a])
endloop
"""
    text = both(before, 3)
    assert "const D = 2\n" in text
    assert "loop i in [0..D] @max_in_flight(3):" in text
    assert "size=3 * 64" in text
    assert text.count("i mod 3 * 64") == 2


def test_a_let_that_picks_the_slot_is_changed() -> None:
    before = """\
buffer L : L1 (size=128)
loop i in [0..7] @max_in_flight(2):
    let slot = i mod 2
    a = transfer.async(dst=region(L, slot * 64, 64), src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=region(L, slot * 64, 64), deps=[a])
endloop
"""
    text = both(before, 3)
    assert "let slot = i mod 3\n" in text
    assert "size=128 + 64)" in text


def test_a_let_that_is_used_elsewhere_is_not_touched() -> None:
    before = """\
buffer L : L1 (size=128)
loop i in [0..7] @max_in_flight(2):
    let slot = i mod 2
    a = transfer.async(dst=region(L, slot * 64, 64), src=region(X, slot * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=region(L, slot * 64, 64), deps=[a])
endloop
"""
    document, plan = read(HEAD + before)
    assert widen_window(document, plan, loop_of(plan), 3) is None


def test_buffers_without_slots_become_rings() -> None:
    before = """\
const tile = 64
buffer A : L1 (size=tile)
buffer B : L1 (size=2 * tile)
let b = region(B, tile, tile) elem=i8, shape=[tile], layout=N  # the result

loop i in [0..7]:
    let a = region(A, 0, tile) elem=i8, shape=[tile], layout=N
    t = transfer.async(dst=A, src=region(X, i * tile, tile))
    r = relu.async in a out b deps=[t]
    store.async(dst=region(Y, i * tile, tile), src=b, deps=[r])
endloop
"""
    after = """\
const tile = 64
buffer A : L1 (size=2 * tile)
buffer B : L1 (size=2 * 2 * tile)

loop i in [0..7] @max_in_flight(2):
    let b = region(B, (i mod 2) * (2 * tile) + tile, tile) elem=i8, shape=[tile], layout=N  # the result
    let a = region(A, (i mod 2) * tile, tile) elem=i8, shape=[tile], layout=N
    t = transfer.async(dst=region(A, (i mod 2) * tile, tile), src=region(X, i * tile, tile))
    r = relu.async in a out b deps=[t]
    store.async(dst=region(Y, i * tile, tile), src=b, deps=[r])
endloop
"""
    assert both(before, 2).lstrip("\n") == after


def test_a_ring_with_slots_enough_keeps_them() -> None:
    before = """\
buffer L : L1 (size=256)
loop i in [0..7]:
    a = transfer.async(dst=region(L, (i mod 4) * 64, 64), src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=region(L, (i mod 4) * 64, 64), deps=[a])
endloop
"""
    text = both(before, 4)
    assert text.lstrip("\n") == before.replace("[0..7]:", "[0..7] @max_in_flight(4):")


def test_a_ring_of_one_slot_that_says_so() -> None:
    before = """\
buffer L : L1 (size=1 * 64)
loop i in [0..7] @max_in_flight(1):
    a = transfer.async(dst=region(L, (i mod 1) * 64, 64), src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=region(L, (i mod 1) * 64, 64), deps=[a])
endloop
"""
    after = before.replace("mod 1", "mod 2").replace("1 * 64", "2 * 64").replace("flight(1)", "flight(2)")
    assert both(before, 2).lstrip("\n") == after


def test_a_slot_filled_in_parts_by_an_inner_loop() -> None:
    before = """\
buffer L : L1 (size=64)
loop i in [0..7]:
    loop k in [0..3] @max_in_flight(4):
        transfer.async(dst=region(L, k * 16, 16), src=region(X, i * 64 + k * 16, 16))
    endloop
    store.async(dst=region(Y, i * 64, 64), src=L)
endloop
"""
    text = both(before, 2)
    assert "dst=region(L, (i mod 2) * 64 + k * 16, 16)" in text
    assert "src=region(L, (i mod 2) * 64, 64)" in text


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """\
buffer L : L1 (size=128)
loop i in [0..7] @max_in_flight(1):
    store.sync(dst=region(Y, i * 64, 64), src=region(L, (i mod 2) * 64, 64))
    transfer.sync(dst=region(L, (i mod 2) * 64, 64), src=region(X, i * 64, 64))
endloop
""",
            id="a slot is read before it is written",
        ),
        pytest.param(
            """\
buffer L : L1 (size=128)
loop i in [0..6]:
    transfer.sync(dst=region(L, (i mod 2) * 64, 64), src=region(X, i * 64, 64))
    store.sync(dst=region(Y, i * 64, 64), src=region(L, ((i + 1) mod 2) * 64, 64))
endloop
""",
            id="the slot of another iteration is read",
        ),
        pytest.param(
            """\
buffer L : L1 (size=64)
loop i in [0..7]:
    transfer.sync(dst=region(L, 0, 64), src=region(X, i * 64, 64))
endloop
store.sync(dst=region(Y, 0, 64), src=L)
""",
            id="it is read after the loop",
        ),
        pytest.param(
            """\
buffer L : L1 (size=64)
loop i in [0..7]:
    transfer.sync(dst=region(L, 0, 32), src=region(X, i * 64, 32))
    store.sync(dst=region(Y, i * 64, 64), src=L)
endloop
""",
            id="only a part is written first",
        ),
        pytest.param(
            """\
buffer L : L1 (size=64)
loop i in [0..7]:
    relu.sync in region(X, i * 64, 64) elem=i8, shape=[32], layout=N
        out region(L, 0, 64) elem=i8, shape=[32], strides=[2]
    store.sync(dst=region(Y, i * 64, 64), src=L)
endloop
""",
            id="gaps are left between what is written",
        ),
        pytest.param(
            """\
buffer L : L1 (size=64)
loop i in [0..7]:
    transfer.sync(dst=L, src=region(X, 0, 64))
    store.sync(dst=region(Y, i * 64, 64), src=L)
endloop
""",
            id="it is loaded with the same bytes in every iteration",
        ),
        pytest.param(
            """\
buffer L : L2 (size=64)
let seen = region(L, 0, 64) elem=i8, shape=[64], layout=N
loop i in [0..7]:
    transfer.sync(dst=L, src=region(X, i * 64, 64))
    store.sync(dst=region(Y, i * 64, 64), src=L)
endloop
""",
            id="it is seen from outside",
        ),
    ],
)
def test_what_is_no_ring(body: str) -> None:
    assert rings(body) == []


def test_rings_are_found() -> None:
    body = """\
buffer A : L1 (size=200)
buffer B : L1 (size=64)
loop i in [1..7]:
    transfer.sync(dst=region(A, (i mod 3) * 64 + 8, 56), src=region(X, i * 64, 56))
    transfer.sync(dst=region(B, 8, 16), src=region(A, (i mod 3) * 64 + 16, 16))
    store.sync(dst=region(Y, i * 64, 8), src=region(B, 12, 8))
endloop
"""
    assert rings(body) == [("A", 3, 64), ("B", 1, 64)]


@pytest.mark.parametrize(
    "name", ["conv_relu", "gemm_bias_relu", "layernorm_softmax", "ring_cstl", "two_engines"]
)
@pytest.mark.parametrize("deeper", [1, 2, 3, 4])
def test_the_examples_give_the_same_numbers(name: str, deeper: int) -> None:
    text, path = example(name)
    document, plan = read(text, path)
    loop = loop_of(plan)
    reread(widen_window(document, plan, loop, loop.window + deeper), plan, path)


def test_a_window_that_is_open_so_far_is_not_touched() -> None:
    text, path = example("conv_relu")
    document, plan = read(text, path)
    assert widen_window(document, plan, loop_of(plan), 2) is None
    assert is_safe(plan)
