"""A program on its way to machine code: checked, lowered in its own language, emitted; or kept from another time."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from lamella.backend.cpu.compiled import CachedProgram, Compiled, EmittedProgram, entries_of
from lamella.backend.cpu.host import host_target
from lamella.backend.cpu.jit import KeptObject, assemble, host_machine, load, object_key, open_cache
from lamella.backend.cpu.package import fingerprint
from lamella.backend.cpu.run.kernels import CompiledKernels, LaunchCompiler
from lamella.backend.interpreter import compile_program as interpret
from lamella.backend.named import NamedKernels
from lamella.base.limits import DEFAULT, Limits
from lamella.kernels.target import Target
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Program

PARTS = ("backend/cpu", "kernels", "lang/tensor")
"""The parts of the package that machine code depends on."""


class Emission(Protocol):
    """What makes text for LLVM: `lamella.backend.cpu.emission`."""

    def emit(self, program: Program, target: Target) -> Compiled:
        """The LLVM text of a program for a target; a program with errors raises them."""


def emit(program: Program, target: Target) -> Compiled:
    """The LLVM text of a program for a target; a program with errors raises them.

    Checks, passes and emission are loaded here and not before: code from the cache needs none of them, and they are
    half of what a process has to load.
    """
    emission = cast(Emission, import_module("lamella.backend.cpu.emission"))
    return emission.emit(program, target)


def compile_program(
    program: Program,
    *,
    limits: Limits = DEFAULT,
    target: Target | None = None,
    threads: int | None = None,
    proved: bool = False,
) -> CompiledKernels:
    """Make the kernels of a program callable as machine code of this processor.

    Each launch is proved with its sizes, strides, work-groups and integers, unless the program is `proved`; what is
    not proved is tested when it runs.

    Code that was made of the same text before is taken from the user's cache; what got that far has no errors.
    """
    chosen, store = target or host_target(), open_cache()
    key = b"" if store is None else _key(program, chosen)
    content = None if store is None else store.get(key)
    ways = LaunchCompiler(
        chosen,
        lambda tested: compile_program(tested, limits=limits, target=chosen, threads=threads, proved=True),
        lambda whole: _interpret(whole, limits),
    )

    def loaded(compiled: EmittedProgram, code: bytes) -> CompiledKernels:
        symbols = [entry.symbol for entry in compiled.entries]
        kept = None if store is None else KeptObject(key, _head_bytes(program))
        found = load(code, symbols, kept)
        return CompiledKernels(compiled, found, limits=limits, threads=threads, proved=proved, ways=ways)

    if content is not None:
        kept = CachedProgram(
            program, entries_of(program, _sizes(content, program)), lambda: emit(program, chosen)
        )
        return loaded(kept, content[_head_bytes(program) :])
    compiled = emit(program, chosen)
    machine_code = assemble(compiled.text, host_machine())
    if store is not None:
        sizes = b"".join(entry.local_bytes.to_bytes(8, "little") for entry in compiled.entries)
        store.put(key, sizes + machine_code)
    return loaded(compiled, machine_code)


def load_kernels(
    compiled: Compiled, *, limits: Limits = DEFAULT, threads: int | None = None
) -> CompiledKernels:
    """Make kernels of LLVM text callable."""
    symbols = [entry.symbol for entry in compiled.entries]
    code = load(assemble(compiled.text, host_machine()), symbols)
    ways = LaunchCompiler(None, None, lambda whole: _interpret(whole, limits))
    return CompiledKernels(compiled, code, limits=limits, threads=threads, ways=ways)


def _interpret(program: Program, limits: Limits) -> NamedKernels:
    """The kernels in the interpreter, which tests every access and every view."""
    return interpret(program, limits=limits, check_bounds=True)


def _head_bytes(program: Program) -> int:
    return 8 * len(program.functions)


def _sizes(content: bytes, program: Program) -> list[int]:
    """The local memory of each kernel, which stands before the code."""
    places = range(0, _head_bytes(program), 8)
    return [int.from_bytes(content[place : place + 8], "little") for place in places]


def _key(program: Program, target: Target) -> bytes:
    """What machine code depends on: the program, the target, the processor, LLVM, and this package."""
    text = "\0".join((write(program), repr(target), fingerprint(*PARTS)))
    return object_key(text, host_machine())
