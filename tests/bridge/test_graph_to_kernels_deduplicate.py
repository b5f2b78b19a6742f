"""Kernel deduplication: equal kernels are one, sizes are left open where they run seldom, numbers stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.base.dtype import F32
from lamella.bridge.graph_to_kernels import graph_to_kernels
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.kernels.nodes import KernelGraph
from lamella.lang.tensor.nodes import Memref
from tests.support.bridge.operators.calls import agree, by_reference, machine_code
from tests.support.judges.harness import library

WIDTHS = (48, 96, 64, 80, 40)


def layers() -> Model:
    """Linear layers of several sizes one after the other, of which two are equal."""
    builder = Builder(library("specification"), "G")
    found = builder.input("x", F32, (6, WIDTHS[0]))
    for number, (width, following) in enumerate(zip((*WIDTHS, 40), (*WIDTHS[1:], 40, 40), strict=True)):
        weight = builder.variable(f"w{number}", F32, (following, width))
        found = builder.call("nn.relu", builder.call("nn.linear", found, weight))
    return Model(builder.finish(found), builder.library)


@pytest.fixture(scope="module")
def kernels() -> KernelGraph:
    return graph_to_kernels(layers())


def test_factors_of_all_sizes_are_packed_by_few_kernels(kernels: KernelGraph) -> None:
    calls = [call for found in kernels.calls.values() for call in found]
    packing = [call for call in calls if call.once]
    assert len(packing) == len({call.operands for call in packing}) >= 5
    assert len({call.kernel for call in packing}) < len(packing)
    names = {item.name: item for item in kernels.program.functions}
    assert {call.kernel for call in calls} == set(names)
    shared = [names[call.kernel] for call in packing]
    types = [item.type for function in shared for item in function.parameters]
    assert any(isinstance(item, Memref) and None in item.shape for item in types)


def test_kernels_of_each_run_keep_their_constants(kernels: KernelGraph) -> None:
    often = {call.kernel for found in kernels.calls.values() for call in found if not call.once}
    for function in kernels.program.functions:
        types = [item.type for item in function.parameters if isinstance(item.type, Memref)]
        assert function.name not in often or not any(None in (*item.shape, *item.stride) for item in types)


def test_numbers_are_those_of_the_reference(kernels: KernelGraph) -> None:
    given = {"x": np.random.default_rng(5).standard_normal((6, WIDTHS[0])).astype("f4")}
    # Both draw the same weights.
    agree(machine_code(kernels)(**given), by_reference(kernels.model)(**given))
