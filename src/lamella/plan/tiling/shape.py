"""The shape of a stage on the device: which bytes a tile takes in L1, and what its parts cost.

A tile has a *slot*: its input rows, the tile that the main task writes, and what followers add. Weights stand beside
the slots, whole or as a ring of chunks of output channels; vectors (bias, scale) are read from L2 where they lie.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TypeAlias

from lamella.base.arena import aligned
from lamella.lang.nem.registry import opcode
from lamella.lang.nem.resolved import Index, Region, Resource, Task
from lamella.plan.tiling.choice import TACTICS, Choice, Effort, Tactic
from lamella.plan.tiling.runs import Run, assign, find_run
from lamella.plan.tiling.split import OperandRange, Tile, Whole, bits_of, planar
from lamella.plan.tiling.stages import Stage
from lamella.plan.timing.cost import Cost, MachineModel, cost_of

OPEN_TILES = 16
"""Tiles of rows of a table in DDR that are written one by one."""
ALIGN = 64
SMALL_TABLE = 1 << 16
"""Bytes of a table that is rather fetched whole, ahead of its use, than read where it lies."""
Span: TypeAlias = tuple[int, int]
"""Channels: the first and how many."""
LEAD = 1 << 16
"""Operands of leads are numbered from multiples of this on, behind those of the main task: no task has as many."""
Operand: TypeAlias = tuple[str, Region, OperandRange]
"""An operand of a tile: the key of its place in the slot, the tensor, and the part of it."""


class Machine:
    """The rates of a device that the search needs."""

    def __init__(
        self, model: MachineModel, engines: int, tactic: Tactic = TACTICS[0], effort: Effort | None = None
    ) -> None:
        self.model = model
        self.effort = effort or Effort(sys.maxsize)
        self.engines = engines
        self.tactic = tactic
        self.dma = model.value("DMA", "bytes_per_cycle", 32, least=1)
        self.dma_overhead = model.value("DMA", "latency", 4) + model.value("DMA", "setup_cycles", 0)
        self.store = model.value("CSTL", "bytes_per_cycle", 32, least=1)
        self.store_overhead = model.value("CSTL", "latency", 1)
        self.sdma = model.value("sDMA", "bytes_per_cycle", 16, least=1)
        self.sdma_overhead = model.value("sDMA", "latency", 100) + model.value("sDMA", "setup_cycles", 0)
        self.unpacked = model.value("WDM", "bytes_per_cycle", 64, least=1) * min(
            1.0, model.count("WDM") / max(1, model.count("sDMA"))
        )
        self.dispatch = model.value("SEQ", "dispatch_cycles", 0)
        self.counts = {unit: max(1, model.count(unit)) for unit in ("NMU", "CSTL", "DMA", "VPU", "sDMA")}
        self.l1 = model.capacity("L1") or 1 << 40
        self.l2 = model.capacity("L2") or 1 << 40
        self.tokens = model.tokens or 16
        self.tiles: dict[tuple[object, ...], TileSizes] | None = None
        """What is known about the tiles of the stages of a network, which several machines may share."""

    @property
    def piece(self) -> int:
        """Elements of the pieces of rows where L1 is too small for rows: each operand of a task takes a few."""
        return min(64, max(16, self.l1 // 16))

    def load(self, size: int) -> int:
        """Cycles of a transfer from L2 to L1."""
        return -(-size // self.dma) + self.dma_overhead + self.dispatch

    def put(self, size: int) -> int:
        """Cycles of a store from L1 to L2."""
        return -(-size // self.store) + self.store_overhead + self.dispatch

    def fetch(self, size: int) -> int:
        """Cycles of a transfer from or to DDR."""
        return -(-size // self.sdma) + self.sdma_overhead + self.dispatch

    def saves(self, size: int, stored: int) -> bool:
        """Whether bytes that a codec stores come sooner through WDM."""
        return max(stored / self.sdma, size / self.unpacked) < size / self.sdma if self.unpacked else False


def faster_unit(task: Task, model: MachineModel) -> str:
    """The unit that runs a conversion faster than the default one; nothing where that is the fastest."""
    known = opcode(task.opcode)
    if known is None or task.resource is not None or task.opcode not in CONVERSIONS:
        return ""
    default = cost_of(task, model)
    able = [unit for unit in known.units if model.count(unit) and unit != default.unit]
    best = min(able, key=lambda unit: on_unit(task, unit, model).cycles, default="")
    return best if best and on_unit(task, best, model).cycles < default.cycles else ""


def on_unit(task: Task, unit: str, model: MachineModel) -> Cost:
    """The cost of a task on a unit, or on its default one where none is named."""
    return cost_of(replace(task, resource=Resource(unit, Index(0))) if unit else task, model)


CONVERSIONS = frozenset({"cast", "quantize", "dequantize"})
"""Followers that never work in place, whatever their types."""


def lead_operand(level: int, index: int) -> int:
    """The number of an operand of a lead among those of its stage."""
    return (level + 1) * LEAD + index


@dataclass(frozen=True, slots=True)
class Slot:
    """The parts of a tile's slot: a key for each operand and its offset; `size` is padded."""

    offsets: dict[str, int]
    size: int


