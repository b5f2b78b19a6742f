"""Stages: the tasks of a selected plan grouped for execution on one tile after the other.

A stage is a main task and the element-wise tasks that follow it on the same tile; what passes between them never leaves
L1. Buffers of the selected plan are what is placed: inputs and outputs of the plan, weights (imported, never written)
and activations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from math import prod

from lamella.base.errors import Unsupported
from lamella.base.quant import PerTensor
from lamella.lang.nem.resolved import Loop, Plan, Region, Task, Wait
from lamella.lang.nem.words import MOVES
from lamella.plan.tiling.split import (
    OperandSplit,
    Part,
    Split,
    Whole,
    bits_of,
    dense,
    is_elementwise,
    split_of,
    typed,
)


@dataclass(frozen=True, slots=True)
class Follower:
    """An element-wise task on the tile that the task before it left; an input of None is that tile."""

    task: Task
    inputs: tuple[Region | None, ...]
    output: Region

    def part(self, region: Region, units: int, first: int, tile: tuple[int, ...], count: int) -> Part:
        """The bytes of another operand that belong to a tile of `count` units."""
        assert region.type is not None
        type = region.type
        pitch = prod(type.shape) // units * bits_of(type.elem) // 8
        return Part(
            first * pitch,
            typed(type.elem, tile, type.layout if len(tile) == len(type.shape) else None, type.quant),
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """A main task with its followers; `name` is that of the main task in the selected plan."""

    number: int
    name: str
    split: Split
    followers: tuple[Follower, ...] = ()

    @property
    def task(self) -> Task:
        """The main task."""
        return self.split.task

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks in order."""
        return (self.task, *(item.task for item in self.followers))

    @property
    def outputs(self) -> tuple[Region, ...]:
        """What the stage leaves behind."""
        return (self.followers[-1].output,) if self.followers else self.task.outputs

    def inputs(self) -> Iterator[Region]:
        """What the stage reads, but for tiles that its own tasks left."""
        yield from self.task.inputs
        for item in self.followers:
            yield from (region for region in item.inputs if region is not None)


@dataclass(slots=True)
class Network:
    """A selected plan as stages, and what its buffers are for."""

    plan: Plan
    stages: list[Stage]
    weights: set[str]
    inputs: set[str]
    outputs: set[str]
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    @property
    def activations(self) -> set[str]:
        """Buffers that exist between stages only."""
        return {name for name in self.first if name not in self.weights | self.inputs | self.outputs}


def group(plan: Plan, outputs: Collection[str] | None = None) -> Network:
    """The stages of a selected plan; `outputs` are the buffers to keep, by default those that nothing reads."""
    tasks = _straight_line(plan)
    readers: dict[str, list[Task]] = defaultdict(list)
    writers: dict[str, list[Task]] = defaultdict(list)
    inputs: set[str] = set()
    for task in tasks:
        for region in task.inputs:
            readers[region.buffer.name].append(task)
            if region.buffer.name not in writers:
                inputs.add(region.buffer.name)
        for region in task.outputs:
            writers[region.buffer.name].append(task)
    weights = {
        item.name
        for item in plan.buffers
        if item.imported and item.name in readers and item.name not in writers
    }
    kept = set(outputs or ()) | {name for name in writers if name not in readers}
    kept |= {name for name in inputs if name in writers}
    network = Network(plan, [], weights, inputs - weights, kept)
    fused = _Fusion(tasks, readers, writers, kept | inputs)
    network.stages = [replace(stage, number=number) for number, stage in enumerate(fused.stages())]
    for stage in network.stages:
        for region in (*stage.inputs(), *stage.outputs):
            name = region.buffer.name
            network.first.setdefault(name, stage.number)
            network.last[name] = stage.number
    return network


def _straight_line(plan: Plan) -> list[Task]:
    found: list[Task] = []
    for item in plan.body:
        if isinstance(item, Loop):
            raise Unsupported("a plan with loops is not a selected plan: it has been tiled already")
        if isinstance(item, Wait):
            continue
        if any(not region.offset.is_constant for region in (*item.inputs, *item.outputs)):
            raise Unsupported("a selected plan has constant offsets")
        found.append(item)
    return found


