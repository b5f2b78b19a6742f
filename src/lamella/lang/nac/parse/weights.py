"""DATA: the names of parameters and inputs, and tensors whose elements stay where they are."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lamella.base.errors import InputError
from lamella.base.reader import Reader
from lamella.lang.nac.nodes import (
    BlockFp8,
    Input,
    Int8Channel,
    Int8Tensor,
    Method,
    Parameter,
    Quantization,
    Tensor,
    Unscaled,
)
from lamella.lang.nac.parse.reading import GivenUpError, Section
from lamella.lang.nac.rules import container as rules


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
