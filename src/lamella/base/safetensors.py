"""The header of files of many arrays by name (`.safetensors`): what it says, and whether it can be true.

Who reads a file tells its users of a fault in the words of the language that the file belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, NoReturn, cast

from lamella.base import dtype as types
from lamella.base.dtype import ElementType
from lamella.base.errors import Malformed
from lamella.base.jsontext import decode_object
from lamella.base.limits import OutOfRange, product
from lamella.base.shape import MOST_AXES, bytes_for

ELEMENTS: Mapping[str, ElementType] = MappingProxyType(
    {
        **{"F64": types.F64, "F32": types.F32, "F16": types.F16, "BF16": types.BF16, "BOOL": types.BOOL},
        **{"I64": types.I64, "I32": types.I32, "I16": types.I16, "I8": types.I8},
        **{"U64": types.U64, "U32": types.U32, "U16": types.U16, "U8": types.U8},
        **{"F8_E4M3": types.F8E4M3, "F8_E5M2": types.F8E5M2, "C64": types.C32},
    }
)
"""The element types by their names in the format."""
METADATA = "__metadata__"
"""The key of the header under which no tensor stands."""
NO_ARRAY = "has a shape that no array can have"
"""Why an entry is refused whose bytes NumPy cannot give a shape."""
PREFIX = 8
LARGEST_HEADER = 100_000_000
_MOST_TENSORS = 200_000


class HeaderFault(StrEnum):
    """What can be wrong with a header, as a sentence with the values of a finding."""

    HEADER = "byte {offset}: {reason}"
    ENTRY = "the entry of '{name}' {reason}"
    RANGE = "'{name}' lies at bytes {begin} to {end} of the data; {reason}"
    TWICE = "'{name}' is stored twice"


def _malformed(fault: HeaderFault, **values: object) -> Malformed:
    return Malformed(fault.value.format(**values), fault=fault, values=values)


def fault_of(problem: Malformed) -> tuple[HeaderFault, dict[str, object]]:
    """What is wrong with a header, with the values of its sentence."""
    return cast("HeaderFault", problem.details["fault"]), cast("dict[str, object]", problem.details["values"])


class StoredTensor(NamedTuple):
    """One tensor as the header tells of it; its bytes are counted from the end of the header."""

    name: str
    element: ElementType
    shape: tuple[int, ...]
    begin: int
    end: int


class StoreHeader(NamedTuple):
    """What the header of a file says: its tensors, what stands beside them, and where their bytes begin."""

    entries: list[StoredTensor]
    metadata: object
    start: int


def read_index(data: bytes | memoryview) -> StoreHeader:
    """The tensors of a file's bytes, all of the header checked and no tensor touched; Malformed otherwise."""
    size = _header_size(data)
    header = _header(bytes(data[PREFIX : PREFIX + size]))
    metadata = header.pop(METADATA, {})
    if len(header) > _MOST_TENSORS:
        reason = f"the header names {len(header)} tensors, and {_MOST_TENSORS} is the most"
        raise _malformed(HeaderFault.HEADER, offset=PREFIX, reason=reason)
    entries = [_entry(key, value) for key, value in header.items()]
    _check_ranges(entries, len(data) - PREFIX - size)
    return StoreHeader(entries, metadata, PREFIX + size)


def _header_size(data: bytes | memoryview) -> int:
    if len(data) < PREFIX:
        reason = f"the length of the header needs 8 bytes, the file has {len(data)}"
        raise _malformed(HeaderFault.HEADER, offset=0, reason=reason)
    size = int.from_bytes(data[:PREFIX], "little")
    if size > min(len(data) - PREFIX, LARGEST_HEADER):
        reason = f"the header is to have {size} bytes, {len(data) - PREFIX} follow"
        raise _malformed(HeaderFault.HEADER, offset=0, reason=reason)
    if data[PREFIX : PREFIX + 1] != b"{":
        raise _malformed(HeaderFault.HEADER, offset=PREFIX, reason="the header does not begin with '{'")
    return size


def _header(text: bytes) -> dict[str, object]:
    try:
        return decode_object(text, max_depth=None)
    except Malformed as problem:
        if "key" in problem.details:
            raise _malformed(HeaderFault.TWICE, name=problem.details["key"]) from None
        raise _malformed(HeaderFault.HEADER, offset=PREFIX, reason=f"the header {problem}") from None


def _entry(key: str, value: object) -> StoredTensor:
    def wrong(reason: str) -> NoReturn:
        raise _malformed(HeaderFault.ENTRY, name=key, reason=reason)

    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        wrong("does not consist of dtype, shape and data_offsets")
    element = ELEMENTS.get(value["dtype"]) if isinstance(value["dtype"], str) else None
    if element is None:
        wrong(f"has the type {str(value['dtype'])[:40]!r}, which is not known")
    shape, offsets = _counts(value["shape"]), _counts(value["data_offsets"])
    if shape is None or len(shape) > MOST_AXES:
        wrong("has a shape that is no list of sizes")
    if offsets is None or len(offsets) != 2:
        wrong("has data_offsets that are no pair of positions")
    return StoredTensor(key, element, shape, *offsets)


def _counts(value: object) -> tuple[int, ...] | None:
    """A JSON list of non-negative 64-bit integers."""
    if not isinstance(value, list) or len(value) > 1000:
        return None
    fine = all(type(item) is int and 0 <= item < 1 << 63 for item in value)
    return tuple(value) if fine else None


def _check_ranges(entries: Sequence[StoredTensor], size: int) -> None:
    """Every tensor has the bytes of its shape, and together they cover the data without gap or overlap."""
    position = 0
    for item in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        reason = _misplaced(item, position, size)
        if reason:
            raise _malformed(HeaderFault.RANGE, name=item.name, begin=item.begin, end=item.end, reason=reason)
        position = item.end
    if position != size:
        reason = f"{size - position} bytes follow the last tensor"
        raise _malformed(HeaderFault.HEADER, offset=position, reason=reason)


def _misplaced(item: StoredTensor, position: int, size: int) -> str:
    """Why a tensor cannot lie where it is said to; nothing where it can."""
    try:
        needed = bytes_for(product(item.shape), item.element.bits)
    except OutOfRange:
        needed = -1
    if item.end - item.begin != needed:
        return f"{item.element} {list(item.shape)} takes {'too many' if needed < 0 else needed} bytes"
    if item.begin != position:
        return f"what lies before it ends at byte {position}"
    return f"the data have {size} bytes" if item.end > size else ""
