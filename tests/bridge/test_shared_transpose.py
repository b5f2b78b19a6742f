"""Maps that read across their order, for threads: the numbers of the reference, by enough work-items."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod

import numpy as np
import pytest

from lamella.backend import cpu, interpreter
from lamella.backend.named import NamedKernels
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import BF16, BOOL, F16, F32, I8, I64, ElementType
from lamella.bridge.graph_to_kernels import KernelWriter, flatten
from lamella.bridge.graph_to_kernels.flat import FlatLayout, flatten_stages, row_major, span_of
from lamella.bridge.graph_to_kernels.group_kernels import GroupPlace
from lamella.bridge.graph_to_kernels.inline import Stages, inline
from lamella.bridge.graph_to_kernels.rows import RowInside, RowKernel, write_rows
from lamella.bridge.graph_to_kernels.shared_transpose import ITEMS, plan_shared_transpose
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.kernels.launches import dense_layout
from lamella.kernels.rewrite import walk
from lamella.kernels.target import find_target
from lamella.lang.tensor.nodes import Barrier, For, Program
from tests.support.bridge.groups import whole_group
from tests.support.bridge.operators.calls import agree, build, by_reference, call
from tests.support.judges.harness import library

THREADS = RowInside(threads=True)
SIZES = (32,)


def kernel_of(stages: Stages, layouts: dict[str, FlatLayout]) -> RowKernel:
    """The kernel of a group of maps on a GPU."""
    outputs = frozenset(stages.outputs)
    return write_rows("k", stages.contractions, stages.tensors, outputs, layouts, SIZES, THREADS)


def run_proved(
    stages: Stages, kernel: RowKernel, fed: dict[str, Array], layouts: dict[str, FlatLayout]
) -> Array:
    """What a kernel writes, as machine code that tests no access: all of them are proved."""
    compiled = cpu.compile_program(Program((kernel.function,)))
    assert not [item.message for item in compiled.findings]
    return call_on(compiled, stages, kernel, fed, layouts)


def call_on(
    compiled: NamedKernels,
    stages: Stages,
    kernel: RowKernel,
    fed: dict[str, Array],
    layouts: dict[str, FlatLayout],
) -> Array:
    """What a kernel writes on a backend."""
    (name,) = stages.outputs
    held = stages.tensors[name]
    memory = {item: laid(array, layouts.get(item)) for item, array in fed.items()}
    memory[name] = laid(np.zeros(held.shape, numpy_dtype(held.element)), layouts.get(name))
    reaches = zip(kernel.tensors, kernel.starts, kernel.spans, strict=True)
    given = [seen(memory[item])[start : start + span] for item, start, span in reaches]
    compiled.call("k", given, kernel.groups)
    return whole(memory[name], held.shape, layouts.get(name))


def seen(array: Array) -> Array:
    """An array as kernels take it."""
    return array.view(np.int8) if array.dtype == bool else array


def laid(array: Array, layout: FlatLayout | None) -> Array:
    """The memory of an array in a layout."""
    lies = layout or row_major(array.shape)
    memory = np.zeros(span_of(array.shape, lies), array.dtype)
    whole(memory, array.shape, lies)[...] = array
    return memory


def whole(memory: Array, shape: Sequence[int], layout: FlatLayout | None) -> Array:
    """An array in its memory."""
    lies = layout or row_major(shape)
    steps = [stride * memory.itemsize for stride in lies.strides]
    return np.lib.stride_tricks.as_strided(memory[lies.offset :], tuple(shape), steps)


def in_order(shape: Sequence[int], order: Sequence[int], chance: random.Random) -> FlatLayout:
    """A layout with dimensions from outside to inside, and perhaps gaps."""
    strides, stride = [1] * len(shape), 1
    for place in reversed(order):
        strides[place] = stride
        stride = stride * shape[place] + chance.choice((0, 0, 3))
    return FlatLayout(tuple(strides), chance.choice((0, 5)))


class RandomMap:
    """A map of several tensors, some broadcast and all in orders of their own."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        rank = chance.randint(2, 5)
        longest = {2: 150, 3: 45, 4: 20, 5: 11}[rank]
        self.shape = tuple(chance.choice((2, 3, 7, longest - 5, longest)) for _ in range(rank))
        while prod(self.shape) < 1 << 12:
            place = chance.randrange(rank)
            self.shape = tuple(size + 13 * (number == place) for number, size in enumerate(self.shape))
        self.numbers = np.random.default_rng(seed)
        self.builder = Builder(library("specification"), "G")
        self.fed: dict[str, Array] = {}
        self.layouts: dict[str, FlatLayout] = {}

    def order(self) -> tuple[int, ...]:
        """Dimensions in an order of their own."""
        found = list(range(len(self.shape)))
        self.chance.shuffle(found)
        return tuple(found)

    def feed(self, element: ElementType) -> Tensor:
        """An input that lies somehow; the first one is no smaller than the output."""
        small = 0.2 if self.fed else 0.0
        shape = tuple(1 if self.chance.random() < small else size for size in self.shape)
        name = f"x{len(self.fed)}"
        drawn = self.numbers.uniform(-4, 4, shape)
        self.fed[name] = np.asarray(drawn > 0 if element == BOOL else drawn).astype(numpy_dtype(element))
        self.layouts[name] = in_order(shape, self.order(), self.chance)
        return self.builder.input(name, element, shape)

    def finish(self, element: ElementType) -> tuple[Model, Stages]:
        """The map, and its stages."""
        if element == BOOL:
            first, second = self.feed(BOOL), self.feed(BOOL)
            made = self.builder.call("math.and", first, second)
        else:
            first, second, third = (self.feed(element) for _ in range(3))
            made = self.builder.call("math.max", self.builder.call("math.add", first, second), third)
        model = flatten(Model(self.builder.finish(made), self.builder.library))
        stages = inline(model.library, whole_group(model))
        (output,) = stages.outputs
        order = self.order()
        while self.layouts["x0"].strides[order[-1]] == 1:
            order = self.order()
        self.layouts[output] = in_order(self.shape, order, self.chance)
        return model, stages


