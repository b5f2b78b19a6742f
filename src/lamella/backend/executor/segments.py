"""Segments: straight-line code of kernels that runs as one launch list, in one call.

What has no kernel, what data decide, and control flow stand between segments and run as they always did. So does a
segment in which a kernel finds a step without value, or a test that fails: the old way says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from math import prod
from operator import is_
from typing import Protocol, TypeAlias, runtime_checkable
from weakref import WeakValueDictionary

import numpy as np

from lamella.base.arena import LiveBlock
from lamella.base.arrays import Array, DType
from lamella.base.dtype import I64
from lamella.base.mapping import release_pages
from lamella.base.records import dataclass
from lamella.graph.model import Streaming
from lamella.graph.nodes import Operation, Tensor
from lamella.kernels.launches import LaunchList, LaunchTime


class RunnableList(Protocol):
    """A launch list that a machine runs."""

    @property
    def arena_bytes(self) -> int:
        """The memory that it uses while it runs, beside what comes in and goes out."""

    @property
    def outside_bytes(self) -> int:
        """What it keeps where memory is cheap."""

    @property
    def blocks(self) -> Sequence[LiveBlock]:
        """What shares the memory that it uses, and between which launches it is alive."""

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Let all later runs read arrays that they are not given: these live as long as no others are bound."""

    def stream(self, policies: Mapping[str, Streaming]) -> None:
        """Let inputs that lie in files, and what launches put there, be in memory only around their uses."""

    def run(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], times: list[LaunchTime] | None = None
    ) -> bool:
        """Run all launches; False where one found something wrong, and the outputs mean nothing."""


@runtime_checkable
class AheadList(Protocol):
    """A launch list whose launches run while the host does something else."""

    def begin(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Callable[[], bool]:
        """Launch what needs nobody to look at it; what waits for all launches and says whether they were sound."""


@runtime_checkable
class FeedingList(Protocol):
    """A launch list that can be run on what it gave itself."""

    def feed_back(
        self, output: str, following: str, count: int, carried: Mapping[str, tuple[str, Array]]
    ) -> Array | None:
        """The likeliest number of an output so often, each given to the run that tells the next; None where not.

        Outputs that are carried to inputs of a name are at last in arrays.
        """


class ListMachine(Protocol):
    """What runs launch lists."""

    def compile(self, whole: LaunchList, once: bool = False) -> RunnableList:
        """Make a list runnable. Unsupported: a launch is neither proved to stay in its memory nor can be tested."""

    def release(self) -> None:
        """Give back the memory in which lists worked that run once."""

    def settle(self) -> None:
        """Bring states home that launches updated elsewhere."""

    def empty(self, shape: Sequence[int], dtype: DType) -> Array:
        """An array for what comes out of a list."""

    def copy(self, array: Array, room: Array | None = None) -> Array:
        """The numbers of an array where launches can write them: in the room that they had, where it is given."""

    def keep(self, size: int) -> Array:
        """Bytes for what a list leaves that runs once."""


TensorShape: TypeAlias = tuple[tuple[int, ...], DType]
EndSegment: TypeAlias = Callable[[], dict[str, Array] | None]
"""Waits for a segment that has begun, and gives its outputs; None where a step had no value."""
BYTE = np.dtype(np.uint8)


class _NoLaunches:
    """The list of nothing."""

    arena_bytes = outside_bytes = 0
    blocks: tuple[LiveBlock, ...] = ()

    def bind(self, inputs: Mapping[str, Array]) -> None:
        """Nothing reads them."""

    def stream(self, policies: Mapping[str, Streaming]) -> None:
        """Nothing moves."""

    def run(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], times: list[LaunchTime] | None = None
    ) -> bool:
        return True


@dataclass(slots=True, weakref_slot=True)
class OnceResult:
    """What launches leave that run once: again only where they are given other arrays."""

    launches: RunnableList
    inputs: tuple[str, ...]
    kept: Mapping[str, Array]
    constants: Mapping[str, Array]
    key: str = ""
    """What tells equal launches on equal inputs from others."""
    seen: list[Array] | None = None
    """The arrays that they ran with."""

    def is_ready(self, given: Mapping[str, Array]) -> bool:
        """Whether the launches have run with these arrays."""
        return self.seen is not None and all(
            given[name] is seen for name, seen in zip(self.inputs, self.seen, strict=True)
        )

    def prepare(self, given: Mapping[str, Array]) -> bool:
        """Run the launches; False where one found something wrong."""
        now = [given[name] for name in self.inputs]
        self.seen = None
        if not self.launches.run({**given, **self.constants}, self.kept):
            return False
        for array in now:
            # Nobody tells when somebody writes into an array that was read once: so nobody can.
            array.flags.writeable = False
        self.seen = now
        self.release()
        return True

    def release(self) -> None:
        """Give back the memory of weights that lie in files: what was made of them is what is read from now on."""
        for array in self.seen or ():
            release_pages(array)


OnceResults: TypeAlias = WeakValueDictionary[str, OnceResult]
"""What all sets of extents share: results of equal launches on equal inputs, by a text that tells both."""