_ROW_WISE = frozenset({"softmax", "log_softmax", "layernorm", "rmsnorm"})


class _Fusion:
    """Joins element-wise tasks to the task that makes one of their inputs, where nobody else reads it."""

    def __init__(
        self,
        tasks: list[Task],
        readers: dict[str, list[Task]],
        writers: dict[str, list[Task]],
        kept: set[str],
    ) -> None:
        self.tasks, self.readers, self.writers, self.kept = tasks, readers, writers, kept

    def stages(self) -> Iterator[Stage]:
        """Stages in the order of their last tasks."""
        open_stages: dict[str, Stage] = {}
        found: list[tuple[int, Stage]] = []
        for position, task in enumerate(self.tasks):
            stage = self._joined(task, open_stages)
            if stage is None:
                stage = Stage(0, _name(task), split_of(task))
            else:
                found = [item for item in found if item[1].task is not stage.task]
            found.append((position, stage))
            if len(task.outputs) == 1:
                open_stages[task.outputs[0].buffer.name] = stage
        yield from (stage for _, stage in sorted(found, key=lambda item: item[0]))

    def _joined(self, task: Task, open_stages: dict[str, Stage]) -> Stage | None:
        """The stage before with a task as its next follower; of two candidates the later one."""
        if not is_elementwise(task) or len(task.outputs) != 1 or task.opcode in MOVES:
            return None
        candidates = [
            open_stages[region.buffer.name]
            for region in task.inputs
            if region.buffer.name in open_stages
            and self._private(region, task, open_stages[region.buffer.name])
        ]
        for stage in reversed(candidates):
            follower = self._follower(task, stage)
            if follower is not None:
                return replace(stage, followers=(*stage.followers, follower))
        return None

    def _private(self, region: Region, task: Task, stage: Stage) -> bool:
        """Whether a buffer holds nothing but what one task made for another."""
        name = region.buffer.name
        made = stage.outputs[0]
        return (
            name not in self.kept
            and len(self.writers[name]) == 1
            and {item.number for item in self.readers[name]} == {task.number}
            and (made.offset, made.extent) == (region.offset, region.extent)
        )

    def _follower(self, task: Task, stage: Stage) -> Follower | None:
        """A task as follower: its other operands have as many elements, in the same order, and are there in time."""
        tile = stage.outputs[0]
        if isinstance(stage.split.outputs[0], Whole) and stage.split.units > 1:
            return None
        inputs: list[Region | None] = []
        for region in task.inputs:
            if region.buffer.name == tile.buffer.name:
                if region.type is None or tile.type is None or region.type.elem != tile.type.elem:
                    return None
                # Strides may read the same bytes in another order: then tiles are not the same.
                if not dense(region.type) or not dense(tile.type):
                    return None
                inputs.append(None)
            else:
                inputs.append(region)
        if not all(self._fits(region, stage) for region in (*inputs, task.outputs[0]) if region is not None):
            return None
        # The main task moves down to this one: what it reads must not change in between.
        between = [item for item in self.tasks if stage.task.number < item.number < task.number]
        read = {region.buffer.name for region in stage.inputs()}
        if any(region.buffer.name in read for item in between for region in item.outputs):
            return None
        return Follower(task, tuple(inputs), task.outputs[0])

    @staticmethod
    def _fits(region: Region, stage: Stage) -> bool:
        made = stage.outputs[0].type
        type = region.type
        if type is None or made is None or prod(type.shape) != prod(made.shape) or not dense(type):
            return False
        if not (type.quant is None or isinstance(type.quant, PerTensor)):
            return False
        return prod(type.shape) // stage.split.units * bits_of(type.elem) % 8 == 0


def _name(task: Task) -> str:
    return task.token or task.debug or f"{task.opcode}{task.number}"


__all__ = ["Follower", "Network", "OperandSplit", "Stage", "group"]
