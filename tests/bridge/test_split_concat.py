"""Consumers of concatenations, split into consumers of their parts: fewer kernels, the numbers of the reference."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.cpu.compile import emit
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import F16, F32, I32, ElementType
from lamella.bridge.graph_to_kernels import KernelWriter, flatten
from lamella.bridge.graph_to_kernels.coverage import write_parts
from lamella.bridge.graph_to_kernels.inline import Stages, inline
from lamella.bridge.graph_to_kernels.split_concat import split_concat_consumers
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Program
from lamella.ops.formula import Apply, Contraction, Element, Index, Loop
from tests.backend.cuda.test_cuda_text import assemble_on
from tests.backend.cuda.test_tensor_core_gemm import draw_inputs, plan, write_graph
from tests.bridge.test_graph_to_kernels_rows import run_calls
from tests.support.bridge.groups import whole_group
from tests.support.bridge.operators.calls import agree, by_reference
from tests.support.judges.harness import library


class Drawing:
    """A graph of concatenations while it is drawn."""

    def __init__(self) -> None:
        self.builder = Builder(library("specification"), "G")
        self.fed: dict[str, Array] = {}

    def feed(self, *shape: int, element: ElementType = F32) -> Tensor:
        """An input."""
        name = f"x{len(self.fed)}"
        numbers = np.random.default_rng(len(self.fed)).uniform(-4, 4, shape)
        self.fed[name] = numbers.astype(numpy_dtype(element))
        return self.builder.input(name, element, shape)

    def call(self, operator: str, *inputs: Any, **attributes: Any) -> Tensor:
        """What an operator gives."""
        return self.builder.call(operator, *inputs, **attributes)

    def concat(self, axis: int, *parts: Tensor) -> Tensor:
        """Tensors one behind the other."""
        return self.call("layout.concat", parts, axis=axis)

    def finish(self, *outputs: Tensor) -> tuple[Model, Stages]:
        """The graph, and its stages as one group."""
        model = flatten(Model(self.builder.finish(*outputs), self.builder.library))
        return model, inline(model.library, whole_group(model))


def run_on_threads(model: Model, stages: Stages, fed: dict[str, Array]) -> int:
    """Compare the kernels of stages for a GPU with the reference; gives how many there are."""
    writer = KernelWriter(model.library, target=find_target("sm_90a"))
    names = {name: (name, None) for name in (*stages.inputs, *stages.outputs)}
    calls = list(writer.add_stages("group", stages, names))
    found = run_calls(calls, Program(tuple(writer.functions)), stages, fed)
    assert found is not None
    agree(found, by_reference(model)(**fed))
    return len(calls)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("element", [F32, F16, I32], ids=str)
def test_a_map_reads_the_parts(axis: int, element: ElementType) -> None:
    drawing = Drawing()
    shapes = [[3, 5, 7], [3, 5, 7], [3, 5, 7]]
    shapes[1][axis], shapes[2][axis] = 1, 4
    parts = [drawing.feed(*shape, element=element) for shape in shapes]
    whole = drawing.concat(axis, *parts)
    scale = drawing.feed(
        *(int(str(size)) if place == axis else 1 for place, size in enumerate(whole.shape or ())),
        element=element,
    )
    model, stages = drawing.finish(drawing.call("math.max", drawing.call("math.mul", whole, scale), scale))
    parted = split_concat_consumers(stages)
    assert len(stages.contractions) == 4
    assert len(parted.contractions) == 3
    assert set(parted.tensors) == {*stages.inputs, *stages.outputs}
    assert run_on_threads(model, parted, drawing.fed) == 3


def test_what_others_read_is_written_beside() -> None:
    """Each part is read once, for both."""
    drawing = Drawing()
    whole = drawing.concat(1, drawing.feed(6, 50, 9), drawing.feed(6, 11, 9))
    model, stages = drawing.finish(whole, drawing.call("math.exp", drawing.call("math.neg", whole)))
    assert run_on_threads(model, stages, drawing.fed) == 3
    assert run_on_threads(model, split_concat_consumers(stages), drawing.fed) == 2


def test_a_reader_that_moves_elements() -> None:
    """What is read in another order is cut along it."""
    drawing = Drawing()
    whole = drawing.concat(2, drawing.feed(3, 40, 30), drawing.feed(3, 40, 33))
    turned = drawing.call("layout.transpose", whole, perm=(2, 0, 1))
    model, stages = drawing.finish(drawing.call("math.tanh", turned))
    assert run_on_threads(model, split_concat_consumers(stages), drawing.fed) == 2


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_a_part_may_be_a_number(value: float) -> None:
    """Zeros beside what an input gives: nobody stores them to read them again."""
    drawing = Drawing()
    filled = drawing.builder.call("layout.uniform", value, shape=(6, 11), types={"T": F32})
    whole = drawing.concat(1, drawing.feed(6, 50), filled)
    model, stages = drawing.finish(drawing.call("math.exp", drawing.call("math.neg", whole)))
    parted = split_concat_consumers(stages)
    assert set(parted.tensors) == {*stages.inputs, *stages.outputs}
    assert run_on_threads(model, parted, drawing.fed) == 2


def unlike(name: str) -> tuple[Model, Stages]:
    """Graphs whose concatenations stay."""
    drawing = Drawing()
    first, second = drawing.feed(4, 6), drawing.feed(4, 6)
    whole = drawing.concat(1, first, second)
    if name == "a sum":
        return drawing.finish(drawing.call("math.sum_reduce", whole, axes=(1,)))
    if name == "a window":
        return drawing.finish(
            drawing.call("math.sqr", drawing.call("layout.slice", whole, axes=(1,), begin=(3,), end=(8,)))
        )
    if name == "two readers":
        made = drawing.call("math.sum_reduce", whole, axes=(1,))
        return drawing.finish(drawing.call("math.div", whole, made))
    # A tensor that is made of the other part is not there when the first one is.
    later = drawing.call("math.sum_reduce", drawing.call("math.exp", second), axes=(1,))
    return drawing.finish(drawing.call("math.mul", whole, later))


@pytest.mark.parametrize("name", ["a sum", "a window", "two readers"])
def test_what_reads_otherwise_reads_the_whole(name: str) -> None:
    _, stages = unlike(name)
    assert split_concat_consumers(stages) is stages


def test_sums_may_stand_before() -> None:
    model, stages = unlike("a factor")
    fed = {key: np.random.default_rng(1).uniform(-1, 1, (4, 6)).astype(np.float32) for key in ("x0", "x1")}
    run_on_threads(model, split_concat_consumers(stages), fed)


@pytest.mark.parametrize("seed", range(6))
def test_random_concatenations_agree(seed: int) -> None:
    chance, drawing = random.Random(seed), Drawing()
    rank = chance.randint(1, 4)
    axis = chance.randrange(rank)
    base = [chance.choice((1, 2, 5, 9)) for _ in range(rank)]
    parts = []
    for _ in range(chance.randint(2, 4)):
        shape = [chance.choice((1, 3, 8)) if place == axis else size for place, size in enumerate(base)]
        part = drawing.feed(*shape)
        parts.append(drawing.call("math.neg", part) if chance.random() < 0.5 else part)
    whole = drawing.concat(axis, *parts)
    other = drawing.feed(*(int(str(size)) if chance.random() < 0.5 else 1 for size in whole.shape or ()))
    made = drawing.call("math.add", drawing.call("math.abs", whole), other)
    outputs = [made, whole] if chance.random() < 0.5 else [made]
    model, stages = drawing.finish(*outputs)
    parted = split_concat_consumers(stages)
    assert len(parted.contractions) == len(parts) * len(outputs)
    run_on_threads(model, parted, drawing.fed)


def test_parts_lie_inside_a_border(tmp_path: Path) -> None:
    """Windows want zeros round what lies together, and nobody writes that at once."""
    shapes = "@input { a: real[2,16,9,7]; b: real[2,16,9,7]; }"
    shapes += " @variable { v: real[64,16,1,1]; w: real[40,128,3,3]; } @output { y: real[2,40,9,7]; }"
    lines = "p = nn.conv(a, v); q = nn.conv(b, v); c = layout.concat{axis=1}([p, q]); r = nn.relu(c);"
    path = write_graph(tmp_path, shapes, lines + " y = nn.conv{padding=1}(r, w);")
    made = plan(path)
    calls = [call for item in made.calls.values() for call in item if "concat" in call.kernel]
    assert [len(call.operands) for call in calls] == [2, 2]
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = draw_inputs(made, np.random.default_rng(5))
    want = lamella.compile(path, backend="cpu", precision="bf16")(**given)
    np.testing.assert_allclose(run(**given)["y"], want["y"], rtol=1e-4, atol=1e-4)


def test_parts_are_one_launch() -> None:
    """Work-groups of one kernel write all parts; small ones stay apart, which may be phases of other launches."""
    drawing = Drawing()
    sizes = (700, 33, 1, 250)
    whole = drawing.concat(0, *(drawing.feed(size, 70) for size in sizes))
    model, stages = drawing.finish(drawing.call("math.mul", whole, drawing.feed(1, 70)), whole)
    assert run_on_threads(model, split_concat_consumers(stages), drawing.fed) == 1


def test_many_parts_are_a_few_launches() -> None:
    drawing = Drawing()
    whole = drawing.concat(0, *(drawing.feed(50 + place, 70) for place in range(19)))
    model, stages = drawing.finish(drawing.call("math.neg", whole))
    assert run_on_threads(model, split_concat_consumers(stages), drawing.fed) == 2


def test_both_branches_wait_for_the_kernel_before(tmp_path: Path) -> None:
    """Work-items begin in the branches of a joined kernel: it waits before they do."""
    drawing = Drawing()
    whole = drawing.concat(0, drawing.feed(500, 70), drawing.feed(333, 70))
    model, stages = drawing.finish(drawing.call("math.neg", whole))
    writer = KernelWriter(model.library, target=find_target("sm_90a"))
    names = {name: (name, None) for name in (*stages.inputs, *stages.outputs)}
    writer.add_stages("group", split_concat_consumers(stages), names)
    (kernel,) = writer.functions
    text = emit(Program((kernel,)), find_target("sm_90a")).text
    before, behind = text.split("griddepcontrol.wait")
    assert "load float" not in before
    assert behind.count("load float") > 1
    assemble_on("sm_90a", text, tmp_path)


def test_places_that_are_written_again_are_apart() -> None:
    """What is written over what stands there comes behind it."""
    loops = (Loop("i", 100), Loop("j", 50))
    target, later = (
        Element("y", (Index("i"), Index("j")), "real"),
        Element("y", (Apply("+", (Index("i"), 7), "int"), Index("j")), "real"),
    )
    first = Contraction((target,), "=", (1.0,), loops)
    part = Contraction((later,), "=", (2.0,), (Loop("i", 3), loops[1]))
    behind = Contraction((replace_start(later, 100),), "=", (2.0,), (Loop("i", 3), loops[1]))
    assert not write_parts([[first], [part]])
    assert write_parts([[first], [behind]])


def replace_start(element: Element, start: int) -> Element:
    """An element whose first index begins elsewhere."""
    return Element(
        element.tensor, (Apply("+", (Index("i"), start), "int"), *element.indices[1:]), element.type
    )
