"""`do`: runs the body of a loop until the count, the end of the scans or the condition ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count as count_up
from typing import Protocol

import numpy as np

from lamella.backend.reference.nodes.operators import Held
from lamella.backend.reference.storage import known_extent
from lamella.backend.reference.symbols import Extents
from lamella.base.arrays import Array
from lamella.graph.nodes import Argument, Loop, Region, Tensor
from lamella.lang.skriptnd.rules.graphs import LOOP_TOO_LONG
from lamella.ops.fault import Fault


class Frame(Protocol):
    """What a loop needs of the frame it runs in."""

    extents: Extents
    steps: Iterator[int]
    """Counts the steps of all loops of the run: those of nested loops multiply."""

    def reserve(self, size: int) -> None:
        """Count bytes that are held outside the frame's tensors, or no longer where they are negative."""

    def get(self, argument: Argument) -> Held:
        """The array of a tensor, or those of a pack."""

    def array(self, tensor: Tensor) -> Array:
        """The array of a tensor."""

    def region(self, region: Region, values: Sequence[Array] = ()) -> list[Array]:
        """The outputs of a region for some inputs."""


def run_loop(frame: Frame, loop: Loop, most_steps: int) -> list[Held]:
    """The outputs of a loop: the carried tensors, then the rows of the scan outputs."""
    state = [frame.array(tensor) for tensor in loop.carried]
    rows: list[list[Array]] = [[] for _ in range(len(loop.body.outputs) - len(loop.carried))]
    scans = [item for item in map(frame.get, loop.scans) if isinstance(item, tuple)]
    collected = 0
    for step in _steps(frame, loop, scans, most_steps):
        local = [scan[step] for scan in scans]
        local += [np.asarray(step, np.int64)] if loop.index else []
        if loop.pretest and not _goes_on(frame, loop, [*state, *local]):
            break
        results = frame.region(loop.body, [*state, *local])
        state = results[: len(state)]
        for row, value in zip(rows, results[len(state) :], strict=True):
            row.append(value)
            frame.reserve(value.nbytes)
            collected += value.nbytes
        if not loop.pretest and not _goes_on(frame, loop, [*state, *local]):
            break
    frame.reserve(-collected)
    return [*state, *(tuple(row) for row in rows)]


def _goes_on(frame: Frame, loop: Loop, values: Sequence[Array]) -> bool:
    return loop.condition is None or is_true(frame.region(loop.condition, values))


def is_true(results: Sequence[Array]) -> bool:
    """Whether the one result of a condition is true."""
    return bool(results[0].reshape(-1)[0])


def _steps(frame: Frame, loop: Loop, scans: Sequence[tuple[Array, ...]], most_steps: int) -> Iterator[int]:
    """The indices of the steps that count and scans allow."""
    ends = [len(scan) for scan in scans]
    if isinstance(loop.count, Tensor):
        ends.append(int(frame.array(loop.count).reshape(-1)[0]))
    elif loop.count is not None:
        ends.append(known_extent(loop.count, frame.extents))
    end = min(ends) if ends else None
    for step in count_up():
        if end is not None and step >= end:
            return
        if next(frame.steps) >= most_steps:
            raise Fault(LOOP_TOO_LONG, limit=most_steps)
        yield step
