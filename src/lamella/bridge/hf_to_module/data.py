"""The numbers of weights, made from a checkpoint when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lamella.base.arrays import Array, cast, numpy_dtype
from lamella.base.dtype import ElementType
from lamella.base.source import NOWHERE, Span
from lamella.bridge.hf_to_module.checkpoint import Checkpoint
from lamella.bridge.hf_to_module.nodes import Alias, Joined, Made, Stacked, Whole
from lamella.bridge.hf_to_module.transforms import FUNCTIONS

_CHUNK = 1 << 22
"""Elements that are converted at a time, so that what the conversion needs meanwhile stays small."""


@dataclass(frozen=True, slots=True)
class Item:
    """A weight and what it is made of; both types are None where that is another weight."""

    path: str
    shape: tuple[int, ...]
    element: ElementType | None
    stored: ElementType | None
    made: Made
    span: Span = NOWHERE


class Numbers(Mapping[str, Array]):
    """Arrays of weights by path. Nothing is kept: who asks twice has it made twice.

    A tensor that is taken as it is stored is a read-only view of its file; all else is a new array, also read-only.
    """

    def __init__(
        self, items: Sequence[Item], checkpoint: Checkpoint, head_dim: int, element: ElementType | None = None
    ) -> None:
        self._items = {item.path: item for item in items}
        self._checkpoint = checkpoint
        self._head = head_dim
        self._element = element
        self._lent: str | None = None
        """The tensor whose view was given last: who streams weights has copied it when the next is asked for."""

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, path: object) -> bool:
        return path in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __getitem__(self, path: str) -> Array:
        item = self._items[path]
        if isinstance(item.made, Alias):
            return self[item.made.path]
        element = item.element
        if self._element is not None and element is not None and element.is_float:
            element = self._element
        if isinstance(item.made, Whole):
            values = self._lend(item.made)
            as_it_lies = values.flags.aligned and values.flags.c_contiguous and not values.flags.writeable
            if as_it_lies and (element is None or values.dtype == numpy_dtype(element)):
                return values.reshape(item.shape)
        found = np.empty(item.shape, numpy_dtype(element) if element is not None else None)
        self._fill(found, item.made, element)
        # Whoever keeps it need not copy it: nobody else can change it.
        found.setflags(write=False)
        return found

    def _lend(self, made: Whole) -> Array:
        """A view of a tensor; the memory of the one before is given back."""
        if self._lent is not None:
            self._checkpoint.release(self._lent)
        self._lent = made.name
        return self._read(made)

    def _read(self, made: Whole) -> Array:
        values = self._checkpoint.read(made.name)
        function = FUNCTIONS.get(made.function)
        return values if function is None else function.apply(values, self._head)

    def _fill(self, target: Array, made: Made, element: ElementType | None) -> None:
        match made:
            case Whole(name):
                convert_into(target, self._read(made), element)
                self._checkpoint.release(name)
            case Stacked(parts):
                for index, part in enumerate(parts):
                    self._fill(target[index, ...], part, element)
            case Joined(parts, dim):
                position = 0
                for part in parts:
                    size = self._extent(part, dim)
                    place = (slice(None),) * dim + (slice(position, position + size),)
                    self._fill(target[place], part, element)
                    position += size

    def _extent(self, made: Made, dim: int) -> int:
        """The extent of a part along a dimension."""
        match made:
            case Whole(name, function):
                shape: object = self._checkpoint.tensors[name].shape
                if function in FUNCTIONS:
                    shape = FUNCTIONS[function].shape(self._checkpoint.tensors[name].shape, self._head)
                return shape[dim] if isinstance(shape, tuple) else 0
            case Stacked(parts):
                return self._extent(parts[0], dim - 1) if dim else len(parts)
            case Joined(parts, along):
                sizes = [self._extent(part, dim) for part in parts]
                return sum(sizes) if along == dim else sizes[0]
            case Alias():
                return 0


def convert_into(target: Array, values: Array, element: ElementType | None) -> None:
    """Copy numbers into an array of an element type, a part at a time."""
    if element is None or target.dtype == values.dtype:
        target[...] = values
        return
    if target.ndim == 0 or target.size <= _CHUNK:
        target[...] = cast(values, element)
        return
    rows = max(1, _CHUNK * target.shape[0] // target.size)
    for start in range(0, target.shape[0], rows):
        target[start : start + rows] = cast(values[start : start + rows], element)
