"""Every operator of the library computes the same by kernels and on the reference, in several types and shapes."""

from __future__ import annotations

from collections import defaultdict

import pytest

from lamella.bridge.graph_to_kernels import graph_to_kernels
from tests.bridge.operators import images, layouts, mathematics, networks, others
from tests.bridge.operators.calls import Invocation, agree, build, by_kernels, by_reference, natives
from tests.ops.judges.registry import operators

NATIVE = {
    "algo.nonmax_suppress": "the host sorts boxes",
}
"""What the host computes, and why."""

CALLS = defaultdict[str, list[Invocation]](list)
for _module in (images, layouts, mathematics, networks, others):
    for _item in _module.CALLS:
        CALLS[_item.operator].append(_item)


@pytest.mark.parametrize("operator", CALLS)
def test_kernels_agree_with_the_reference(operator: str) -> None:
    model, fed = build(CALLS[operator])
    agree(by_kernels(model)(**fed), by_reference(model)(**fed))
    assert natives(graph_to_kernels(model)) <= NATIVE.keys()


def test_no_operator_is_left_out() -> None:
    layers = {name for name in operators() if name.startswith("layer.")}
    assert set(operators()) - layers == CALLS.keys()
