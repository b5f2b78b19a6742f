"""DATA as bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from lamella.lang.nac.nodes import BlockFp8, Data, File, Input, Int8Channel, Int8Tensor, Parameter, Tensor
from lamella.lang.nac.rules import writing as rules
from lamella.lang.nac.write.image import Image
from lamella.lang.nac.write.tables import write_count

_SCALE = 4


def write_data(image: Image, file: File) -> None:
    """The three blocks, of which the last is there only where weights are internal."""
    _write_parameters(image, file.parameters)
    _write_inputs(image, file.inputs)
    if file.header.internal:
        write_count(image, file.tensors)
        for tensor in file.tensors:
            _write_tensor(image, tensor)
    elif file.tensors:
        image.report(rules.EXTERNAL_TENSORS, file.tensors[0].span, count=len(file.tensors))


def _write_parameters(image: Image, parameters: Sequence[Parameter]) -> None:
    write_count(image, parameters)
    for item in parameters:
        image.number("H", item.id, "a parameter id", item.span)
        image.text("H", item.name, f"the name of parameter {item.id}", item.span)


def _write_inputs(image: Image, inputs: Sequence[Input]) -> None:
    write_count(image, inputs)
    for item in inputs:
        image.number("H", item.index, "the instruction of an input", item.span)
        image.text("H", item.name, f"the name of the input of instruction {item.index}", item.span)


def _write_tensor(image: Image, tensor: Tensor) -> None:
    metadata = Image()
    metadata.section = f"{image.section}'s metadata"
    _write_metadata(metadata, tensor)
    image.findings += metadata.findings
    what = f"parameter {tensor.parameter}"
    image.number("H", tensor.parameter, "the parameter id of a tensor", tensor.span)
    image.number("I", metadata.size, f"the length of the metadata of {what}", tensor.span)
    image.number("Q", memoryview(tensor.data).nbytes, f"the length of the tensor of {what}", tensor.span)
    for piece in metadata.pieces():
        image.block(piece)
    image.block(tensor.data)


def _write_metadata(image: Image, tensor: Tensor) -> None:
    what, span, quantization = f"parameter {tensor.parameter}", tensor.span, tensor.quantization
    image.number("B", tensor.dtype, f"the element type of {what}", span)
    _write_shape(image, tensor.shape, tensor)
    image.number("B", quantization.method, f"the quantisation code of {what}", span)
    match quantization:
        case Int8Tensor(scale):
            _write_scale(image, scale, tensor)
        case Int8Channel(axis, scales):
            image.number("B", axis, f"the axis of {what}", span)
            _write_scales(image, scales, tensor)
        case BlockFp8(block_size, shape, scales):
            image.number("H", block_size, f"the block size of {what}", span)
            _write_shape(image, shape, tensor)
            _write_scales(image, scales, tensor)


def _write_shape(image: Image, shape: tuple[int, ...], tensor: Tensor) -> None:
    image.number("B", len(shape), f"the rank of parameter {tensor.parameter}", tensor.span)
    image.numbers("I", shape, f"the shape of parameter {tensor.parameter}", tensor.span)


def _write_scale(image: Image, scale: float, tensor: Tensor) -> None:
    try:
        image.block(struct.pack("<f", scale))
    except OverflowError:
        what = f"the scale of parameter {tensor.parameter}"
        image.report(rules.VALUE, tensor.span, what=what, problem=f"is {scale}, which is beyond float32")


def _write_scales(image: Image, scales: Data, tensor: Tensor) -> None:
    count, rest = divmod(memoryview(scales).nbytes, _SCALE)
    if rest:
        what = f"the list of scales of parameter {tensor.parameter}"
        problem = f"has {_SCALE * count + rest} bytes, which are no whole number of scales"
        image.report(rules.VALUE, tensor.span, what=what, problem=problem)
    image.number("I", count, f"the number of scales of parameter {tensor.parameter}", tensor.span)
    image.block(scales)
