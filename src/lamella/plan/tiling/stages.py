"""Stages: the tasks of a selected plan grouped for execution on one tile after the other.

A stage is a main task and the element-wise tasks that follow it on the same tile; what passes between them never leaves
L1. Buffers of the selected plan are what is placed: inputs and outputs of the plan, weights (imported, never written)
and activations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from lamella.base.errors import Unsupported
from lamella.base.quant import PerTensor
from lamella.lang.nem.resolved import Loop, Plan, Region, Task, Wait
from lamella.lang.nem.words import MOVES
from lamella.plan.tiling.choice import Choice
from lamella.plan.tiling.split import (
    LONG_ROW,
    OperandRange,
    OperandSplit,
    Split,
    StridedRows,
    Tile,
    Whole,
    bits_of,
    dense,
    is_elementwise,
    split_of,
    typed,
)
from lamella.plan.timing.dataflow import is_beside


@dataclass(frozen=True, slots=True)
class Follower:
    """An element-wise or row-wise task on the tile that the task before it left; an input of None is that tile."""

    task: Task
    inputs: tuple[Region | None, ...]
    output: Region
    kept: bool = False
    """Whether the tile that it works on leaves L1 as well, because others read it."""
    flat: bool = False
    """Whether tiles are rows as long as its own: the task before it has others, or it works on whole rows."""

    @property
    def row_wise(self) -> bool:
        """Whether each element of the output depends on the elements of its row; other operands are vectors."""
        return self.task.opcode in ROW_WISE

    def others(self) -> Iterator[tuple[int, Region]]:
        """Operands beside the tile that have as many elements: a part of them is loaded with each tile."""
        if not self.row_wise:
            yield from ((index, region) for index, region in enumerate(self.inputs) if region is not None)

    def part(self, region: Region, units: int, first: int, tile: tuple[int, ...], count: int) -> OperandRange:
        """The bytes of an operand that belong to a tile of `count` units."""
        assert region.type is not None
        type = region.type
        each = prod(type.shape) // units
        pitch = each * bits_of(type.elem) // 8
        if self.flat:
            row = type.shape[-1]
            return OperandRange(first * pitch, typed(type.elem, (count * each // row, row), None, type.quant))
        return OperandRange(
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
    leads: tuple[Stage, ...] = ()
    """Stages that compute, stripe by stripe, the rows under a tile: the first reads memory, each of the others the one
    before it, and the main task the last."""

    @property
    def task(self) -> Task:
        """The main task."""
        return self.split.task

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The main task and its followers, in order."""
        return (self.task, *(item.task for item in self.followers))

    def stripes(self, first: int, count: int) -> list[Tile]:
        """The tile of each lead that a tile of the stage needs."""
        found: list[Tile] = []
        split, tile = self.split, (first, count)
        for lead in reversed(self.leads):
            tile = split.rows_under(*tile)
            found.insert(0, tile)
            split = lead.split
        return found

    @property
    def outputs(self) -> tuple[Region, ...]:
        """What the stage leaves behind: the last tile, and those before it that others read."""
        if not self.followers:
            return self.task.outputs
        made = (self.task.outputs[0], *(item.output for item in self.followers))
        kept = (made[number] for number, item in enumerate(self.followers) if item.kept)
        return (*kept, made[-1])

    @property
    def tile(self) -> Region:
        """What the last task of the stage writes."""
        return self.followers[-1].output if self.followers else self.task.outputs[0]

    @property
    def whole_rows(self) -> bool:
        """Whether all columns of a tile must be on one engine: rows are summed up, or several tiles leave."""
        return any(item.row_wise or item.kept or item.flat for item in self.followers)

    def lead_operands(self) -> Iterator[tuple[int, int, Region]]:
        """The operands of leads that do not come with tiles: number of the lead, number of the operand, and region."""
        for level, lead in enumerate(self.leads):
            for index, region in enumerate(lead.task.inputs[1:], start=1):
                yield level, index, region

    def inputs(self) -> Iterator[Region]:
        """What the stage reads, but for tiles that its own tasks left."""
        for lead in self.leads[:1]:
            yield from lead.inputs()
        for lead in self.leads[1:]:
            yield from lead.task.inputs[1:]
        yield from self.task.inputs[1:] if self.leads else self.task.inputs
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
    length: int
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    fills: dict[tuple[int, int, int], Choice | None] = field(default_factory=dict)
    """Tilings of a first stage that begins early: those that all attempts have in common."""

    @property
    def activations(self) -> set[str]:
        """Buffers that exist between stages only."""
        return {name for name in self.first if name not in self.weights | self.inputs | self.outputs}


LONG, SHORT, ALONE = 2, 1, 0
"""How long stages are: with followers that work on rows and tiles that others read, with others only, without any."""


