"""Tensors written into one or many `.safetensors` files, one after the other and never all at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array, cast, element_type_of, numpy_dtype, to_memory
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import ElementType
from lamella.base.shape import bytes_for, element_count
from lamella.base.source import NOWHERE
from lamella.base.writer import write_pieces, write_text
from lamella.bridge.hf_to_module.checkpoint import EMPTY, INDEX, SINGLE, Checkpoint
from lamella.bridge.hf_to_module.measure import show
from lamella.bridge.hf_to_module.transforms import FUNCTIONS
from lamella.bridge.module_to_hf.tensors import Outgoing
from lamella.graph.data.safetensors import encode_header
from lamella.lang.module.rules import mappings as rules

_METADATA = MappingProxyType({"format": "pt"})
"""Without it older versions of transformers refuse a file."""


class _Tensor(NamedTuple):
    outgoing: Outgoing
    element: ElementType
    size: int


class Numbers:
    """Arrays of weights while they become tensors; the last one is kept, since its parts follow one another."""

    def __init__(self, arrays: Mapping[str, Array], source: Checkpoint | None, head_dim: int) -> None:
        self._arrays = arrays
        self._source = source or EMPTY
        self._head = head_dim
        self._last: tuple[str, Array | None] = ("", None)

    def element_of(self, item: Outgoing) -> ElementType:
        """The type in which a tensor is written."""
        if item.element is not None or item.weight is None:
            return item.element or _unknown(item, None)
        found = element_type_of(self._array(item).dtype)
        return found or _unknown(item, self._array(item).dtype)

    def image(self, item: Outgoing, element: ElementType) -> memoryview | bytes:
        """The bytes of a tensor: those of the source where the numbers are still what it gives."""
        if item.weight is None:
            return self._source.bytes_of(item.name)
        part = self._array(item)
        for step in item.steps:
            part = part[step]
        if self._is_unchanged(item, part):
            return self._source.bytes_of(item.name)
        values = FUNCTIONS[item.function].apply(part, self._head) if item.function else part
        found = to_memory(_converted(item, values, element))
        return found.data if len(found) else b""

    def _array(self, item: Outgoing) -> Array:
        """The array of the weight of a tensor."""
        weight = item.weight
        path = "" if weight is None else weight.path
        known, array = self._last
        if array is None or known != path:
            array = self._arrays[path]
            self._last = (path, array)
            if weight is not None and array.shape != weight.shape:
                wanted, found = show(weight.shape), show(array.shape)
                finding = rules.NUMBERS_SHAPE.at(weight.span, path=path, wanted=wanted, found=found)
                raise LamellaError([finding])
        return array

    def _is_unchanged(self, item: Outgoing, part: Array) -> bool:
        """Whether the tensor of the source makes these numbers, bit for bit."""
        stored = self._source.tensors.get(item.name)
        if stored is None or stored.shape != item.shape:
            return False
        values = self._source.read(item.name)
        if item.back:
            values = FUNCTIONS[item.back].apply(values, self._head)
        element = element_type_of(part.dtype)
        if values.dtype != part.dtype and (
            element is None or not (element.is_float and stored.dtype.is_float)
        ):
            return False
        if values.dtype != part.dtype and element is not None:
            values = cast(values, element)
        return values.shape == part.shape and _bits_equal(values, part)


def _bits_equal(left: Array, right: Array) -> bool:
    unsigned = np.dtype(f"u{left.dtype.itemsize}") if left.dtype.itemsize <= 8 else None
    if unsigned is None:
        return bool(np.array_equal(left, right))
    return bool(np.array_equal(_dense(left).view(unsigned), _dense(right).view(unsigned)))


def _dense(values: Array) -> Array:
    return np.ascontiguousarray(values).reshape(-1)


def _converted(item: Outgoing, values: Array, element: ElementType) -> Array:
    if values.dtype == numpy_dtype(element):
        return values
    found = element_type_of(values.dtype)
    if found is None or not (found.is_float and element.is_float):
        _unknown(item, values.dtype, element)
    return cast(values, element)


def _unknown(
    item: Outgoing, found: object, wanted: ElementType | str = "a type of a checkpoint"
) -> ElementType:
    path = item.name if item.weight is None else item.weight.path
    raise LamellaError([rules.NUMBERS_DTYPE.at(NOWHERE, path=path, found=found, wanted=wanted)])


def write_store(
    folder: Path, tensors: Sequence[Outgoing], numbers: Numbers, shard_bytes: int
) -> tuple[Path, ...]:
    """Write tensors into `model.safetensors`, or into several files and an index where they are larger than one.

    No file is larger than `shard_bytes` unless a single tensor is.
    """
    measured = [_measured(item, numbers) for item in tensors]
    shards = _shards(measured, shard_bytes)
    if len(shards) <= 1:
        _write_file(folder / SINGLE, measured, numbers)
        return (folder / SINGLE,)
    names = [f"model-{index + 1:05}-of-{len(shards):05}.safetensors" for index in range(len(shards))]
    places: dict[str, str] = {}
    for name, shard in zip(names, shards, strict=True):
        _write_file(folder / name, shard, numbers)
        places |= {item.outgoing.name: name for item in shard}
    total = sum(item.size for item in measured)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    write_text(folder / INDEX, f"{json.dumps(index, indent=2)}\n")
    return (*(folder / name for name in names), folder / INDEX)


def _measured(item: Outgoing, numbers: Numbers) -> _Tensor:
    element = numbers.element_of(item)
    return _Tensor(item, element, bytes_for(element_count(item.shape), element.bits))


def _shards(tensors: Sequence[_Tensor], shard_bytes: int) -> list[list[_Tensor]]:
    shards: list[list[_Tensor]] = []
    room = 0
    for item in tensors:
        if not shards or item.size > room:
            shards.append([])
            room = shard_bytes
        shards[-1].append(item)
        room -= item.size
    return shards


def _write_file(path: Path, tensors: Sequence[_Tensor], numbers: Numbers) -> None:
    # Wide elements first: then each tensor begins at a multiple of its element's size.
    ordered = sorted(tensors, key=lambda item: -item.element.bits)
    header = encode_header(
        [(item.outgoing.name, item.element, item.outgoing.shape) for item in ordered], path.name, _METADATA
    )
    size = len(header) + sum(item.size for item in ordered)
    write_pieces(path, _pieces(header, ordered, numbers), size=size)


def _pieces(header: bytes, tensors: Sequence[_Tensor], numbers: Numbers) -> Iterator[bytes | memoryview]:
    yield header
    for item in tensors:
        yield numbers.image(item.outgoing, item.element)
