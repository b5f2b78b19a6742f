"""Disassembly: a file as the nodes of its canonical text."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from types import MappingProxyType

from lamella.lang.nac.assembly import words
from lamella.lang.nac.assembly.nodes import (
    Argument,
    Assembly,
    AssemblyRow,
    AssemblySection,
    Blob,
    Bytes,
    Field,
    FileSlice,
    Id,
    InlineBytes,
    InlineConstant,
    Label,
    Line,
    MemoryOrder,
    Moment,
    OperationCall,
    Raw,
    RowItem,
    Scaled,
    System,
    WeightRow,
    Zeros,
)
from lamella.lang.nac.assembly.programs import decode_manifest, decode_plan
from lamella.lang.nac.assembly.tables import AssemblyTables
from lamella.lang.nac.assembly.words import pack_singles
from lamella.lang.nac.nodes import (
    CONVERGENCE,
    FIRST_REGULAR,
    Array,
    BlockFp8,
    Command,
    Data,
    File,
    Instruction,
    Int8Channel,
    Int8Tensor,
    Method,
    Quantization,
    Tensor,
    Tick,
)

# --- instructions and memory commands as lines: names for ids, labels for offsets ---------------------------


LONGEST_VALUE = 60
"""Characters of a constant that an instruction shows; longer ones are shown by id."""
_WORDS = MappingProxyType({fields: word for word, fields in words.SYSTEM.items()})
_LOADS = ("parameter", "state", "constant", "saved", "target")
_OPERANDS = MappingProxyType({"branch": 2, "update": 1, **dict.fromkeys(_LOADS, 1)})
_LABELS = MappingProxyType({"branch": 1, "input": 0, **dict.fromkeys(_LOADS, 0)})


class CodeDescriber:
    """Knows the tables of a file."""

    def __init__(self, file: File) -> None:
        self._count = len(file.instructions)
        self._tables = AssemblyTables(file.header.version)
        self._tables.fill(file)

    def lines(self, instructions: Sequence[Instruction], schedule: Sequence[Tick] = ()) -> list[Line]:
        """Instructions with the commands of their ticks."""
        orders = {tick.index: self.orders(tick.commands) for tick in schedule}
        count = len(instructions)
        return [
            Line(Label(str(index)), self.body(index, item, count), orders.get(index, ()))
            for index, item in enumerate(instructions)
        ]

    def body(self, index: int, item: Instruction, count: int) -> System | OperationCall | Raw:
        """The most readable form that says exactly this."""
        reachable = all(0 <= index + offset < count for offset in item.offsets)
        found: System | OperationCall | None = None
        if reachable and item.operation >= FIRST_REGULAR:
            found = self._call(index, item)
        elif reachable and 0 not in item.offsets:
            found = self._system(index, item)
        return found or Raw(item.operation, item.variant, item.constants, item.offsets)

    def _system(self, index: int, item: Instruction) -> System | None:
        if item.operation == CONVERGENCE and len(item.offsets) == 1:
            return System("converge", (item.variant, *item.constants), (_label(index, item.offsets[0]),))
        word = _WORDS.get((item.operation, item.variant))
        if word is None or len(item.constants) != _OPERANDS.get(word, 0):
            return None
        if len(item.offsets) != _LABELS.get(word, len(item.offsets)):
            return None
        labels = tuple(_label(index, offset) for offset in item.offsets)
        return System(word, self._operands(word, item.constants), labels)

    def _operands(self, word: str, constants: Sequence[int]) -> tuple[int | str | InlineConstant | Id, ...]:
        if word in ("parameter", "update"):
            name = self._tables.parameters.meaning(constants[0])
            return (constants[0] if name is None else name,)
        return (self._constant(constants[0]),) if word == "constant" else tuple(constants)

    def _call(self, index: int, item: Instruction) -> OperationCall | None:
        name = self._tables.operation_name(item.operation)
        operation = Id(item.operation) if name is None else name
        if item.variant == 0 and not item.constants and not item.offsets:
            return OperationCall(operation, None, ())
        codes = self._tables.signatures.meaning(item.variant)
        if codes is None or len(codes) != len(item.offsets):
            return None
        if item.offsets.count(0) != len(item.constants):
            return None
        constants = iter(item.constants)
        arguments: list[Argument] = [
            _label(index, offset) if offset else self._constant(next(constants)) for offset in item.offsets
        ]
        return OperationCall(operation, codes, tuple(arguments))

    def _constant(self, number: int) -> InlineConstant | Id:
        key = self._tables.constants.meaning(number)
        if key is None or len(key) > LONGEST_VALUE:
            return Id(number)
        return InlineConstant(self._tables.types[key], self._tables.values[key])

    # --- memory commands ------------------------------------------------------------------------------------

    def moment(self, tick: Tick) -> Moment:
        """A tick as a row of its own."""
        return Moment(tick.index, self.orders(tick.commands))

    def orders(self, commands: Sequence[Command]) -> tuple[MemoryOrder, ...]:
        """Commands, those of one action in a row together."""
        return tuple(
            MemoryOrder(action, tuple(self._target(command.target) for command in group))
            for action, group in groupby(commands, lambda command: int(command.action))
        )

    def _target(self, target: int) -> Label | int:
        return Label(str(target)) if 0 <= target < self._count else target


def _label(index: int, offset: int) -> Label:
    return Label(str(index + offset))


def stands_behind(schedule: Sequence[Tick], count: int) -> bool:
    """Whether a schedule can be written behind instructions: its ticks ascend, are theirs and not empty."""
    if not all(0 <= tick.index < count and tick.commands for tick in schedule):
        return False
    return all(one.index < other.index for one, other in pairwise(schedule))


# --- weights, scales and other bytes in their most readable form, in the text or in a file beside it --------


SMALL = 32
"""Bytes that are still readable in hexadecimal."""
INLINE = 1024
"""Bytes of one thing that stand in the text where a companion file could hold them."""
MOST_ZEROS = 1 << 20
"""Bytes up to which it is worth looking whether all of them are zero."""


@dataclass(slots=True)
class Companion:
    """A file beside the text that takes what would make the text unreadable."""

    name: str
    parts: list[Data] = field(default_factory=list)
    size: int = 0

    def take(self, data: Data) -> FileSlice:
        """Put data behind what is there already and say where it lies."""
        offset = self.size
        self.parts.append(data)
        self.size += len(data)
        return FileSlice(self.name, offset, len(data))


class DataDescriber:
    """Decides how bytes are written."""

    def __init__(self, companion: Companion | None) -> None:
        self._companion = companion

    def tensor(self, item: Tensor) -> WeightRow:
        """A row of `.tensors`."""
        scaled = self._scaled(item.quantization)
        return WeightRow(item.parameter, item.dtype, item.shape, scaled, self.data(item.data))

    def array(self, item: Array) -> WeightRow:
        """A row of `.arrays`."""
        return WeightRow(item.name, item.dtype, item.shape, None, self.data(item.data))

    def _scaled(self, quantization: Quantization) -> Scaled | None:
        match quantization:
            case Int8Tensor(scale):
                return Scaled("int8_tensor", (scale,))
            case Int8Channel(axis, scales):
                return Scaled("int8_channel", self._scales(scales), axis)
            case BlockFp8(size, shape, scales):
                return Scaled("block_fp8", self._scales(scales), size, shape)
        return Scaled("fp16") if quantization.method is Method.FP16 else None

    def _scales(self, scales: Data) -> tuple[float, ...] | Bytes:
        numbers = _unpack_singles(scales) if len(scales) <= INLINE or not self._companion else None
        return self.data(scales) if numbers is None else numbers

    def data(self, data: Data, maybe_text: bool = False) -> Bytes:
        """Bytes in their most readable form."""
        if SMALL < len(data) <= MOST_ZEROS and bytes(data).count(0) == len(data):
            return Zeros(len(data))
        if self._companion is not None and len(data) > INLINE:
            return self._companion.take(data)
        whole = bytes(data)
        if maybe_text and _is_text(whole):
            return InlineBytes("text", whole)
        return InlineBytes("hex" if len(whole) <= SMALL else "base64", whole)


def _unpack_singles(data: bytes | memoryview) -> tuple[float, ...] | None:
    """The numbers that bytes hold, or None where they would not give the same bytes again."""
    whole = bytes(data)
    if len(whole) % 4:
        return None
    numbers = struct.unpack(f"<{len(whole) // 4}f", whole)
    return numbers if pack_singles(numbers) == whole and not any(map(math.isnan, numbers)) else None


def _is_text(data: bytes) -> bool:
    """Whether bytes are lines that a person can read."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return bool(text) and all(line.isprintable() for line in text.replace("\t", " ").splitlines())


