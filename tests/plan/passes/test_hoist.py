"""Hoisting in NEM text: what moves, how it stays ordered, and what must stay."""

from __future__ import annotations

import pytest

from lamella.lang.nem import write
from lamella.plan.passes.hoist import find_hoists, hoist
from tests.support.plan.passes.programs import codes, example, read, reread

HEAD = """\
program test:

const T = 4
buffer X : L2 (size=T * 64)
buffer W : L2 (size=64)
buffer Y : L2 (size=T * 64)
buffer XL : L1 (size=128)
buffer WL : L1 (size=64)
buffer YL : L1 (size=128)

"""


def both(body: str) -> str:
    """The body of the program after hoisting; all that `reread` asserts holds."""
    document, plan = read(HEAD + body)
    text, _ = reread(hoist(document, plan), plan)
    return text.removeprefix(HEAD)


def stays(body: str) -> bool:
    """Whether there is nothing to hoist."""
    document, plan = read(HEAD + body)
    return hoist(document, plan) is None


def test_a_load_moves_with_its_region_and_its_comments() -> None:
    before = """\
# tiles
loop i in [0..T - 1] @max_in_flight(2):
    let x = region(XL, (i mod 2) * 64, 64) elem=i8, shape=[64], layout=N
    let w = region(WL, 0, 64) elem=i8, shape=[64], layout=N
    let y = region(YL, (i mod 2) * 64, 64) elem=i8, shape=[64], layout=N
    tx = transfer.async(dst=x, src=region(X, i * 64, 64))
    # the weights
    tw = transfer.async(dst=w, src=W)  # always the same
    wait(tx, tw)
    ta = add.async in x, w out y
    store.async(dst=region(Y, i * 64, 64), src=y, deps=[ta])
endloop
"""
    after = """\
let w = region(WL, 0, 64) elem=i8, shape=[64], layout=N
# the weights
tw = transfer.async(dst=w, src=W)  # always the same

# tiles
loop i in [0..T - 1] @max_in_flight(2):
    let x = region(XL, (i mod 2) * 64, 64) elem=i8, shape=[64], layout=N
    let y = region(YL, (i mod 2) * 64, 64) elem=i8, shape=[64], layout=N
    tx = transfer.async(dst=x, src=region(X, i * 64, 64))
    wait(tx, tw)
    ta = add.async in x, w out y
    store.async(dst=region(Y, i * 64, 64), src=y, deps=[ta])
endloop
"""
    assert both(before) == after


def test_the_reload_warning_is_gone() -> None:
    text, path = example("conv_relu")
    document, plan = read(text, path)
    _, after = reread(hoist(document, plan), plan, path)
    assert codes(plan) == ["NEM145"]
    assert codes(after) == []


def test_a_sync_load_leaves_a_wait() -> None:
    before = """\
loop i in [0..T - 1]:
    transfer.async(dst=region(XL, 0, 64), src=region(X, i * 64, 64))
    transfer.sync(dst=WL, src=W)
    store.async(dst=region(Y, i * 64, 64), src=WL)
endloop
"""
    after = """\
t_2 = transfer.async(dst=WL, src=W)
loop i in [0..T - 1]:
    transfer.async(dst=region(XL, 0, 64), src=region(X, i * 64, 64))
    wait(t_2)
    store.async(dst=region(Y, i * 64, 64), src=WL)
endloop
"""
    assert both(before) == after


def test_a_load_that_only_the_end_of_the_loop_orders_leaves_a_wait_at_the_end() -> None:
    before = """\
loop i in [0..T - 1]:
    transfer.async(dst=WL, src=W)
    transfer.async(dst=region(XL, 0, 64), src=region(X, i * 64, 64))
endloop
store.sync(dst=region(Y, 0, 64), src=WL)
"""
    after = """\
t_2 = transfer.async(dst=WL, src=W)
loop i in [0..T - 1]:
    transfer.async(dst=region(XL, 0, 64), src=region(X, i * 64, 64))
    wait(t_2)
endloop
store.sync(dst=region(Y, 0, 64), src=WL)
"""
    assert both(before) == after


