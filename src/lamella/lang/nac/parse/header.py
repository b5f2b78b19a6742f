"""The header of a file: which version it is, what it says, and where the sections lie."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from lamella.base.reader import Reader
from lamella.lang.nac.layout import CONTAINERS, INTERNAL, MAGIC, SLOT, TABLE, TRAINS, UNUSED, Container
from lamella.lang.nac.nodes import V1_5, V1_6, V1_7, V1_8, Header, Method
from lamella.lang.nac.parse.reading import Reading
from lamella.lang.nac.rules import container as rules

_METHOD_BYTE, _RESERVED_BYTE = 4, 9
_FIELDS = struct.Struct("<BHHxH")
"""Quantisation byte, inputs, outputs, the reserved byte, d_model."""
_RIVALS: Mapping[int, tuple[Container, Container]] = MappingProxyType(
    {1: (CONTAINERS[V1_5], CONTAINERS[V1_6]), 2: (CONTAINERS[V1_7], CONTAINERS[V1_8])}
)
"""For each version byte two versions; a file is of the first where its first section follows that one's header."""


class Table(NamedTuple):
    """A header and the places of its sections: each begins where it says and ends where the next one begins."""

    header: Header
    container: Container
    places: Mapping[str, tuple[int, int]]
    trains: bool


def read_header(reading: Reading) -> Table | None:
    """The header of a file, or None where there is no way to go on."""
    container = _choose(reading)
    if container is None:
        return None
    header, trains = _read_fields(reading, container)
    offsets = _offsets(reading, container)
    if not any(offsets):
        reading.report(rules.NO_SECTIONS, TABLE, container.padding)
        return None
    return Table(header, container, _find_places(reading, container, offsets), trains)


def _choose(reading: Reading) -> Container | None:
    """The version of a file, by its version byte and its first section."""
    data, size = reading.data, len(reading.data)
    if data[:3] != MAGIC:
        reading.report(rules.NOT_NAC, 0, min(3, size), found=repr(bytes(data[:3])))
        return None
    if size > len(MAGIC) and data[3] not in _RIVALS:
        reading.report(rules.UNKNOWN_VERSION, 3, 4, found=data[3])
        return None
    older, newer = _RIVALS[data[3]] if size > len(MAGIC) else _RIVALS[1]
    container = newer
    if size >= older.padding:
        first = min(filter(None, _offsets(reading, older)), default=0)
        container = older if first == older.size else newer
    if size < container.size:
        reading.report(
            rules.SHORT_HEADER, 0, size, size=size, version=container.version, needed=container.size
        )
        return None
    return container


def _offsets(reading: Reading, container: Container) -> tuple[int, ...]:
    return Reader(reading.data, TABLE).integers("Q", len(container.slots), "the table of sections")


def _read_fields(reading: Reading, container: Container) -> tuple[Header, bool]:
    """What stands before the table, and whether the header says that there is a training graph."""
    bits, inputs, outputs, d_model = _FIELDS.unpack_from(reading.data, _METHOD_BYTE)
    _check_zero(reading, _RESERVED_BYTE, TABLE - 2, "the reserved byte")
    _check_zero(reading, container.padding, container.size, "the padding of the header")
    trains = container.trains and bool(bits & TRAINS)
    header = Header(
        version=container.version,
        method=_method(reading, bits & ~INTERNAL & (~TRAINS if container.trains else ~0)),
        internal=bool(bits & INTERNAL),
        inputs=inputs,
        outputs=outputs,
        d_model=d_model,
        span=reading.span(0, container.size),
    )
    return header, trains


def _method(reading: Reading, code: int) -> Method:
    if code < len(Method):
        return Method(code)
    reading.report(rules.UNKNOWN_METHOD, _METHOD_BYTE, _METHOD_BYTE + 1, method=code)
    return Method.NONE


def _check_zero(reading: Reading, start: int, end: int, what: str) -> None:
    found = bytes(reading.data[start:end])
    if any(found):
        reading.report(rules.RESERVED, start, end, what=what, found=found.hex(" "))


def _find_places(
    reading: Reading, container: Container, offsets: tuple[int, ...]
) -> Mapping[str, tuple[int, int]]:
    """The sections whose offsets can be meant, by tag."""
    starts: dict[int, str] = {}
    for slot, (tag, offset) in enumerate(zip(container.slots, offsets, strict=True)):
        if offset and _is_possible(reading, container, slot, offset, starts):
            starts[offset] = tag
    bounds = [*sorted(starts), len(reading.data)]
    reading.report_stray(container.size, bounds[0], "the header")
    return {starts[start]: (start, end) for start, end in pairwise(bounds)}


def _is_possible(
    reading: Reading, container: Container, slot: int, offset: int, starts: Mapping[int, str]
) -> bool:
    """Whether a section can begin at an offset; why not is a finding at its slot."""
    tag, place, size = container.slots[slot].strip(), TABLE + SLOT * slot, len(reading.data)
    if tag == UNUSED:
        _check_zero(reading, place, place + SLOT, f"slot {slot} of the table, which version 1.5 never used,")
    elif not container.size <= offset < size:
        values = {"section": tag, "offset": offset, "first": container.size, "size": size}
        reading.report(rules.OFFSET_OUTSIDE, place, place + SLOT, **values)
    elif offset in starts:
        other = starts[offset].strip()
        reading.report(rules.SHARED_OFFSET, place, place + SLOT, section=tag, other=other, offset=offset)
    else:
        return True
    return False