def describe(file: File, companion: Companion | None = None) -> Assembly:
    """The canonical assembly of a file; empty sections are left out."""
    data = DataDescriber(companion)
    named = {name: items for part in (_tables(file), _code(file), _data(file, data)) for name, items in part}
    sections = tuple(
        AssemblySection(name, tuple(AssemblyRow(item) for item in named[name]))
        for name in words.SECTIONS
        if named[name]
    )
    return Assembly(tuple(_fields(file)), sections)


def _fields(file: File) -> Iterator[Field]:
    header = file.header
    yield Field("nac", header.version)
    yield Field("weights", words.STORAGE[0] if header.internal else words.STORAGE[1])
    yield Field("quantization", header.method.name.lower())
    yield Field("inputs", header.inputs)
    yield Field("outputs", header.outputs)
    yield Field("d_model", header.d_model)


def _tables(file: File) -> Iterator[tuple[str, Sequence[RowItem]]]:
    yield words.OPERATIONS, file.operations
    yield words.SIGNATURES, file.signatures
    yield words.CONSTANTS, file.constants
    yield words.PARAMETERS, file.parameters
    yield words.INPUTS, file.inputs


def _code(file: File) -> Iterator[tuple[str, Sequence[RowItem]]]:
    code = CodeDescriber(file)
    behind = stands_behind(file.schedule, len(file.instructions))
    yield words.CODE, code.lines(file.instructions, file.schedule if behind else ())
    yield words.SCHEDULE, () if behind else [code.moment(tick) for tick in file.schedule]
    yield words.TRAINING, code.lines(file.training)


def _data(file: File, data: DataDescriber) -> Iterator[tuple[str, Sequence[RowItem]]]:
    plan = file.orchestrator
    yield words.TENSORS, [data.tensor(item) for item in file.tensors]
    yield words.ARRAYS, [data.array(item) for item in file.arrays]
    manifest = decode_manifest(file.manifest) or [Blob(None, data.data(file.manifest))]
    yield words.MANIFEST, manifest if len(file.manifest) else []
    steps = decode_plan(plan.bytecode)
    yield (
        words.ORCHESTRATOR,
        [*([Blob(None, data.data(plan.bytecode))] if steps is None else steps), *plan.constants],
    )
    yield words.RESOURCES, [Blob(item.name, data.data(item.data, True)) for item in file.resources]


__all__ = ["Companion", "describe"]
