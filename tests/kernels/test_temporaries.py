"""Memory of temporaries: one name is one size and one type, and no view of a launch list leaves its buffer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels import graph_to_kernels
from lamella.kernels.launches import Buffer, BufferView, Launch, LaunchList, verify_views
from lamella.kernels.nodes import KernelCall, KernelGraph, KernelOperand, find_temporaries
from lamella.kernels.schedule import ScheduledOperation, Scheduler
from tests.support.bridge.launch_lists import compile_lists, lists_of
from tests.support.graph.texts import small

WRITES = {"first": [True], "second": [True, False]}
SMALL = KernelOperand(".t", None, (8,), "f32", whole=True)


@pytest.mark.parametrize(
    "other",
    [
        replace(SMALL, shape=(9,)),
        replace(SMALL, shape=(8,), strides=(2,)),
        replace(SMALL, shape=(8,), offset=1),
        replace(SMALL, element="f64"),
        replace(SMALL, element="i32"),
    ],
)
def test_two_temporaries_of_one_name_are_refused(other: KernelOperand) -> None:
    """The second kernel would leave the memory that was made for the first, or read its numbers as others."""
    output = KernelOperand("y", None, (8,), "f32", whole=True)
    calls = KernelCall("first", (SMALL,)), KernelCall("second", (output, other))
    operation = ScheduledOperation("two", calls, {("y", None): "y"}, ("y",))
    scheduler = Scheduler({"y": 32}, WRITES)
    with pytest.raises(Unsupported, match=r"two temporaries are called '\.t'"):
        scheduler.add(operation)


def test_one_temporary_is_seen_in_many_ways() -> None:
    """As a row and as a matrix, from either side: the same memory."""
    views = replace(SMALL, shape=(2, 4)), replace(SMALL, shape=(4, 2), strides=(2, 1))
    assert find_temporaries([KernelCall("k", (SMALL, *views))]) == {".t": SMALL}


def test_a_view_that_leaves_its_buffer_is_refused() -> None:
    inside = BufferView("b", "f32", (2, 3), (1, 4), 1)  # 1 + (1 + 1 + 8) elements
    for view in (inside, replace(inside, shape=(0, 9))):
        verify_views(LaunchList({"b": Buffer(44)}, (Launch("k", (view,), (0,)),), {}, {}))
    beyond = [
        replace(inside, offset=2),
        replace(inside, shape=(3, 3)),
        replace(inside, strides=(2, 4)),
        replace(inside, element="f64"),
        replace(inside, offset=-1),
        replace(inside, strides=(-1, 4)),
    ]
    for view in beyond:
        with pytest.raises(Unsupported, match="would leave its memory"):
            verify_views(LaunchList({"b": Buffer(44)}, (Launch("k", (view,), (0,)),), {}, {}))


def _clashing() -> KernelGraph:
    """Kernels of a graph, the readers of whose temporary take it for a longer one."""
    body = "s = math.sum_reduce{axes=[1]}(x); y = math.sub(x, s);"
    kernels = graph_to_kernels(small("x: bf16[4, 30];", body, "y: bf16[4, 30]"))
    found = {key: list(calls) for key, calls in kernels.calls.items()}
    for calls in found.values():
        for place, call in enumerate(calls):
            if place and any(item.is_temporary for item in call.operands):
                longer = (
                    replace(item, shape=(1 << 12,), strides=(1,)) if item.is_temporary else item
                    for item in call.operands
                )
                calls[place] = replace(call, operands=tuple(longer))
    return replace(kernels, calls={key: tuple(calls) for key, calls in found.items()})


def test_kernels_that_clash_do_not_run() -> None:
    """Neither in a list nor one by one: the formulas compute what they would have."""
    kernels = _clashing()
    assert any(_has_clash(calls) for calls in kernels.calls.values())
    x = np.random.default_rng(0).integers(-8, 8, (4, 30)).astype(np.float32)
    run = compile_lists(kernels, 1)
    np.testing.assert_array_equal(run(x=x)["y"].astype(np.float32), x - x.sum(1, keepdims=True))
    names = {item.kernel for found in lists_of(run) for item in found.each.launches}
    assert names.isdisjoint(
        call.kernel for calls in kernels.calls.values() if _has_clash(calls) for call in calls
    )


def _has_clash(calls: tuple[KernelCall, ...]) -> bool:
    try:
        find_temporaries(calls)
    except Unsupported:
        return True
    return False
