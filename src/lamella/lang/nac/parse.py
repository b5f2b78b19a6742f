"""NAC bytes to nodes, with several errors per run."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from lamella.base.diagnostic import Diagnostic, Rule, sort_findings
from lamella.base.errors import Found, InputError
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.reader import Reader
from lamella.base.source import Binary, Span
from lamella.lang.nac.layout import (
    CONTAINERS,
    INTERNAL,
    MAGIC,
    SLOT,
    TABLE,
    TRAINS,
    UNUSED,
    Container,
    FieldLayout,
    fields_of,
)
from lamella.lang.nac.nodes import (
    FIRST_REGULAR,
    OUTPUT,
    V1_5,
    V1_6,
    V1_7,
    V1_8,
    Array,
    BlockFp8,
    Command,
    Constant,
    ConstantType,
    ConstantValue,
    File,
    Header,
    Input,
    Instruction,
    Int8Channel,
    Int8Tensor,
    Method,
    Operation,
    Orchestrator,
    Parameter,
    Quantization,
    Resource,
    Signature,
    Tensor,
    Tick,
    Unscaled,
)
from lamella.lang.nac.rules import container as rules
from lamella.lang.nac.rules.instructions import UNKNOWN_SIGNATURE

# --- a file and a section while they are read: bounds, findings, giving a section up ------------------------


R = TypeVar("R")
MOST_FINDINGS = 1000
"""Findings of one rule, however often it is broken."""


class ContainerReading:
    """A file while it is read: its bytes, the bounds that it must keep, and what is wrong with it."""

    __slots__ = ("_counts", "data", "findings", "limits", "source")

    def __init__(self, data: memoryview, name: str, limits: Limits) -> None:
        self.data = data
        self.source = Binary(name)
        self.limits = limits
        self.findings: list[Diagnostic] = []
        self._counts: Counter[str] = Counter()

    def span(self, start: int, end: int) -> Span:
        """A range of bytes."""
        return Span(self.source, start, end)

    def report(self, rule: Rule, start: int, end: int, **values: object) -> None:
        """A finding about a range of bytes; of each rule only the first ones are kept."""
        self._counts[rule.code] += 1
        if self._counts[rule.code] <= MOST_FINDINGS:
            self.findings.append(rule.at(self.span(start, end), hint=None, labels=(), **values))

    def report_stray(self, start: int, end: int, behind: str, repair: str = "") -> None:
        """Bytes between two sections belong to nothing, so there must be none."""
        if start < end:
            self.report(rules.STRAY_BYTES, start, end, count=end - start, section=behind, repair=repair)

    def keep_limit(self, option: str, value: int, what: str, start: int) -> None:
        """Give a section up where a number passes a limit."""
        problem = self.limits.excess(option, value, what)
        if problem:
            raise Found(rules.LIMIT.at(self.span(start, start), problem=problem, option=option))


class SectionReader:
    """One section while it is read: no field reaches beyond its end."""

    __slots__ = ("reader", "reading", "tag")

    def __init__(self, reading: ContainerReading, tag: str, reader: Reader) -> None:
        self.reading = reading
        self.tag = tag
        self.reader = reader

    @property
    def name(self) -> str:
        """The section as messages name it."""
        return self.tag.strip()

    def span(self, start: int) -> Span:
        """From a byte to where reading is now."""
        return self.reading.span(start, self.reader.position)

    def report(self, rule: Rule, start: int, **values: object) -> None:
        """A finding about what was read since a byte."""
        self.reading.report(rule, start, self.reader.position, **values)

    def give_up(self, rule: Rule, start: int, **values: object) -> Found:
        """The error that ends the section with a finding about what was read since a byte."""
        return Found(rule.at(self.span(start), hint=None, labels=(), **values))

    def counted(self, each: int, what: str) -> range:
        """As many numbers as the next 32 bits say, once it is certain that so many records can follow."""
        start = self.reader.position
        count = int.from_bytes(self.reader.take(4, f"the number of {what}"), "little")
        self.reader.count(count, each, what)
        self.reading.keep_limit("max_statements", count, f"the number of {what} in {self.name}", start)
        return range(count)

    def text(self, size: int, what: str) -> str:
        """UTF-8 of a given number of bytes; other bytes are a finding and shown as escapes."""
        start = self.reader.position
        data = bytes(self.reader.view(size, what))
        if 0 in data:
            self.report(rules.NOT_TEXT, start, what=what, problem="holds a NUL character")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as problem:
            self.report(rules.NOT_TEXT, start + problem.start, what=what, problem="is not UTF-8")
            return data.decode("utf-8", errors="backslashreplace")

    def finish(self, repair: str = "") -> None:
        """What lies behind the last record belongs to nothing."""
        self.reading.report_stray(self.reader.position, self.reader.end, self.name, repair)

    def close(self, problem: InputError) -> Diagnostic:
        """The finding of a field that reaches beyond the end of the section."""
        start = self.reader.position if problem.offset is None else problem.offset
        place = self.reading.span(start, self.reader.end)
        return rules.CUT_OFF.at(place, section=self.name, problem=problem.message, end=self.reader.end)


def collect(section: SectionReader, records: Iterable[R], repair: str = "") -> list[R]:
    """The records of a section up to the first that cannot be read, which is a finding."""
    found: list[R] = []
    try:
        for record in records:
            found.append(record)
        section.finish(repair)
    except InputError as problem:
        section.reading.findings.append(section.close(problem))
    except Found as problem:
        section.reading.findings += problem.findings
    return found


# --- the header of a file: which version it is, what it says, and where the sections lie --------------------


_METHOD_BYTE, _RESERVED_BYTE = 4, 9
_FIELDS = struct.Struct("<BHHxH")
"""Quantisation byte, inputs, outputs, the reserved byte, d_model."""
_RIVALS: Mapping[int, tuple[Container, Container]] = MappingProxyType(
    {1: (CONTAINERS[V1_5], CONTAINERS[V1_6]), 2: (CONTAINERS[V1_7], CONTAINERS[V1_8])}
)
"""For each version byte two versions; a file is of the first where its first section follows that one's header."""


