"""Files of many arrays by name (`.safetensors`): a JSON header, then the arrays one behind the other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, NoReturn

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, element_type_of, from_memory, numpy_dtype, to_memory
from lamella.base.dtype import ElementType
from lamella.base.limits import DEFAULT, Limits, OutOfRange, product
from lamella.base.paths import read_bytes, shown
from lamella.base.shape import MOST_AXES, bytes_for
from lamella.base.writer import write_pieces
from lamella.graph.data.header import refuse, whole
from lamella.lang.skriptnd.rules import data as rules

_NAMES: Mapping[str, ElementType] = MappingProxyType(
    {
        **{"F64": types.F64, "F32": types.F32, "F16": types.F16, "BF16": types.BF16, "BOOL": types.BOOL},
        **{"I64": types.I64, "I32": types.I32, "I16": types.I16, "I8": types.I8},
        **{"U64": types.U64, "U32": types.U32, "U16": types.U16, "U8": types.U8},
        **{"F8_E4M3": types.F8E4M3, "F8_E5M2": types.F8E5M2, "C64": types.C32},
    }
)
_TYPES: Mapping[ElementType, str] = MappingProxyType({element: name for name, element in _NAMES.items()})
_PREFIX = 8
_LARGEST_HEADER = 100_000_000
_MOST_TENSORS = 200_000
_METADATA = "__metadata__"
"""The key of the header under which no tensor stands."""


class Store(NamedTuple):
    """The arrays of a file by name, and the texts that stand beside them."""

    arrays: dict[str, Array]
    metadata: dict[str, str]


class Entry(NamedTuple):
    """One tensor as the header tells of it; its bytes are counted from the end of the header."""

    name: str
    element: ElementType
    shape: tuple[int, ...]
    begin: int
    end: int


class Index(NamedTuple):
    """What the header of a file says: its tensors, what stands beside them, and where their bytes begin."""

    entries: list[Entry]
    metadata: object
    start: int


class _DuplicateError(Exception):
    """Carries a name that an object of the header holds twice; never leaves this module."""


def read_safetensors(path: Path, limits: Limits = DEFAULT) -> dict[str, Array]:
    """All arrays of a file by name; LamellaError says what is wrong with it."""
    return decode_safetensors(read_bytes(path, limits), shown(path))


def decode_safetensors(data: bytes | memoryview, name: str) -> dict[str, Array]:
    """All arrays of a file's bytes by name; nothing is made before all of its header is believed."""
    return _decode(data, name)[0]


def decode_store(data: bytes | memoryview, name: str) -> Store:
    """Arrays as `decode_safetensors` gives them, and the texts of the header, which must be texts."""
    arrays, metadata = _decode(data, name)
    if not isinstance(metadata, dict):
        reason = f"{_METADATA} is no object"
        refuse(rules.WRONG_STORE_HEADER.at(whole(name), offset=_PREFIX, reason=reason))
    for key, value in metadata.items():
        if not isinstance(value, str):
            reason = f"'{key[:80]}' in {_METADATA} is no text"
            refuse(rules.WRONG_STORE_HEADER.at(whole(name), offset=_PREFIX, reason=reason))
    return Store(arrays, metadata)


def _decode(data: bytes | memoryview, name: str) -> tuple[dict[str, Array], object]:
    """The arrays, and what stands beside them in the header, whatever that is."""
    index = decode_index(data, name)
    image = np.frombuffer(data, np.uint8, offset=index.start)
    return {item.name: read_entry(image, item, name) for item in index.entries}, index.metadata


def decode_index(data: bytes | memoryview, name: str) -> Index:
    """The tensors of a file's bytes, all of the header checked and no tensor touched."""
    size = _header_size(data, name)
    header = _header(bytes(data[_PREFIX : _PREFIX + size]), name)
    metadata = header.pop(_METADATA, {})
    if len(header) > _MOST_TENSORS:
        reason = f"the header names {len(header)} tensors, and {_MOST_TENSORS} is the most"
        refuse(rules.WRONG_STORE_HEADER.at(whole(name), offset=_PREFIX, reason=reason))
    entries = [_entry(key, value, name) for key, value in header.items()]
    _check_ranges(entries, len(data) - _PREFIX - size, name)
    return Index(entries, metadata, _PREFIX + size)


def _header_size(data: bytes | memoryview, name: str) -> int:
    def wrong(offset: int, reason: str) -> NoReturn:
        refuse(rules.WRONG_STORE_HEADER.at(whole(name), offset=offset, reason=reason))

    if len(data) < _PREFIX:
        wrong(0, f"the length of the header needs 8 bytes, the file has {len(data)}")
    size = int.from_bytes(data[:_PREFIX], "little")
    if size > min(len(data) - _PREFIX, _LARGEST_HEADER):
        wrong(0, f"the header is to have {size} bytes, {len(data) - _PREFIX} follow")
    if data[_PREFIX : _PREFIX + 1] != b"{":
        wrong(_PREFIX, "the header does not begin with '{'")
    return size


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateError(key)
        found[key] = value
    return found


def _header(text: bytes, name: str) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except _DuplicateError as problem:
        refuse(rules.STORED_TWICE.at(whole(name), name=problem.args[0]))
    except (ValueError, RecursionError) as problem:
        reason = (
            "nests too deeply" if isinstance(problem, RecursionError) else f"is no JSON: {str(problem)[:100]}"
        )
        refuse(rules.WRONG_STORE_HEADER.at(whole(name), offset=_PREFIX, reason=f"the header {reason}"))
    return found


