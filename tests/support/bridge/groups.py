"""Random groups: chains of maps and reductions with broadcasts, windows and several types, as graphs with arrays."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import BOOL, F16, F32, I8, I32, ElementType
from lamella.bridge.graph_to_kernels import flatten
from lamella.bridge.graph_to_kernels.groups import Group
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from tests.support.judges.harness import library

SMOOTH = ("math.neg", "math.abs", "math.sqr", "math.tanh", "nn.sigmoid", "nn.relu", "math.exp", "nn.gelu")
PAIRS = ("math.add", "math.sub", "math.mul", "math.max", "math.min")
Step: TypeAlias = "Callable[[RandomGroup, Tensor], Tensor | None]"


class RandomGroup:
    """A graph that grows by random steps; every tensor stays small and its numbers stay near 1."""

    def __init__(self, seed: int, sizes: tuple[int, ...] = (1, 2, 3, 4, 5), rank: int = 4) -> None:
        self.random = random.Random(seed)
        self.builder = Builder(library("specification"), "G")
        self.fed: dict[str, Array] = {}
        self.made: list[Tensor] = []
        self.sizes = sizes
        self.rank = rank

    def feed(self, element: ElementType, shape: tuple[int, ...]) -> Tensor:
        """A new input with random numbers."""
        name = f"x{len(self.fed)}"
        numbers = np.random.default_rng(self.random.randrange(1 << 30)).uniform(-2, 2, shape)
        self.fed[name] = np.asarray(numbers * (1 if element.is_float else 4)).astype(numpy_dtype(element))
        return self.builder.input(name, element, shape)

    def grow(self, steps: int) -> None:
        """Take random steps from random tensors."""
        shape = tuple(self.random.choice(self.sizes) for _ in range(self.random.randint(1, self.rank)))
        self.made.append(self.feed(self.random.choice((F32, F32, F32, F16, I32, I8)), shape))
        for _ in range(steps):
            recent = self.made[-3:]
            found = self.random.choice(STEPS)(self, self.random.choice(recent))
            if found is not None:
                self.made.append(found)

    def finish(self) -> Model:
        """The graph with its last tensor, and some others, as outputs; compound operators are replaced."""
        given = set(self.fed)
        others = [item for item in self.made[1:-1] if item.name not in given]
        picked = self.random.sample(others, min(len(others), self.random.choice((0, 0, 1, 2))))
        graph = self.builder.finish(self.made[-1], *picked)
        return flatten(Model(graph, self.builder.library))


def known(tensor: Tensor) -> tuple[int, ...]:
    """The shape, whose extents are numbers here."""
    return tuple(item for item in tensor.shape if isinstance(item, int))


def _unary(group: RandomGroup, x: Tensor) -> Tensor | None:
    if not x.element.is_float:
        return group.builder.call("math.neg", x) if x.element != BOOL else group.builder.call("math.not", x)
    name = group.random.choice(SMOOTH)
    return group.builder.call(name, x)


def _pair(group: RandomGroup, x: Tensor) -> Tensor | None:
    if x.element == BOOL:
        return None
    shape = known(x)
    alike = [item for item in group.made if item.element == x.element and _fits(known(item), shape)]
    if alike and group.random.random() < 0.6:
        other = group.random.choice(alike)
    else:
        kept = tuple(size if group.random.random() < 0.6 else 1 for size in shape)
        other = group.feed(x.element, kept)
    return group.builder.call(group.random.choice(PAIRS), x, other)


def _fits(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(shape) == len(other) and all(a == b or 1 in (a, b) for a, b in zip(shape, other, strict=True))


def _reduce(group: RandomGroup, x: Tensor) -> Tensor | None:
    rank = len(x.shape)
    if x.element == BOOL or rank == 0:
        return None
    axes = tuple(sorted(group.random.sample(range(rank), group.random.randint(1, rank))))
    words = ("sum", "max", "min", "mean") if x.element.is_float else ("sum", "max", "min")
    return group.builder.call(f"math.{group.random.choice(words)}_reduce", x, axes=axes)


def _softmax(group: RandomGroup, x: Tensor) -> Tensor | None:
    if x.element != F32 or not x.shape:
        return None
    return group.builder.call("nn.softmax", x, axes=(group.random.randrange(len(x.shape)),))


def _transpose(group: RandomGroup, x: Tensor) -> Tensor | None:
    order = list(range(len(x.shape)))
    group.random.shuffle(order)
    return group.builder.call("layout.transpose", x, perm=tuple(order)) if order else None


def _slice(group: RandomGroup, x: Tensor) -> Tensor | None:
    shape = known(x)
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if not wide:
        return None
    axis = group.random.choice(wide)
    begin = group.random.randrange(shape[axis] - 1)
    return group.builder.call("layout.slice", x, axes=(axis,), begin=(begin,), end=(shape[axis],))


def _reshape(group: RandomGroup, x: Tensor) -> Tensor | None:
    shape = list(known(x))
    group.random.shuffle(shape)
    return group.builder.call("layout.reshape", x, shape=tuple(shape)) if shape else None


def _pad(group: RandomGroup, x: Tensor) -> Tensor | None:
    if not x.shape or x.element == BOOL:
        return None
    axis = group.random.randrange(len(x.shape))
    return group.builder.call("layout.pad", x, axes=(axis,), padding=(1, 1))


def _concat(group: RandomGroup, x: Tensor) -> Tensor | None:
    alike = [item for item in group.made if (item.element, item.shape) == (x.element, x.shape)]
    if not x.shape:
        return None
    axis = group.random.randrange(len(x.shape))
    return group.builder.call("layout.concat", (x, group.random.choice(alike)), axis=axis)


def _pool(group: RandomGroup, x: Tensor) -> Tensor | None:
    if not x.element.is_float or len(x.shape) < 3:
        return None
    count = len(x.shape) - 2
    name = group.random.choice(("nn.max_pool", "nn.sum_pool", "nn.avg_pool"))
    size = tuple(group.random.choice((2, 3)) for _ in range(count))
    stride = tuple(group.random.choice((1, 2)) for _ in range(count))
    return group.builder.call(name, x, size=size, stride=stride, padding=(1,) * 2 * count)


def _cast(group: RandomGroup, x: Tensor) -> Tensor | None:
    target = group.random.choice((F32, F32, F16, I32, I8))
    return group.builder.call("layout.cast", x, types={"R": target})


def _select(group: RandomGroup, x: Tensor) -> Tensor | None:
    if x.element == BOOL:
        return None
    other = group.feed(x.element, known(x))
    condition = group.builder.call("math.lt", x, other)
    return group.builder.call("math.select", condition, x, other)


STEPS: tuple[Step, ...] = (
    *(_unary, _unary, _unary, _pair, _pair, _pair, _pair, _reduce, _reduce, _reduce, _softmax),
    *(_transpose, _slice, _reshape, _pad, _concat, _pool, _cast, _select),
)


def make_group(
    seed: int, steps: int, sizes: tuple[int, ...] = (1, 2, 3, 4, 5)
) -> tuple[Model, Mapping[str, Array]]:
    """A random graph that is one group, and arrays for its inputs."""
    group = RandomGroup(seed, sizes)
    group.grow(steps)
    return group.finish(), group.fed


def whole_group(model: Model) -> Group:
    """All operations of a graph as one group."""
    graph = model.graph
    given = tuple(item for item in graph.inputs if isinstance(item, Tensor))
    constants = {item.tensor.name: item.value for item in graph.constants}
    outputs = tuple(item for item in graph.outputs if isinstance(item, Tensor))
    return Group(tuple(graph.operations()), given, outputs, constants)