def test_orders_that_were_made_inside_become_deps() -> None:
    before = """\
fill = transfer.async(dst=W, src=region(X, 0, 64))
loop i in [0..T - 1]:
    wait(fill)
    first = transfer.async(dst=region(XL, 0, 64), src=region(X, i * 64, 64))
    tw = transfer.async(dst=WL, src=W, deps=[first])
    store.async(dst=region(Y, i * 64, 64), src=WL, deps=[tw])
endloop
"""
    after = """\
fill = transfer.async(dst=W, src=region(X, 0, 64))
tw = transfer.async(dst=WL, src=W, deps=[fill])
loop i in [0..T - 1]:
    wait(fill)
    first = transfer.async(dst=region(XL, 0, 64), src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=WL, deps=[tw, first])
endloop
"""
    assert both(before) == after


def test_a_chain_of_loads_moves_together_out_of_all_loops() -> None:
    before = """\
loop i in [0..T - 1]:
    loop k in [0..1]:
        a = transfer.async(dst=region(YL, 0, 64), src=W)
        b = transfer.async(dst=WL, src=region(YL, 0, 64), deps=[a])
        store.async(dst=region(Y, i * 64 + k * 32, 32), src=region(WL, k * 32, 32), deps=[b])
    endloop
endloop
"""
    after = """\
a = transfer.async(dst=region(YL, 0, 64), src=W)
b = transfer.async(dst=WL, src=region(YL, 0, 64), deps=[a])
loop i in [0..T - 1]:
    loop k in [0..1]:
        store.async(dst=region(Y, i * 64 + k * 32, 32), src=region(WL, k * 32, 32), deps=[b])
    endloop
endloop
"""
    assert both(before) == after


def test_a_load_leaves_only_the_loops_it_does_not_depend_on() -> None:
    before = """\
loop i in [0..T - 1]:
    loop k in [0..1]:
        a = transfer.async(dst=WL, src=region(X, i * 64, 64))
        store.async(dst=region(Y, i * 64 + k * 32, 32), src=region(WL, k * 32, 32), deps=[a])
    endloop
endloop
"""
    after = """\
loop i in [0..T - 1]:
    a = transfer.async(dst=WL, src=region(X, i * 64, 64))
    loop k in [0..1]:
        store.async(dst=region(Y, i * 64 + k * 32, 32), src=region(WL, k * 32, 32), deps=[a])
    endloop
endloop
"""
    assert both(before) == after


def test_names_that_are_taken_outside_are_avoided() -> None:
    before = """\
loop i in [0..T - 1]:
    let w = region(WL, 0, 64)
    t = transfer.async(dst=w, src=W)
    store.async(dst=region(Y, i * 64, 64), src=w, deps=[t])
endloop
loop i in [0..T - 1]:
    let w = region(XL, 0, 64)
    t = transfer.async(dst=w, src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=w, deps=[t])
endloop
"""
    after = """\
t_2 = transfer.async(dst=region(WL, 0, 64), src=W)
loop i in [0..T - 1]:
    let w = region(WL, 0, 64)
    store.async(dst=region(Y, i * 64, 64), src=w, deps=[t_2])
endloop
loop i in [0..T - 1]:
    let w = region(XL, 0, 64)
    t = transfer.async(dst=w, src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=w, deps=[t])
endloop
"""
    assert both(before) == after


def test_a_typed_region_outside_l1_is_written_in_place_so_that_inputs_keep_their_names() -> None:
    before = """\
loop i in [0..T - 1]:
    let half = 32
    let w = region(W, half, half) elem=i8, shape=[32], layout=N @readonly
    t = transfer.async(dst=region(WL, 0, half), src=w)
    store.async(dst=region(Y, i * 64, 32), src=region(WL, 0, half), deps=[t])
endloop
"""
    after = """\
let half = 32
t = transfer.async(dst=region(WL, 0, half), src=region(W, half, half) @readonly)
loop i in [0..T - 1]:
    let w = region(W, half, half) elem=i8, shape=[32], layout=N @readonly
    store.async(dst=region(Y, i * 64, 32), src=region(WL, 0, half), deps=[t])
endloop
"""
    assert both(before) == after


