"""What the emission of a program leaves: text for LLVM, and where in it each kernel is."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.lang.tensor.nodes import Program


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel: its name in the program, its symbol in the text, the bytes of local memory of a work-group."""

    name: str
    symbol: str
    local_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program as LLVM IR; `lowered` is what it was after the passes, before it was emitted."""

    text: str
    entries: tuple[Entry, ...]
    program: Program
    lowered: Program
