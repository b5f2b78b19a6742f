"""Which activations lie channel by channel: those whose producer shares its output channels among engines.

Such a stage stores the channels of each engine as one contiguous range. Its readers must then take the tensor whole, or
share the same channels; a stage whose neighbours cannot do so goes back to sharing rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from lamella.base.errors import Unsupported
from lamella.lang.nem.resolved import Region
from lamella.plan.tiling.choice import Choice, Limits
from lamella.plan.tiling.search import choose
from lamella.plan.tiling.shape import Machine, StageShape
from lamella.plan.tiling.split import Whole, dense
from lamella.plan.tiling.stages import Network


def settle_layouts(
    network: Network, shapes: list[StageShape], choices: list[Choice], machine: Machine
) -> set[str]:
    """Make neighbours agree, in place; the buffers that are planar.

    Where a reader cannot take what a maker leaves, either the reader shares channels too or the maker shares rows:
    whichever costs less. A stage that went back to rows stays there, so this ends.
    """
    settled: set[int] = set()
    while True:
        planar = _planar(shapes, choices)
        conflict = next(_conflicts(network, shapes, choices, planar), None)
        if conflict is None:
            return set(planar)
        maker, reader = conflict
        rows = _choose(shapes, choices, machine, maker, across=False)
        if reader is not None and not choices[reader].across and reader not in settled and rows is not None:
            other = _choose(shapes, choices, machine, reader, across=True)
            if (
                other is not None
                and other.cycles - choices[reader].cycles < rows.cycles - choices[maker].cycles
            ):
                choices[reader] = other
                continue
        settled.add(maker)
        if rows is None:
            raise Unsupported(
                f"{shapes[maker].stage.name} fits into {machine.l1} bytes of L1 only where engines share its "
                "channels, and what reads its output cannot take it so"
            )
        choices[maker] = rows


def _choose(
    shapes: list[StageShape], choices: list[Choice], machine: Machine, number: int, *, across: bool
) -> Choice | None:
    engines = machine.engines if across else choices[number].engines
    try:
        return choose(shapes[number], Limits(machine.l1, engines, across, thrift=machine.tactic.thrift / 2))
    except Unsupported:
        return None


def _planar(shapes: list[StageShape], choices: list[Choice]) -> dict[str, tuple[int, ...]]:
    """Planar buffers with the shape of what lies in them."""
    found: dict[str, tuple[int, ...]] = {}
    for shape, choice in zip(shapes, choices, strict=True):
        output = shape.stage.outputs[0]
        if choice.across and output.type is not None and prod(output.type.shape[:-1]) > 1:
            found[output.buffer.name] = output.type.shape
    return found


def _conflicts(
    network: Network, shapes: list[StageShape], choices: list[Choice], planar: dict[str, tuple[int, ...]]
) -> Iterator[tuple[int, int | None]]:
    """Stages that share channels in vain, each with the reader that might follow."""
    writers: dict[str, list[int]] = {}
    for number, shape in enumerate(shapes):
        for region in shape.stage.outputs:
            writers.setdefault(region.buffer.name, []).append(number)
    # Parts of a buffer, slices above all, have makers of their own, of which the first need not share channels.
    makers = {
        name: next((number for number in found if choices[number].across), found[0])
        for name, found in writers.items()
    }
    for name in planar:
        number = makers[name]
        part = any(region.extent != region.buffer.size for region in shapes[number].stage.outputs)
        if len(writers[name]) > 1 or name in network.outputs or part:
            yield number, None
    for number, (shape, choice) in enumerate(zip(shapes, choices, strict=True)):
        for region in _main_operands(shape):
            if region.buffer.name in planar and not _takes_whole(shape, choice, region, planar):
                yield makers[region.buffer.name], None if choice.across else number
        for region in _follower_operands(shape):
            name, alone = region.buffer.name, prod(_shape(region)[:-1]) == 1
            if name in planar and not (choice.across and _shape(region) == planar[name]):
                yield makers[name], None if choice.across else number
            elif choice.across and name not in planar and not alone:
                yield number, None


def _shape(region: Region) -> tuple[int, ...]:
    return () if region.type is None else region.type.shape


def _main_operands(shape: StageShape) -> Iterator[Region]:
    yield from (shape.stage.leads[0] if shape.stage.leads else shape.stage).task.inputs


def _follower_operands(shape: StageShape) -> Iterator[Region]:
    for follower in shape.stage.followers:
        yield from (region for region in follower.inputs if region is not None)


def _takes_whole(
    shape: StageShape, choice: Choice, region: Region, planar: dict[str, tuple[int, ...]]
) -> bool:
    """Whether the main task of a stage reads an operand as one whole with the same channels.

    Axes in another order, a transposed view, may end in as many elements, which are not the channels.
    """
    split = shape.stage.split
    if shape.stage.leads:
        return False
    produced = planar[region.buffer.name]
    index = next(number for number, item in enumerate(shape.stage.task.inputs) if item is region)
    part = split.inputs[index].part(0, split.units).type
    if choice.remote and region.type is not None:
        part = region.type
    alike = part.shape[-1] == produced[-1] and prod(part.shape) == prod(produced) == prod(_shape(region))
    alike = alike and dense(part)
    one = choice.across or (choice.height >= split.units and split.period == split.units)
    own = (
        choice.across
        or choice.remote
        or isinstance(split.inputs[index], Whole)
        or shape.stage.task.opcode in _ANY_STRIDES
    )
    return alike and one and own and not (shape.stage.followers and not choice.across)


_ANY_STRIDES = frozenset({"conv2d", "maxpool", "avgpool", "gemm", "matmul"})
"""Opcodes that read an operand through any strides and write a dense one."""
