"""NAC bytes to nodes, with several errors per run."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.errors import InputError
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.reader import Reader
from lamella.lang.nac.layout import TABLE, Fields, fields_of
from lamella.lang.nac.nodes import (
    OUTPUT,
    Array,
    BlockFp8,
    Command,
    Constant,
    ConstantType,
    ConstantValue,
    File,
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
from lamella.lang.nac.parse.header import Table, read_header
from lamella.lang.nac.parse.reading import GivenUpError, Reading, Section, collect
from lamella.lang.nac.rules import container as rules

# --- the tables that instructions refer to: CMAP, PERM and CNST; and MMAP, the schedule ---------------------


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


# --- DATA: the names of parameters and inputs, and tensors whose elements stay where they are ---------------


def read_data(section: Section, internal: bool) -> Iterator[Parameter | Input | Tensor]:
    """The three blocks, of which the last is there only where weights are internal."""
    yield from _read_parameters(section)
    yield from _read_inputs(section)
    if internal:
        yield from _read_tensors(section)


def _read_parameters(section: Section) -> Iterator[Parameter]:
    for _ in section.counted(4, "parameters"):
        start = section.reader.position
        number, name = _read_name(section, "parameter")
        yield Parameter(number, name, section.span(start))


def _read_inputs(section: Section) -> Iterator[Input]:
    for _ in section.counted(4, "inputs"):
        start = section.reader.position
        index, name = _read_name(section, "the input of instruction")
        yield Input(index, name, section.span(start))


def _read_name(section: Section, what: str) -> tuple[int, str]:
    """A number and the name that it stands for."""
    number, size = section.reader.u16(), section.reader.u16()
    return number, section.text(size, f"the name of {what} {number}")


def _read_tensors(section: Section) -> Iterator[Tensor]:
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
        except GivenUpError as problem:
            section.reading.findings.append(problem.finding)
        else:
            yield Tensor(number, dtype, shape, quantization, data, section.span(start))


def _read_metadata(
    section: Section, metadata: Reader, number: int
) -> tuple[int, tuple[int, ...], Quantization]:
    """Type, shape and quantisation, which together are as long as the metadata."""
    dtype, rank, start = metadata.u8(), metadata.u8(), metadata.position
    section.reading.keep_limit("max_rank", rank, f"the rank of parameter {number}", start - 1)
    shape = metadata.integers("I", rank, "the shape")
    code = metadata.u8()
    if code >= len(Method):
        place = section.reading.span(metadata.position - 1, metadata.position)
        raise GivenUpError(rules.TENSOR_METHOD.at(place, id=number, method=code))
    quantization = _read_quantization(section, metadata, Method(code))
    if metadata.remaining:
        _report_metadata(section, metadata, number, f"has {metadata.remaining} bytes that mean nothing")
    return dtype, shape, quantization


def _report_metadata(section: Section, metadata: Reader, number: int, problem: str) -> None:
    section.reading.report(rules.METADATA, metadata.position, metadata.end, id=number, problem=problem)


def _read_quantization(section: Section, metadata: Reader, method: Method) -> Quantization:
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


def read_instructions(section: Section, signatures: Mapping[int, str], outputs: int) -> Iterator[Instruction]:
    """The instructions of a section; `outputs` is the count in the header."""

    @cache
    def fields(operation: int, variant: int) -> Fields | None:
        return fields_of(operation, variant, signatures.get(variant), outputs)

    reader = section.reader
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
            raise InputError(f"instruction {index}: {problem.message}", problem.offset) from None
        if operation == OUTPUT and variant < 2:
            constants = _check_reserved(section, start, index, constants)
        yield Instruction(operation, variant, constants, offsets, section.span(start))


def _read_constants(section: Section, fields: Fields, index: int) -> tuple[int, ...]:
    """Field C without its prefix, which is believed only where nothing else tells the length."""
    reader = section.reader
    start, prefix = reader.position, reader.i16()
    if fields.counted and prefix < 0:
        raise section.give_up(rules.NEGATIVE_COUNT, start, index=index, count=prefix)
    if not fields.counted and prefix not in fields.prefixes:
        section.report(rules.PREFIX, start, index=index, found=prefix, wanted=fields.prefixes[0])
    return reader.integers("h", prefix if fields.counted else fields.constants or 0, "field C")


def _check_reserved(section: Section, start: int, index: int, found: tuple[int, ...]) -> tuple[int, ...]:
    """The values of an output's field C mean nothing and are not kept."""
    if any(found):
        values = ", ".join(str(item) for item in found[:8])
        section.report(rules.RESERVED_VALUES, start, index=index, found=values)
    return ()


