"""Rows that several subgroups of a GPU share: the numbers of the reference, and enough work-items."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path

import numpy as np
import pytest

from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.base.arrays import Array
from lamella.bridge.graph_to_kernels import flatten
from lamella.bridge.graph_to_kernels.inline import inline
from lamella.bridge.graph_to_kernels.rows import RowInside, RowKernel, write_rows
from lamella.graph.model import Model
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Program
from tests.backend.cuda.test_cuda_text import assemble_on
from tests.support.bridge.groups import whole_group
from tests.support.bridge.operators.calls import Invocation, agree, build, by_reference, call

WARPS = (32,)
CASES = {
    "sum": call("math.sum_reduce<real>", "f32 1 521 33 -1..1", axes=(1,)),
    "sum of whole subgroups": call("math.sum_reduce<real>", "f32 2 256 64 -1..1", axes=(1,)),
    "sum of reals of 64 bits": call("aten.sum", "f64 1 600 35 -1..1", dim=(1,)),
    "sum of integers": call("aten.sum", "i64 1 523 33 -9..9", dim=(1,)),
    "mean": call("math.mean_reduce<real>", "f32 1 777 45 -1..1", axes=(1,)),
    "smallest": call("math.min_reduce<real>", "f32 1 531 47 -5..5", axes=(1,)),
    "largest of halves": call("aten.amax", "f16 1 531 47 -5..5", dim=(1,)),
    "product": call("math.prod_reduce<real>", "f32 1 531 47 0.99..1.01", axes=(1,)),
    "two loops": call("math.sum_reduce<real>", "f32 2 40 5 90 -1..1", axes=(1,)),
    "softmax": call("nn.softmax", "f32 2 130 70 -2..2", axes=(1,)),
    "moments": call("math.moments", "f32 1 400 50", axes=(1,)),
}


def shared_kernel(item: Invocation) -> tuple[Model, dict[str, Array], RowKernel]:
    """The kernel of a call, as for threads, and what it is given."""
    model, fed = build([item])
    flat = flatten(model)
    stages = inline(flat.library, whole_group(flat))
    outputs = frozenset(stages.outputs)
    kernel = write_rows(
        "k", stages.contractions, stages.tensors, outputs, None, WARPS, RowInside(threads=True)
    )
    return flat, fed, kernel


def run(
    kernel: RowKernel, fed: Mapping[str, Array], expected: Mapping[str, Array]
) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """What the kernel gives by the letter of its text, and what was expected."""
    found = {name: np.full_like(array, 77) for name, array in expected.items()}
    arrays = {**fed, **found}
    given = [
        arrays[tensor].reshape(-1)[start : start + span]
        for tensor, start, span in zip(kernel.tensors, kernel.starts, kernel.spans, strict=True)
    ]
    program = Program((kernel.function,))
    interpreter.compile_program(program, check_bounds=True).call("k", given, kernel.groups)
    return found, expected


@pytest.mark.parametrize("name", CASES)
def test_several_subgroups_compute_the_rows_of_a_work_group(name: str) -> None:
    model, fed, kernel = shared_kernel(CASES[name])
    items, _ = default_sizes(kernel.function).work_group_size
    assert items >= 2 * WARPS[0]
    assert items * kernel.groups >= 16 * WARPS[0]
    found, expected = run(kernel, fed, by_reference(model)(**fed))
    agree(found, expected)


@pytest.mark.parametrize("shape", ["1 20 33", "1 12 4096", "600 40 32"])
def test_little_rows_and_many_stay(shape: str) -> None:
    sizes = [int(word) for word in shape.split()]
    _, _, kernel = shared_kernel(call("math.sum_reduce<real>", f"f32 {shape}", axes=(1,)))
    assert default_sizes(kernel.function).work_group_size == (WARPS[0], 1)
    assert kernel.groups * WARPS[0] <= prod(sizes)


def test_nan_of_one_subgroup_reaches_the_largest() -> None:
    model, fed, kernel = shared_kernel(CASES["smallest"])
    (given,) = fed.values()
    given[0, 3, 5] = given[0, 530, 46] = np.nan
    found, expected = run(kernel, fed, by_reference(model)(**fed))
    agree(found, expected)
    (numbers,) = found.values()
    assert np.argwhere(np.isnan(numbers))[:, -1].tolist() == [5, 46]


@pytest.mark.parametrize("name", ["mean", "smallest", "softmax"])
def test_the_assembler_of_nvidia_takes_it(name: str, tmp_path: Path) -> None:
    _, _, kernel = shared_kernel(CASES[name])
    assemble_on("sm_90a", emit(Program((kernel.function,)), find_target("sm_90a")).text, tmp_path)
