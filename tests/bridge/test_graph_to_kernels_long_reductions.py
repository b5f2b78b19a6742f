"""Two-stage reductions chosen by layout: the numbers of the reference, and enough subgroups."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from lamella.backend.cpu import compile_program
from lamella.bridge.graph_to_kernels import KernelWriter, flatten
from lamella.bridge.graph_to_kernels.group_kernels import GroupPlace
from lamella.bridge.graph_to_kernels.inline import inline
from lamella.bridge.graph_to_kernels.long_reductions import split_long_reductions
from lamella.bridge.graph_to_kernels.split_reductions import PARTIAL
from lamella.kernels.launches import Layout, dense_layout
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Program
from tests.support.bridge.groups import whole_group
from tests.support.bridge.operators.calls import agree, build, by_reference, call

CLOSE = (0, 2, 3, 1)
"""Dimensions from outside to inside where channels lie side by side."""
NUMBERS = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64}
CASES = {
    "pool of channels": (call("math.mean_reduce<real>", "f32 1 35 88 97 -1..1", axes=(2, 3)), CLOSE),
    "sum of channels": (call("aten.sum", "f64 1 32 88 64 -1..1", dim=(2, 3)), CLOSE),
    "sum of integers": (call("aten.sum", "i64 1 32 88 64 -9..9", dim=(2, 3)), CLOSE),
    "smallest": (call("math.min_reduce<real>", "f32 1 33 88 97 -5..5", axes=(2, 3)), CLOSE),
    "largest of halves": (call("aten.amax", "f16 1 33 88 97 -5..5", dim=(2, 3)), CLOSE),
    "rows along lanes": (call("math.sum_reduce<real>", "f32 1 3 270 64 -1..1", axes=(2, 3)), (0, 1, 2, 3)),
    "one loop is kept": (call("math.sum_reduce<real>", "f32 1 110 84 33 -1..1", axes=(1, 2)), (0, 1, 2, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_are_summed_by_many_subgroups(name: str) -> None:
    item, order = CASES[name]
    model, fed = build([item])
    flat = flatten(model)
    stages = inline(flat.library, whole_group(flat))
    ((source, array),) = fed.items()
    layouts = {source: dense_layout(array.shape, order)}
    writer = KernelWriter(flat.library, target=find_target("sm_90a"))
    keys = {name: (name, None) for name in (*stages.inputs, *stages.outputs)}
    calls = writer.add_stages("group", stages, keys, GroupPlace(layouts=layouts))
    functions = {function.name: function for function in writer.functions}
    first, *_ = calls
    assert any(operand.name.endswith(PARTIAL) for operand in first.operands)
    items, _ = default_sizes(functions[first.kernel]).work_group_size
    longest = array.size // (items * first.groups)
    assert longest <= 64
    expected = by_reference(model)(**fed)
    found = {name: np.full_like(wanted, 77) for name, wanted in expected.items()}
    arrays = {source: np.ascontiguousarray(array.transpose(order)), **found}
    compiled = compile_program(Program(tuple(writer.functions)))
    for made in calls:
        given = []
        for operand in made.operands:
            size = prod(operand.shape)
            whole = arrays.setdefault(operand.name, np.full(size, 99, NUMBERS[operand.element]))
            given.append(whole.reshape(-1)[operand.offset : operand.offset + size])
        compiled.call(made.kernel, given, made.groups)
    agree(found, expected)
    # Every access is proved, so that none is tested while it runs.
    assert not compiled.findings


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((1, 35, 20, 20), CLOSE),
        ((16, 64, 88, 64), CLOSE),
        ((100, 5, 90, 64), None),
        ((1, 16000, 1, 1), None),
        ((2, 35, 100, 20), CLOSE),
    ],
)
def test_short_sums_and_many_stay(shape: tuple[int, ...], layout: tuple[int, ...] | None) -> None:
    told = f"f32 {' '.join(map(str, shape))} -1..1"
    flat = flatten(
        build([call("math.sum_reduce<real>", told, axes=(2, 3) if shape[2] > 1 else (1, 2, 3))])[0]
    )
    stages = inline(flat.library, whole_group(flat))
    layouts: dict[str, Layout] = {}
    if layout is not None:
        layouts = {name: dense_layout(shape, layout) for name in stages.inputs}
    assert split_long_reductions(stages, layouts, (32,)) == (stages, {})
