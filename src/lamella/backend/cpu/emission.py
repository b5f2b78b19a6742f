"""From a program to text for LLVM: checked, lowered in its own language, emitted."""

from __future__ import annotations

from lamella.backend.cpu.compiled import Compiled
from lamella.backend.cpu.emit.matrices import find_long_code
from lamella.backend.cpu.emit.program import emit_program
from lamella.base.collector import collector_paused
from lamella.base.diagnostic import LamellaError, errors
from lamella.kernels.passes import lower
from lamella.kernels.sizes import check_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor import check
from lamella.lang.tensor.nodes import Program


def emit(program: Program, target: Target) -> Compiled:
    """The LLVM text of a program for a target; a program with errors raises them."""
    with collector_paused():
        found = errors(check(program, memory=False)) or [
            item for function in program.functions for item in check_sizes(function, target)
        ]
        if found:
            raise LamellaError(found)
        lowered = lower(program, target)
        found = find_long_code(lowered)
        if found:
            raise LamellaError(found)
        return emit_program(program, lowered, target)
