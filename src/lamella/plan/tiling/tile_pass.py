"""One tile on its way through an engine: loads, the main task on each chunk of channels, followers, the way out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lamella.base.arena import aligned
from lamella.lang.nem.resolved import Region, TensorType
from lamella.plan.tiling.placement import Placement, TiledStage
from lamella.plan.tiling.program import L2_BUFFER, AffineAddress, Bytes, Step, l1_buffer
from lamella.plan.tiling.shape import ALIGN, Operand, StageShape, lead_operand
from lamella.plan.tiling.split import OperandRange, Tile, extent_of, planar
from lamella.plan.tiling.stages import Follower


class TilePass:
    """One tile on its way through an engine; `step` units lie between it and the tile of the next iteration."""

    def __init__(
        self,
        placement: Placement,
        tiled: TiledStage,
        engine: int,
        tile: Tile,
        slot: AffineAddress,
        step: int = 0,
    ) -> None:
        self.placement, self.tiled, self.engine = placement, tiled, engine
        self.tile, self.slot, self.step = tile, slot, step
        self.number = (slot.start - tiled.slots_at) // max(1, tiled.slot.size)
        self.label = tiled.label
        first, count = tile
        self.span = tiled.span(engine)
        self.parts = {key: part for key, _, part in tiled.shape.loads(first, count, self.span)}
        self.next = (
            {key: part for key, _, part in tiled.shape.loads(first + step, count)} if step else self.parts
        )

    def lines(self) -> list[Step]:
        """All tasks of the tile."""
        chunks = range(len(self.tiled.chunks()))
        return [*self.loads(), *self.leads(), *(self.main(number) for number in chunks), *self.finish()]

    def _here(self, key: str, part: OperandRange | None, extent: int, name: str = "") -> Bytes:
        """Bytes of the slot, typed where a part is given."""
        offset = self.tiled.slot.offsets[key]
        at = AffineAddress(self.slot.start + offset, 0, self.slot.slot, self.slot.slots)
        return Bytes(l1_buffer(self.engine), at, extent, None if part is None else part.type, name)

    def loads(self) -> list[Step]:
        """Load the inputs of the tile."""
        found: list[Step] = []
        for key, region, part in self.tiled.shape.loads(*self.tile, self.span):
            step = self.next[key].offset - part.offset
            if region.buffer.name in self.placement.ddr:
                far = self._far(region, part, step)
                near = self._staged(key, part.extent)
                found.append(Step("transfer", (far,), (near,), label=f"{self.label}_in"))
            else:
                source = self.placement.source(self.tiled, region, part.offset, part.extent)
                near = moving(source, step)
            here = self._here(key, part, part.extent, f"{self.label}_{'R' if key.startswith('f') else 'X'}")
            found.append(Step("transfer", (near,), (here,), label=f"{self.label}_x"))
        return found

    def _far(self, region: Region, part: OperandRange, step: int) -> Bytes:
        return Bytes(
            region.buffer.name, AffineAddress(region.offset.constant + part.offset, step), part.extent
        )

    def _staged(self, key: str, extent: int) -> Bytes:
        """Bytes of the ring in L2 that go with the slot."""
        tiled, staging = self.tiled, self.tiled.staging
        assert staging is not None
        size = tiled.staged["size"]
        start = staging.offset + self.engine * tiled.slots * size + tiled.staged[key] + self.number * size
        slots = self.slot.slots if self.slot.slot else 1
        at = AffineAddress(start, 0, size if slots > 1 else 0, slots, f"at_{staging.name}", staging.offset)
        return Bytes(L2_BUFFER, at, extent)

    def leads(self) -> list[Step]:
        """The rows under the tile, stripe by stripe."""
        found: list[Step] = []
        for level, (lead, tile) in enumerate(
            zip(self.tiled.shape.leads, self.tiled.stage.stripes(*self.tile), strict=True)
        ):
            label = lead.stage.name.removeprefix("do_")
            made = [(f"l{level}{key}", region, part) for key, region, part in lead.made(*tile)]
            inputs = [self._lead_input(level, lead, tile)]
            for index in range(1, len(lead.stage.task.inputs)):
                inputs.append(self._beside(level, index))
            key, _, part = made[0]
            output = self._here(key, part, part.extent, f"{label}_Y")
            attributes = lead.stage.split.attributes_of(*tile)
            task = lead.stage.task
            step = Step(task.opcode, tuple(inputs), (output,), attributes, label=label, origin=task.number)
            found.append(self._on_unit(step, lead.units[0]))
            found += self._follow(lead, made, tile, label)
        return found

    def _lead_input(self, level: int, lead: StageShape, tile: Tile) -> Bytes:
        """The rows that a lead reads: loaded, or left by the lead before."""
        part = lead.stage.split.inputs[0].part(*tile)
        return self._here(f"l{self._left(level)}" if level else "lx0", part, part.extent, f"{self.label}_X")

    def _left(self, level: int) -> str:
        """Where the lead before a level leaves its rows."""
        lead = self.tiled.shape.leads[level - 1]
        tile = self.tiled.stage.stripes(*self.tile)[level - 1]
        *_, (key, _, _) = lead.made(*tile)
        return f"{level - 1}{key}"

    def _beside(self, level: int, index: int) -> Bytes:
        """An operand of a lead that all tiles need: in L1, or a vector in L2."""
        tiled, lead = self.tiled, self.tiled.shape.leads[level]
        label, type = lead.stage.name.removeprefix("do_"), lead.whole(index).type
        if index in lead.vectors:
            region = lead.stage.task.inputs[index]
            near = self.placement.source(tiled, region, 0, extent_of(type))
            return Bytes(near.buffer, near.place, near.extent, type, f"{label}_B")
        at = AffineAddress(tiled.weights[lead_operand(level, index)])
        return Bytes(l1_buffer(self.engine), at, extent_of(type), type, f"{label}_W")

    def main(self, number: int) -> Step:
        """The main task on a chunk of channels."""
        tiled, task = self.tiled, self.tiled.stage.task
        split = tiled.stage.split
        inputs: list[Bytes] = []
        for index, item in enumerate(split.inputs):
            if index == 0 and tiled.stage.leads:
                part = item.part(*self.tile)
                key = f"l{self._left(len(tiled.stage.leads))}"
                inputs.append(self._here(key, part, part.extent, f"{self.label}_X"))
            elif f"x{index}" in self.parts:
                part = self.parts[f"x{index}"]
                inputs.append(self._here(f"x{index}", part, part.extent, f"{self.label}_X"))
            else:
                inputs.append(
                    self._whole(index, tiled.shape.seen(item.region, item.part(*self.tile)), number)
                )
        outputs: list[Bytes] = []
        for index, item in enumerate(split.outputs):
            part = item.part(*self.tile)
            whole = self._here(f"y{index}", part, part.extent, f"{self.label}_Y")
            outputs.append(whole if not tiled.choice.chunk else self._cut(whole, part, number))
        attributes = split.attributes_of(*self.tile)
        step = Step(
            task.opcode, tuple(inputs), tuple(outputs), attributes, label=self.label, origin=task.number
        )
        return self._on_unit(step, tiled.shape.units[0])

    def _on_unit(self, step: Step, unit: str) -> Step:
        """A step on the unit that its task names: tiles take turns on the instances of it."""
        step.unit = unit
        count = self.placement.machine.counts.get(step.unit, 1)
        step.turn, step.turns = self.number % count, count if self.step else 1
        return step

    def _cut(self, whole: Bytes, tile: OperandRange, number: int) -> Bytes:
        """The channels of a tile that a chunk writes: between the others, or beside them where engines share them."""
        chunks = self.tiled.stage.split.chunks
        assert chunks is not None
        first, count = self.tiled.chunks(self.engine)[number]
        if self.span is None:
            part = chunks.output(tile.type, first, count)
        else:
            part = planar(OperandRange(0, tile.type), first, count)
            part = OperandRange(
                part.offset - planar(OperandRange(0, tile.type), self.span[0], 1).offset, part.type
            )
        place = whole.place
        moved = AffineAddress(place.start + part.offset, place.step, place.slot, place.slots)
        return Bytes(whole.buffer, moved, part.extent, part.type, whole.name)

    def _whole(self, index: int, part: OperandRange, number: int) -> Bytes:
        """An operand that all tiles need: in L1, or a vector in L2."""
        tiled, region = self.tiled, self.tiled.stage.task.inputs[index]
        split = tiled.stage.split
        type, offset, name = part.type, 0, f"{self.label}_W"
        if tiled.choice.chunk and split.chunks is not None and index in (1, 2):
            first, count = tiled.chunks(self.engine)[number]
            cut = (
                split.chunks.weight(type, first, count)
                if index == 1
                else split.chunks.table(type, first, count)
            )
            type, offset = cut.type, cut.offset
        if index in tiled.shape.distant:
            found = self.placement.lying(tiled, region)
            return Bytes(found.buffer, found.place, extent_of(type), type)
        if index in tiled.shape.vectors:
            found = self.placement.source(tiled, region, offset, extent_of(type))
            return Bytes(found.buffer, found.place, found.extent, type, f"{self.label}_B")
        at = tiled.weights[index]
        if tiled.choice.chunk and index == 1:
            at += number % tiled.choice.ring * tiled.chunk_bytes
        else:
            # An addend that lies whole in L1 is cut where it lies.
            at += offset
        return Bytes(l1_buffer(self.engine), AffineAddress(at), extent_of(type), type, name)

    def finish(self) -> list[Step]:
        """Followers, and the way out."""
        made = list(self.tiled.shape.made(*self.tile, self.span))
        return [*self._follow(self.tiled.shape, made, self.tile, f"{self.label}_a"), *self._stores()]

    def _follow(self, shape: StageShape, made: list[Operand], tile: Tile, label: str) -> list[Step]:
        """The followers of a task on the tile that it left."""
        found: list[Step] = []
        current = made[0]
        for number, follower in enumerate(shape.stage.followers):
            result = made[len(shape.stage.split.outputs) + number]
            count = len(follower.inputs)
            inputs = [
                self._left_tile(follower, index, current, shape.stage.split.units, tile)
                if follower.inputs[index] is None
                else self._follower_input(number, index)
                for index in range(count)
            ]
            output = self._here(result[0], result[2], result[2].extent, f"{self.label}_Y")
            attributes = follower.task.attributes
            if follower.row_wise:
                attributes = {**attributes, "axis": len(result[2].type.shape) - 1}
            task = follower.task
            step = Step(task.opcode, tuple(inputs), (output,), attributes, label=label, origin=task.number)
            found.append(self._on_unit(step, shape.units[number + 1]))
            current = result
        return found

    def _left_tile(self, follower: Follower, index: int, current: Operand, units: int, tile: Tile) -> Bytes:
        """The tile that the task before a follower left."""
        own = follower.task.inputs[index].type
        type = _requantised(current[2].type, own)
        if follower.flat and own is not None:
            first, count = tile
            shape = current[2].type.shape
            type = follower.part(follower.task.inputs[index], units, first, shape, count).type
        return self._here(current[0], OperandRange(0, type), extent_of(type), f"{self.label}_Y")

    def _follower_input(self, number: int, index: int) -> Bytes:
        """Another operand of a follower: a part of a tensor, or a vector in L2."""
        region = self.tiled.stage.followers[number].inputs[index]
        assert region is not None
        key = f"f{number}_{index}"
        if key in self.parts:
            part = self.parts[key]
            return self._here(key, part, part.extent, f"{self.label}_R")
        found = self.placement.source(self.tiled, region, 0, region.extent)
        return Bytes(found.buffer, found.place, found.extent, region.type)

    def _stores(self) -> Iterable[Step]:
        shape, (first, count) = self.tiled.shape, self.tile
        now = shape.stored(first, count, self.span)
        later = shape.stored(first + self.step, count) if self.step else now
        for (key, region, part), (_, _, moved) in zip(now, later, strict=True):
            step = moved.offset - part.offset
            here = self._here(key, part, part.extent, f"{self.label}_Y")
            staged = region.buffer.name in self.placement.ddr
            if staged:
                near = self._staged(f"out_{key}", part.extent)
            else:
                near = moving(self.placement.source(self.tiled, region, part.offset, part.extent), step)
            yield Step("store", (here,), (near,), label=f"{self.label}_st")
            if staged:
                yield Step("transfer", (near,), (self._far(region, part, step),), label=f"{self.label}_out")


def _requantised(type: TensorType, own: TensorType | None) -> TensorType:
    quant = type.quant if own is None else own.quant
    return TensorType(type.elem, type.shape, type.layout, type.strides, quant)


def moving(item: Bytes, step: int) -> Bytes:
    """A range that moves on with every iteration."""
    place = item.place
    moved = AffineAddress(place.start, step, place.slot, place.slots, place.name, place.named)
    return Bytes(item.buffer, moved, item.extent, item.type, item.name)


def piece(item: Bytes, low: int, size: int) -> Bytes:
    """A part of a range; the whole of it keeps its name."""
    if (low, size) == (0, item.extent):
        return item
    return Bytes(item.buffer, replace(item.place, start=item.place.start + low), size)


def divide(size: int, pieces: int, grain: int = ALIGN) -> list[tuple[int, int]]:
    """Offsets and sizes of nearly equal pieces, aligned."""
    pieces = max(1, pieces)
    each = aligned(-(-size // pieces), grain)
    return [(low, min(each, size - low)) for low in range(0, size, each)]
