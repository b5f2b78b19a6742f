"""How a caller looks at the steps of a run: a wrapper around what is iterated, such as a progress bar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar, runtime_checkable

from lamella.kernels.launches import LaunchTime

T = TypeVar("T")


class Progress(Protocol):
    """Passes the items on, and sees them pass."""

    def __call__(self, items: Iterable[T], total: int, /) -> Iterable[T]:
        """The items as they come, of which there are `total`."""


def no_progress(items: Iterable[T], total: int, /) -> Iterable[T]:
    """The items, and nobody looks."""
    return items


@runtime_checkable
class StepClock(Protocol):
    """Progress that is told what a step was made of: launches that nobody could see pass."""

    def record(self, launch: LaunchTime, /) -> None:
        """A launch of the step that runs now took its time."""


def clock_of(progress: Progress) -> StepClock | None:
    """The clock that a run tells its launches to; asking a protocol costs as much as a small launch."""
    return progress if progress is not no_progress and isinstance(progress, StepClock) else None
