"""Kernels as the source of launch lists: every launch is proved, or tested, before it may be part of one."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from lamella.backend.cpu.run.lists import reach_of
from lamella.backend.cpu.run.memory import HUGE
from lamella.backend.cpu.run.pool import ListWalker
from lamella.backend.cpu.run.prepared import PreparedLaunch, address_of
from lamella.base.arena import aligned
from lamella.base.arrays import Array
from lamella.kernels.launches import ELEMENT_BYTES, ELEMENT_TYPES, FILL, Launch


class _StandIns:
    """Memory that nobody touches, on which launches are proved before the arrays of a call are known."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        # Each argument has pages of its own: one that is written overlaps no other, and any alignment is kept.
        needs = (sum(reach_of(item) + HUGE for item in launch.arguments) for launch in launches)
        self._room = mmap.mmap(-1, max(needs, default=0) + 2 * HUGE)

    def arrays(self, launch: Launch) -> list[Array]:
        """An array for each argument."""
        found: list[Array] = []
        place = -address_of(np.frombuffer(self._room, np.uint8)) % HUGE
        for view in launch.arguments:
            width = ELEMENT_BYTES[view.element]
            strides = [step * width for step in view.strides]
            found.append(np.ndarray(view.shape, ELEMENT_TYPES[view.element], self._room, place, strides))
            place += aligned(reach_of(view), HUGE)
        return found


class ProvingKernels(Protocol):
    """Kernels that prove launches."""

    @property
    def walker(self) -> ListWalker:
        """What runs launch lists on their threads."""

    def prepare(self, name: str, arguments: Sequence[object], groups: int) -> PreparedLaunch:
        """A launch for arrays of these layouts."""


class ProvingSource:
    """Kernels whose launches are proved as lists are made of them."""

    def __init__(self, kernels: ProvingKernels) -> None:
        self._kernels = kernels
        self._made: dict[object, PreparedLaunch] = {}

    @property
    def walker(self) -> ListWalker:
        """What runs launch lists on the threads of the kernels."""
        return self._kernels.walker

    def prepare_all(
        self, launches: Sequence[Launch], faults: Array
    ) -> Iterator[tuple[Launch, PreparedLaunch | None]]:
        """Each launch with its code and slots, proved for arrays of its layouts; equal ones are proved once."""
        stand_ins = _StandIns(launches)
        for number, launch in enumerate(launches):
            if launch.kernel == FILL:
                yield launch, None
                continue
            layouts = tuple((item.element, item.shape, item.strides) for item in launch.arguments)
            key = launch.kernel, launch.groups, layouts
            made = self._made.get(key)
            if made is None:
                arguments: list[Array] = stand_ins.arrays(launch)
                if launch.has_fault:
                    arguments.append(faults[number : number + 1])
                made = self._kernels.prepare(launch.kernel, arguments, launch.groups)
                if (
                    made.tests is None and not launch.has_fault
                ):  # what points at nothing of its own serves again
                    self._made[key] = made
            yield launch, made
