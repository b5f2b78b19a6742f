"""Slices on a GPU are views: where rows are long and aligned, who reads the slice reads its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu import compile_program
from lamella.backend.cpu.run.lists import NativeMachine
from lamella.backend.cpu.run.memory import SharedArena
from lamella.backend.cpu.run.proving import ProvingSource
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from lamella.kernels.nodes import KernelCall, KernelGraph
from tests.backend.cuda.test_tensor_core_gemm import plan, write_graph


def _never(*_: object) -> None:
    raise AssertionError("a launch ran outside of a list")


def run(made: KernelGraph, **given: Array) -> dict[str, Array]:
    """What the processor makes of the launch list that is planned for a GPU."""
    machine = NativeMachine(ProvingSource(compile_program(made.program)), SharedArena())
    found: Any = compile_graph(made, _never, machine=machine)
    return dict(found(**given))


def slices(made: KernelGraph) -> list[KernelCall]:
    """The launches of slices, those that need not run among them."""
    nodes = [item for item in made.model.graph.operations() if item.operator == "layout.slice"]
    return [call for item in nodes for call in made.calls[made.key(item)]]


def cut(shape: str, lines: str, output: str) -> tuple[str, str]:
    """A sum of products that is sliced; products and sums of rows keep the slices apart from what reads them."""
    shapes = f"@input {{ x: real[{shape}]; v: real[{shape}]; }} @output {{ {output} }}"
    return shapes, f"e = math.mul(x, v); z = nn.softmax{{axes=[-1]}}(e); {lines}"


def judge(x: Array, v: Array) -> Array:
    """What is sliced."""
    e = np.exp((x * v).astype(np.float64))
    found: Array = e / e.sum(-1, keepdims=True)
    return found


def draw(*shape: int) -> dict[str, Array]:
    """Both inputs."""
    random = np.random.default_rng(sum(shape))
    return {name: random.standard_normal(shape).astype(np.float32) for name in "xv"}


STEPS = (
    "a = layout.slice{axes=[1], begin=[2], end=[3]}(z); b = layout.slice{axes=[1], begin=[4], end=[5]}(z);"
    " y = linalg.matmul{transB=true}(a, z); w = linalg.matmul{transB=true}(b, z);"
)


def test_steps_of_a_sequence_are_read_where_they_lie(tmp_path: Path) -> None:
    made = plan(write_graph(tmp_path, *cut("3,6,64", STEPS, "y: real[3,1,6]; w: real[3,1,6];")), "f32")
    assert [(item.renames, item.shift) for item in slices(made)] == [(True, 128), (True, 256)]
    assert {made.layouts[name].strides[0] for name in "ab"} == {384}
    # Where they begin is no part of the kernel that reads them: there is one.
    assert len({call.kernel for calls in made.calls.values() for call in calls if not call.renames}) == 2
    given = draw(3, 6, 64)
    z = judge(**given)
    for name, step in (("y", 2), ("w", 4)):
        want = z[:, step : step + 1] @ z.swapaxes(1, 2)
        np.testing.assert_allclose(run(made, **given)[name], want, rtol=1e-4, atol=1e-6)


KEPT = {
    "a row that begins within a line": ("begin=[8], end=[40], axes=[2]", "3,6,64"),
    "short rows": ("begin=[16], end=[24], axes=[2]", "3,6,64"),
    "rows that end within a piece": ("begin=[1], end=[3], axes=[1]", "3,6,66"),
    "every second row": ("begin=[0], end=[6], axes=[1], stride=[2]", "3,6,64"),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_slices_are_copied(name: str, tmp_path: Path) -> None:
    words, shape = KEPT[name]
    lines = (
        f"a = layout.slice{{{words}}}(z); b = nn.softmax{{axes=[-1]}}(a); y = math.sum_reduce{{axes=[1]}}(b);"
    )
    made = plan(write_graph(tmp_path, *cut(shape, lines, "y: real[~,~,~];")), "f32")
    assert slices(made)
    assert not any(item.renames for item in slices(made))


def test_a_slice_that_leaves_has_memory_of_its_own(tmp_path: Path) -> None:
    lines = "y = layout.slice{axes=[1], begin=[2], end=[4]}(z); w = nn.softmax{axes=[1]}(z);"
    made = plan(write_graph(tmp_path, *cut("3,6,64", lines, "y: real[3,2,64]; w: real[3,6,64];")), "f32")
    assert not any(item.renames for item in slices(made))
    given = draw(3, 6, 64)
    np.testing.assert_allclose(run(made, **given)["y"], judge(**given)[:, 2:4], rtol=1e-4, atol=1e-6)


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.sampled_from([16, 24, 32, 48, 80])),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), min_size=3, max_size=3),
    st.permutations([0, 1, 2]),
    st.booleans(),
)
def test_any_slices_of_slices_have_their_numbers(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, int, int],
    cuts: list[tuple[int, int]],
    order: list[int],
    turned: bool,
) -> None:
    """One after the other, along any dimensions, of what is turned too, and read by a sum of rows."""
    grain = (1, 1, 16 if shape[2] % 16 == 0 else 8)
    lines, source, kept = (
        ["t = layout.transpose{perm=[1,0,2]}(z);" if turned else "t = layout.transpose{perm=[0,1,2]}(z);"],
        "t",
        [slice(None)] * 3,
    )
    sizes = [shape[1], shape[0], shape[2]] if turned else list(shape)
    for number, axis in enumerate(order):
        first, count = (item * grain[axis] for item in cuts[axis])
        begin = min(first, sizes[axis] - grain[axis])
        end = min(begin + count, sizes[axis])
        lines.append(f"s{number} = layout.slice{{axes=[{axis}], begin=[{begin}], end=[{end}]}}({source});")
        source, kept[axis] = f"s{number}", slice(begin, end)
    lines.append(f"y = nn.softmax{{axes=[-1]}}({source});")
    folder = tmp_path_factory.mktemp("drawn")
    extents = ",".join(map(str, shape))
    made = plan(write_graph(folder, *cut(extents, " ".join(lines), "y: real[~,~,~];")), "f32")
    given = draw(*shape)
    z = judge(**given)
    part = np.exp((z.swapaxes(0, 1) if turned else z)[tuple(kept)])
    want = part / part.sum(-1, keepdims=True)
    np.testing.assert_allclose(run(made, **given)["y"], want, rtol=1e-4, atol=1e-6)
