"""Blocks as jumps: only the chosen block of a branch runs; the memory commands of the other are obeyed all the same.

So the schedule does the same to memory on both ways, in the order of its ticks, as its check assumes. Commands about
results of the block that is skipped have nothing to do; weights of it that were preloaded are let go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lamella.backend.nacvm.link import Linker
from lamella.backend.nacvm.schedule import DROP, PRELOAD, Move
from lamella.backend.nacvm.tape import Slots, Step, clear
from lamella.backend.nacvm.ticks import Ticks, held_bytes
from lamella.lang.nac.nodes import CONTROL_FLOW
from lamella.lang.nac.regions import Block, Blocks


@dataclass(slots=True)
class Cursor:
    """Goes through steps, some of which set where it goes on."""

    steps: Sequence[Step]
    place: int = 0

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        if self.place >= len(self.steps):
            raise StopIteration
        self.place += 1
        return self.steps[self.place - 1]

    def __length_hint__(self) -> int:
        return len(self.steps) - self.place


@dataclass(slots=True)
class Jumps:
    """Puts the steps round blocks between those of instructions."""

    blocks: Blocks
    linker: Linker
    ticks: Ticks
    cursor: Cursor
    starts: dict[int, int] = field(default_factory=dict)
    """By instructions the places of their first steps."""
    joins: dict[int, int] = field(default_factory=dict)
    """By the owners of blocks the places behind the last of them."""
    _preloads: Mapping[int, int] | None = None
    _choices: dict[int, bool] = field(default_factory=dict)

    def begin(self, index: int, place: int) -> None:
        """Come to an instruction whose steps start at a place."""
        self.starts[index] = place

    def test(self, index: int) -> list[Step]:
        """Read the condition of a branch, before the commands of its tick drop it."""
        if index not in self.blocks.owned or not self._is_branch(index):
            return []
        source = index + self.linker.program.file.instructions[index].offsets[0]
        choices = self._choices

        def step(slots: Slots) -> None:
            choices[index] = bool(np.all(slots[source]))

        return [step]

    def behind(self, index: int, place: int) -> list[Step]:
        """What comes behind the steps of an instruction, the next of which stands at a place."""
        found: list[Step] = []
        if index in self.blocks.owned:
            found += self.ticks.flush()
            if self._is_branch(index):
                found.append(self._choose(index))
        block = self.blocks.at(index)
        if block is not None and block.stop == index + 1:
            found += self._end(block, place)
        return found

    def _is_branch(self, owner: int) -> bool:
        return self.linker.program.file.instructions[owner].operation == CONTROL_FLOW

    def _end(self, block: Block, place: int) -> list[Step]:
        """The end of a block: on to the next one, or over it, or the join."""
        found, owned = self.ticks.flush(), self.blocks.owned[block.owner]
        if block.number + 1 < len(owned):
            return [*found, self._leave(owned[-1])] if self._is_branch(block.owner) else found
        self.joins[block.owner] = place + len(found)
        if not self._is_branch(block.owner):
            found += self.linker.link_join(block.owner, block.stop - 1)
        if Move(DROP, block.owner) in self.ticks.plan.moves[block.owner]:
            return [*found, clear((block.owner,))]
        self.ticks.join(block.owner)
        return found

    # --- jumps ----------------------------------------------------------------------------------------------

    def _choose(self, index: int) -> Step:
        """Go on with the first block, or skip it."""
        first, second = self.blocks.owned[index]
        choices, skip, cursor, starts = self._choices, self._skip(first), self.cursor, self.starts

        def step(slots: Slots) -> None:
            if not choices[index]:
                skip(slots)
                cursor.place = starts[second.start]

        return step

    def _leave(self, block: Block) -> Step:
        """Skip the last block."""
        skip, cursor, joins, owner = self._skip(block), self.cursor, self.joins, block.owner

        def step(slots: Slots) -> None:
            skip(slots)
            cursor.place = joins[owner]

        return step

    def _skip(self, block: Block) -> Step:
        """What is done to memory where a block does not run."""
        moves = tuple(self._moves(block))
        waiting = tuple(self._waiting(block))
        account, reader = self.ticks.account, self.ticks.reader
        loads, sizes = self.ticks.loads, self.ticks.sizes

        def step(slots: Slots) -> None:
            for load in waiting:
                reader.forget(loads[load])
                account.now -= sizes.get(load, 0)
            for tick, (kind, target) in moves:
                if kind == DROP:
                    account.now -= held_bytes(slots[target]) if target in sizes else 0
                    slots[target] = None
                else:
                    account.add(sizes.get(target, 0))
                    reader.start(loads[target], tick)

        return step

    def _moves(self, block: Block) -> Iterator[tuple[int, Move]]:
        """What ticks of a block do to results outside it."""
        for tick in range(block.start, block.stop):
            yield from ((tick, move) for move in self.ticks.plan.moves[tick] if not block.holds(move.target))

    def _waiting(self, block: Block) -> Iterator[int]:
        """Loads of a block that are preloaded before it."""
        if self._preloads is None:
            moves = enumerate(self.ticks.plan.moves)
            self._preloads = {
                move.target: tick for tick, row in moves for move in row if move.kind == PRELOAD
            }
        for load in range(block.start, block.stop):
            if self._preloads.get(load, block.start) < block.start:
                yield load