def test_a_unit_that_changes_with_the_iteration_is_not_kept() -> None:
    before = """\
loop i in [0..T - 1]:
    t = transfer.async(dst=WL, src=W) @resource(DMA[i mod 2])
    store.async(dst=region(Y, i * 64, 64), src=WL, deps=[t])
endloop
"""
    assert both(before).startswith("t = transfer.async(dst=WL, src=W)\nloop")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """\
loop i in [0..T - 1]:
    t = transfer.async(dst=WL, src=region(X, i * 64, 64))
    store.async(dst=region(Y, i * 64, 64), src=WL, deps=[t])
endloop
""",
            id="the source moves",
        ),
        pytest.param(
            """\
loop i in [0..T - 1]:
    t = transfer.sync(dst=WL, src=W)
    store.sync(dst=region(Y, i * 64, 64), src=WL)
    transfer.sync(dst=region(W, 0, 32), src=region(X, i * 64, 32))
endloop
""",
            id="the source is written",
        ),
        pytest.param(
            """\
loop i in [0..T - 1]:
    transfer.sync(dst=WL, src=W)
    store.sync(dst=region(Y, i * 64, 64), src=WL)
    transfer.sync(dst=region(WL, 8, 8), src=region(X, i * 64, 8))
endloop
""",
            id="the target is written by another",
        ),
        pytest.param(
            """\
transfer.sync(dst=WL, src=region(X, 0, 64))
loop i in [0..T - 1]:
    store.sync(dst=region(Y, i * 64, 64), src=WL)
    transfer.sync(dst=WL, src=W)
endloop
""",
            id="the first iteration reads what was there before",
        ),
        pytest.param(
            """\
loop i in [0..0]:
    transfer.sync(dst=WL, src=W)
endloop
store.sync(dst=region(Y, 0, 64), src=WL)
""",
            id="one iteration",
        ),
        pytest.param(
            """\
transfer.sync(dst=WL, src=region(X, 0, 64))
loop i in [0..1]:
    loop k in [1..0]:
        transfer.sync(dst=WL, src=W)
    endloop
endloop
store.sync(dst=region(Y, 0, 64), src=WL)
""",
            id="it is never executed",
        ),
        pytest.param(
            """\
loop i in [0..T - 1]:
    transfer.sync(dst=region(XL, 0, 64), src=region(XL, 16, 64)) @memmove
    store.sync(dst=region(Y, i * 64, 64), src=region(XL, 0, 64))
endloop
""",
            id="it moves its own source",
        ),
    ],
)
def test_what_is_not_the_same_in_every_iteration_stays(body: str) -> None:
    assert stays(body)


def test_a_buffer_that_may_be_the_source_under_another_name_keeps_the_load_inside() -> None:
    text = """\
buffer A : L2 (size=64, import)
buffer B : L2 (size=256, import)
buffer L : L1 (size=64)
loop i in [0..3]:
    transfer.sync(dst=L, src=A)
    store.sync(dst=region(B, i * 64, 64), src=L)
endloop
"""
    document, plan = read(text)
    assert hoist(document, plan) is None
    document, plan = read(text.replace("src=A", "src=region(A, 0, 64) @readonly"))
    assert hoist(document, plan) is not None


def test_only_the_wanted_moves_are_hoisted() -> None:
    body = """\
loop i in [0..T - 1]:
    a = transfer.async(dst=WL, src=W)
    b = transfer.async(dst=region(XL, 0, 64), src=W)
    wait(a, b)
    store.async(dst=region(Y, i * 64, 32), src=region(WL, 0, 32))
    store.async(dst=region(Y, i * 64 + 32, 32), src=region(XL, 0, 32))
endloop
"""
    document, plan = read(HEAD + body)
    text, _ = reread(hoist(document, plan, only=frozenset([1])), plan)
    assert "\nb = transfer" in text
    assert "\n    a = transfer" in text


def test_a_move_whose_text_names_the_loop_stays_though_its_place_does_not_move() -> None:
    body = """\
loop i in [0..T - 1]:
    a = transfer.async(dst=region(WL, 0 * i, 64), src=W)
    b = transfer.async(dst=region(XL, 0, 64), src=W)
    wait(a, b)
    store.async(dst=region(Y, i * 64, 32), src=region(WL, 0, 32))
    store.async(dst=region(Y, i * 64 + 32, 32), src=region(XL, 0, 32))
endloop
"""
    document, plan = read(HEAD + body)
    assert [item.task.token for item in find_hoists(document, plan)] == ["b"]
    text, _ = reread(hoist(document, plan), plan)
    assert "\n    a = transfer" in text


def test_the_document_that_went_in_is_unchanged() -> None:
    text, path = example("conv_relu")
    document, plan = read(text, path)
    before = write(document)
    assert hoist(document, plan) is not None
    assert write(document) == before
