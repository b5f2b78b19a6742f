"""The container of GGUF files: what stands before the tensors, read without trust and without touching a tensor."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np

from lamella.base.errors import Malformed

MAGIC = b"GGUF"
VERSIONS = (2, 3)
Item: TypeAlias = "int | float | bool | str | list[int] | list[float] | list[bool] | list[str]"
_MOST_ITEMS = 1 << 24
_MOST_TENSORS = 1 << 20
_MOST_AXES = 4
_MOST_NAME = 1 << 16
_TEXT, _LIST = 8, 9
_SCALARS = MappingProxyType(
    {
        **{0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4"},
        **{7: "?", 10: "<u8", 11: "<i8", 12: "<f8"},
    }
)
"""The types of values by their codes, as NumPy calls them."""


class BlockType(NamedTuple):
    """A type of tensors: how many neighbours along a row are one block, and how many bytes that takes."""

    name: str
    elements: int
    bytes: int


TYPES: Mapping[int, BlockType] = MappingProxyType(
    {
        0: BlockType("F32", 1, 4),
        1: BlockType("F16", 1, 2),
        2: BlockType("Q4_0", 32, 18),
        3: BlockType("Q4_1", 32, 20),
        6: BlockType("Q5_0", 32, 22),
        7: BlockType("Q5_1", 32, 24),
        8: BlockType("Q8_0", 32, 34),
        10: BlockType("Q2_K", 256, 84),
        11: BlockType("Q3_K", 256, 110),
        12: BlockType("Q4_K", 256, 144),
        13: BlockType("Q5_K", 256, 176),
        14: BlockType("Q6_K", 256, 210),
        20: BlockType("IQ4_NL", 32, 18),
        23: BlockType("IQ4_XS", 256, 136),
        24: BlockType("I8", 1, 1),
        25: BlockType("I16", 1, 2),
        26: BlockType("I32", 1, 4),
        27: BlockType("I64", 1, 8),
        28: BlockType("F64", 1, 8),
        30: BlockType("BF16", 1, 2),
        39: BlockType("MXFP4", 32, 17),
    }
)
"""The types that are read, by their numbers."""


class GgufTensor(NamedTuple):
    """A tensor: the shape has the closest axis last, and the offset counts from the beginning of the file."""

    name: str
    type: BlockType
    shape: tuple[int, ...]
    offset: int
    length: int


class GgufFile(NamedTuple):
    """What a file says of itself, and its tensors by name."""

    items: Mapping[str, Item]
    tensors: Mapping[str, GgufTensor]


def read_gguf(data: memoryview) -> GgufFile:
    """The header of a file; Malformed says what is wrong with it, and where."""
    reader = _GgufReader(data)
    if bytes(data[:4]) != MAGIC:
        raise Malformed("it does not begin with 'GGUF'")
    reader.position = 4
    version = reader.number("<I")
    if version not in VERSIONS:
        swapped = int.from_bytes(int(version).to_bytes(4, "little"), "big") in VERSIONS
        why = (
            "it is written for processors of the other byte order" if swapped else f"its version is {version}"
        )
        raise Malformed(f"{why}; versions {VERSIONS[0]} and {VERSIONS[1]} are read")
    tensors, items = reader.count("<Q", _MOST_TENSORS), reader.count("<Q", _MOST_ITEMS)
    found: dict[str, Item] = {}
    for _ in range(items):
        name = reader.text(_MOST_NAME)
        if name in found:
            raise Malformed(f"'{name[:80]}' is there twice")
        found[name] = reader.value(int(reader.number("<I")))
    entries = [reader.tensor() for _ in range(tensors)]
    step = found.get("general.alignment", 32)
    if not isinstance(step, int) or step < 1 or step & step - 1 or step > 1 << 20:
        raise Malformed(f"general.alignment is {step!s:.20}, no power of two")
    start = -(-reader.position // step) * step
    return GgufFile(found, _placed(entries, start, len(data)))


def _placed(entries: list[GgufTensor], start: int, size: int) -> dict[str, GgufTensor]:
    """The tensors by name, each inside the file."""
    found: dict[str, GgufTensor] = {}
    for item in entries:
        offset = start + item.offset
        if item.name in found:
            raise Malformed(f"the tensor '{item.name[:80]}' is there twice")
        if offset + item.length > size:
            why = f"lies at bytes {offset} to {offset + item.length}, and the file has {size}"
            raise Malformed(f"the tensor '{item.name[:80]}' {why}")
        found[item.name] = item._replace(offset=offset)
    return found


class _GgufReader:
    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = 0

    def number(self, form: str) -> int:
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return int(found)

    def take(self, length: int) -> memoryview:
        end = self.position + length
        if end > len(self.data):
            raise Malformed(f"it ends at byte {len(self.data)}, inside of its header")
        part = self.data[self.position : end]
        self.position = end
        return part

    def count(self, form: str, most: int) -> int:
        found = self.number(form)
        # Whatever is counted takes a byte at least.
        if found > min(most, len(self.data)):
            raise Malformed(f"byte {self.position}: {found} is more than the file can hold")
        return found

    def text(self, most: int = 1 << 30) -> str:
        part = self.take(self.count("<Q", most))
        try:
            return str(part, "utf-8")
        except UnicodeDecodeError:
            return str(part, "utf-8", "replace")

    def value(self, kind: int) -> Item:
        if kind == _TEXT:
            return self.text()
        if kind != _LIST:
            return _plain(self._scalars(kind, 1)[0])
        inner, count = int(self.number("<I")), self.count("<Q", _MOST_ITEMS)
        if inner == _TEXT:
            return [self.text() for _ in range(count)]
        found: list[int] = self._scalars(inner, count).tolist()
        return found

    def _scalars(self, kind: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
        if kind not in _SCALARS:
            raise Malformed(f"byte {self.position}: no value has the type {kind}")
        type_ = np.dtype(_SCALARS[kind])
        return np.frombuffer(self.take(count * type_.itemsize), type_)

    def tensor(self) -> GgufTensor:
        name, axes = self.text(_MOST_NAME), self.number("<I")
        if axes > _MOST_AXES:
            raise Malformed(f"the tensor '{name[:80]}' has {axes} axes, and {_MOST_AXES} is the most")
        shape = tuple(self.number("<Q") for _ in range(axes))[::-1]
        kind, offset = int(self.number("<I")), self.number("<Q")
        type_ = TYPES.get(kind)
        if type_ is None:
            known = ", ".join(item.name for item in TYPES.values())
            raise Malformed(f"the tensor '{name[:80]}' has the type {kind}; those that are read are {known}")
        width = shape[-1] if shape else 1
        if width % type_.elements:
            raise Malformed(f"rows of {width} in '{name[:80]}' are no blocks of {type_.elements}")
        return GgufTensor(name, type_, shape, offset, prod(shape) // type_.elements * type_.bytes)


def _plain(value: np.generic) -> int | float | bool:
    found: int | float | bool = value.item()
    return found
