"""A program on its way to machine code: checked, lowered in its own language, emitted."""

from __future__ import annotations

from lamella.backend.cpu.compiled import Compiled
from lamella.backend.cpu.emit.matrices import find_long_code
from lamella.backend.cpu.emit.program import emit_program
from lamella.backend.cpu.host import host_target
from lamella.backend.cpu.run.kernels import Kernels
from lamella.base.collector import collector_paused
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.limits import DEFAULT, Limits
from lamella.kernels.passes import lower
from lamella.kernels.target import Target
from lamella.lang.tensor import check
from lamella.lang.tensor.nodes import Program


def emit(program: Program, target: Target) -> Compiled:
    """The LLVM text of a program for a target; a program with errors raises them."""
    with collector_paused():
        found = errors(check(program))
        if found:
            raise LamellaError(found)
        lowered = lower(program, target)
        found = find_long_code(lowered)
        if found:
            raise LamellaError(found)
        return emit_program(program, lowered, target)


def compile_program(
    program: Program,
    *,
    limits: Limits = DEFAULT,
    target: Target | None = None,
    threads: int | None = None,
) -> Kernels:
    """Make the kernels of a program callable as machine code of this processor."""
    return Kernels(emit(program, target or host_target()), limits=limits, threads=threads)
