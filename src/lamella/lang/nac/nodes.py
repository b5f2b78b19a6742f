"""NAC on one page: what a file holds, in the words of the specification.

Weights, manifests and resources are bytes that nobody copies while a file is read: they are views into it. Spans count
bytes from the start of the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from lamella.base.source import Span, where

Data = bytes | memoryview
"""Bytes that may still lie in a mapped file; two of them are equal where their contents are."""

V1_5, V1_6, V1_7, V1_8 = "1.5", "1.6", "1.7", "1.8"
NONE, INPUT, OUTPUT, CONTROL_FLOW, CONVERGENCE = 0, 2, 3, 6, 7
"""System operations: field A below `FIRST_REGULAR`."""
FIRST_REGULAR = 10
"""The first value of field A that stands for a computation and so has a signature in field B."""


class Method(IntEnum):
    """How weights are stored; 0 to 4 in the header and behind each tensor's shape."""

    NONE = 0
    FP16 = 1
    INT8_TENSOR = 2
    INT8_CHANNEL = 3
    BLOCK_FP8 = 4


class ConstantType(IntEnum):
    """The type codes of constants."""

    NULL = 0
    BOOL = 1
    INT64 = 2
    FLOAT64 = 3
    STRING = 4
    INT32_LIST = 5
    FLOAT32_LIST = 6


class Action(IntEnum):
    """The memory actions that have a name; the last two belong to files with a training graph."""

    SAVE_RESULT = 10
    SAVE_FOR_GRAD = 15
    FREE = 20
    FREE_AFTER_TRNG = 25
    FORWARD = 30
    PRELOAD = 40


@dataclass(frozen=True, slots=True)
class Header:
    """What the fixed part of a file says: `inputs` and `outputs` are counts, `d_model` is 0 where nothing is known.

    `internal` weights stand in the file itself, others in a `.safetensors` file of the same name.
    """

    version: str = V1_6
    method: Method = Method.NONE
    internal: bool = False
    inputs: int = 0
    outputs: int = 0
    d_model: int = 0
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Operation:
    """A record of CMAP: the canonical name of an operation id."""

    id: int
    name: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Signature:
    """A record of PERM: one character for each argument."""

    id: int
    codes: str
    span: Span = where()


ConstantValue = None | bool | int | float | str | tuple[int, ...] | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """A record of CNST, or of the orchestrator's pool; an empty list is an INT32_LIST, NaN is always `math.nan`."""

    id: int
    type: ConstantType
    value: ConstantValue
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Instruction:
    """One ABCD instruction; its place in the sequence is its index.

    A is `operation`; B is `variant`, the signature id of a regular operation; C is `constants` without its length
    prefix (INPUT: the one id; OUTPUT: nothing, or the parameter of a training step; CONTROL_FLOW: both branch
    lengths); D is `offsets`, relative to this instruction, where 0 stands for the next constant.
    """

    operation: int
    variant: int = 0
    constants: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the memory coprocessor; `action` may be a number that no `Action` has."""

    action: int
    target: int
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Tick:
    """A record of MMAP: the commands that belong to the instruction at an index."""

    index: int
    commands: tuple[Command, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A record of DATA's first block: the name of a parameter id."""

    id: int
    name: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Input:
    """A record of DATA's second block: the name of the user input that the instruction at an index loads."""

    index: int
    name: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Unscaled:
    """Weights that are what they say; the code is NONE or FP16."""

    method: Method = Method.NONE


@dataclass(frozen=True, slots=True)
class Int8Tensor:
    """INT8_TENSOR: one scale for all elements."""

    scale: float

    @property
    def method(self) -> Method:
        """The code of this quantisation."""
        return Method.INT8_TENSOR


@dataclass(frozen=True, slots=True)
class Int8Channel:
    """INT8_CHANNEL: one scale for each index of an axis; scales are float32, little endian."""

    axis: int
    scales: Data

    @property
    def method(self) -> Method:
        """The code of this quantisation."""
        return Method.INT8_CHANNEL


@dataclass(frozen=True, slots=True)
class BlockFp8:
    """BLOCK_FP8: one float32 scale for each block of the flattened, padded tensor, which had `shape` before."""

    block_size: int
    shape: tuple[int, ...]
    scales: Data

    @property
    def method(self) -> Method:
        """The code of this quantisation."""
        return Method.BLOCK_FP8


Quantization = Unscaled | Int8Tensor | Int8Channel | BlockFp8


@dataclass(frozen=True, slots=True)
class Tensor:
    """A record of DATA's third block: the weights of a parameter id, `dtype` and `shape` as they are stored."""

    parameter: int
    dtype: int
    shape: tuple[int, ...]
    quantization: Quantization
    data: Data
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Orchestrator:
    """ORCH: the bytecode of an execution plan and its own pool of constants."""

    bytecode: Data = b""
    constants: tuple[Constant, ...] = ()
    span: Span = where()
    lines: tuple[Span, ...] = field(default=(), compare=False, repr=False)
    """Where each instruction stands in the text that the plan was assembled from."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A record of RSRC: an auxiliary file."""

    name: str
    data: Data
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Array:
    """A record of ARRS, a section of 1.8: a named array for the orchestrator."""

    name: str
    dtype: int
    shape: tuple[int, ...]
    data: Data
    span: Span = where()


@dataclass(frozen=True, slots=True)
class File:
    """A whole file; a section that is absent and one that is empty are the same.

    The fields stand for CMAP, PERM, CNST, OPS, MMAP, the three blocks of DATA, PROC (the manifest), ORCH, RSRC, and
    the newer TRNG and ARRS.
    """

    header: Header = Header()
    operations: tuple[Operation, ...] = ()
    signatures: tuple[Signature, ...] = ()
    constants: tuple[Constant, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    schedule: tuple[Tick, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    inputs: tuple[Input, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    manifest: Data = b""
    orchestrator: Orchestrator = Orchestrator()
    resources: tuple[Resource, ...] = ()
    training: tuple[Instruction, ...] = ()
    arrays: tuple[Array, ...] = ()
    span: Span = where()
    manifest_span: Span = where()
