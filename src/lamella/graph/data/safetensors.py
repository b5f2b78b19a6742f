"""Files of many arrays by name (`.safetensors`): a JSON header, then the arrays one behind the other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from lamella.base.arrays import Array, element_type_of, numpy_dtype, to_memory, view_memory
from lamella.base.diagnostic import Rule
from lamella.base.dtype import ElementType
from lamella.base.errors import Malformed
from lamella.base.limits import DEFAULT, Limits, product
from lamella.base.paths import read_bytes, shown
from lamella.base.safetensors import (
    ELEMENTS,
    LARGEST_HEADER,
    METADATA,
    NO_ARRAY,
    PREFIX,
    HeaderFault,
    StoredTensor,
    StoreHeader,
    fault_of,
    read_index,
)
from lamella.base.shape import bytes_for
from lamella.base.writer import write_pieces
from lamella.graph.data.dat import refuse, whole
from lamella.lang.skriptnd.rules import data as rules

_TYPES: Mapping[ElementType, str] = MappingProxyType({element: name for name, element in ELEMENTS.items()})
_RULES: Mapping[HeaderFault, Rule] = MappingProxyType(
    {
        HeaderFault.HEADER: rules.WRONG_STORE_HEADER,
        HeaderFault.ENTRY: rules.WRONG_STORE_ENTRY,
        HeaderFault.RANGE: rules.WRONG_STORE_RANGE,
        HeaderFault.TWICE: rules.STORED_TWICE,
    }
)


class SafetensorsContent(NamedTuple):
    """The arrays of a file by name, and the texts that stand beside them."""

    arrays: dict[str, Array]
    metadata: dict[str, str]


def read_safetensors(path: Path, limits: Limits = DEFAULT) -> dict[str, Array]:
    """All arrays of a file by name; LamellaError says what is wrong with it."""
    return decode_safetensors(read_bytes(path, limits), shown(path))


def decode_safetensors(data: bytes | memoryview, name: str) -> dict[str, Array]:
    """All arrays of a file's bytes by name; nothing is made before all of its header is believed."""
    return _decode(data, name)[0]


def decode_store(data: bytes | memoryview, name: str) -> SafetensorsContent:
    """Arrays as `decode_safetensors` gives them, and the texts of the header, which must be texts."""
    arrays, metadata = _decode(data, name)
    if not isinstance(metadata, dict):
        reason = f"{METADATA} is no object"
        refuse(rules.WRONG_STORE_HEADER.at(whole(name), offset=PREFIX, reason=reason))
    for key, value in metadata.items():
        if not isinstance(value, str):
            reason = f"'{key[:80]}' in {METADATA} is no text"
            refuse(rules.WRONG_STORE_HEADER.at(whole(name), offset=PREFIX, reason=reason))
    return SafetensorsContent(arrays, metadata)


def _decode(data: bytes | memoryview, name: str) -> tuple[dict[str, Array], object]:
    """The arrays, and what stands beside them in the header, whatever that is."""
    index = decode_index(data, name)
    image = np.frombuffer(data, np.uint8, offset=index.start)
    return {item.name: read_entry(image, item, name) for item in index.entries}, index.metadata


def decode_index(data: bytes | memoryview, name: str) -> StoreHeader:
    """The tensors of a file's bytes, all of the header checked and no tensor touched; LamellaError otherwise."""
    try:
        return read_index(data)
    except Malformed as problem:
        fault, values = fault_of(problem)
        refuse(_RULES[fault].at(whole(name), hint=None, labels=(), **values))


def read_entry(image: Array, item: StoredTensor, name: str) -> Array:
    """One tensor of the bytes behind a header, without copying its bytes where NumPy can read them as they lie."""
    try:
        return view_memory(image[item.begin : item.end], item.element, item.shape)
    except ValueError:  # a tensor without elements whose other extents NumPy cannot hold
        refuse(rules.WRONG_STORE_ENTRY.at(whole(name), name=item.name, reason=NO_ARRAY))


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
    header: dict[str, object] = {METADATA: dict(sorted(metadata.items()))} if metadata else {}
    position = 0
    for key, element, shape in tensors:
        size = bytes_for(product(shape), element.bits)
        offsets = [position, position + size]
        header[key] = {"dtype": _type_name(key, element, name), "shape": list(shape), "data_offsets": offsets}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > LARGEST_HEADER:
        reason = f"the header would have {len(text)} bytes, and {LARGEST_HEADER} is the most"
        refuse(rules.WRONG_STORE_HEADER.at(whole(name), offset=PREFIX, reason=reason))
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
    if key == METADATA:
        refuse(rules.WRONG_STORE_ENTRY.at(whole(name), name=key, reason="would not be taken for a tensor"))
    if element not in _TYPES:
        reason = _unnamed(numpy_dtype(element))
        refuse(rules.WRONG_STORE_ENTRY.at(whole(name), name=key, reason=reason))
    return _TYPES[element]
