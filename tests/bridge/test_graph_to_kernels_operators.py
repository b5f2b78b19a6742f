"""Every operator of the library computes the same by kernels and on the reference, in several types and shapes."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest

from lamella.bridge.graph_to_kernels import graph_to_kernels
from tests.support.bridge.operators import (
    aten,
    aten_gradients,
    aten_others,
    codes,
    images,
    layouts,
    llm,
    mathematics,
    mixtures,
    networks,
    others,
    scans,
)
from tests.support.bridge.operators.calls import (
    Invocation,
    agree,
    build,
    by_kernels,
    by_reference,
    call,
    machine_code,
    natives,
)
from tests.support.judges.registry import operators

FACTORISATIONS = (
    *(
        "cholesky",
        "determinant",
        "eig",
        "eigh",
        "inverse",
        "log_determinant",
        "lu",
        "matrix_exp",
        "qr",
        "solve",
    ),
    *("solve_triangular", "svd"),
)
ROWS = "it has no formula: rows of unknown length are chosen"
DRAWS = "the host draws random numbers, the same for every backend"
REGIONS = "it has no formula: each region has an extent of its own"
NATIVE = {
    "algo.nonmax_suppress": ROWS,
    "algo.top_k": "it has no formula: the host sorts",
    "image._cubic_grid_sample": "it has no formula",
    "image.max_roi_pool": REGIONS,
    "image.avg_roi_pool": REGIONS,
    "layout.nonzero": ROWS,
    "layout.dynamic_range": ROWS,
    "algo.sort_rows": "it has no formula: the host sorts",
    **{f"linalg.{name}": "it has no formula: the host factorises" for name in FACTORISATIONS},
    "rand.uniform": DRAWS,
    "rand.normal": DRAWS,
    "rand.bernoulli": DRAWS,
}
"""What the host computes, and why."""
OPEN = {
    **{"nn.lstm": {"layout.stack"}, "nn.lstm_loop": {"layout.stack"}, "aten.nonzero": {"layout.transpose"}},
    "aten.masked_select": {"layout.squeeze", "layout.gather"},
    **{
        f"algo.unique{kind}": {"layout.squeeze", "layout.gather", "algo.bincount"}
        for kind in ("", "_rows", "_runs")
    },
}
"""Components over packs whose length, or tensors whose extents, only the run tells."""
LAYERS = "layer."
"""Operators with variables: their components are run here, they themselves in test_graph_to_kernels_states."""

IMPORTED = "onnx."
"""Operators that only imported ONNX models have: test_onnx_nodes runs each of them as kernels, in ONNX's own tests."""


@cache
def calls() -> dict[str, list[Invocation]]:
    """The calls of each operator."""
    found = defaultdict[str, list[Invocation]](list)
    for module in (
        aten,
        aten_gradients,
        aten_others,
        codes,
        images,
        layouts,
        llm,
        mathematics,
        mixtures,
        networks,
        others,
        scans,
    ):
        for item in module.CALLS:
            found[item.operator].append(item)
    return dict(found)


@pytest.mark.parametrize("operator", calls())
def test_kernels_agree_with_the_reference(operator: str) -> None:
    model, fed = build(calls()[operator])
    kernels = graph_to_kernels(model)
    agree(machine_code(kernels)(**fed), by_reference(model)(**fed))
    found = natives(kernels)
    assert found <= NATIVE.keys() | OPEN.get(operator, set())
    assert operator.removeprefix("newer/") in found or operator not in NATIVE


@pytest.mark.parametrize("operator", [name for name in calls() if name not in NATIVE])
def test_kernels_agree_in_64_bits(operator: str) -> None:
    model, fed = build(calls()[operator][:1])
    agree(by_kernels(model, wide=True)(**fed), by_reference(model, wide=True)(**fed))


def test_the_host_computes_cubic_samples() -> None:
    model, _ = build(calls()["image.grid_sample"])
    assert natives(graph_to_kernels(model)) == {"image._cubic_grid_sample"}


EXCHANGES = ("misc.all_", "misc.wait", "misc.reduce_scatter")
TRAINING = ("optim.", "misc.after", "misc.offload", "misc.call", "quant.pick", *EXCHANGES)
"""What steps of training call: tests/train runs it by kernels and beside torch."""


def test_no_operator_is_left_out() -> None:
    assert {
        name for name in operators() if not name.startswith((LAYERS, IMPORTED, *TRAINING))
    } == calls().keys()


def test_the_halves_of_bytes_are_computed_by_kernels() -> None:
    """No test of ONNX has the operator: only operators of `com.microsoft` need it."""
    model, fed = build([call("onnx.nibbles", "i32 3 5 0..255"), call("onnx.nibbles", "u8 2 4 0..255")])
    agree(by_kernels(model)(**fed), by_reference(model)(**fed))


def test_integers_to_the_power_of_integers_are_computed_by_the_host() -> None:
    model, fed = build([call("math.pow", "i32 2 1 -3..3", "i32 1 3 0..4")])
    agree(by_kernels(model)(**fed), by_reference(model)(**fed))
    assert natives(graph_to_kernels(model)) == {"math.pow"}
