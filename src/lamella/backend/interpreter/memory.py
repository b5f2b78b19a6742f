"""Memory: what a memref refers to, element access, views, groups of memrefs.

All memory is flat; a reference lays a shape and strides over it. Every access is tested, so a wrong program ends
with a finding and never touches what is not its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lamella.backend.interpreter.arithmetic import Number
from lamella.base.arrays import Array, strided
from lamella.base.records import dataclass, replace
from lamella.lang.tensor.rules import running as rules
from lamella.ops.fault import Fault


@dataclass(frozen=True, slots=True)
class MemrefReference:
    """A memref at run time: an offset into flat memory, a size and a stride in elements for each mode."""

    name: str
    memory: Array
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def load(self, indices: Sequence[int]) -> Number:
        """The element at a position."""
        found: Number = self.memory[self._address(indices)]
        return found

    def store(self, value: Number, indices: Sequence[int]) -> None:
        """Write an element."""
        self._allow_writing()
        self.memory[self._address(indices)] = value

    def read(self) -> Array:
        """All elements, as an array of the memref's shape that shares its memory."""
        self._refuse_outside(*self._extent())
        width = self.memory.itemsize
        first = self.offset if math.prod(self.shape) else 0
        return strided(
            self.memory[first:],
            self.shape,
            [width * step for step in self.stride],
            self.memory.flags.writeable,
        )

    def write(self, values: Array) -> None:
        """Replace all elements."""
        self.write_all()[...] = values

    def write_all(self) -> Array:
        """All elements, to be written to."""
        self._allow_writing()
        return self.read()

    def _address(self, indices: Sequence[int]) -> int:
        address = self.offset
        for index, size, step in zip(indices, self.shape, self.stride, strict=True):
            if not 0 <= index < size:
                raise self._outside(indices)
            address += index * step
        if not 0 <= address < len(self.memory):
            self._refuse_outside(address, address)
        return address

    def _outside(self, indices: Sequence[int]) -> Fault:
        """What to say of an index that is none of its mode."""
        pairs = zip(indices, self.shape, strict=True)
        mode = next(mode for mode, (index, size) in enumerate(pairs) if not 0 <= index < size)
        values = {"index": indices[mode], "mode": mode, "name": self.name, "size": self.shape[mode]}
        return Fault(rules.OUT_OF_BOUNDS, **values)

    def _extent(self) -> tuple[int, int]:
        """The first and last element of the memory that an access to all of it touches."""
        if not math.prod(self.shape):
            return 0, -1
        reach = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return self.offset, self.offset + reach

    def _refuse_outside(self, low: int, high: int) -> None:
        if low < 0 or high >= self.memory.size:
            size = self.memory.size
            raise Fault(rules.OUT_OF_MEMORY, name=self.name, low=low, high=high, size=size)

    @classmethod
    def of(cls, name: str, array: Array) -> MemrefReference:
        """A reference to an array, whose strides are whole numbers of elements and not negative."""
        width = array.itemsize
        stride = tuple(step // width for step in array.strides)
        reach = sum((size - 1) * step for size, step in zip(array.shape, stride, strict=True))
        count = reach + 1 if array.size else 0
        flat = strided(array, (count,), (width,), array.flags.writeable)
        return cls(name, flat, 0, array.shape, stride)

    def shifted(self, array: Array, offset: int) -> MemrefReference:
        """A reference moved by some elements; it may reach to the end of the array that owns the memory."""
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        _, high = np.lib.array_utils.byte_bounds(owner)
        count = max(0, high - array.ctypes.data) // array.itemsize if array.size else 0
        memory = strided(array, (count,), (array.itemsize,), array.flags.writeable)
        return replace(self, memory=memory, offset=offset)

    def subview(self, slices: Sequence[tuple[int, int | None]], check_bounds: bool) -> MemrefReference:
        """A view of blocks of modes, each an offset and a size; a mode without a size goes away."""
        for mode, ((offset, size), whole) in enumerate(zip(slices, self.shape, strict=True)):
            if size is not None and size < 1:
                raise Fault(rules.EMPTY_SLICE, mode=mode, name=self.name, size=size)
            last = offset + (size or 1) - 1
            if check_bounds and not 0 <= offset <= last < whole:
                values = {"offset": offset, "last": last, "mode": mode, "name": self.name, "size": whole}
                raise Fault(rules.VIEW_OUT_OF_BOUNDS, **values)
        kept = [(size, step) for (_, size), step in zip(slices, self.stride, strict=True) if size is not None]
        moved = sum(offset * step for (offset, _), step in zip(slices, self.stride, strict=True))
        shape, stride = tuple(size for size, _ in kept), tuple(step for _, step in kept)
        return replace(self, offset=self.offset + moved, shape=shape, stride=stride)

    def expand(self, mode: int, sizes: Sequence[int]) -> MemrefReference:
        """A view in which a mode is seen as several, the first of them fastest."""
        if math.prod(sizes) != self.shape[mode] or min(sizes) < 0:
            shown = "x".join(map(str, sizes))
            raise Fault(rules.WRONG_EXPANSION, mode=mode, name=self.name, size=self.shape[mode], sizes=shown)
        steps = [self.stride[mode] * math.prod(sizes[:count]) for count in range(len(sizes))]
        shape = (*self.shape[:mode], *sizes, *self.shape[mode + 1 :])
        return replace(self, shape=shape, stride=(*self.stride[:mode], *steps, *self.stride[mode + 1 :]))

    def fuse(self, first: int, last: int) -> MemrefReference:
        """A view in which neighbouring modes are seen as one."""
        sizes, strides = self.shape[first : last + 1], self.stride[first : last + 1]
        if any(strides[k] * sizes[k] != strides[k + 1] for k in range(last - first)):
            values = {"sizes": "x".join(map(str, sizes)), "strides": ",".join(map(str, strides))}
            raise Fault(rules.WRONG_FUSION, first=first, last=last, name=self.name, **values)
        shape = (*self.shape[:first], math.prod(sizes), *self.shape[last + 1 :])
        return replace(self, shape=shape, stride=(*self.stride[: first + 1], *self.stride[last + 1 :]))

    def _allow_writing(self) -> None:
        if not self.memory.flags.writeable:
            raise Fault(rules.READ_ONLY, name=self.name)


@dataclass(frozen=True, slots=True)
class GroupReference:
    """A group at run time."""

    name: str
    items: tuple[MemrefReference, ...]

    def load(self, index: int) -> MemrefReference:
        """The memref at a position."""
        if not 0 <= index < len(self.items):
            raise Fault(rules.GROUP_OUT_OF_BOUNDS, index=index, name=self.name, size=len(self.items))
        return self.items[index]