@dataclass(slots=True)
class Segment:
    """Some operations in a row as launches: those that run once, and those of each run."""

    operations: tuple[Operation, ...]
    inputs: Mapping[str, Tensor]
    """What it reads from outside, but for constants."""
    outputs: Mapping[str, TensorShape]
    machine: ListMachine
    constants: Mapping[str, Array]
    each: RunnableList = field(default_factory=_NoLaunches)
    once: Sequence[OnceResult] = ()
    fixed: tuple[str, ...] = ()
    """The inputs that are weights: as long as their arrays are the same, a run binds the others alone."""
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The states that are updated in place: for each the name of its next value, and that of what is overwritten."""
    updated: dict[str, str] = field(default_factory=dict)
    """The states that launches overwrite for good, once nothing can fail any more: for each its next value."""
    restore: RunnableList | None = None
    """What gives states back what was overwritten, where a run fails."""
    parts: int = 1
    """How often the launches of each run are run for one call: every time on that part of the batch."""
    batched: frozenset[str] = frozenset()
    """The inputs that have the batch, where there are several parts; all outputs have it."""
    _in_place: dict[str, str] | None = None
    _saved: dict[str, Array] = field(default_factory=dict)
    _bound: list[object] | None = None
    """The arrays of the weights that are bound, and those with which each of `once` ran."""

    @property
    def in_place(self) -> Mapping[str, str]:
        """The states whose next value is where the last one was, each with the name of that value."""
        if self._in_place is None:
            self._in_place = {**self.updated, **{name: value for name, (value, _) in self.states.items()}}
        return self._in_place

    @property
    def bytes(self) -> int:
        """The memory that a run takes beside what it reads."""
        return self.each.arena_bytes + sum(
            prod(shape) * dtype.itemsize for shape, dtype in self.outputs.values()
        )

    def run(
        self,
        given: Mapping[str, Array],
        wanted: Mapping[str, Array] | None = None,
        times: list[LaunchTime] | None = None,
    ) -> dict[str, Array] | None:
        """The outputs for some inputs, in the arrays that are wanted or in new ones; None where a step had no value."""
        if not self._bind_weights(given):
            return None
        found = self._results(wanted)
        return self._settled(self._run_parts(given, found, times), given, found)

    def begin(self, given: Mapping[str, Array], wanted: Mapping[str, Array] | None = None) -> EndSegment:
        """Begin what `run` does, as far as nobody has to wait: what ends it."""
        if self.parts > 1 or not isinstance(self.each, AheadList):
            return partial(self.run, given, wanted)
        if not self._bind_weights(given):
            return lambda: None
        found = self._results(wanted)
        end = self.each.begin(given, found)
        return lambda: self._settled(end(), given, found)

    def _results(self, wanted: Mapping[str, Array] | None) -> dict[str, Array]:
        """The arrays that launches write."""
        if self.states and not self._saved:
            self._saved = {name: self.machine.empty(*self.outputs[name]) for _, name in self.states.values()}
        found = {**self._saved, **(wanted or {})}
        for name, (shape, dtype) in self.outputs.items():
            if name not in found:
                found[name] = self.machine.empty(shape, dtype)
        return found

    def _settled(
        self, is_sound: bool, given: Mapping[str, Array], found: dict[str, Array]
    ) -> dict[str, Array] | None:
        """What launches wrote; None where one found something wrong, and states are what they were."""
        if is_sound:
            return found
        if self.restore is not None:
            self.restore.run({**given, **self._saved}, {})
        return None

    def _run_parts(
        self, given: Mapping[str, Array], found: Mapping[str, Array], times: list[LaunchTime] | None
    ) -> bool:
        if self.parts == 1:
            return self.each.run(given, found, times)
        for part in range(self.parts):
            inputs = {
                name: _part_of(array, part, self.parts) if name in self.batched else array
                for name, array in given.items()
            }
            outputs = {name: _part_of(array, part, self.parts) for name, array in found.items()}
            if not self.each.run(inputs, outputs, times):
                return False
        return True

    def can_choose(self, output: str, following: str) -> bool:
        """Whether an output is one row of scores, and an input numbers that may say which of them is the best."""
        scores, entered = self.outputs.get(output), self.inputs.get(following)
        if scores is None or entered is None or self.parts > 1:
            return False
        real = scores[1] == np.float32 and max(scores[0], default=0) == prod(scores[0])
        return real and entered.element == I64

    def _bind_weights(self, given: Mapping[str, Array]) -> bool:
        """Bind weights, constants and what became of them; False where a step that runs once had no value."""
        # Segments for other extents share what ran once, and may have run it with other arrays since.
        now = [*map(given.__getitem__, self.fixed), *[item.seen for item in self.once]]
        if self._bound is not None and all(map(is_, now, self._bound)):
            return True
        self._bound = None
        weights = {name: given[name] for name in self.fixed}
        if not self._prepare(given):
            return False
        kept = {name: array for item in self.once for name, array in item.kept.items()}
        self.each.bind({**weights, **self.constants, **kept})
        self._bound = [*weights.values(), *(item.seen for item in self.once)]
        return True

    def _prepare(self, given: Mapping[str, Array]) -> bool:
        """Run what runs once, as far as it has not run with these arrays; False where a step had no value."""
        waiting = [item for item in self.once if not item.is_ready(given)]
        if not waiting:
            return True
        # The largest first: while it is made, its weights and what they become are both in memory, and little else.
        waiting.sort(key=lambda item: -sum(array.nbytes for array in item.kept.values()))
        try:
            return all(item.prepare(given) for item in waiting)
        finally:
            # Touching a page of a file brings its neighbours back, so those of all are given back at the end again.
            for item in waiting:
                item.release()
            self.machine.release()

    def can_write(self, name: str, array: Array, given: Iterable[Array]) -> bool:
        """Whether an array of the caller can be an output: launches write before they have read all inputs."""
        shape, dtype = self.outputs[name]
        fits = array.shape == shape and array.dtype == dtype and array.flags.c_contiguous
        return fits and not any(np.may_share_memory(array, item) for item in given)


def _part_of(array: Array, part: int, parts: int) -> Array:
    """The items of one of so many parts of a batch."""
    size = len(array) // parts
    return array[part * size : (part + 1) * size]