# --- what comes with a model: PROC, ORCH and RSRC, and ARRS of newer files ----------------------------------


def read_manifest(section: Section) -> Iterator[memoryview]:
    """The one block of PROC."""
    yield section.reader.view(section.reader.u32(), "the manifest")


def read_plan(section: Section) -> Iterator[memoryview | Constant]:
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


def read_resources(section: Section) -> Iterator[Resource]:
    """The records of RSRC."""
    reader = section.reader
    for number in section.counted(6, "resources"):
        start = reader.position
        name = section.text(reader.u16(), f"the name of resource {number}")
        data = reader.view(reader.u32(), f"resource {number}")
        yield Resource(name, data, section.span(start))


def read_arrays(section: Section) -> Iterator[Array]:
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


def read_sections(reading: Reading, table: Table) -> File:
    """The file behind a header."""
    _check_presence(reading, table)
    parts = _Parts(reading, table)
    signatures = parts.read("PERM", read_signatures)
    codes = {item.id: item.codes for item in signatures}

    def instructions(section: Section) -> Iterator[Instruction]:
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


def _check_presence(reading: Reading, table: Table) -> None:
    """What a header promises or cannot do without."""
    if "OPS " not in table.places:
        reading.report(rules.NO_INSTRUCTIONS, TABLE, table.container.padding)
    there = "TRNG" in table.places
    if there != table.trains:
        values = {"bit": int(table.trains), "presence": "there" if there else "not there"}
        reading.report(rules.TRAINING_FLAG, 4, 5, **values)


def _orchestrator(parts: _Parts) -> Orchestrator:
    found = parts.read("ORCH", read_plan)
    start, end = parts.table.places.get("ORCH", (0, 0))
    constants = tuple(item for item in found if isinstance(item, Constant))
    bytecode = next((item for item in found if isinstance(item, memoryview)), b"")
    return Orchestrator(bytecode, constants, parts.reading.span(start, end))


class _Parts:
    """The sections that a header names."""

    def __init__(self, reading: Reading, table: Table) -> None:
        self.reading = reading
        self.table = table

    def read(self, tag: str, records: Callable[[Section], Iterator[T]]) -> tuple[T, ...]:
        """The records of a section; none where it is absent or not what its slot says."""
        if tag not in self.table.places:
            return ()
        section = Section(self.reading, tag, Reader(self.reading.data, *self.table.places[tag]))
        if not self._has_tag(section):
            return ()
        external = tag == "DATA" and not self.table.header.internal
        return tuple(collect(section, records(section), _EXTERNAL if external else ""))

    def _has_tag(self, section: Section) -> bool:
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


class Parsed(NamedTuple):
    """A file and what was found wrong with its bytes; what could not be read is not in it."""

    file: File
    findings: tuple[Diagnostic, ...]


def parse(data: bytes | memoryview, name: str = "<bytes>", limits: Limits = DEFAULT) -> Parsed:
    """The file of some bytes; never raises, whatever they are. Weights stay views of the bytes."""
    reading = Reading(memoryview(data).toreadonly().cast("B"), name, limits)
    with gc_paused():
        table = read_header(reading)
        file = File() if table is None else read_sections(reading, table)
    return Parsed(file, tuple(sort_findings(reading.findings)))
