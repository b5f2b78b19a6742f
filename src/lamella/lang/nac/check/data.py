"""Checks of what a file carries: parameters, inputs, tensors with their quantisation, arrays and resource names."""

from __future__ import annotations

import math
import re
import struct
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.dtype import LANGUAGES
from lamella.base.limits import OutOfRange, ceil_divide, mul
from lamella.base.shape import MOST_AXES, element_count
from lamella.lang.nac.check.tables import LAST_CONSTANT, SymbolTables
from lamella.lang.nac.nodes import (
    INPUT,
    Array,
    BlockFp8,
    Data,
    File,
    Input,
    Int8Channel,
    Int8Tensor,
    Method,
    Parameter,
    Resource,
    Tensor,
    Unscaled,
)
from lamella.lang.nac.operations import LIFTED, is_user_input
from lamella.lang.nac.rules import data as rules
from lamella.lang.nac.rules import sections

DTYPES = tuple(LANGUAGES["nac"].items())
"""The names of element types and what they are, in the order of their codes."""
INT8, FLOAT16 = 7, 2

FITTING: Mapping[Method, frozenset[Method]] = MappingProxyType(
    {
        Method.NONE: frozenset({Method.NONE}),
        Method.FP16: frozenset({Method.NONE, Method.FP16}),
        Method.INT8_TENSOR: frozenset({Method.NONE, Method.INT8_TENSOR}),
        Method.INT8_CHANNEL: frozenset({Method.NONE, Method.INT8_TENSOR, Method.INT8_CHANNEL}),
        Method.BLOCK_FP8: frozenset({Method.NONE, Method.BLOCK_FP8}),
    }
)
"""The quantisations of tensors in a file of each method: what is no floating tensor, or too small, is left as it is."""


def check_tensor(item: Tensor, what: str, method: Method) -> Iterator[Diagnostic]:
    """The bytes of a tensor and its quantisation."""
    yield from check_array(item, what)
    quantization = item.quantization
    if quantization.method not in FITTING[method]:
        yield rules.METHOD_MISMATCH.at(
            item.span, what=what, method=quantization.method.name, header=method.name
        )
    needed = {Method.NONE: item.dtype, Method.FP16: FLOAT16}.get(quantization.method, INT8)
    if item.dtype != needed and item.dtype < len(DTYPES):
        name = DTYPES[item.dtype][0]
        yield rules.QUANT_DTYPE.at(item.span, what=what, method=quantization.method.name, dtype=name)
    if isinstance(quantization, Int8Channel):
        yield from _check_channels(item, quantization, what)
    elif isinstance(quantization, BlockFp8):
        yield from _check_blocks(item, quantization, what)
    if not isinstance(quantization, Unscaled):
        yield from _check_scales(item, quantization, what)