def group(
    plan: Plan, outputs: Collection[str] | None = None, length: int = LONG, longest: int = LONG_ROW
) -> Network:
    """The stages of a selected plan; `outputs` are the buffers to keep, beside them those that nothing reads.

    Where they are given, what a kernel writes beside its first result and nobody reads is scratch.

    The longer stages are, the more of L1 they need; element-wise tasks divide rows of more than `longest` elements.
    """
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
    weights -= _shared(plan, readers)
    beside = {region.buffer.name for task in tasks for region in task.outputs if is_beside(task, region)}
    scratch = set() if outputs is None else beside - set(outputs)
    kept = set(outputs or ()) | {name for name in writers if name not in readers and name not in scratch}
    kept |= {name for name in inputs if name in writers}
    network = Network(plan, [], weights, inputs - weights, kept, length)
    fused = _Fusion(tasks, readers, writers, kept, inputs)
    fused.length, fused.longest = length, longest
    return placed(network, (unchunked(stage, weights) for stage in fused.stages()))


def unchunked(stage: Stage, weights: Collection[str]) -> Stage:
    """A stage whose weights lie as they are, where they are not packed for it: channels of them are not in a row."""
    inputs = stage.task.inputs
    packed = len(inputs) > 1 and inputs[1].buffer.name in weights
    return (
        stage
        if packed or stage.split.chunks is None
        else replace(stage, split=replace(stage.split, chunks=None))
    )


def placed(network: Network, stages: Iterable[Stage]) -> Network:
    """The network with other stages, in order: from which to which its buffers live follows."""
    numbered = [replace(stage, number=number) for number, stage in enumerate(stages)]
    found = replace(network, stages=numbered, first={}, last={})
    for stage in numbered:
        for region in (*stage.inputs(), *stage.outputs):
            name = region.buffer.name
            found.first.setdefault(name, stage.number)
            found.last[name] = stage.number
    return found


SHARED_PART, STEPS_PART = 16, 4
"""Of L2: the parts that known numbers may take which several tasks read, each of them fetched once, and weights."""
STEPS = 3
"""Products from which on weights that they share are those of the steps of a recurrent layer."""