def _entry(key: str, value: object, name: str) -> Entry:
    def wrong(reason: str) -> NoReturn:
        refuse(rules.WRONG_STORE_ENTRY.at(whole(name), name=key, reason=reason))

    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        wrong("does not consist of dtype, shape and data_offsets")
    element = _NAMES.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if element is None:
        wrong(f"has the type {str(value['dtype'])[:40]!r}, which is not known")
    shape, offsets = _counts(value["shape"]), _counts(value["data_offsets"])
    if shape is None or len(shape) > MOST_AXES:
        wrong("has a shape that is no list of sizes")
    if offsets is None or len(offsets) != 2:
        wrong("has data_offsets that are no pair of positions")
    return Entry(key, element, shape, *offsets)


def _counts(value: object) -> tuple[int, ...] | None:
    """A JSON list of non-negative 64-bit integers."""
    if not isinstance(value, list) or len(value) > 1000:
        return None
    fine = all(type(item) is int and 0 <= item < 1 << 63 for item in value)
    return tuple(value) if fine else None


def _check_ranges(entries: list[Entry], size: int, name: str) -> None:
    """Every tensor has the bytes of its shape, and together they cover the data without gap or overlap."""
    position = 0
    for item in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        try:
            needed = bytes_for(product(item.shape), item.element.bits)
        except OutOfRange:
            needed = -1
        reason = ""
        if item.end - item.begin != needed:
            reason = f"{item.element} {list(item.shape)} takes {'too many' if needed < 0 else needed} bytes"
        elif item.begin != position:
            reason = f"what lies before it ends at byte {position}"
        elif item.end > size:
            reason = f"the data have {size} bytes"
        if reason:
            refuse(
                rules.WRONG_STORE_RANGE.at(
                    whole(name), name=item.name, begin=item.begin, end=item.end, reason=reason
                )
            )
        position = item.end
    if position != size:
        reason = f"{size - position} bytes follow the last tensor"
        refuse(rules.WRONG_STORE_HEADER.at(whole(name), offset=position, reason=reason))


def read_entry(image: Array, item: Entry, name: str) -> Array:
    """One tensor of the bytes behind a header, without copying its bytes where NumPy can read them as they lie."""
    part = image[item.begin : item.end]
    try:
        if item.element == types.BOOL:
            return from_memory(part, item.element, product(item.shape)).reshape(item.shape)
        return part.view(numpy_dtype(item.element)).reshape(item.shape)
    except ValueError:  # a tensor without elements whose other extents NumPy cannot hold
        refuse(
            rules.WRONG_STORE_ENTRY.at(
                whole(name), name=item.name, reason="has a shape that no array can have"
            )
        )


def write_safetensors(
    path: Path,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, str] | None = None,
    *,
    through_links: bool = True,
) -> None:
    """Write arrays by name, whole or not at all; equal arrays give equal bytes."""
    write_pieces(path, _pieces(arrays, shown(path), metadata or {}), through_links=through_links)


def encode_safetensors(
    arrays: Mapping[str, Array], name: str, metadata: Mapping[str, str] | None = None
) -> bytes:
    """The bytes of a file with these arrays and texts, in the order of their names."""
    return b"".join(_pieces(arrays, name, metadata or {}))


def _pieces(arrays: Mapping[str, Array], name: str, metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """The header and the arrays as they lie in memory."""
    kinds = {key: _element(key, arrays[key], name) for key in sorted(arrays)}
    tensors = [(key, kind, arrays[key].shape) for key, kind in kinds.items()]
    images = (to_memory(arrays[key]) for key in kinds)
    return [encode_header(tensors, name, metadata), *(item.data if len(item) else b"" for item in images)]


def encode_header(
    tensors: Sequence[tuple[str, ElementType, tuple[int, ...]]], name: str, metadata: Mapping[str, str]
) -> bytes:
    """The bytes in front of tensors of these names, types and shapes, which are to follow in this order."""
    header: dict[str, object] = {_METADATA: dict(sorted(metadata.items()))} if metadata else {}
    position = 0
    for key, element, shape in tensors:
        size = bytes_for(product(shape), element.bits)
        offsets = [position, position + size]
        header[key] = {"dtype": _type_name(key, element, name), "shape": list(shape), "data_offsets": offsets}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > _LARGEST_HEADER:
        reason = f"the header would have {len(text)} bytes, and {_LARGEST_HEADER} is the most"
        refuse(rules.WRONG_STORE_HEADER.at(whole(name), offset=_PREFIX, reason=reason))
    return len(text).to_bytes(8, "little") + text


def _element(key: str, values: Array, name: str) -> ElementType:
    element = element_type_of(values.dtype)
    if element is None:
        refuse(rules.WRONG_STORE_ENTRY.at(whole(name), name=key, reason=_unnamed(values.dtype)))
    return element


def _unnamed(kind: object) -> str:
    return f"would need a type for {kind}"


def _type_name(key: str, element: ElementType, name: str) -> str:
    """What the format calls the elements of a tensor that is to stand under a key."""
    if key == _METADATA:
        refuse(rules.WRONG_STORE_ENTRY.at(whole(name), name=key, reason="would not be taken for a tensor"))
    if element not in _TYPES:
        reason = _unnamed(numpy_dtype(element))
        refuse(rules.WRONG_STORE_ENTRY.at(whole(name), name=key, reason=reason))
    return _TYPES[element]
