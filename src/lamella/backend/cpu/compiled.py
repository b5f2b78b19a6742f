"""What the emission of a program leaves: text for LLVM, and where in it each kernel is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from lamella.base.records import dataclass

if TYPE_CHECKING:
    from lamella.lang.tensor.nodes import Program


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A matrix as the copy engine of a GPU reads or writes it, in boxes of so many columns.

    Its first mode is contiguous; a box takes 128 bytes of it, and lies in local memory with a swizzle of 128 bytes.
    """

    slot: int
    """The slot that holds its address."""
    element: str
    shape: tuple[int, int]
    stride: int
    """Elements from column to column."""
    columns: int


MAP_ALIGNMENT, MAP_BYTES = 64, 128


def maps_offset(slots: int) -> int:
    """Where the maps of a kernel with so many slots begin, in bytes from the first of them."""
    return -(-8 * slots // MAP_ALIGNMENT) * MAP_ALIGNMENT


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a kernel needs at launch in which some warps copy and others compute."""

    threads: int
    """Threads of a block: those of the work-group and those that copy."""
    local_bytes: int
    """Local memory that is asked for at launch."""
    maps: tuple[TensorMap, ...]
    """Each of 128 bytes, at multiples of 64, behind the slots."""
    cluster: int = 1
    """Blocks that may share what they copy, where that many divide the work-groups."""


@dataclass(frozen=True, slots=True)
class KernelSymbol:
    """A kernel: its name in the program, its symbol in the text, the bytes of local memory of a work-group."""

    name: str
    symbol: str
    local_bytes: int = 0
    pipeline: Pipeline | None = None
    """On a GPU; where there is one, a block runs one work-group after another."""
    together: int = 1
    """On a GPU, how many work-groups a block is, side by side along y: those of one subgroup that share nothing."""
    is_early: bool = False
    """On a GPU, whether it may be started before the kernel before it has ended, because it waits for that itself."""


class EmittedProgram(Protocol):
    """A program as LLVM IR; `lowered` is what it was after the passes, before it was emitted."""

    @property
    def text(self) -> str:
        """The text for LLVM."""

    @property
    def entries(self) -> tuple[KernelSymbol, ...]:
        """The kernels, in the order of the program."""

    @property
    def program(self) -> Program:
        """The program as it was written."""

    @property
    def lowered(self) -> Program:
        """The program after the passes."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program that was emitted."""

    text: str
    entries: tuple[KernelSymbol, ...]
    program: Program
    lowered: Program


class CachedProgram:
    """A program whose machine code is there; its text as a whole is only made where somebody reads it."""

    def __init__(
        self, program: Program, entries: tuple[KernelSymbol, ...], emit: Callable[[], Compiled]
    ) -> None:
        self.program = program
        self.entries = entries
        self._emit = emit

    @cached_property
    def _emitted(self) -> Compiled:
        return self._emit()

    @property
    def text(self) -> str:
        """The text for LLVM."""
        return self._emitted.text

    @property
    def lowered(self) -> Program:
        """The program after the passes."""
        return self._emitted.lowered


def entries_of(
    program: Program, symbols: Sequence[str], local_bytes: Sequence[int]
) -> tuple[KernelSymbol, ...]:
    """The kernels of a program with their symbols and the local memory that each takes."""
    rows = zip(program.functions, symbols, local_bytes, strict=True)
    return tuple(KernelSymbol(function.name, symbol, size) for function, symbol, size in rows)