def check_array(item: Tensor | Array, what: str) -> Iterator[Diagnostic]:
    """The element type exists, and type and shape make up the length of the data."""
    if item.dtype >= len(DTYPES):
        yield rules.DTYPE_UNKNOWN.at(item.span, what=what, dtype=item.dtype)
        return
    name, element = DTYPES[item.dtype]
    wanted = _byte_count(item.shape, element.bits // 8)
    if wanted is None:
        yield rules.SHAPE_TOO_LARGE.at(item.span, what=what, shape=show_shape(item.shape), limit=MOST_AXES)
    elif wanted != len(item.data):
        yield rules.DATA_LENGTH.at(
            item.span,
            what=what,
            length=len(item.data),
            dtype=name,
            shape=show_shape(item.shape),
            wanted=wanted,
        )


def _byte_count(shape: Sequence[int], itemsize: int) -> int | None:
    """Bytes of a shape, or None where they cannot be counted."""
    try:
        return None if len(shape) > MOST_AXES else mul(element_count(shape), itemsize)
    except OutOfRange:
        return None


def show_shape(shape: Sequence[int], most: int = 8) -> str:
    """A shape as a message shows it."""
    shown = ", ".join(str(size) for size in shape[:most])
    return f"[{shown}, …]" if len(shape) > most else f"[{shown}]"


def _check_channels(item: Tensor, quantization: Int8Channel, what: str) -> Iterator[Diagnostic]:
    """The axis exists and has one scale for each of its indices."""
    count = len(quantization.scales) // 4
    if quantization.axis >= len(item.shape):
        yield rules.AXIS_RANGE.at(item.span, what=what, axis=quantization.axis, rank=len(item.shape))
    elif count != item.shape[quantization.axis]:
        yield rules.SCALE_COUNT.at(item.span, what=what, count=count, wanted=item.shape[quantization.axis])


def _check_blocks(item: Tensor, quantization: BlockFp8, what: str) -> Iterator[Diagnostic]:
    """The flattened tensor is filled up to whole blocks, each of which has a scale."""
    block, original = quantization.block_size, quantization.shape
    elements = _byte_count(original, 1)
    if elements is None:
        yield rules.SHAPE_TOO_LARGE.at(item.span, what=what, shape=show_shape(original), limit=MOST_AXES)
        return
    if block == 0:
        yield rules.BLOCK_SIZE.at(item.span, what=what)
        return
    blocks = ceil_divide(elements, block)
    if item.shape != (blocks * block,):
        yield rules.BLOCK_SHAPE.at(
            item.span,
            what=what,
            shape=show_shape(item.shape),
            original=show_shape(original),
            block=block,
            wanted=blocks * block,
        )
    elif len(quantization.scales) // 4 != blocks:
        yield rules.SCALE_COUNT.at(item.span, what=what, count=len(quantization.scales) // 4, wanted=blocks)


def _check_scales(
    item: Tensor, quantization: Int8Tensor | Int8Channel | BlockFp8, what: str
) -> Iterator[Diagnostic]:
    """The first scale that is not a positive finite number."""
    scales = (
        [quantization.scale] if isinstance(quantization, Int8Tensor) else read_scales(quantization.scales)
    )
    for number, scale in enumerate(scales):
        if not 0.0 < scale < math.inf:
            yield rules.SCALE_VALUE.at(item.span, what=what, number=number, scale=scale)
            return


def read_scales(data: Data) -> Iterator[float]:
    """Scales from their bytes; a rest that is no number is left."""
    whole = memoryview(data)[: len(data) // 4 * 4]
    return (scale for (scale,) in struct.iter_unpack("<f", whole))


# --- parameters and inputs have names, and parameters have tensors ------------------------------------------


def check_parameters(file: File, tables: SymbolTables) -> Iterator[Diagnostic]:
    """Each parameter has one id and one name, and its tensor in the file where the header says so."""
    names: dict[str, Parameter] = {}
    stored = {item.parameter for item in file.tensors}
    for item in file.parameters:
        first, named = tables.parameters[item.id], names.setdefault(item.name, item)
        if item.id > LAST_CONSTANT:
            yield rules.PARAMETER_UNREACHABLE.at(item.span, id=item.id)
        if not item.name:
            yield rules.NAME_EMPTY.at(item.span, what="parameter", id=item.id)
        elif named.id != item.id:
            labels = [Label(named.span, "named here first")]
            yield rules.PARAMETER_NAME_TWICE.at(
                item.span, name=item.name, first=named.id, id=item.id, labels=labels
            )
        if first is not item:
            labels = [Label(first.span, "named here first")]
            yield rules.PARAMETER_TWICE.at(
                item.span, id=item.id, first=first.name, name=item.name, labels=labels
            )
        elif file.header.internal and item.id not in stored:
            yield rules.TENSOR_MISSING.at(item.span, name=item.name)


def check_inputs(file: File) -> Iterator[Diagnostic]:
    """Each name of an input belongs to one instruction that takes one."""
    places: dict[int, Input] = {}
    names: dict[str, Input] = {}
    for item in file.inputs:
        first, named = places.setdefault(item.index, item), names.setdefault(item.name, item)
        if first is not item:
            labels = [Label(first.span, "named here first")]
            yield rules.INPUT_TWICE.at(
                item.span, index=item.index, first=first.name, name=item.name, labels=labels
            )
        if not item.name:
            yield rules.NAME_EMPTY.at(item.span, what="the input of instruction", id=item.index)
        elif named.index != item.index:
            labels = [Label(named.span, "named here first")]
            yield rules.INPUT_NAME_TWICE.at(
                item.span, first=named.index, index=item.index, name=item.name, labels=labels
            )
        if not _takes_input(file, item.index):
            yield rules.INPUT_NOT_USER.at(item.span, name=item.name, index=item.index)


def _takes_input(file: File, index: int) -> bool:
    """Whether an instruction may have a name: one that takes an input, or a lifted constant."""
    if index >= len(file.instructions):
        return False
    item = file.instructions[index]
    return is_user_input(item) or (item.operation == INPUT and item.variant == LIFTED)


def check_tensors(file: File, tables: SymbolTables) -> Iterator[Diagnostic]:
    """Each tensor belongs to one parameter and is what its metadata says."""
    first: dict[int, Tensor] = {}
    for item in file.tensors:
        if first.setdefault(item.parameter, item) is not item:
            labels = [Label(first[item.parameter].span, "given here first")]
            yield rules.TENSOR_TWICE.at(item.span, id=item.parameter, labels=labels)
        name = tables.parameters.get(item.parameter)
        if name is None:
            yield rules.TENSOR_UNNAMED.at(item.span, id=item.parameter)
        what = f"the tensor of parameter {item.parameter}" if name is None else f"parameter '{name.name}'"
        yield from check_tensor(item, what, file.header.method)


def check_arrays(file: File) -> Iterator[Diagnostic]:
    """Arrays have names of their own and as many bytes as their shapes say."""
    names: set[str] = set()
    for item in file.arrays:
        if item.name in names:
            yield sections.ARRAY_TWICE.at(item.span, name=item.name)
        names.add(item.name)
        yield from check_array(item, f"array '{item.name}'")


# --- resources are named like files of one folder, each once on every system --------------------------------


LONGEST = 255
"""Bytes of a file name that common systems take."""
_DEVICE = re.compile(r"(?:CON|PRN|AUX|NUL|COM[0-9¹²³]|LPT[0-9¹²³]|CONIN\$|CONOUT\$)(?:\..*)?", re.IGNORECASE)
_FORBIDDEN = frozenset('/\\:*?"<>|')


def check_resources(file: File) -> Iterator[Diagnostic]:
    """Names are safe to make files of, and stay apart where upper and lower case are one."""
    seen: dict[str, Resource] = {}
    for item in file.resources:
        reason = name_problem(item.name)
        if reason:
            yield sections.RESOURCE_NAME.at(item.span, name=item.name, reason=reason)
        first = seen.setdefault(unicodedata.normalize("NFC", item.name).casefold(), item)
        if first is not item:
            labels = [Label(first.span, "given here first")]
            yield sections.RESOURCE_TWICE.at(item.span, name=item.name, first=first.name, labels=labels)


def name_problem(name: str) -> str:
    """Why a name is not taken for a file, as the rest of a sentence; nothing where it is."""
    if not name.strip():
        return "has no name"
    if len(name.encode("utf-8", "surrogatepass")) > LONGEST:
        return f"has a name of more than {LONGEST} bytes"
    if not name.isprintable():
        return "has a control character in its name"
    if name in (".", "..") or not _FORBIDDEN.isdisjoint(name):
        return "is named like a path, or with a character that file names do not have"
    if name[-1] in ". " or name[0] == " ":
        return "has a name that begins with a space, or ends with a space or a dot"
    return "has the name of a device" if _DEVICE.fullmatch(name) else ""