def _shared(plan: Plan, readers: Mapping[str, list[Task]]) -> set[str]:
    """Known numbers that several tasks read: masks, angles, and weights of the steps of recurrent layers.

    They are inputs of the plan as far as tiling goes: fetched once, they stay in L2 while anybody reads them.
    """
    topology = None if plan.device is None else plan.device.topology
    size = 0 if topology is None else topology.l2_size_bytes
    rooms = {False: size // SHARED_PART, True: size // STEPS_PART}
    found: set[str] = set()
    for buffer in plan.buffers:
        used = readers.get(buffer.name, [])
        count = len({task.number for task in used})
        packed = any(_is_packed(task, buffer.name) for task in used)
        steps = count >= STEPS and all(task.opcode in ("gemm", "matmul") for task in used)
        often = buffer.imported and (steps if packed else count > 1)
        if often and buffer.size <= rooms[packed]:
            found.add(buffer.name)
            rooms[packed] -= buffer.size
    return found


def _is_packed(task: Task, name: str) -> bool:
    """Whether a task reads a buffer as a weight or a vector, which lie in the order of their use."""
    names = [region.buffer.name for region in task.inputs]
    return not is_elementwise(task) and name in names[1:]


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


ROW_WISE = frozenset({"softmax", "log_softmax", "layernorm", "rmsnorm"})


class _Fusion:
    """Joins element-wise tasks to the task that makes one of their inputs, where nobody else reads it."""

    def __init__(
        self,
        tasks: list[Task],
        readers: dict[str, list[Task]],
        writers: dict[str, list[Task]],
        kept: set[str],
        inputs: set[str],
    ) -> None:
        self.tasks, self.readers, self.writers, self.kept, self.inputs = tasks, readers, writers, kept, inputs
        self.length, self.longest = LONG, LONG_ROW

    def stages(self) -> Iterator[Stage]:
        """Stages in the order of their last tasks."""
        open_stages: dict[str, Stage] = {}
        found: list[tuple[int, Stage]] = []
        for position, task in enumerate(self.tasks):
            stage = self._joined(task, open_stages)
            if stage is None:
                stage = Stage(0, task_name(task), split_of(task, self.longest))
            else:
                found = [item for item in found if item[1].task is not stage.task]
                for name in [name for name, other in open_stages.items() if other.task is stage.task]:
                    del open_stages[name]
            found.append((position, stage))
            if len(task.outputs) == 1:
                open_stages[task.outputs[0].buffer.name] = stage
        yield from (stage for _, stage in sorted(found, key=lambda item: item[0]))

    def _joined(self, task: Task, open_stages: dict[str, Stage]) -> Stage | None:
        """The stage before with a task as its next follower; of two candidates the later one."""
        row_wise = self.length == LONG and task.opcode in ROW_WISE
        if (
            self.length == ALONE
            or not (is_elementwise(task) or row_wise)
            or len(task.outputs) != 1
            or task.opcode in MOVES
        ):
            return None
        candidates = [
            (region, open_stages[region.buffer.name])
            for region in task.inputs[: 1 if row_wise else None]
            if region.buffer.name in open_stages
        ]
        for region, stage in reversed(candidates):
            private = self._private(region, task)
            if not self._passes(region, task, stage) or not (private or self.length == LONG):
                continue
            follower = self._follower(task, stage)
            if follower is not None:
                return replace(stage, followers=(*stage.followers, replace(follower, kept=not private)))
        return None

    def _private(self, region: Region, task: Task) -> bool:
        """Whether nobody but one task reads a buffer."""
        name = region.buffer.name
        return name not in self.kept and {item.number for item in self.readers[name]} == {task.number}

    def _passes(self, region: Region, task: Task, stage: Stage) -> bool:
        """Whether a task reads just the last tile of a stage, and all others that read tiles of it come later."""
        name, made = region.buffer.name, stage.tile
        if name in self.inputs or len(self.writers[name]) != 1 or len(stage.task.outputs) != 1:
            return False
        if (made.offset, made.extent) != (region.offset, region.extent):
            return False
        own = {item.number for item in (*stage.tasks, task)}
        others = {
            item.number for left in (*stage.outputs, made) for item in self.readers[left.buffer.name]
        } - own
        return all(number > task.number for number in others)

    def _follower(self, task: Task, stage: Stage) -> Follower | None:
        """A task as follower: its other operands have as many elements, in the same order, and are there in time."""
        tile, strided = stage.tile, isinstance(stage.split.outputs[0], StridedRows)
        if isinstance(stage.split.outputs[0], Whole) and stage.split.units > 1:
            return None
        row_wise = task.opcode in ROW_WISE
        flat = row_wise or strided or any(item.flat for item in stage.followers)
        if flat and not self._in_rows(task, stage):
            return None
        inputs: list[Region | None] = []
        earlier = {region.buffer.name for one in stage.tasks for region in one.outputs} - {tile.buffer.name}
        for region in task.inputs:
            if region.buffer.name in earlier:
                return None
            if region.buffer.name == tile.buffer.name:
                if region.type is None or tile.type is None or region.type.elem != tile.type.elem:
                    return None
                # Strides may read the same bytes in another order: then tiles are not the same.
                if not dense(region.type) or not (dense(tile.type) or strided):
                    return None
                inputs.append(None)
            else:
                inputs.append(region)
        whole = [region for region in inputs if region is not None] if not row_wise else []
        if not all(self._fits(region, stage) for region in (*whole, task.outputs[0])):
            return None
        # The main task moves down to this one: what it reads must not change in between.
        between = [item for item in self.tasks if stage.task.number < item.number < task.number]
        read = {region.buffer.name for region in stage.inputs()}
        if any(region.buffer.name in read for item in between for region in item.outputs):
            return None
        return Follower(task, tuple(inputs), task.outputs[0], flat=flat)

    @staticmethod
    def _in_rows(task: Task, stage: Stage) -> bool:
        """Whether a task works along rows that lie in one unit of the stage; vectors beside them are known."""
        types = [region.type for region in (task.inputs[0], *task.outputs)]
        if any(item is None or not dense(item) or not item.shape for item in types):
            return False
        shape = types[0].shape if types[0] is not None else ()
        if prod(shape) // stage.split.units % shape[-1] or not stage.split.units:
            return False
        if task.opcode not in ROW_WISE:
            return all(
                region.type is not None and region.type.shape[-1] == shape[-1] for region in task.inputs
            )
        axis = task.attributes["axis"]
        known = all(region.buffer.imported for region in task.inputs[1:])
        return known and isinstance(axis, int) and axis % len(shape) == len(shape) - 1

    @staticmethod
    def _fits(region: Region, stage: Stage) -> bool:
        made = stage.tile.type
        type = region.type
        if type is None or made is None or prod(type.shape) != prod(made.shape) or not dense(type):
            return False
        if not (type.quant is None or isinstance(type.quant, PerTensor)):
            return False
        return prod(type.shape) // stage.split.units * bits_of(type.elem) % 8 == 0


def task_name(task: Task) -> str:
    """What people call the stage of a task: its token, or its name where nobody waits for it."""
    return task.token or task.debug or f"{task.opcode}{task.number}"


__all__ = ["Follower", "Network", "OperandSplit", "Stage", "group"]
