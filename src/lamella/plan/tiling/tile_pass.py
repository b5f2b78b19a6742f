"""One tile on its way through an engine: loads, the main task on each chunk of channels, followers, the way out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lamella.base.arena import aligned
from lamella.lang.nem.resolved import Region, TensorType
from lamella.plan.tiling.placement import Placement, TiledStage
from lamella.plan.tiling.program import L2_BUFFER, Bytes, Place, Step, l1_buffer
from lamella.plan.tiling.runs import Tile
from lamella.plan.tiling.shape import ALIGN, Operand
from lamella.plan.tiling.split import Part, extent_of, planar


class TilePass:
    """One tile on its way through an engine; `step` units lie between it and the tile of the next iteration."""

    def __init__(
        self,
        placement: Placement,
        tiled: TiledStage,
        engine: int,
        tile: Tile,
        slot: Place,
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
        return [*self.loads(), *(self.main(number) for number in chunks), *self.finish()]

    def _here(self, key: str, part: Part | None, extent: int, name: str = "") -> Bytes:
        """Bytes of the slot, typed where a part is given."""
        offset = self.tiled.slot.offsets[key]
        at = Place(self.slot.start + offset, 0, self.slot.slot, self.slot.slots)
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

    def _far(self, region: Region, part: Part, step: int) -> Bytes:
        return Bytes(region.buffer.name, Place(region.offset.constant + part.offset, step), part.extent)

    def _staged(self, key: str, extent: int) -> Bytes:
        """Bytes of the ring in L2 that go with the slot."""
        tiled, staging = self.tiled, self.tiled.staging
        assert staging is not None
        size = tiled.staged["size"]
        start = staging.offset + self.engine * tiled.slots * size + tiled.staged[key] + self.number * size
        slots = self.slot.slots if self.slot.slot else 1
        at = Place(start, 0, size if slots > 1 else 0, slots, f"at_{staging.name}", staging.offset)
        return Bytes(L2_BUFFER, at, extent)

    def main(self, number: int) -> Step:
        """The main task on a chunk of channels."""
        tiled, task = self.tiled, self.tiled.stage.task
        split = tiled.stage.split
        inputs: list[Bytes] = []
        for index, item in enumerate(split.inputs):
            if f"x{index}" in self.parts:
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
        return self._on_unit(
            Step(task.opcode, tuple(inputs), tuple(outputs), attributes, label=self.label), 0
        )

    def _on_unit(self, step: Step, task: int) -> Step:
        """A step on the unit that its task names: tiles take turns on the instances of it."""
        step.unit = self.tiled.shape.units[task]
        count = self.placement.machine.counts.get(step.unit, 1)
        step.turn, step.turns = self.number % count, count if self.step else 1
        return step

    def _cut(self, whole: Bytes, tile: Part, number: int) -> Bytes:
        """The channels of a tile that a chunk writes: between the others, or beside them where engines share them."""
        chunks = self.tiled.stage.split.chunks
        assert chunks is not None
        first, count = self.tiled.chunks(self.engine)[number]
        if self.span is None:
            part = chunks.output(tile.type, first, count)
        else:
            part = planar(Part(0, tile.type), first, count)
            part = Part(part.offset - planar(Part(0, tile.type), self.span[0], 1).offset, part.type)
        place = whole.place
        moved = Place(place.start + part.offset, place.step, place.slot, place.slots)
        return Bytes(whole.buffer, moved, part.extent, part.type, whole.name)

    def _whole(self, index: int, part: Part, number: int) -> Bytes:
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
        return Bytes(l1_buffer(self.engine), Place(at), extent_of(type), type, name)

    def finish(self) -> list[Step]:
        """Followers, and the way out."""
        found: list[Step] = []
        made = list(self.tiled.shape.made(*self.tile, self.span))
        current = made[0]
        for number, follower in enumerate(self.tiled.stage.followers):
            result = made[len(self.tiled.stage.split.outputs) + number]
            inputs = [self._follower_input(number, index, current) for index in range(len(follower.inputs))]
            output = self._here(result[0], result[2], result[2].extent, f"{self.label}_Y")
            attributes = follower.task.attributes
            if follower.row_wise:
                attributes = {**attributes, "axis": len(result[2].type.shape) - 1}
            step = Step(follower.task.opcode, tuple(inputs), (output,), attributes, label=f"{self.label}_a")
            found.append(self._on_unit(step, number + 1))
            current = result
        return [*found, *self._stores()]

    def _follower_input(self, number: int, index: int, current: Operand) -> Bytes:
        """An operand of a follower: the tile before it, a part of another tensor, or a vector in L2."""
        follower = self.tiled.stage.followers[number]
        region = follower.inputs[index]
        key = f"f{number}_{index}"
        if region is None:
            own = follower.task.inputs[index].type
            type = _requantised(current[2].type, own)
            if follower.flat and own is not None:
                type = follower.part(
                    follower.task.inputs[index], self.tiled.stage.split.units, *self._tile_of(current)
                ).type
            return self._here(current[0], Part(0, type), extent_of(type), f"{self.label}_Y")
        if key in self.parts:
            part = self.parts[key]
            return self._here(key, part, part.extent, f"{self.label}_R")
        found = self.placement.source(self.tiled, region, 0, region.extent)
        return Bytes(found.buffer, found.place, found.extent, region.type)

    def _tile_of(self, current: Operand) -> tuple[int, tuple[int, ...], int]:
        first, count = self.tile
        return first, current[2].type.shape, count

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
    moved = Place(place.start, step, place.slot, place.slots, place.name, place.named)
    return Bytes(item.buffer, moved, item.extent, item.type, item.name)


def piece(item: Bytes, low: int, size: int) -> Bytes:
    """A part of a range; the whole of it keeps its name."""
    if (low, size) == (0, item.extent):
        return item
    return Bytes(item.buffer, replace(item.place, start=item.place.start + low), size)


def divide(size: int, pieces: int) -> list[tuple[int, int]]:
    """Offsets and sizes of nearly equal pieces, aligned."""
    pieces = max(1, pieces)
    each = aligned(-(-size // pieces), ALIGN)
    return [(low, min(each, size - low)) for low in range(0, size, each)]
