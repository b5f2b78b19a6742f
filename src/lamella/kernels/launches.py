"""Launch lists: kernels in the order in which they run, over buffers that they share.

A tensor is a view of a buffer: its layout is the strides of the memref that a kernel sees. So a transposed, sliced or
padded tensor costs nothing where the kernels around it were written for that layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamella.base.origin import Origin

FILL = ""
"""The name of the one kernel that every machine has: it makes its one argument, a dense view, all zero bytes."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that launches share, in bytes."""

    size: int
    zeroed: bool = False
    """Whether what no launch writes must be zero, from call to call: the halo of a padded tensor."""


@dataclass(frozen=True, slots=True)
class BufferView:
    """An argument of a launch: a memref in a buffer, the fastest mode first, offset and strides in elements."""

    buffer: str
    element: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel on views of buffers, for a number of work-groups."""

    kernel: str
    arguments: tuple[BufferView, ...]
    writes: tuple[int, ...]
    """The places of the arguments that it writes; it may read any of them."""
    groups: int = 1
    has_fault: bool = False
    """Whether the kernel has one more parameter, a place where it says that a step has no value."""
    operator: str = ""
    """The operator that it computes, for profiles."""
    origin: Origin | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LaunchList:
    """Straight-line code: buffers, launches in order, and where the tensors of the outside lie."""

    buffers: Mapping[str, Buffer]
    launches: tuple[Launch, ...]
    inputs: Mapping[str, BufferView]
    """What a call hands over, weights and states included."""
    outputs: Mapping[str, BufferView]
    """What a call takes out, new values of states included."""


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """The seconds of one launch in one run: its operator and kernel, its origin, the bytes of its arguments."""

    operator: str
    kernel: str
    seconds: float
    start: float = 0.0
    """When it began, on the clock of `time.monotonic`."""
    groups: int = 1
    size: int = 0
    origin: Origin | None = field(default=None, compare=False)
