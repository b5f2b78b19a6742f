"""Tensor language nodes to canonical text."""

from __future__ import annotations

from lamella.lang.tensor.nodes import Program
from lamella.lang.tensor.write.instructions import write_instruction
from lamella.lang.tensor.write.program import ProgramWriter
from lamella.lang.tensor.write.types import write_dictionary, write_type

__all__ = ["write", "write_dictionary", "write_instruction", "write_type"]


def write(program: Program) -> str:
    """The canonical text of a program: `parse` of it is an equal program, and `write` of that the same text."""
    return ProgramWriter().program(program)
