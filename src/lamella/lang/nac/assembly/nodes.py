"""What an assembly text says, as it says it: names, values and data before they become the bytes of a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lamella.base.source import Span, Trivia, beside, where
from lamella.lang.nac.nodes import (
    Constant,
    ConstantType,
    ConstantValue,
    Input,
    Operation,
    Parameter,
    Signature,
)

Encoding = Literal["hex", "base64", "text"]


@dataclass(frozen=True, slots=True)
class Zeros:
    """`zeros(SIZE)`: so many bytes of zero."""

    size: int
    span: Span = where()


@dataclass(frozen=True, slots=True)
class InlineBytes:
    """`hex(…)`, `base64(…)` or `text(…)`: bytes that stand in the text."""

    encoding: Encoding
    data: bytes
    span: Span = where()


@dataclass(frozen=True, slots=True)
class FileSlice:
    """`file(NAME, OFFSET, SIZE)`: bytes of a file in the same folder."""

    name: str
    offset: int
    size: int
    span: Span = where()


Bytes = Zeros | InlineBytes | FileSlice


@dataclass(frozen=True, slots=True)
class Scaled:
    """A quantisation: `fp16`, or one of the others with its numbers; scales are numbers or bytes."""

    method: str
    scales: tuple[float, ...] | Bytes = ()
    size: int = 0
    """The axis of `int8_channel`, the block size of `block_fp8`."""
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightRow:
    """A row of `.tensors`, with a parameter id, or of `.arrays`, with a name."""

    key: int | str
    dtype: int
    shape: tuple[int, ...]
    scaled: Scaled | None
    data: Bytes
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Blob:
    """A resource with its name, the manifest or the bytecode, which have none."""

    name: str | None
    data: Bytes
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Label:
    """`%name`: the result of an instruction."""

    name: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class InlineConstant:
    """A constant by its value."""

    type: ConstantType
    value: ConstantValue
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Id:
    """`#7`: a constant or an operation by its id."""

    number: int
    span: Span = where()


Argument = Label | InlineConstant | Id


@dataclass(frozen=True, slots=True)
class System:
    """An instruction without signature: what it names, and the results it takes."""

    word: str
    operands: tuple[int | str | InlineConstant | Id, ...] = ()
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True, slots=True)
class OperationCall:
    """A regular operation; where the signature is left out it follows from the arguments."""

    operation: str | Id
    signature: str | None
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Raw:
    """The four fields of an instruction as numbers, where no other form says the same."""

    operation: int
    variant: int
    constants: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MemoryOrder:
    """`@free(%1, %2)`: commands of one action in a row."""

    action: int
    targets: tuple[Label | int, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Line:
    """One instruction with its memory commands."""

    label: Label
    body: System | OperationCall | Raw
    orders: tuple[MemoryOrder, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Moment:
    """A row of `.schedule`: the commands of a tick."""

    index: int
    orders: tuple[MemoryOrder, ...]
    span: Span = where()


StepOperand = int | str | tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One instruction of the manifest or of the orchestrator's plan."""

    name: str
    operands: tuple[StepOperand, ...]
    span: Span = where()


RowItem = (
    Operation | Signature | Constant | Parameter | Input | WeightRow | Blob | Line | Moment | ProgramStep
)


@dataclass(frozen=True, slots=True)
class AssemblyRow:
    """An entry of a section with the comments around it."""

    item: RowItem
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class AssemblySection:
    """`.name` and its rows."""

    name: str
    rows: tuple[AssemblyRow, ...]
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the header: `nac 1.6`, `weights internal`, `inputs 1`."""

    name: str
    value: str | int
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Assembly:
    """A whole text: the fields of the header, the first of them `nac`, and the sections."""

    fields: tuple[Field, ...]
    sections: tuple[AssemblySection, ...]
    span: Span = where()
    end: Trivia = beside()
