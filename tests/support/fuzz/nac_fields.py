"""Where each field of a right NAC file stands and what it means, walked without the parser."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.support.lang.nac.containers import HEADERS

CONSTANTS = set("AifbscS")
"""Codes of signatures that ask for a list of constants."""
CONSTANT_BYTES = {0: 0, 1: 1, 4: 1, 5: 4, 6: 4}
"""Bytes for each unit of a constant's length; those of numbers stand for all."""


@dataclass(frozen=True, slots=True)
class Field:
    """Some bytes of one meaning: `kind` is a word such as count, length, id, offset, text, dim, bytes."""

    start: int
    size: int
    kind: str
    section: str

    @property
    def end(self) -> int:
        """The byte behind it."""
        return self.start + self.size


@dataclass(slots=True)
class Walker:
    """Steps over the fields of a file and notes them."""

    data: bytes
    at: int = 0
    section: str = "header"
    found: list[Field] = field(default_factory=list)

    def number(self, size: int, kind: str) -> int:
        """An unsigned number."""
        self.span(size, kind)
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def span(self, size: int, kind: str) -> None:
        """Bytes that are not read."""
        self.found.append(Field(self.at, size, kind, self.section))
        self.at += size

    def numbers(self, count: int, size: int, kind: str) -> None:
        """A list of numbers."""
        for _ in range(count):
            self.span(size, kind)


def walk(data: bytes) -> list[Field]:
    """All fields of a file in the order of their sections."""
    version = _version(data)
    _, size, slots = HEADERS[version]
    walker = Walker(data)
    walker.span(3, "magic")
    walker.span(1, "version")
    bits = walker.number(1, "quantisation")
    walker.span(2, "count")
    outputs = walker.number(2, "count")
    walker.span(1, "reserved")
    walker.span(2, "dim")
    places = {tag: walker.number(8, "place") for tag in slots}
    walker.span(size - walker.at, "reserved")
    reads = _readers(_signatures(data, places["PERM"]), outputs, bits >= 0x80)
    for tag, place in places.items():
        if place:
            walker.at, walker.section = place, tag
            walker.span(4, "tag")
            reads[tag](walker)
    return walker.found


def _version(data: bytes) -> str:
    tables = {version: struct.unpack_from(f"<{len(HEADERS[version][2])}Q", data, 12) for version in HEADERS}
    return next(
        version
        for version, (byte, size, _) in HEADERS.items()
        if data[3] == byte and min(place for place in tables[version] if place) == size
    )


def _signatures(data: bytes, place: int) -> dict[int, str]:
    walker, found = Walker(data, place + 4), dict[int, str]()
    for _ in range(walker.number(4, "count")):
        number, length = walker.number(2, "id"), walker.number(1, "length")
        found[number] = data[walker.at : walker.at + length].decode()
        walker.at += length
    return found


def _readers(
    signatures: Mapping[int, str], outputs: int, internal: bool
) -> Mapping[str, Callable[[Walker], None]]:
    def code(walker: Walker) -> None:
        for _ in range(walker.number(4, "count")):
            _instruction(walker, signatures, outputs)

    return {
        **{"MMAP": _schedule, "OPS ": code, "TRNG": code, "CMAP": _names, "PERM": _names, "CNST": _constants},
        **{"DATA": lambda walker: _data(walker, internal), "PROC": _block, "ORCH": _plan, "META": _block},
        **{"RSRC": _resources, "ARRS": _arrays},
    }


def _instruction(walker: Walker, signatures: Mapping[int, str], outputs: int) -> None:
    operation, variant = walker.number(1, "operation"), walker.number(1, "variant")
    constants, offsets = 0, 0
    if operation >= 10:
        codes = signatures.get(variant, "")
        offsets = len(codes)
        if CONSTANTS & set(codes):
            constants = walker.number(2, "count")
    elif operation == 7:
        constants, offsets = walker.number(2, "count"), 1
    elif operation in (2, 3, 6) and (operation, variant) not in ((2, 0), (3, 4)):
        walker.span(2, "count")
        constants, offsets = {2: (1, 0), 3: (outputs, outputs), 6: (2, 1)}[operation]
        constants, offsets = (1, 2) if (operation, variant) == (3, 3) else (constants, offsets)
    elif (operation, variant) == (3, 4):
        offsets = 1
    walker.numbers(constants, 2, "id")
    walker.numbers(offsets, 2, "offset")


def _schedule(walker: Walker) -> None:
    for _ in range(walker.number(4, "count")):
        walker.span(2, "tick")
        for _ in range(walker.number(1, "count")):
            walker.span(1, "action")
            walker.span(2, "target")


def _names(walker: Walker) -> None:
    for _ in range(walker.number(4, "count")):
        walker.span(2, "id")
        walker.span(walker.number(1, "length"), "text")


def _constants(walker: Walker) -> None:
    _constant_records(walker, walker.number(4, "count"))


def _constant_records(walker: Walker, count: int) -> None:
    for _ in range(count):
        walker.span(2, "id")
        kind, length = walker.number(1, "type"), walker.number(2, "length")
        each = CONSTANT_BYTES.get(kind, 1)
        walker.span(length * each, "text" if kind == 4 else "value")


def _data(walker: Walker, internal: bool) -> None:
    for _ in range(2):
        for _ in range(walker.number(4, "count")):
            walker.span(2, "id")
            walker.span(walker.number(2, "length"), "text")
    for _ in range(walker.number(4, "count") if internal else 0):
        walker.span(2, "id")
        walker.span(4, "length")
        length = walker.number(8, "length")
        _metadata(walker)
        walker.span(length, "bytes")


def _metadata(walker: Walker) -> None:
    walker.span(1, "dtype")
    walker.numbers(walker.number(1, "rank"), 4, "dim")
    method = walker.number(1, "method")
    if method == 2:
        walker.span(4, "scale")
    elif method in (3, 4):
        walker.span(method - 2, "axis")
        walker.numbers(walker.number(1, "rank") if method == 4 else 0, 4, "dim")
        walker.numbers(walker.number(4, "count"), 4, "scale")


def _block(walker: Walker) -> None:
    walker.span(walker.number(4, "length"), "program")


def _plan(walker: Walker) -> None:
    length, count = walker.number(4, "length"), walker.number(4, "count")
    walker.span(length, "program")
    _constant_records(walker, count)


def _resources(walker: Walker) -> None:
    for _ in range(walker.number(4, "count")):
        walker.span(walker.number(2, "length"), "text")
        walker.span(walker.number(4, "length"), "bytes")


def _arrays(walker: Walker) -> None:
    for _ in range(walker.number(4, "count")):
        walker.span(walker.number(2, "length"), "text")
        walker.span(1, "dtype")
        walker.numbers(walker.number(1, "rank"), 4, "dim")
        walker.span(walker.number(8, "length"), "bytes")


def sections(fields: list[Field]) -> Iterator[tuple[str, int, int]]:
    """The tag, start and end of each section."""
    tags = dict.fromkeys(item.section for item in fields if item.section != "header")
    for tag in tags:
        own = [item for item in fields if item.section == tag]
        yield tag, own[0].start, own[-1].end