ELEMENTS = (F32, F16, BF16, I8, I64, BOOL)


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_random_maps_agree_with_the_reference(seed: int, element: ElementType) -> None:
    drawn = RandomMap(seed * 100 + element.bits)
    model, stages = drawn.finish(element)
    kernel = kernel_of(stages, drawn.layouts)
    assert any(isinstance(item.instruction, Barrier) for item in walk(kernel.function.body))
    found = run_proved(stages, kernel, drawn.fed, drawn.layouts)
    judge = by_reference(model)(**drawn.fed)[stages.outputs[0]]
    agree({"y": found}, {"y": judge.astype(found.dtype)})


def test_the_interpreter_agrees() -> None:
    drawn = RandomMap(3)
    _, stages = drawn.finish(F32)
    kernel = kernel_of(stages, drawn.layouts)
    judge = interpreter.compile_program(Program((kernel.function,)))
    found = call_on(judge, stages, kernel, drawn.fed, drawn.layouts)
    assert np.array_equal(found, run_proved(stages, kernel, drawn.fed, drawn.layouts))


@pytest.mark.parametrize(
    ("shape", "perm"),
    [((1, 256, 256, 32), (0, 3, 1, 2)), ((4, 3, 224, 224), (0, 2, 3, 1)), ((8, 197, 768), (0, 2, 1))],
    ids=["to planes", "three colours", "a prime of tokens"],
)
def test_work_items_have_a_few_elements_each(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    told = " ".join(map(str, shape))
    model, _ = build([call("layout.transpose<real>", f"f32 {told}", perm=perm)])
    flat = flatten(model)
    stages = inline(flat.library, whole_group(flat))
    kernel = kernel_of(stages, {})
    each = prod(shape) / (kernel.groups * ITEMS)
    assert 2 <= each <= 8
    assert not any(isinstance(item.instruction, For) for item in walk(kernel.function.body))


def test_what_does_not_turn_has_no_tiles() -> None:
    """Reading a row or a column for all others is nothing that lies in another order."""
    model, _ = build([call("math.add<real>", "f32 64 96", "f32 64 1")])
    flat = flatten(model)
    stages = inline(flat.library, whole_group(flat))
    kernel = flatten_stages(stages.contractions, stages.tensors, {})
    assert plan_shared_transpose(kernel, stages.tensors) is None
    (output,) = stages.outputs
    turned = flatten_stages(stages.contractions, stages.tensors, {output: FlatLayout((1, 64))})
    found = plan_shared_transpose(turned, stages.tensors)
    assert found is not None
    assert [name for name, _ in found.transposed] == ["x0_0"]


def test_several_maps_share_tiles() -> None:
    """What lies together and what is made of it are written by one kernel, both across the order of a part."""
    builder = Builder(library("specification"), "G")
    x = builder.input("x0", F32, (50, 70, 3))
    first = builder.call("math.exp", x)
    second = builder.call("math.neg", first)
    model = flatten(Model(builder.finish(first, second), builder.library))
    stages = inline(model.library, whole_group(model))
    layouts = {"x0": FlatLayout((1, 50, 3500))}
    kernel = kernel_of(stages, layouts)
    assert any(isinstance(item.instruction, Barrier) for item in walk(kernel.function.body))
    fed = {"x0": np.random.default_rng(1).uniform(-2, 2, (50, 70, 3)).astype(np.float32)}
    memory = {"x0": laid(fed["x0"], layouts["x0"])}
    memory |= {name: np.zeros(10500, np.float32) for name in stages.outputs}
    compiled = cpu.compile_program(Program((kernel.function,)))
    compiled.call("k", [memory[name] for name in kernel.tensors], kernel.groups)
    agree({name: memory[name].reshape(50, 70, 3) for name in stages.outputs}, by_reference(model)(**fed))


def test_what_a_group_keeps_lies_as_what_it_is_made_of() -> None:
    """Exponentials that windows read again and again have channels side by side, as what they are made of."""
    builder = Builder(library("specification"), "G")
    shape = (2, 64, 14, 10)
    made = builder.call("math.exp", builder.input("x0", F32, shape))
    pooled = builder.call("nn.max_pool", made, size=(5, 5), stride=(1, 1), padding=(2, 2, 2, 2))
    model = flatten(Model(builder.finish(pooled), builder.library))
    stages = inline(model.library, whole_group(model))
    writer = KernelWriter(model.library, target=find_target("sm_90a"))
    names = {name: (name, None) for name in (*stages.inputs, *stages.outputs)}
    order = (0, 2, 3, 1)
    laid_out = {name: dense_layout(shape, order) for name in (*stages.inputs, *stages.outputs)}
    calls = writer.add_stages("group", stages, names, GroupPlace(frozenset(), laid_out))
    kept = [item for each in calls for item in each.operands if item.is_temporary and len(item.shape) == 4]
    assert kept
    assert {item.strides[item.shape.index(64)] for item in kept if item.strides} == {1}
    assert not any(
        isinstance(item.instruction, Barrier) for one in writer.functions for item in walk(one.body)
    )
    arrays = {"x0": np.random.default_rng(1).uniform(-2, 2, shape).astype(np.float32)}
    memory = {"x0": laid(arrays["x0"], FlatLayout(laid_out["x0"].strides)).reshape(-1)}
    compiled = cpu.compile_program(Program(tuple(writer.functions)))
    for each in calls:
        given = []
        for item in each.operands:
            held = memory.setdefault(item.name, np.zeros(prod(shape), np.float32))
            steps = [4 * stride for stride in item.strides or ()] or [4]
            given.append(np.lib.stride_tricks.as_strided(held, item.shape, steps))
        compiled.call(each.kernel, given, each.groups)
    (output,) = stages.outputs
    found = whole(memory[output], shape, FlatLayout(laid_out[output].strides))
    agree({output: found}, by_reference(model)(x0=arrays["x0"]))
