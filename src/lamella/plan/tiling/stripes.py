"""Stripes: stages that hand rows to each other inside L1, so that what lies between them crosses neither L2 nor DDR.

A stage that makes the only image under another one's kernel may become its *lead*: with each tile of the later stage it
computes just the rows that this tile needs, halo included. Rows under two tiles are computed twice, and the weights of
both lie in L1 together; in return a wide tensor, an expanded one between two convolutions of a mobile network above
all, is never stored. Which stages of a chain are joined is settled by the prices of the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lamella.base.errors import Unsupported
from lamella.plan.tiling.choice import Limits
from lamella.plan.tiling.search import choose
from lamella.plan.tiling.shape import Machine, StageShape
from lamella.plan.tiling.split import Rows, RowWindow, Split, Whole, dense
from lamella.plan.tiling.stages import Network, Stage, placed

MOST = 4
"""Stages that are joined at most."""
THRIFT = 5.0
"""Cycles that a line less is worth."""


def with_stripes(network: Network, machine: Machine) -> Network:
    """The network with stages joined where that costs less; the same one where it never does."""
    joined: dict[int, Stage] = {}
    gone: set[int] = set()
    for chain in _chains(network):
        for begin, end in _cheapest(network, chain, machine):
            if end - begin > 1:
                stage = _joined([network.stages[number] for number in chain[begin:end]])
                joined[chain[end - 1]] = stage
                gone |= set(chain[begin : end - 1])
    if not joined:
        return network
    stages = [joined.get(number, stage) for number, stage in enumerate(network.stages) if number not in gone]
    return placed(network, stages)


def _joined(stages: Sequence[Stage]) -> Stage:
    """Stages as one, the last with the others as leads."""
    *leads, last = stages
    return replace(last, split=replace(last.split, chunks=None), leads=tuple(leads))


def _chains(network: Network) -> Iterator[list[int]]:
    """Numbers of stages each of which makes nothing but the rows that the next one reads."""
    follows = dict(_links(network))
    inner = set(follows.values())
    for number in follows:
        if number in inner:
            continue
        chain = [number]
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
        yield chain


def _links(network: Network) -> Iterator[tuple[int, int]]:
    readers: dict[str, list[int]] = {}
    for stage in network.stages:
        for region in stage.inputs():
            readers.setdefault(region.buffer.name, []).append(stage.number)
    taken: set[int] = set()
    for stage in network.stages:
        made = stage.outputs
        name = made[0].buffer.name
        own = readers.get(name, [])
        if len(made) != 1 or len(own) != 1 or name in network.outputs | network.inputs or own[0] in taken:
            continue
        after = network.stages[own[0]]
        if _may_lead(stage) and _hands_over(stage, after) and not _changes_between(network, stage, after):
            taken.add(after.number)
            yield stage.number, after.number


def _may_lead(stage: Stage) -> bool:
    """Whether a stage has one operand that goes by rows, and followers that need nothing else."""
    split = stage.split
    alone = all(item is None for follower in stage.followers for item in follower.inputs)
    plain = not any(follower.row_wise or follower.kept for follower in stage.followers)
    others = all(isinstance(item, Whole) and item.region.buffer.imported for item in split.inputs[1:])
    rows = isinstance(split.inputs[0], (Rows, RowWindow)) and all(
        isinstance(it, Rows) for it in split.outputs
    )
    return alone and plain and others and rows and split.task.opcode not in _NEVER


_NEVER = frozenset({"gather"})


def _hands_over(stage: Stage, after: Stage) -> bool:
    """Whether the rows that a stage leaves are those that the next one's first operand consists of."""
    made, source = stage.tile, after.split.inputs[0]
    wanted = source.region
    if not isinstance(source, (Rows, RowWindow)) or (made.offset, made.extent) != (
        wanted.offset,
        wanted.extent,
    ):
        return False
    if made.buffer.name != wanted.buffer.name or any(
        item.region.buffer.name == made.buffer.name for item in after.split.inputs[1:]
    ):
        return False
    if made.type is None or wanted.type is None or not (dense(made.type) and dense(wanted.type)):
        return False
    others = all(isinstance(item, Whole) and item.region.buffer.imported for item in after.split.inputs[1:])
    units, period = _source_rows(after.split)
    # The rows under a tile must be of one image of the stage before, too.
    alike = stage.split.units == units and stage.split.period % period == 0
    return others and alike and made.type.elem == wanted.type.elem


def _source_rows(split: Split) -> tuple[int, int]:
    """Rows of the first operand of a task, and how many of them those of a tile are among."""
    source = split.inputs[0]
    if isinstance(source, RowWindow):
        assert source.region.type is not None
        batch, height = source.region.type.shape[:2]
        return batch * height, height
    return split.units, split.period


def _changes_between(network: Network, stage: Stage, after: Stage) -> bool:
    """Whether something that a stage reads is written before the stage that it would move to."""
    read = {region.buffer.name for region in stage.inputs()}
    between = network.stages[stage.number + 1 : after.number]
    return any(region.buffer.name in read for item in between for region in item.outputs)


def _cheapest(network: Network, chain: list[int], machine: Machine) -> list[tuple[int, int]]:
    """The parts into which a chain falls that cost the least together: first and end of each."""
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, len(chain) + 1):
        options = [
            (best[begin][0] + _price(network, chain[begin:end], machine), begin)
            for begin in range(max(0, end - MOST), end)
        ]
        best.append(min(options, key=lambda item: (item[0], -item[1])))
    parts: list[tuple[int, int]] = []
    end = len(chain)
    while end:
        parts.insert(0, (best[end][1], end))
        end = best[end][1]
    return parts


def _price(network: Network, numbers: Sequence[int], machine: Machine) -> float:
    """Cycles of stages as one, and of the way of what the last leaves to DDR and back where L2 is too small for it."""
    stages = [network.stages[number] for number in numbers]
    stage = _joined(stages) if len(stages) > 1 else stages[0]
    try:
        choice = choose(StageShape(stage, machine), Limits(machine.l1, 1, False))
    except Unsupported:
        return float("inf") if len(stages) > 1 else 0.0
    left = sum(region.extent for region in stage.outputs)
    read = sum(region.extent for region in stage.inputs() if region.buffer.name not in network.weights)
    spilled = left + read if left + read > machine.l2 * 3 // 4 else 0
    return choice.cycles + THRIFT * choice.lines + spilled / (machine.sdma * machine.counts["sDMA"])
