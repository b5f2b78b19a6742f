"""Nodes to the bytes of version 1.6: the same file gives the same bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, LamellaError, Rule
from lamella.base.source import NOWHERE, Span
from lamella.lang.nac.layout import CONTAINERS, INTERNAL, MAGIC, WRITTEN, FieldLayout, fields_of
from lamella.lang.nac.nodes import (
    OUTPUT,
    V1_6,
    BlockFp8,
    Constant,
    ConstantType,
    Data,
    File,
    Input,
    Instruction,
    Int8Channel,
    Int8Tensor,
    Operation,
    Parameter,
    Signature,
    Tensor,
    Tick,
)
from lamella.lang.nac.rules import container as rules

# --- the bytes of a file while they are written: fields are checked, and large blocks are not copied --------


_LARGE = 4096
"""Blocks from this size on stay where they are until the file is written."""
_RANGES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        **{code: (0, (1 << bits) - 1) for code, bits in (("B", 8), ("H", 16), ("I", 32), ("Q", 64))},
        **{code: (-(1 << bits - 1), (1 << bits - 1) - 1) for code, bits in (("h", 16), ("i", 32), ("q", 64))},
    }
)
"""What the integers hold that `struct` calls by a letter."""


class Image:
    """Pieces one behind the other; what a field cannot hold is a finding, and a zero in its place."""

    def __init__(self) -> None:
        self.findings: list[Diagnostic] = []
        self.section = "the header"
        self._pieces: list[Data] = []
        self._buffer = bytearray()
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes up to here."""
        return self._size + len(self._buffer)

    def pieces(self) -> tuple[Data, ...]:
        """All bytes in order."""
        self._flush()
        return tuple(self._pieces)

    def _flush(self) -> None:
        if self._buffer:
            self._pieces.append(bytes(self._buffer))
            self._size += len(self._buffer)
            self._buffer = bytearray()

    def begin(self, tag: str) -> int:
        """Begin a section with its tag; gives its offset."""
        start = self.size
        self.section = tag.strip()
        self._buffer += tag.encode()
        return start

    def report(self, rule: Rule, span: Span, **values: object) -> None:
        """A finding about a node."""
        self.findings.append(rule.at(span, hint=None, labels=(), **values))

    def block(self, data: Data) -> None:
        """Bytes as they are."""
        view = memoryview(data)
        view = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
        if len(view) < _LARGE:
            self._buffer += view
        else:
            self._flush()
            self._pieces.append(view)
            self._size += len(view)

    def number(self, code: str, value: int, what: str, span: Span) -> None:
        """An integer of the type that `struct` calls by a letter."""
        self._buffer += struct.pack(f"<{code}", value if self._fits(code, value, what, span) else 0)

    def numbers(self, code: str, values: tuple[int, ...], what: str, span: Span) -> None:
        """Integers in a row."""
        low, high = _RANGES[code]
        if values and (min(values) < low or max(values) > high):
            for index, value in enumerate(values):
                self._fits(code, value, f"{what}[{index}]", span)
        else:
            self._buffer += struct.pack(f"<{len(values)}{code}", *values)

    def text(self, code: str, text: str, what: str, span: Span) -> None:
        """The length of a text in bytes, then its bytes."""
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError:
            self.report(rules.UNWRITABLE_TEXT, span, what=what, problem="is not Unicode text")
            data = b""
        if 0 in data:
            self.report(rules.UNWRITABLE_TEXT, span, what=what, problem="holds a NUL character")
        self.number(code, len(data), f"the length of {what}", span)
        self.block(data)

    def _fits(self, code: str, value: int, what: str, span: Span) -> bool:
        low, high = _RANGES[code]
        if low <= value <= high:
            return True
        shown = value if value.bit_length() <= 128 else f"a {value.bit_length()}-bit number"
        values = {"what": what, "value": shown, "section": self.section, "low": low, "high": high}
        self.report(rules.FIELD_RANGE, span, **values)
        return False


# --- CMAP, PERM, CNST and MMAP as bytes ---------------------------------------------------------------------


def write_count(image: Image, records: Sequence[object]) -> None:
    """How many records follow."""
    image.number("I", len(records), f"the number of records of {image.section}", NOWHERE)


def write_operations(image: Image, operations: Sequence[Operation]) -> None:
    """The records of CMAP."""
    write_count(image, operations)
    for item in operations:
        image.number("H", item.id, "an operation id", item.span)
        image.text("B", item.name, f"the name of operation {item.id}", item.span)