class SectionTable(NamedTuple):
    """A header and the places of its sections: each begins where it says and ends where the next one begins."""

    header: Header
    container: Container
    places: Mapping[str, tuple[int, int]]
    trains: bool


def read_header(reading: ContainerReading) -> SectionTable | None:
    """The header of a file, or None where there is no way to go on."""
    container = _choose(reading)
    if container is None:
        return None
    header, trains = _read_fields(reading, container)
    offsets = _offsets(reading, container)
    if not any(offsets):
        reading.report(rules.NO_SECTIONS, TABLE, container.padding)
        return None
    return SectionTable(header, container, _find_places(reading, container, offsets), trains)


def _choose(reading: ContainerReading) -> Container | None:
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


def _offsets(reading: ContainerReading, container: Container) -> tuple[int, ...]:
    return Reader(reading.data, TABLE).integers("Q", len(container.slots), "the table of sections")


def _read_fields(reading: ContainerReading, container: Container) -> tuple[Header, bool]:
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


def _method(reading: ContainerReading, code: int) -> Method:
    if code < len(Method):
        return Method(code)
    reading.report(rules.UNKNOWN_METHOD, _METHOD_BYTE, _METHOD_BYTE + 1, method=code)
    return Method.NONE


def _check_zero(reading: ContainerReading, start: int, end: int, what: str) -> None:
    found = bytes(reading.data[start:end])
    if any(found):
        reading.report(rules.RESERVED, start, end, what=what, found=found.hex(" "))


