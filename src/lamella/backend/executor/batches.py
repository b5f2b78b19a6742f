"""Runs of a graph on one batch after the other, ahead of who looks at their outputs where a device does the work.

While a batch runs, the next one is asked for and copied to the device; while that one runs, the outputs of the first
come home. What goes wrong is raised in the turn of its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from types import TracebackType
from typing import Protocol, TypeAlias

import numpy.typing as npt

from lamella.backend.drawing import Drawn
from lamella.backend.executor.results import DEVICE, PASSING, DeviceSide, Download, Out, Upload
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.records import dataclass

Batch: TypeAlias = Mapping[str, npt.ArrayLike]
"""The inputs of a run by name."""
EndRun: TypeAlias = Callable[[], dict[str, Array]]
"""Waits for what has begun, and gives the outputs."""


_Coming: TypeAlias = tuple[Batch, Upload | None]
"""A batch, and its inputs on their way to the device."""
PLACES = f"'{DEVICE}', or nothing"


class Later:
    """Keeps what goes wrong inside a block, for its turn to be raised."""

    def __init__(self) -> None:
        self.problem: BaseException | None = None

    def __enter__(self) -> Later:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.problem = problem
        return isinstance(problem, Exception)

    def raise_problem(self) -> None:
        """Raise what went wrong."""
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem


@dataclass(slots=True)
class Flight:
    """A run that has begun: what ends it, or what it gave; what it has to say."""

    upload: Upload | None
    """The inputs that were copied to the device before."""
    end: EndRun | None = None
    outputs: dict[str, Array] = field(default_factory=dict)
    later: Later = field(default_factory=Later)
    findings: list[Diagnostic] = field(default_factory=list)
    drawn: Drawn = field(default_factory=Drawn)


class AheadExecutable(Protocol):
    """What runs can be begun of before somebody wants their outputs."""

    findings: list[Diagnostic]
    drawn: Drawn

    def upload(self, batch: Batch) -> Upload | None:
        """Begin to copy all inputs to the device; None where some of them cannot be."""

    def begin_run(self, batch: Batch, upload: Upload | None, out: Out) -> Flight:
        """Begin a run, behind the one that began before."""

    def end_run(self, flight: Flight) -> None:
        """Wait for a run that has begun, where nobody has waited for it yet."""


@dataclass(frozen=True, slots=True)
class BatchRuns:
    """Runs of one executable on batches."""

    executable: AheadExecutable
    source: Iterator[Batch]
    device: DeviceSide | None
    stays: bool
    """Whether outputs stay on the device."""
    is_early: bool
    """Whether a run may begin before the outputs of the last one are handed out: it changes nothing but its outputs."""

    def __iter__(self) -> Iterator[dict[str, Array]]:
        flight, later = self._begin(self._take()), Later()
        try:
            while flight is not None:
                coming, is_asked = None, flight.upload is not None
                if is_asked:
                    with later:
                        coming = self._take()
                download = self._end(flight)
                told = flight.findings, flight.drawn
                flight = self._begin(coming) if is_asked and self.is_early else None
                outputs = download.outputs() if isinstance(download, Download) else download
                self.executable.findings, self.executable.drawn = told
                yield outputs
                if not (is_asked and self.is_early):
                    flight = self._begin(coming if is_asked else self._take())
            later.raise_problem()
        finally:
            if flight is not None:
                self.executable.end_run(flight)
            if self.device is not None:
                self.device.release_spare()

    def _take(self) -> _Coming | None:
        """The next batch, on its way to the device where that is possible; None behind the last."""
        for batch in self.source:
            return batch, self.executable.upload(batch)
        return None

    def _begin(self, coming: _Coming | None) -> Flight | None:
        if coming is None:
            return None
        batch, upload = coming
        place = DEVICE if self.stays else PASSING
        return self.executable.begin_run(batch, upload, {} if self.device is None else place)

    def _end(self, flight: Flight) -> Download | dict[str, Array]:
        """Wait for a run; its outputs, or what brings them home meanwhile."""
        self.executable.end_run(flight)
        flight.later.raise_problem()
        if flight.upload is not None:
            flight.upload.close()
        outputs, flight.outputs = flight.outputs, {}
        return outputs if self.stays or self.device is None else self.device.download(outputs)


def map_batches(
    executable: AheadExecutable,
    batches: Iterable[Batch],
    out: str | None,
    device: DeviceSide | None,
    is_early: bool,
) -> Iterator[dict[str, Array]]:
    """The outputs for batches in their order."""
    try:
        source = None if isinstance(batches, Mapping) else iter(batches)
    except TypeError:
        source = None
    if source is None:
        found = type(batches).__name__[:80]
        raise InputError(
            f"batches are one mapping of inputs after the other, and this is a single '{found}'",
            hint="run takes one mapping",
        )
    if out is not None and not isinstance(out, str):
        raise InputError(
            f"outputs of batches cannot go to what is of type '{type(out).__name__[:80]}'", hint=PLACES
        )
    if out not in (None, DEVICE):
        raise InputError(f"outputs of batches cannot go to '{out[:80]}'", hint=PLACES)
    if out is not None and device is None:
        raise InputError("outputs cannot stay on a device: this backend has none", hint="--backend cuda")
    return iter(BatchRuns(executable, source, device, out is not None, is_early))