def write_signatures(image: Image, signatures: Sequence[Signature]) -> None:
    """The records of PERM."""
    write_count(image, signatures)
    for item in signatures:
        image.number("H", item.id, "a signature id", item.span)
        image.text("B", item.codes, f"signature {item.id}", item.span)


def write_schedule(image: Image, schedule: Sequence[Tick]) -> None:
    """The records of MMAP."""
    write_count(image, schedule)
    for tick in schedule:
        image.number("H", tick.index, "a tick", tick.span)
        image.number("B", len(tick.commands), f"the number of commands of tick {tick.index}", tick.span)
        for command in tick.commands:
            image.number("B", command.action, f"an action of tick {tick.index}", command.span)
            image.number("H", command.target, f"a target of tick {tick.index}", command.span)


def write_constants(image: Image, constants: Sequence[Constant]) -> None:
    """Constants one behind the other, without their number."""
    for item in constants:
        image.number("H", item.id, "a constant id", item.span)
        image.number("B", item.type, f"the type of constant {item.id}", item.span)
        if not _write_value(image, item):
            problem = f"is of type {item.type.name}, but its value is {repr(item.value)[:80]}"
            image.report(rules.VALUE, item.span, what=f"constant {item.id}", problem=problem)


def _write_value(image: Image, item: Constant) -> bool:
    """The length and the value of a constant; says whether its value is of its type."""
    what, span = f"constant {item.id}", item.span
    match item.type, item.value:
        case ConstantType.NULL, None:
            image.number("H", 0, what, span)
        case ConstantType.BOOL, bool(truth):
            image.block(struct.pack("<HB", 1, truth))
        case ConstantType.INT64, int(value) if not isinstance(value, bool):
            image.number("H", 8, what, span)
            image.number("q", value, what, span)
        case ConstantType.FLOAT64, float(real):
            image.block(struct.pack("<Hd", 8, real))
        case ConstantType.STRING, str(text):
            image.text("H", text, what, span)
        case ConstantType.INT32_LIST, tuple(items):
            return _write_integers(image, items, item)
        case ConstantType.FLOAT32_LIST, tuple(items):
            return _write_reals(image, items, item)
        case _:
            return False
    return True


def _write_integers(image: Image, items: Sequence[float], item: Constant) -> bool:
    whole = tuple(value for value in items if isinstance(value, int))
    image.number("H", len(items), f"the length of constant {item.id}", item.span)
    image.numbers("i", whole, f"constant {item.id}", item.span)
    return len(whole) == len(items)


def _write_reals(image: Image, items: Sequence[float], item: Constant) -> bool:
    image.number("H", len(items), f"the length of constant {item.id}", item.span)
    try:
        image.block(struct.pack(f"<{len(items)}f", *items))
    except OverflowError:
        return False
    return all(isinstance(value, float) for value in items)


# --- DATA as bytes ------------------------------------------------------------------------------------------


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


# --- OPS as bytes: fields C and D in the spelling of the public compiler ------------------------------------


def write_instructions(image: Image, file: File) -> None:
    """The instructions of a file, which its signatures give their form."""
    codes = {item.id: item.codes for item in file.signatures}
    write_count(image, file.instructions)
    for index, item in enumerate(file.instructions):
        image.number("B", item.operation, f"the operation of instruction {index}", item.span)
        image.number("B", item.variant, f"the variant of instruction {index}", item.span)
        fields = fields_of(item.operation, item.variant, codes.get(item.variant), file.header.outputs)
        if fields is None:
            values = {"index": index, "operation": item.operation, "variant": item.variant}
            image.report(rules.UNWRITABLE_OPERATION, item.span, **values)
        elif _agrees(image, index, item, fields):
            _write_fields(image, index, item, fields)


def _agrees(image: Image, index: int, item: Instruction, fields: FieldLayout) -> bool:
    """Whether an instruction has as many constants and offsets as its operation."""
    wanted = 0 if _is_output(item) else fields.constants or 0
    right = True
    if len(item.constants) != wanted and (fields.constants is None or not fields.counted):
        right = _report(image, index, item, "C", wanted)
    if len(item.offsets) != fields.offsets:
        right = _report(image, index, item, "D", fields.offsets)
    return right


def _report(image: Image, index: int, item: Instruction, field: str, wanted: int) -> bool:
    given = len(item.constants if field == "C" else item.offsets)
    image.report(rules.FIELDS, item.span, index=index, field=field, given=given, wanted=wanted)
    return False


def _is_output(item: Instruction) -> bool:
    """Whether field C means nothing and is written as zeros."""
    return item.operation == OUTPUT and item.variant < 2


