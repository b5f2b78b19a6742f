"""The tables that instructions refer to: CMAP, PERM and CNST; and MMAP, the schedule."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from lamella.lang.nac.nodes import Command, Constant, ConstantType, ConstantValue, Operation, Signature, Tick
from lamella.lang.nac.parse.reading import Section
from lamella.lang.nac.rules import container as rules

_COMMAND = struct.Struct("<BH")
_LENGTHS: Mapping[ConstantType, int] = MappingProxyType(
    {ConstantType.NULL: 0, ConstantType.BOOL: 1, ConstantType.INT64: 8, ConstantType.FLOAT64: 8}
)
"""The lengths of constants that have only one."""


def read_operations(section: Section) -> Iterator[Operation]:
    """The records of CMAP."""
    reader = section.reader
    for _ in section.counted(3, "operations"):
        start, number, size = reader.position, reader.u16(), reader.u8()
        name = section.text(size, f"the name of operation {number}")
        yield Operation(number, name, section.span(start))


def read_signatures(section: Section) -> Iterator[Signature]:
    """The records of PERM."""
    reader = section.reader
    for _ in section.counted(3, "signatures"):
        start, number, size = reader.position, reader.u16(), reader.u8()
        codes = section.text(size, f"signature {number}")
        yield Signature(number, codes, section.span(start))


def read_schedule(section: Section) -> Iterator[Tick]:
    """The records of MMAP."""
    reader, reading = section.reader, section.reading
    for _ in section.counted(3, "ticks"):
        start, index, count = reader.position, reader.u16(), reader.u8()
        first = reader.position
        pairs = _COMMAND.iter_unpack(reader.view(count * _COMMAND.size, f"the commands of tick {index}"))
        places = range(first, reader.position, _COMMAND.size)
        yield Tick(
            index,
            tuple(
                Command(action, target, reading.span(place, place + _COMMAND.size))
                for place, (action, target) in zip(places, pairs, strict=True)
            ),
            section.span(start),
        )


def read_constants(section: Section) -> Iterator[Constant]:
    """The records of CNST."""
    for _ in section.counted(5, "constants"):
        constant = read_constant(section)
        if constant is not None:
            yield constant


def read_constant(section: Section) -> Constant | None:
    """One constant; None for one whose length is wrong, which is stepped over as its length says."""
    reader = section.reader
    start, number, code, length = reader.position, reader.u16(), reader.u8(), reader.u16()
    if code >= len(ConstantType):
        raise section.give_up(rules.CONSTANT_TYPE, start, id=number, type=code)
    kind = ConstantType(code)
    wanted = _LENGTHS.get(kind, length)
    if length != wanted:
        section.report(rules.CONSTANT_LENGTH, start, id=number, type=kind.name, length=length, wanted=wanted)
        reader.view(length, f"constant {number}")
        return None
    value = _read_value(section, kind, number, length)
    return Constant(number, kind, value, section.span(start))


def _read_value(section: Section, kind: ConstantType, number: int, length: int) -> ConstantValue:
    reader, what = section.reader, f"constant {number}"
    match kind:
        case ConstantType.NULL:
            return None
        case ConstantType.BOOL:
            return _truth(section, number)
        case ConstantType.INT64:
            return reader.i64()
        case ConstantType.FLOAT64:
            return _same_nan(reader.f64())
        case ConstantType.STRING:
            return section.text(length, what)
        case ConstantType.INT32_LIST:
            return reader.integers("i", length, what)
        case ConstantType.FLOAT32_LIST:
            return tuple(_same_nan(item) for item in reader.f32s(length, what))


def _truth(section: Section, number: int) -> bool:
    start, value = section.reader.position, section.reader.u8()
    if value > 1:
        section.report(rules.TRUTH_VALUE, start, id=number, value=value, repair="it is read as true")
    return bool(value)


def _same_nan(value: float) -> float:
    """One object for all that are not numbers, so that nodes which hold them are equal."""
    return math.nan if math.isnan(value) else value