def _find_places(
    reading: ContainerReading, container: Container, offsets: tuple[int, ...]
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
    reading: ContainerReading, container: Container, slot: int, offset: int, starts: Mapping[int, str]
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


# --- the tables that instructions refer to: CMAP, PERM and CNST; and MMAP, the schedule ---------------------


_COMMAND = struct.Struct("<BH")
_LENGTHS: Mapping[ConstantType, int] = MappingProxyType(
    {ConstantType.NULL: 0, ConstantType.BOOL: 1, ConstantType.INT64: 8, ConstantType.FLOAT64: 8}
)
"""The lengths of constants that have only one."""


def read_operations(section: SectionReader) -> Iterator[Operation]:
    """The records of CMAP."""
    reader = section.reader
    for _ in section.counted(3, "operations"):
        start, number, size = reader.position, reader.u16(), reader.u8()
        name = section.text(size, f"the name of operation {number}")
        yield Operation(number, name, section.span(start))


def read_signatures(section: SectionReader) -> Iterator[Signature]:
    """The records of PERM."""
    reader = section.reader
    for _ in section.counted(3, "signatures"):
        start, number, size = reader.position, reader.u16(), reader.u8()
        codes = section.text(size, f"signature {number}")
        yield Signature(number, codes, section.span(start))


def read_schedule(section: SectionReader) -> Iterator[Tick]:
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


def read_constants(section: SectionReader) -> Iterator[Constant]:
    """The records of CNST."""
    for _ in section.counted(5, "constants"):
        constant = read_constant(section)
        if constant is not None:
            yield constant


def read_constant(section: SectionReader) -> Constant | None:
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


def _read_value(section: SectionReader, kind: ConstantType, number: int, length: int) -> ConstantValue:
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


def _truth(section: SectionReader, number: int) -> bool:
    start, value = section.reader.position, section.reader.u8()
    if value > 1:
        section.report(rules.TRUTH_VALUE, start, id=number, value=value, repair="it is read as true")
    return bool(value)


def _same_nan(value: float) -> float:
    """One object for all that are not numbers, so that nodes which hold them are equal."""
    return math.nan if math.isnan(value) else value


# --- DATA: the names of parameters and inputs, and tensors whose elements stay where they are ---------------


def read_data(section: SectionReader, internal: bool) -> Iterator[Parameter | Input | Tensor]:
    """The three blocks, of which the last is there only where weights are internal."""
    yield from _read_parameters(section)
    yield from _read_inputs(section)
    if internal:
        yield from _read_tensors(section)


def _read_parameters(section: SectionReader) -> Iterator[Parameter]:
    for _ in section.counted(4, "parameters"):
        start = section.reader.position
        number, name = _read_name(section, "parameter")
        yield Parameter(number, name, section.span(start))


def _read_inputs(section: SectionReader) -> Iterator[Input]:
    for _ in section.counted(4, "inputs"):
        start = section.reader.position
        index, name = _read_name(section, "the input of instruction")
        yield Input(index, name, section.span(start))


def _read_name(section: SectionReader, what: str) -> tuple[int, str]:
    """A number and the name that it stands for."""
    number, size = section.reader.u16(), section.reader.u16()
    return number, section.text(size, f"the name of {what} {number}")


def _read_tensors(section: SectionReader) -> Iterator[Tensor]:
    reader = section.reader
    for _ in section.counted(14, "tensors"):
        start, number = reader.position, reader.u16()
        metadata_size, size = reader.u32(), reader.u64()
        metadata = reader.part(metadata_size, f"the metadata of parameter {number}")
        data = reader.view(size, f"the tensor of parameter {number}")
        try:
            dtype, shape, quantization = _read_metadata(section, metadata, number)
        except InputError as problem:
            _report_metadata(section, metadata, number, f"is cut off: {problem.message}")
        except Found as problem:
            section.reading.findings += problem.findings
        else:
            yield Tensor(number, dtype, shape, quantization, data, section.span(start))


def _read_metadata(
    section: SectionReader, metadata: Reader, number: int
) -> tuple[int, tuple[int, ...], Quantization]:
    """Type, shape and quantisation, which together are as long as the metadata."""
    dtype, rank, start = metadata.u8(), metadata.u8(), metadata.position
    section.reading.keep_limit("max_rank", rank, f"the rank of parameter {number}", start - 1)
    shape = metadata.integers("I", rank, "the shape")
    code = metadata.u8()
    if code >= len(Method):
        place = section.reading.span(metadata.position - 1, metadata.position)
        raise Found(rules.TENSOR_METHOD.at(place, id=number, method=code))
    quantization = _read_quantization(section, metadata, Method(code))
    if metadata.remaining:
        _report_metadata(section, metadata, number, f"has {metadata.remaining} bytes that mean nothing")
    return dtype, shape, quantization


def _report_metadata(section: SectionReader, metadata: Reader, number: int, problem: str) -> None:
    section.reading.report(rules.METADATA, metadata.position, metadata.end, id=number, problem=problem)


def _read_quantization(section: SectionReader, metadata: Reader, method: Method) -> Quantization:
    if method is Method.INT8_TENSOR:
        scale = metadata.f32()
        return Int8Tensor(math.nan if math.isnan(scale) else scale)
    if method is Method.INT8_CHANNEL:
        axis = metadata.u8()
        return Int8Channel(axis, _read_scales(metadata))
    if method is Method.BLOCK_FP8:
        block_size, rank = metadata.u16(), metadata.u8()
        section.reading.keep_limit("max_rank", rank, "the original rank", metadata.position - 1)
        shape = metadata.integers("I", rank, "the original shape")
        return BlockFp8(block_size, shape, _read_scales(metadata))
    return Unscaled(method)


def _read_scales(metadata: Reader) -> memoryview:
    count = metadata.u32()
    return metadata.view(4 * metadata.count(count, 4, "a list of scales"), "scales")


# --- OPS and TRNG: instructions, whose fields C and D are as long as their signature says -------------------


def read_instructions(
    section: SectionReader, signatures: Mapping[int, str], outputs: int
) -> Iterator[Instruction]:
    """The instructions of a section; `outputs` is the count in the header."""

    @cache
    def fields(operation: int, variant: int) -> FieldLayout | None:
        return fields_of(operation, variant, signatures.get(variant), outputs)

    reader, unsigned = section.reader, _Unsigned(section, signatures)
    for index in section.counted(2, "instructions"):
        start = reader.position
        try:
            operation, variant = reader.integers("B", 2, "an operation")
            known = fields(operation, variant)
            if known is None:
                values = {"index": index, "operation": operation, "variant": variant}
                raise section.give_up(rules.UNKNOWN_FIELDS, start, **values)
            constants = () if known.constants is None else _read_constants(section, known, index)
            offsets = reader.integers("h", known.offsets, "field D") if known.offsets else ()
        except InputError as problem:
            unsigned.report()
            raise InputError(f"instruction {index}: {problem.message}", problem.offset) from None
        except Found:
            unsigned.report()
            raise
        unsigned.note(operation, variant, start)
        if operation == OUTPUT and variant < 2:
            constants = _check_reserved(section, start, index, constants)
        yield Instruction(operation, variant, constants, offsets, section.span(start))
    if reader.position < reader.end:
        unsigned.report()


class _Unsigned:
    """The first instruction whose signature nobody knows: what it was read as may be why others cannot be read."""

    def __init__(self, section: SectionReader, signatures: Mapping[int, str]) -> None:
        self._section, self._signatures = section, signatures
        self._first: tuple[int, int, int] | None = None

    def note(self, operation: int, variant: int, start: int) -> None:
        """Look at an instruction that was read."""
        if self._first is None and operation >= FIRST_REGULAR and variant and variant not in self._signatures:
            self._first = variant, start, self._section.reader.position

    def report(self) -> None:
        """Say so where reading ends."""
        if self._first is not None:
            number, start, end = self._first
            self._section.reading.report(UNKNOWN_SIGNATURE, start, end, id=number)


def _read_constants(section: SectionReader, fields: FieldLayout, index: int) -> tuple[int, ...]:
    """Field C without its prefix, which is believed only where nothing else tells the length."""
    reader = section.reader
    start, prefix = reader.position, reader.i16()
    if fields.counted and prefix < 0:
        raise section.give_up(rules.NEGATIVE_COUNT, start, index=index, count=prefix)
    if not fields.counted and prefix not in fields.prefixes:
        section.report(rules.PREFIX, start, index=index, found=prefix, wanted=fields.prefixes[0])
    return reader.integers("h", prefix if fields.counted else fields.constants or 0, "field C")


def _check_reserved(
    section: SectionReader, start: int, index: int, found: tuple[int, ...]
) -> tuple[int, ...]:
    """The values of an output's field C mean nothing and are not kept."""
    if any(found):
        values = ", ".join(str(item) for item in found[:8])
        section.report(rules.RESERVED_VALUES, start, index=index, found=values)
    return ()


# --- what comes with a model: PROC, ORCH and RSRC, and ARRS of newer files ----------------------------------


def read_manifest(section: SectionReader) -> Iterator[memoryview]:
    """The one block of PROC."""
    yield section.reader.view(section.reader.u32(), "the manifest")


def read_plan(section: SectionReader) -> Iterator[memoryview | Constant]:
    """The bytecode of ORCH, then its constants."""
    reader = section.reader
    size, start, count = reader.u32(), reader.position, reader.u32()
    yield reader.view(size, "the bytecode")
    reader.count(count, 5, "constants")
    section.reading.keep_limit("max_statements", count, "the number of constants in ORCH", start)
    for _ in range(count):
        constant = read_constant(section)
        if constant is not None:
            yield constant


def read_resources(section: SectionReader) -> Iterator[Resource]:
    """The records of RSRC."""
    reader = section.reader
    for number in section.counted(6, "resources"):
        start = reader.position
        name = section.text(reader.u16(), f"the name of resource {number}")
        data = reader.view(reader.u32(), f"resource {number}")
        yield Resource(name, data, section.span(start))


def read_arrays(section: SectionReader) -> Iterator[Array]:
    """The records of ARRS."""
    reader = section.reader
    for number in section.counted(12, "arrays"):
        start = reader.position
        name = section.text(reader.u16(), f"the name of array {number}")
        dtype, rank = reader.u8(), reader.u8()
        section.reading.keep_limit("max_rank", rank, f"the rank of array {number}", start)
        shape = reader.integers("I", rank, f"the shape of array {number}")
        data = reader.view(reader.u64(), f"array {number}")
        yield Array(name, dtype, shape, data, section.span(start))


# --- the sections of a file one after another, those first that others need ---------------------------------


T = TypeVar("T")
_EXTERNAL = "the header says that the weights stand elsewhere"


def read_sections(reading: ContainerReading, table: SectionTable) -> File:
    """The file behind a header."""
    _check_presence(reading, table)
    parts = _SectionParts(reading, table)
    signatures = parts.read("PERM", read_signatures)
    codes = {item.id: item.codes for item in signatures}

    def instructions(section: SectionReader) -> Iterator[Instruction]:
        return read_instructions(section, codes, table.header.outputs)

    data = parts.read("DATA", lambda section: read_data(section, table.header.internal))
    return File(
        header=table.header,
        operations=parts.read("CMAP", read_operations),
        signatures=signatures,
        constants=parts.read("CNST", read_constants),
        instructions=parts.read("OPS ", instructions),
        schedule=parts.read("MMAP", read_schedule),
        parameters=tuple(item for item in data if isinstance(item, Parameter)),
        inputs=tuple(item for item in data if isinstance(item, Input)),
        tensors=tuple(item for item in data if isinstance(item, Tensor)),
        manifest=next(iter(parts.read("PROC", read_manifest)), b""),
        orchestrator=_orchestrator(parts),
        resources=parts.read("RSRC", read_resources),
        training=parts.read("TRNG", instructions),
        arrays=parts.read("ARRS", read_arrays),
        span=reading.span(0, len(reading.data)),
        manifest_span=reading.span(*table.places.get("PROC", (0, 0))),
    )


def _check_presence(reading: ContainerReading, table: SectionTable) -> None:
    """What a header promises or cannot do without."""
    if "OPS " not in table.places:
        reading.report(rules.NO_INSTRUCTIONS, TABLE, table.container.padding)
    there = "TRNG" in table.places
    if there != table.trains:
        values = {"bit": int(table.trains), "presence": "there" if there else "not there"}
        reading.report(rules.TRAINING_FLAG, 4, 5, **values)


def _orchestrator(parts: _SectionParts) -> Orchestrator:
    found = parts.read("ORCH", read_plan)
    start, end = parts.table.places.get("ORCH", (0, 0))
    constants = tuple(item for item in found if isinstance(item, Constant))
    bytecode = next((item for item in found if isinstance(item, memoryview)), b"")
    return Orchestrator(bytecode, constants, parts.reading.span(start, end))


class _SectionParts:
    """The sections that a header names."""

    def __init__(self, reading: ContainerReading, table: SectionTable) -> None:
        self.reading = reading
        self.table = table

    def read(self, tag: str, records: Callable[[SectionReader], Iterator[T]]) -> tuple[T, ...]:
        """The records of a section; none where it is absent or not what its slot says."""
        if tag not in self.table.places:
            return ()
        section = SectionReader(self.reading, tag, Reader(self.reading.data, *self.table.places[tag]))
        if not self._has_tag(section):
            return ()
        external = tag == "DATA" and not self.table.header.internal
        return tuple(collect(section, records(section), _EXTERNAL if external else ""))

    def _has_tag(self, section: SectionReader) -> bool:
        start = section.reader.position
        try:
            found = section.reader.take(4, "the tag")
        except InputError as problem:
            self.reading.findings.append(section.close(problem))
            return False
        if found == section.tag.encode():
            return True
        known = [tag for tag in self.table.container.slots if found == tag.encode()]
        repair = f"that is the tag of {known[0].strip()}" if known else "the section is not read"
        section.report(rules.WRONG_TAG, start, section=section.name, found=repr(found), repair=repair)
        return False


class ParsedFile(NamedTuple):
    """A file and what was found wrong with its bytes; what could not be read is not in it."""

    file: File
    findings: tuple[Diagnostic, ...]


def parse(data: bytes | memoryview, name: str = "<bytes>", limits: Limits = DEFAULT) -> ParsedFile:
    """The file of some bytes; never raises, whatever they are. Weights stay views of the bytes."""
    reading = ContainerReading(memoryview(data).toreadonly().cast("B"), name, limits)
    with gc_paused():
        table = read_header(reading)
        file = File() if table is None else read_sections(reading, table)
    return ParsedFile(file, tuple(sort_findings(reading.findings)))