def _write_fields(image: Image, index: int, item: Instruction, fields: FieldLayout) -> None:
    if fields.constants is not None:
        constants = (0,) * fields.constants if _is_output(item) else item.constants
        prefix = len(constants) if fields.counted else fields.prefixes[0]
        image.number("h", prefix, f"the length of field C of instruction {index}", item.span)
        image.numbers("h", constants, f"field C of instruction {index}", item.span)
    image.numbers("h", item.offsets, f"field D of instruction {index}", item.span)


# --- a file as bytes of version 1.6: sections in the order of the public compiler, the header last ----------


_CONTAINER = CONTAINERS[V1_6]


def to_pieces(file: File) -> tuple[tuple[Data, ...], list[Diagnostic]]:
    """The bytes of a file, large blocks as they lie in memory, and what they cannot say."""
    image = Image()
    _check_version(image, file)
    image.block(bytes(_CONTAINER.size))
    offsets = {tag: _write_section(image, file, tag) for tag in WRITTEN}
    head, *rest = image.pieces()
    header = _header(image, file, offsets)
    return (header + bytes(head[_CONTAINER.size :]), *rest), image.findings


def _check_version(image: Image, file: File) -> None:
    if file.header.version != V1_6:
        image.report(rules.VERSION, file.header.span, version=file.header.version)
    for section, records in (("TRNG", file.training), ("ARRS", file.arrays)):
        if records:
            image.report(rules.NEWER_SECTION, records[0].span, section=section)


def _header(image: Image, file: File, offsets: Mapping[str, int]) -> bytes:
    """The header, written when it is known where the sections lie."""
    header, head = file.header, Image()
    head.block(MAGIC + bytes([_CONTAINER.byte, header.method | INTERNAL * header.internal]))
    head.number("H", header.inputs, "the number of inputs", header.span)
    head.number("H", header.outputs, "the number of outputs", header.span)
    head.number("B", 0, "the reserved byte", header.span)
    head.number("H", header.d_model, "d_model", header.span)
    for tag in _CONTAINER.slots:
        head.block(struct.pack("<Q", offsets[tag]))
    image.findings += head.findings
    return b"".join(head.pieces()).ljust(_CONTAINER.size, b"\0")


def _write_section(image: Image, file: File, tag: str) -> int:
    """Write a section and give its offset; PROC and RSRC are left out where they are empty."""
    if (tag == "PROC" and not len(file.manifest)) or (tag == "RSRC" and not file.resources):
        return 0
    start = image.begin(tag)
    _WRITERS[tag](image, file)
    return start


def _write_constants(image: Image, file: File) -> None:
    write_count(image, file.constants)
    write_constants(image, file.constants)


def _write_manifest(image: Image, file: File) -> None:
    image.number("I", len(file.manifest), "the length of the manifest", file.span)
    image.block(file.manifest)


def _write_orchestrator(image: Image, file: File) -> None:
    plan = file.orchestrator
    image.number("I", len(plan.bytecode), "the length of the bytecode", plan.span)
    write_count(image, plan.constants)
    image.block(plan.bytecode)
    write_constants(image, plan.constants)


def _write_resources(image: Image, file: File) -> None:
    write_count(image, file.resources)
    for item in file.resources:
        image.text("H", item.name, f"the name of resource '{item.name[:80]}'", item.span)
        image.number("I", len(item.data), f"the length of resource '{item.name[:80]}'", item.span)
        image.block(item.data)


_WRITERS: Mapping[str, Callable[[Image, File], None]] = MappingProxyType(
    {
        "MMAP": lambda image, file: write_schedule(image, file.schedule),
        "OPS ": write_instructions,
        "CMAP": lambda image, file: write_operations(image, file.operations),
        "CNST": _write_constants,
        "PERM": lambda image, file: write_signatures(image, file.signatures),
        "DATA": write_data,
        "PROC": _write_manifest,
        "RSRC": _write_resources,
        "ORCH": _write_orchestrator,
    }
)


def write(file: File) -> bytes:
    """The bytes of a file; LamellaError holds everything that they cannot say."""
    return b"".join(write_pieces(file))


def write_pieces(file: File) -> tuple[Data, ...]:
    """The bytes of a file one piece behind the other; weights are not copied. LamellaError as `write`."""
    pieces, findings = to_pieces(file)
    if findings:
        raise LamellaError(findings)
    return pieces


def find_unwritable(file: File) -> list[Diagnostic]:
    """Everything in a file that the bytes of version 1.6 cannot say."""
    return to_pieces(file)[1]
