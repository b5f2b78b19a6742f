"""Memory in files around a launch list: what is read from there comes in ahead of its use, and goes behind it.

The pages of a file are the memory of a tensor. Between two uses that lie far apart they are given back to the system,
which reads them again, or is asked to beforehand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lamella.backend.cpu.run.memory import allocate_bytes
from lamella.base.arrays import Array
from lamella.base.mapping import enter_pages, fetch_pages, map_of, release_pages, write_through
from lamella.graph.model import Streaming
from lamella.kernels.launches import LaunchList

Bind = Callable[[str, Array], None]
"""Lets launches find a buffer in an array."""
SPARE = 4
"""Copies of one size that stay for the next of that size."""
AHEAD = 4
"""Launches between the request for a tensor and its use; over gaps no longer than that it stays."""


GO, ASK, ENTER = 0, 1, 2
"""What happens to a tensor: its memory is given back, asked for, had all at once."""


class Move(NamedTuple):
    """A tensor that comes into memory, or goes."""

    kind: int
    name: str
    policy: Streaming
    is_written: bool = False
    """Whether it is written before it goes again."""

    def order(self) -> tuple[int, int]:
        """What goes makes room for what comes; of what goes, lower priorities first, and last of what comes."""
        return self.kind, self.policy.priority if self.kind == GO else -self.policy.priority


class FileMoves:
    """When the tensors of a launch list that lie in files come and go."""

    def __init__(self, whole: LaunchList, outside: Mapping[str, Array], bind: Bind) -> None:
        self._whole, self._bind = whole, bind
        self._arrays: dict[str, Array] = dict(outside)
        """What lies in files, by buffer."""
        self._outside = tuple(outside)
        self._moves: dict[int, list[Move]] = {}
        """By the launch before which they happen."""
        self._stops: list[int] = []
        self._staged: dict[str, Array] = {}
        """Copies in memory of what launches change: page by page a file is slow to write."""
        self._spare: dict[int, list[Array]] = {}

    def plan(self, policies: Mapping[str, Streaming]) -> None:
        """Settle when each tensor with a policy comes and goes, as do those that launches put into files."""
        wanted = {
            view.buffer: policies[name] for name, view in self._whole.inputs.items() if name in policies
        }
        wanted |= {name: policies.get(name, Streaming()) for name in self._outside}
        uses: dict[str, list[tuple[int, bool]]] = {name: [] for name in wanted}
        for number, launch in enumerate(self._whole.launches):
            written = {launch.arguments[place].buffer for place in launch.writes}
            for name in {view.buffer for view in launch.arguments} & wanted.keys():
                uses[name].append((number, name in written))
        self._moves = {}
        for name, policy in wanted.items():
            for stay in _stays(uses[name], policy):
                self._settle(name, policy, stay)
        for moves in self._moves.values():
            moves.sort(key=Move.order)
        self._stops = sorted(self._moves)

    def _settle(self, name: str, policy: Streaming, stay: Sequence[tuple[int, bool]]) -> None:
        """A tensor comes for some uses in a row, and goes."""
        first, is_filled = stay[0]
        is_written = any(item for _, item in stay)
        # What launches put into a file and write first is not there to be read.
        if policy.is_fetched and not policy.is_waited_for and not (is_filled and name in self._outside):
            self._add(max(0, first - AHEAD), Move(ASK, name, policy))
        if policy.is_fetched or is_written:
            self._add(first, Move(ENTER, name, policy, is_written))
        self._add(stay[-1][0] + 1, Move(GO, name, policy))

    def _add(self, number: int, move: Move) -> None:
        self._moves.setdefault(number, []).append(move)

    @property
    def are_planned(self) -> bool:
        """Whether anything comes or goes."""
        return bool(self._moves)

    def enter(self, inputs: Mapping[str, Array]) -> None:
        """Note where the inputs of a run lie."""
        views = self._whole.inputs
        self._arrays |= {
            views[name].buffer: item for name, item in inputs.items() if map_of(item) is not None
        }

    def leave(self, end: int | None) -> None:
        """Let go what does behind the last launch, and forget the inputs of a run, which others may change."""
        if end is not None:
            self.move(end)
        self._arrays = {name: self._arrays[name] for name in self._outside}

    def pauses(self, first: int, end: int) -> Iterator[int]:
        """The launches between two before which something moves."""
        for place in range(bisect_left(self._stops, first + 1), bisect_left(self._stops, end)):
            yield self._stops[place]

    def move(self, number: int) -> None:
        """Let come and go what does before a launch."""
        for item in self._moves.get(number, ()):
            array = self._arrays.get(item.name)
            if array is None:
                continue
            if item.kind == ASK:
                fetch_pages(array)
            elif item.kind == ENTER:
                self._enter(item, array)
            else:
                self._leave(item.name, array)

    def _enter(self, item: Move, array: Array) -> None:
        enter_pages(array)
        if item.is_written and item.name not in self._outside:
            free = self._spare.setdefault(array.nbytes, [])
            room = (free.pop() if free else allocate_bytes(array.nbytes)).view(array.dtype)
            staged = room.reshape(array.shape)
            np.copyto(staged, array)
            release_pages(array)
            self._staged[item.name] = staged
            self._bind(item.name, staged)

    def _leave(self, name: str, array: Array) -> None:
        staged = self._staged.pop(name, None)
        if staged is not None:
            write_through(array, staged)
            self._bind(name, array)
            free = self._spare[array.nbytes]
            if len(free) < SPARE:
                free.append(staged.reshape(-1).view(np.uint8))
        release_pages(array)


def _stays(uses: Sequence[tuple[int, bool]], policy: Streaming) -> Iterator[Sequence[tuple[int, bool]]]:
    """The uses of a tensor in groups, between which it goes."""
    start = 0
    for place in range(1, len(uses) + 1):
        if place == len(uses) or (not policy.is_kept and uses[place][0] - uses[place - 1][0] > AHEAD):
            yield uses[start:place]
            start = place


__all__ = ["AHEAD", "FileMoves", "Move"]
