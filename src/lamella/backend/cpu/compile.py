"""A program on its way to machine code: checked, lowered in its own language, emitted; or kept from another time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, cast

from lamella.backend.cpu.compiled import CachedProgram, Compiled, KernelSymbol, entries_of
from lamella.backend.cpu.host import host_target
from lamella.backend.cpu.jit import (
    KeptObject,
    assemble,
    host_machine,
    llvm,
    load,
    load_all,
    object_key,
    open_cache,
    pack_objects,
    unpack_objects,
)
from lamella.backend.cpu.run.kernels import CompiledKernels, LaunchCompiler
from lamella.backend.interpreter import compile_program as interpret
from lamella.backend.named import NamedKernels
from lamella.base.limits import DEFAULT, Limits
from lamella.base.optional import load_late
from lamella.base.package import fingerprint
from lamella.base.watching import COMPILING
from lamella.kernels.target import Target
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Program

PARTS = ("backend/cpu", "kernels", "lang/tensor")
"""The parts of the package that machine code depends on."""


class Emission(Protocol):
    """What makes text for LLVM: `lamella.backend.cpu.emission`."""

    def emit(self, program: Program, target: Target) -> Compiled:
        """The LLVM text of a program for a target; a program with errors raises them."""

    def emit_pieces(self, program: Program, target: Target, size: int) -> Iterator[Compiled]:
        """The LLVM text of a program in pieces of so many kernels."""


def emit(program: Program, target: Target) -> Compiled:
    """The LLVM text of a program for a target; a program with errors raises them.

    Checks, passes and emission are loaded here and not before: code from the cache needs none of them, and they are
    half of what a process has to load.
    """
    return _emission().emit(program, target)


def _emission() -> Emission:
    return cast(Emission, load_late("lamella.backend.cpu.emission"))


PIECE = 6
"""Kernels that LLVM gets at once: while it works on some, the next are written."""


def build_objects(program: Program, target: Target) -> tuple[tuple[KernelSymbol, ...], list[bytes]]:
    """The kernels of a program and their machine code, LLVM's work being done beside ours."""
    machine, look = host_machine(), COMPILING.get()
    entries: list[KernelSymbol] = []
    total = -(-len(program.functions) // PIECE)
    # LLVM runs without the lock of Python; it has one of its own, so that more threads would only wait.
    with ThreadPoolExecutor(1, "llvm") as pool:
        pool.submit(
            llvm
        )  # it is loaded while the first kernels are written; what fails there fails again below
        waiting: list[Future[bytes]] = []
        for piece in _emission().emit_pieces(program, target, PIECE):
            entries += piece.entries
            waiting.append(pool.submit(assemble, piece.text, machine))
            look(sum(item.done() for item in waiting), total)
        objects: list[bytes] = []
        for item in waiting:
            objects.append(item.result())
            look(len(objects), total)
    return tuple(entries), objects


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

    if content is not None:
        entries = entries_of(program, _sizes(content, program))
        objects = unpack_objects(content[_head_bytes(program) :])
    else:
        entries, objects = build_objects(program, chosen)
        if store is not None:
            sizes = b"".join(entry.local_bytes.to_bytes(8, "little") for entry in entries)
            store.put(key, sizes + pack_objects(objects))
    kept = None if store is None else KeptObject(key, _head_bytes(program))
    code = load_all(objects, [entry.symbol for entry in entries], kept)
    compiled = CachedProgram(program, entries, lambda: emit(program, chosen))
    return CompiledKernels(compiled, code, limits=limits, threads=threads, proved=proved, ways=ways)


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
