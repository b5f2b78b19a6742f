"""Groups of maps and reductions as row kernels: the numbers of the reference, whatever lies where."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu import compile_program
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import F32
from lamella.bridge.graph_to_kernels import KernelWriter, flatten, graph_to_kernels
from lamella.bridge.graph_to_kernels.flat import FlatLayout, flatten_stages
from lamella.bridge.graph_to_kernels.inline import Stages, inline
from lamella.bridge.graph_to_kernels.row_plan import plan_rows
from lamella.bridge.graph_to_kernels.rows import SIZES, write_rows
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.kernels.nodes import KernelCall, KernelOperand
from lamella.lang.tensor.nodes import Program
from tests.support.bridge.groups import make_group, whole_group
from tests.support.bridge.operators.calls import (
    Invocation,
    agree,
    build,
    by_reference,
    call,
    machine_code,
)


def run_calls(
    calls: list[KernelCall], program: Program, stages: Stages, fed: Mapping[str, Array]
) -> dict[str, Array] | None:
    """What leaves a group; None where a step had no value."""
    arrays: dict[str, Array] = {name: np.ascontiguousarray(fed[name]) for name in stages.inputs}
    for held in stages.tensors.values():
        arrays.setdefault(held.name, np.zeros(held.shape, numpy_dtype(held.element)))
    compiled = compile_program(program)
    for item in calls:
        fault = np.zeros(1, np.int32)
        flat = [arrays[operand.name.removeprefix(".")] for operand in item.operands]
        given = [
            _part_of(array.view(np.int8) if array.dtype == bool else array, operand)
            for array, operand in zip(flat, item.operands, strict=True)
        ]
        compiled.call(item.kernel, [*given, *([fault] if item.has_fault else [])], item.groups)
        if fault[0]:
            return None
    # Whatever is proved needs no test while it runs.
    assert not [found.message for found in compiled.findings if not any(item.has_fault for item in calls)]
    return {name: arrays[name] for name in stages.outputs}


def _part_of(array: Array, operand: KernelOperand) -> Array:
    """What a kernel takes of a dense array: one that lies behind its start, and without gaps."""
    flat = array.reshape(-1)[operand.offset : operand.offset + prod(operand.shape)]
    return flat.reshape(operand.shape[::-1]).T


def run_group(model: Model, fed: Mapping[str, Array]) -> dict[str, Array] | None:
    """A graph as one group."""
    stages = inline(model.library, whole_group(model))
    writer = KernelWriter(model.library)
    names = {name: (name, None) for name in (*stages.inputs, *stages.outputs)}
    calls = list(writer.add_stages("group", stages, names))
    return run_calls(calls, Program(tuple(writer.functions)), stages, fed)


ONE_KERNEL = {
    "softmax along lanes": call("nn.softmax", "f32 3 100 -2..2", axes=(1,)),
    "softmax along rows": call("nn.softmax", "f32 2 7 100 -2..2", axes=(1,)),
    "softmax of short rows": call("nn.softmax", "f32 50 3 -2..2", axes=(1,)),
    "softmax in f16": call("nn.softmax", "f16 5 70 -2..2", axes=(1,)),
    "softmax in f64": call("nn.softmax", "f64 5 70 -2..2", axes=(1,)),
    "layer norm": call("aten.layer_norm", "f32 3 5 96", "f32 96", "f32 96", normalized_shape=(96,)),
    "group norm": call("aten.group_norm", "f32 2 8 5 5", "f32 8", "f32 8", num_groups=4),
    "moments over a batch": call("math.moments", "f32 3 20 4 9", axes=(0, 2, 3)),
    "moments with their results": call(
        "aten.native_layer_norm", "f32 4 65", "f32 65", "f32 65", normalized_shape=(65,), eps=1e-5
    ),
    "transpose": call("layout.transpose<real>", "f32 2 33 5 18", perm=(0, 2, 3, 1)),
    "transpose in tiles": call("layout.transpose<real>", "f32 2 48 3 64", perm=(0, 3, 2, 1)),
    "many rows": call("nn.gelu", "f32 130 1000"),
    "a ragged piece": call("math.sum_reduce<real>", "f32 259 1003", axes=(0,)),
    "log softmax": call("aten.log_softmax", "f32 4 50 -2..2", dim=1),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_known_groups_are_one_kernel(name: str) -> None:
    item: Invocation = ONE_KERNEL[name]
    model, fed = build([item])
    flat = flatten(model)
    stages = inline(flat.library, whole_group(flat))
    kernel = write_rows("k", stages.contractions, stages.tensors, frozenset(stages.outputs))
    found = run_group(flat, fed)
    assert found is not None
    agree(found, by_reference(flat)(**fed))
    assert set(kernel.tensors) == {*stages.inputs, *stages.outputs}


def test_nan_reaches_the_largest_of_a_row() -> None:
    model, fed = build([call("math.max_reduce<real>", "f32 4 100", axes=(1,))])
    fed["x0_0"][1, 3] = fed["x0_0"][2, 99] = np.nan
    flat = flatten(model)
    found = run_group(flat, fed)
    assert found is not None
    agree(found, by_reference(flat)(**fed))
    assert np.isnan(next(iter(found.values()))).sum() == 2


@given(st.integers(0, 100_000), st.integers(1, 8), st.sampled_from([(1, 2, 3, 4, 5), (1, 3, 17, 40)]))
def test_random_groups_agree_with_the_reference(seed: int, steps: int, sizes: tuple[int, ...]) -> None:
    model, fed = make_group(seed, steps, sizes)
    with np.errstate(all="ignore"):
        found = run_group(model, fed)
        assert found is not None
        agree(found, by_reference(model)(**fed))


WHOLE = {
    "softmax": (call("nn.softmax", "f32 3 50", axes=(1,)), 1),
    "softmax in f16": (call("nn.softmax", "f16 3 50", axes=(1,)), 1),
    "layer norm": (call("aten.layer_norm", "f32 4 65", "f32 65", "f32 65", normalized_shape=(65,)), 1),
    "windows": (call("nn.avg_pool", "f32 1 2 9 9", size=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1)), 3),
    "convolution": (call("aten.conv2d", "f32 1 8 9 9", "f32 4 8 3 3", "f32 4", padding=(1, 1)), 4),
}


@pytest.mark.parametrize("name", WHOLE)
def test_compound_operations_that_are_kept_have_kernels(name: str) -> None:
    item, most = WHOLE[name]
    model, fed = build([item])
    kernels = graph_to_kernels(model, keep=lambda operator: operator == item.operator)
    assert sum(map(len, kernels.calls.values())) <= most
    agree(machine_code(kernels)(**fed), by_reference(model)(**fed))


@pytest.mark.parametrize(("shape", "axis"), [("5 100", 1), ("3 50 20", 1), ("130", 0), ("3 4 5", 0)])
def test_cumulative_sums_take_a_step_for_each_element(shape: str, axis: int) -> None:
    ways = [(exclusive, reverse) for exclusive in (False, True) for reverse in (False, True)]
    items = [
        call("math.cumsum", f"f32 {shape} -1..1", axis=axis, exclusive=exclusive, reverse=reverse)
        for exclusive, reverse in ways
    ]
    model, fed = build(items)
    kernels = graph_to_kernels(model)
    assert all(len(found) == 1 and len(found[0].operands[0].shape) == 1 for found in kernels.calls.values())
    agree(machine_code(kernels)(**fed), by_reference(model)(**fed))


@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2)])
def test_long_sums_are_shared_by_threads(axes: tuple[int, ...]) -> None:
    model, fed = build([call("math.sum_reduce<real>", "f32 2 500 300", axes=axes)])
    kernels = graph_to_kernels(model)
    (calls,) = kernels.calls.values()
    assert [item.groups > 1 for item in calls] == [True, False]
    found = machine_code(kernels)(**fed)
    agree(found, by_reference(model)(**fed))
    alone = compile_graph(kernels, compile_program(kernels.program, threads=1).call)(**fed)
    assert all((alone[name] == found[name]).all() for name in found)


def test_calls_that_pass_one_tensor_twice_share_kernels_with_others() -> None:
    model, fed = build([call("math.sub<real>", "f32 40", "f32 40")])
    builder = Builder(model.library, "G")
    x, y = (builder.input(name, F32, (40,)) for name in "xy")
    found = Model(
        builder.finish(builder.call("math.sub", x, x), builder.call("math.sub", x, y)), model.library
    )
    given = {"x": fed["x0_0"], "y": fed["x0_1"]}
    agree(machine_code(graph_to_kernels(found))(**given), by_reference(found)(**given))


@pytest.mark.parametrize("padding", [0, 3])
def test_layouts_are_strides(padding: int) -> None:
    model, fed = build([call("nn.softmax", "f32 2 6 20 -2..2", axes=(1,))])
    flat = flatten(model)
    stages = inline(flat.library, whole_group(flat))
    # The input has its second dimension closest, and gaps; the output is row-major.
    layout = FlatLayout((20 * (6 + padding), 1, 6 + padding), offset=padding)
    kernel = write_rows("k", stages.contractions, stages.tensors, frozenset(stages.outputs), {"x0_0": layout})
    memory = np.zeros((2, 20, 6 + padding), np.float32)
    memory[:, :, padding:] = fed["x0_0"].transpose(0, 2, 1)
    result = np.zeros((2, 6, 20), np.float32)
    arrays = {"x0_0": memory.reshape(-1), stages.outputs[0]: result.reshape(-1)}
    reaches = zip(kernel.tensors, kernel.starts, kernel.spans, strict=True)
    given = [arrays[name][start : start + span] for name, start, span in reaches]
    compile_program(Program((kernel.function,))).call("k", given, kernel.groups)
    agree({stages.outputs[0]: result}, by_reference(flat)(**fed))


def test_lanes_go_where_memory_is_contiguous() -> None:
    found = {}
    for axis in (0, 1):
        model, _ = build([call("math.sum_reduce<real>", "f32 100 100", axes=(axis,))])
        stages = inline(model.library, whole_group(flatten(model)))
        kernel = flatten_stages(stages.contractions, stages.tensors, {})
        plan = plan_rows(kernel, stages.tensors, frozenset(stages.outputs), SIZES)
        found[axis] = plan.across is not None
    assert found == {0: True, 1: False}