class StageShape:
    """Bytes and cycles of a stage, for any tile height."""

    def __init__(self, stage: Stage, machine: Machine) -> None:
        self.stage = stage
        self.machine = machine
        self.units = [faster_unit(task, machine.model) for task in stage.tasks]
        """For each task the unit that it names, because its default one is slower."""
        self.costs: list[Cost] = [
            on_unit(task, unit, machine.model) for task, unit in zip(stage.tasks, self.units, strict=True)
        ]
        self.leads = [StageShape(lead, machine) for lead in stage.leads]
        self.planar: set[str] = set()
        """Buffers that lie channel by channel."""
        self.fronts: dict[tuple[object, ...], list[Choice]] = {}
        """What the search found, by its limits."""

    @cached_property
    def streamed(self) -> bool:
        """Whether the weights pass through L2 in chunks, because they would take half of it."""
        weight = dict(self.wholes).get(1)
        return (
            weight is not None and self.stage.split.chunks is not None and 2 * weight.extent > self.machine.l2
        )

    @cached_property
    def vectors(self) -> set[int]:
        """Inputs of the main task that are read from L2: imported vectors that are no factor of a product."""
        first = 2 if self.stage.task.opcode in _PRODUCTS else 1
        return {
            index
            for index, item in enumerate(self.stage.split.inputs)
            if index >= first and isinstance(item, Whole) and _is_vector(item.region)
        }

    def is_open(self, tiles: int) -> bool:
        """Whether a stage of so many tiles is written without a loop.

        Weights follow rows of a table in DDR on the same way, and would wait for the end of a loop.
        """
        return bool(self.distant) and tiles <= OPEN_TILES

    @cached_property
    def distant(self) -> set[int]:
        """Inputs that are read where they lie: a table of which only some rows are asked for, or too large for L1."""
        item = self.stage.split.inputs[0]
        if self.stage.task.opcode != "gather" or not isinstance(item, Whole):
            return set()
        table = item.region
        asked = sum(region.extent for region in self.stage.task.outputs)
        few = table.buffer.imported and max(2 * asked, SMALL_TABLE) <= table.extent
        return {0} if few or 2 * table.extent > self.machine.l1 else set()

    @cached_property
    def wholes(self) -> list[tuple[int, Region]]:
        """Inputs of the main task, and of leads, that lie whole in L1."""
        found = [
            (index, item.region)
            for index, item in enumerate(self.stage.split.inputs)
            if isinstance(item, Whole) and index not in self.vectors | self.distant
        ]
        for level, lead in enumerate(self.leads):
            found += [(lead_operand(level, index), region) for index, region in lead.wholes]
        return found

    def whole(self, index: int) -> OperandRange:
        """An operand of the main task, or of a lead, that all tiles need."""
        level, own = divmod(index, LEAD)
        if level:
            return self.leads[level - 1].whole(own)
        item = self.stage.split.inputs[index]
        return self.seen(item.region, item.part(0, 1))

    @cached_property
    def whole_bytes(self) -> int:
        """Bytes of L1 for what lies there whole."""
        return sum(aligned(region.extent, ALIGN) for _, region in self.wholes)

    def loads(self, first: int, count: int, span: Span | None = None) -> Iterator[Operand]:
        """The inputs of a tile that are loaded for it: key, operand and part; `span` are channels of one engine."""
        split = self.stage.split
        if self.leads:
            rows = self.stage.stripes(first, count)[0]
            yield from ((f"l{key}", region, part) for key, region, part in self.leads[0].loads(*rows))
        for index, item in enumerate(split.inputs):
            if not (isinstance(item, Whole) or (index == 0 and self.leads)):
                yield f"x{index}", item.region, self.seen(item.region, item.part(first, count))
        tile = split.outputs[0].part(first, count).type.shape
        for number, follower in enumerate(self.stage.followers):
            for index, region in follower.others():
                part = follower.part(region, split.units, first, tile, count)
                yield f"f{number}_{index}", region, _cut(part, span)

    def seen(self, region: Region, part: OperandRange) -> OperandRange:
        """A whole operand as it lies: channel by channel where its buffer does."""
        if region.buffer.name in self.planar:
            return planar(part, 0, part.type.shape[-1])
        return part

    def made(self, first: int, count: int, span: Span | None = None) -> Iterator[Operand]:
        """What the tasks of a tile write in L1, with the key of its place: a follower works in place where it may."""
        split = self.stage.split
        key = "y0"
        for index, item in enumerate(split.outputs):
            yield f"y{index}", item.region, _cut(item.part(first, count), span)
        tile = split.outputs[0].part(first, count).type
        for number, follower in enumerate(self.stage.followers):
            part = follower.part(follower.output, split.units, first, tile.shape, count)
            moves = follower.row_wise or follower.kept or follower.task.opcode in CONVERSIONS
            if part.type.elem != tile.elem or moves:
                key = f"y0_{number}"
            yield key, follower.output, _cut(part, span)
            tile = part.type

    def passed(self, first: int, count: int) -> Iterator[Operand]:
        """What the leads of a tile write in L1."""
        for level, (lead, tile) in enumerate(zip(self.leads, self.stage.stripes(first, count), strict=True)):
            yield from ((f"l{level}{key}", region, part) for key, region, part in lead.made(*tile))

    def slot(self, tiles: list[tuple[int, int]], span: Span | None = None) -> Slot:
        """The slot that holds any of some tiles."""
        sizes: dict[str, int] = {}
        for first, count in tiles:
            used = *self.loads(first, count, span), *self.passed(first, count), *self.made(first, count, span)
            for key, _, part in used:
                sizes[key] = max(sizes.get(key, 0), part.extent)
        offsets: dict[str, int] = {}
        end = 0
        for key, size in sizes.items():
            offsets[key] = end
            end = aligned(end + size, ALIGN)
        return Slot(offsets, end)

    def sizes(self, height: int) -> TileSizes:
        """The bytes of tiles of a height; those of one network are worked out once for all tactics."""
        known, window = self.machine.tiles, self.stage.split.window
        if known is None:
            return TileSizes(self, height)
        halo = window is not None and window.halo
        key = self.stage.task.number, len(self.stage.leads), halo, height
        if key not in known:
            known[key] = TileSizes(self, height)
        return known[key]

    def stored(self, first: int, count: int, span: Span | None = None) -> list[Operand]:
        """What leaves L1 when a tile is done."""
        found = list(self.made(first, count, span))
        if not self.stage.followers:
            return found
        kept = [found[number] for number, item in enumerate(self.stage.followers) if item.kept]
        return [*kept, found[-1]]

    def main_cycles(self, share: float) -> int:
        """Cycles of the main task on a share of its work."""
        return self._cycles(self.costs[0], share)

    def follower_cycles(self, share: float) -> int:
        """Cycles of all followers on a share of their work."""
        return sum(self._cycles(cost, share) for cost in self.costs[1:])

    def lead_cycles(self, first: int, count: int) -> Iterator[tuple[str, int]]:
        """Units and cycles of the leads of a tile, task by task."""
        for lead, (_, rows) in zip(self.leads, self.stage.stripes(first, count), strict=True):
            share = rows / lead.stage.split.units
            yield from ((cost.unit, self._cycles(cost, share)) for cost in lead.costs)

    @staticmethod
    def _cycles(cost: Cost, share: float) -> int:
        overhead = cost.cycles + (-cost.work // cost.rate)
        return int(-(-cost.work * share // cost.rate)) + max(0, overhead)


class TileSizes:
    """The bytes of the tiles of one height: they depend on the stage alone, whatever is known about the machine."""

    def __init__(self, shape: StageShape, height: int) -> None:
        split = shape.stage.split
        self.tiles = tiles_of(split.units, split.period, height)
        self.count = len(self.tiles)
        middle = self.count // 2
        # Of the first two, the last and some from the middle, one is the largest in every respect.
        some = different_tiles(
            shape.stage, [[*self.tiles[:2], self.tiles[-1], *self.tiles[max(0, middle - 1) : middle + 2]]]
        )
        self.slot = shape.slot(some).size
        loads = {tile: [part.extent for _, _, part in shape.loads(*tile)] for tile in some}
        self.largest = max(some, key=lambda tile: (tile[1], sum(loads[tile])))
        """The tile with the most rows, and of those the one with the most bytes to load."""
        self.loads = loads[self.largest]
        self.stored = [part.extent for _, _, part in shape.stored(*self.largest)]
        self.made = next(shape.made(*self.largest))[2].extent
        self._is_open = shape.is_open(self.count)
        self._runs: dict[int, Run | None] = {}

    def run(self, stage: Stage, engines: int) -> Run | None:
        """The tiles that are one loop where so many engines share them."""
        if self._is_open:
            return None
        if engines not in self._runs:
            self._runs[engines] = find_run(stage, assign(self.tiles, engines))
        return self._runs[engines]


_PRODUCTS = frozenset({"gemm", "matmul", "conv2d", "depthwise_conv2d"})


def _is_vector(region: Region) -> bool:
    type = region.type
    return region.buffer.imported and type is not None and prod(type.shape) == type.shape[-1]


def _cut(part: OperandRange, span: Span | None) -> OperandRange:
    return part if span is None else planar(part, *span)


def tiles_of(units: int, period: int, height: int) -> list[tuple[int, int]]:
    """The tiles of a stage: first unit and count; none reaches over a multiple of the period."""
    found: list[tuple[int, int]] = []
    count = -(-period // height)
    for image in range(units // period):
        row = image * period
        for number in range(count):
            size = (
                min(height, (image + 1) * period - row) if number < count - 1 else (image + 1) * period - row
            )
            if size > 0:
                found.append((row, size))
            row += size
    return found


def different_tiles(stage: Stage, shared: Iterable[Iterable[Tile]]) -> list[Tile]:
    """One of all tiles that have as many rows, of the output and under its kernels."""
    found: dict[tuple[int, ...], Tile] = {}
    for tile in (tile for tiles in shared for tile in tiles):
        own = zip((*stage.leads, stage), (*stage.stripes(*tile), tile), strict=True)
        found.setdefault(
            tuple(n for item, rows in own for n in (rows[1], item.split.rows_under(*rows)[1])), tile
        )
    return list(found.values())


def element_bytes(region: Region) -> int:
    """Bytes of an operand."""
    return region.extent if region.type is None else prod(region.type.shape) * bits_of(region.type.elem) // 8
