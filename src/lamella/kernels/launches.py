"""Launch lists: kernels in the order in which they run, over buffers that they share.

A tensor is a view of a buffer: its layout is the strides of the memref that a kernel sees. So a transposed, sliced or
padded tensor costs nothing where the kernels around it were written for that layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from types import MappingProxyType

from lamella.base.arrays import numpy_dtype
from lamella.base.dtype import LANGUAGES
from lamella.base.errors import Unsupported
from lamella.base.origin import Origin
from lamella.base.records import dataclass

ELEMENT_TYPES = MappingProxyType({name: numpy_dtype(item) for name, item in LANGUAGES["tensor"].items()})
"""How NumPy holds the elements of a memref, by their name in the tensor language."""
ELEMENT_BYTES = MappingProxyType({name: item.itemsize for name, item in ELEMENT_TYPES.items()})
"""The bytes that each takes."""

FILL = ""
"""The name of the one kernel that every machine has: it makes its one argument, a dense view, all zero bytes."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The memory layout of a tensor: the stride of each dimension, and a halo of zeros round it."""

    strides: tuple[int, ...]
    halo: tuple[tuple[int, int], ...]
    """Before and behind each dimension."""

    def size(self, shape: Sequence[int]) -> int:
        """The elements of memory that a tensor of a shape takes, halo included."""
        around = zip(shape, self.strides, self.halo, strict=True)
        return 1 + sum((low + size + high - 1) * stride for size, stride, (low, high) in around)

    @property
    def start(self) -> int:
        """The offset of the first element of the tensor behind its halo."""
        return sum(low * stride for (low, _), stride in zip(self.halo, self.strides, strict=True))

    @property
    def is_padded(self) -> bool:
        """Whether there is a halo."""
        return any(low or high for low, high in self.halo)


def dense_layout(
    shape: Sequence[int],
    order: Sequence[int] | None = None,
    halo: Sequence[tuple[int, int]] | None = None,
    padding: int = 0,
) -> Layout:
    """The layout without gaps, the dimensions from outside to inside in an order; `padding` widens the inmost one."""
    around = tuple(halo) if halo is not None else ((0, 0),) * len(shape)
    strides, stride = [0] * len(shape), 1
    for place, dimension in enumerate(
        reversed(tuple(order) if order is not None else tuple(range(len(shape))))
    ):
        strides[dimension] = stride
        stride *= shape[dimension] + sum(around[dimension]) + (padding if place == 0 else 0)
    return Layout(tuple(strides), around)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that launches share, in bytes."""

    size: int
    zeroed: int = 0
    """Not 0 where what no launch writes must be zero, from call to call: the halo of a padded tensor.

    Buffers of one number have their halos at the same places.
    """
    outside: bool = False
    """Whether it lies where memory is cheap: in a file, behind a bus."""


@dataclass(frozen=True, slots=True)
class BufferView:
    """An argument of a launch: a memref in a buffer, the fastest mode first, offset and strides in elements."""

    buffer: str
    element: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def reach(self) -> int:
        """The bytes from its first element to the end of its last."""
        return ELEMENT_BYTES[self.element] * reach_of_memref(self.shape, self.strides)

    def is_inside(self, buffer: Buffer) -> bool:
        """Whether all its elements lie in memory of a buffer's size."""
        reach = self.reach
        if not reach:
            return True
        start = ELEMENT_BYTES[self.element] * self.offset
        return min(self.offset, *self.strides, 0) == 0 and start + reach <= buffer.size


@lru_cache(4096)
def reach_of_memref(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The elements from the first of a memref to its last, both included."""
    return 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))


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
    overwritten: frozenset[str] = frozenset()
    """Inputs that launches write for good: all that can find something wrong runs before the first of these."""
    undo: frozenset[str] = frozenset()
    """Outputs that are read where a run found something wrong, and nowhere else."""
    bound: frozenset[str] = frozenset()
    """Inputs that are the same in every run: weights, constants, and what became of them."""


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


def verify_views(whole: LaunchList) -> None:
    """Refuse a list with a view that leaves its buffer: launches are proved to stay in their views, no further."""
    for launch in whole.launches:
        for view in launch.arguments:
            if not view.is_inside(whole.buffers[view.buffer]):
                raise Unsupported(f"'{launch.kernel or 'fill'}' would leave its memory")
