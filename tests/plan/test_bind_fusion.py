"""Fusion: chains that hand values on give the same bytes, and stop where the program says so."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from lamella.plan.stcb.nodes import TaskRecord
from tests.support.plan.binding import bind_plan, device_text, equals_program, read

N = 64
HEAD = f"""
buffer S : L2 (size={16 * N})
buffer W : L2 (size={8 * 8 * 4})
buffer D : L2 (size={16 * N * 4})
buffer V : L1 (size={8 * 8 * 4})
buffer A : L1 (size={4 * 256})
buffer Y : L1 (size={4 * 256})
buffer Z : L1 (size={4 * 256})
let Wt = region(V, 0, 256) elem=f32, shape=[8, 8], layout=KN
tw = transfer.async(dst=V, src=W)
wait(tw)
"""
LOOP = """
loop i in [0..3] @max_in_flight({window}):
    let X = region(A, (i mod {window}) * 256, 256) elem=f32, shape=[8, 8], layout=MK
    let P = region(Y, (i mod {window}) * 256, 256) elem=f32, shape=[8, 8], layout=MN {keep}
    let Q = region({out}, (i mod {window}) * 256, 256) elem=f32, shape=[8, 8], layout=MN
    t = transfer.async(dst=X, src=region(S, i * 256, 256))
    g = matmul.async in X, Wt out P accum_type=f32 deps=[t]
    r = relu.async in P out Q deps=[g] {relu}
    s = store.async(dst=region(D, i * 256, 256), src=Q, deps=[r]) {store}
{more}
endloop
"""
DEVICE = device_text(tokens=32).replace(
    "    unit_characteristics",
    "    opcode.extended { gemm.float<f32>.no_bias eltwise<f32>.default }\n    unit_characteristics",
)


def program(tmp_path: Path, **parts: object) -> tuple[list[TaskRecord], bool]:
    """The records of a pipeline and whether its stream gives the program's bytes."""
    given = {"window": 2, "keep": "", "out": "Y", "relu": "", "store": "", "more": ""} | parts
    bound = bind_plan(read(DEVICE + HEAD + LOOP.format(**given), tmp_path))
    return list(bound.stream.engines[0]), equals_program(bound)


def chained(records: list[TaskRecord]) -> list[str]:
    return [record.op for record in records if record.chain]


@pytest.mark.parametrize("out", ["Y", "Z"])
@pytest.mark.parametrize("window", [1, 2, 4])
def test_product_activation_and_store_become_one(tmp_path: Path, window: int, out: str) -> None:
    records, equal = program(tmp_path, window=window, out=out)
    assert chained(records) == ["matmul", "relu"] * 4
    assert equal
    for record, following in pairwise(records):
        if record.op == "relu":
            assert (str(record.unit)[:5], str(following.unit)) == (
                str(following.unit)[:5],
                f"{str(record.unit)[:5]}B",
            )
            assert not record.wait
            assert not record.set


@pytest.mark.parametrize("out", ["Y", "Z"])
def test_a_materialized_region_is_written(tmp_path: Path, out: str) -> None:
    records, equal = program(tmp_path, keep="@materialized", out=out)
    assert not chained(records)
    assert equal


def test_a_materialized_operand_is_written(tmp_path: Path) -> None:
    text = DEVICE + HEAD + LOOP.format(window=2, keep="", out="Z", relu="", store="", more="")
    bound = bind_plan(read(text.replace("in P out Q", "in P out Q @materialized"), tmp_path))
    assert not chained(list(bound.stream.engines[0]))


def test_a_value_that_somebody_else_reads_is_written(tmp_path: Path) -> None:
    more = "    store.async(dst=region(D, 4096 - 1024 + i * 256, 256), src=P, deps=[g])"
    records, equal = program(tmp_path, out="Z", more=more)
    assert not chained(records)
    assert equal


def test_a_reader_in_the_next_iteration_counts(tmp_path: Path) -> None:
    """The last slot is read once more after the loop."""
    text = DEVICE + HEAD + LOOP.format(window=2, keep="", out="Y", relu="", store="", more="")
    bound = bind_plan(
        read(text + "store.sync(dst=region(D, 2048, 256), src=region(Y, 256, 256))\n", tmp_path)
    )
    assert not chained(list(bound.stream.engines[0]))
    assert equals_program(bound)


def test_pinned_to_different_units_they_stay_apart(tmp_path: Path) -> None:
    pins = {"relu": "@resource(CSTL[0])", "store": "@resource(CSTL[1])"}
    records, equal = program(tmp_path, **pins)
    assert not chained(records)
    assert equal
    alike, equal = program(tmp_path, relu="@resource(CSTL[1])")
    assert chained(alike) == ["matmul", "relu"] * 4
    assert {str(record.unit) for record in alike if record.op in ("relu", "store")} == {"CSTL1A", "CSTL1B"}
    assert equal


def test_what_waits_for_something_later_stays_apart(tmp_path: Path) -> None:
    """The store waits for a task between it and the product, which waits for the product."""
    text = DEVICE + HEAD + LOOP.format(window=2, keep="", out="Z", relu="", store="", more="")
    between = "    u = transfer.async(dst=region(D, 2048, 64), src=region(S, 0, 64), deps=[g])\n    s = store"
    bound = bind_plan(
        read(text.replace("    s = store", between).replace("deps=[r]", "deps=[r, u]"), tmp_path)
    )
    assert not chained(list(bound.stream.engines[0]))
    assert equals_program(bound)


def test_two_elementwise_tasks_join_the_chain(tmp_path: Path) -> None:
    text = DEVICE + HEAD + LOOP.format(window=2, keep="", out="Z", relu="", store="", more="")
    second = "    n = neg.async in Q out Q deps=[r]\n    s = store"
    bound = bind_plan(
        read(text.replace("    s = store", second).replace("src=Q, deps=[r]", "src=Q, deps=[n]"), tmp_path)
    )
    assert chained(list(bound.stream.engines[0])) == ["matmul", "relu", "neg"] * 4
    assert equals_program(bound)


def test_two_layers_may_share_their_memory(tmp_path: Path) -> None:
    """Each read of the shared slot is fed by its own product, so both chains are private."""
    again = LOOP.replace("loop i", "loop j").replace("(i mod", "(j mod").replace("i * 256", "2048 + j * 256")
    first, second = (
        text.format(window=2, keep="", out="Y", relu="", store="", more="") for text in (LOOP, again)
    )
    second = second.replace("region(S, 2048 + j * 256", "region(S, j * 256")
    bound = bind_plan(read(DEVICE + HEAD + first + second, tmp_path))
    assert chained(list(bound.stream.engines[0])) == ["matmul", "relu"] * 8
    assert equals_program(bound)
