"""A program on its way to machine code: checked, lowered in its own language, emitted; or kept from another time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol, cast

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
from lamella.base.aside import MOST_TICKETS, may_fork, share_aside
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.optional import load_late
from lamella.base.package import fingerprint
from lamella.base.system import count_processors
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

    def verify(self, program: Program, target: Target) -> None:
        """Raise what is wrong with a program."""

    def emit_piece(self, program: Program, target: Target, first: int, count: int) -> Compiled:
        """The LLVM text of some kernels of a program without errors, from one of them on."""


def emit(program: Program, target: Target) -> Compiled:
    """The LLVM text of a program for a target; a program with errors raises them.

    Checks, passes and emission are loaded here and not before: code from the cache needs none of them, and they are
    half of what a process has to load.
    """
    return _emission().emit(program, target)


def _emission() -> Emission:
    return cast(Emission, load_late("lamella.backend.cpu.emission"))


PIECE, PIECES = 6, 8
"""Kernels that LLVM gets at once at most, and about how many pieces a program has at least where they are shared."""
FEWEST_SHARED, MOST_COMPILERS = 12, 8
"""Kernels that are worth another process, and processes that share them: each takes about 60 MB while it works."""


class _BuiltPiece(NamedTuple):
    """Some kernels of a program as machine code: which they are, the local memory of each, and the object."""

    number: int
    local_bytes: tuple[int, ...]
    content: bytes


def build_objects(program: Program, target: Target) -> tuple[tuple[KernelSymbol, ...], list[bytes]]:
    """The kernels of a program and their machine code, compiled on as many processors as there are."""
    count = len(program.functions)
    is_shared = count >= FEWEST_SHARED
    size = min(PIECE, -(-count // PIECES)) if is_shared else PIECE
    total = max(1, -(-count // size))
    compilers = min(count_processors(), MOST_COMPILERS, total // 2) if is_shared and may_fork() else 1
    verify = partial(_emission().verify, program, target)
    make = partial(_write_piece, program, target, size)
    pieces: list[_BuiltPiece] = []
    if compilers > 1 and total <= MOST_TICKETS:
        pieces = _build_shared(verify, make, total, compilers)
    else:
        verify()
    found = {item.number: item for item in pieces}
    # What a child took that failed is compiled here, and says what is wrong.
    rest = [number for number in range(total) if number not in found]
    found |= {item.number: item for item in _build_here(make, rest, total)}
    ordered = [found[number] for number in range(total)]
    entries = entries_of(program, [size for item in ordered for size in item.local_bytes])
    return entries, [item.content for item in ordered]


def _write_piece(program: Program, target: Target, size: int, number: int) -> Compiled:
    return _emission().emit_piece(program, target, number * size, size)


def _built(number: int, piece: Compiled, content: bytes) -> _BuiltPiece:
    return _BuiltPiece(number, tuple(entry.local_bytes for entry in piece.entries), content)


def _build_here(make: Callable[[int], Compiled], numbers: Sequence[int], total: int) -> list[_BuiltPiece]:
    """Pieces compiled in this process, LLVM's work being done beside ours."""
    machine, look = host_machine(), COMPILING.get()
    done = total - len(numbers)
    if not numbers:
        look(done, total)
        return []
    # LLVM runs without the lock of Python; it has one of its own, so that more threads would only wait.
    with ThreadPoolExecutor(1, "llvm") as pool:
        # It is loaded while the first kernels are written; what fails there fails again below.
        pool.submit(llvm)
        waiting: list[tuple[int, Compiled, Future[bytes]]] = []
        for number in numbers:
            piece = make(number)
            waiting.append((number, piece, pool.submit(assemble, piece.text, machine)))
            look(done + sum(item.done() for _, _, item in waiting), total)
        found: list[_BuiltPiece] = []
        for number, piece, item in waiting:
            found.append(_built(number, piece, item.result()))
            look(done + len(found), total)
    return found


def _build_shared(
    verify: Callable[[], None], make: Callable[[int], Compiled], total: int, compilers: int
) -> list[_BuiltPiece]:
    """Pieces compiled by this process and children of it, each taking the next one; what failed is missing.

    While others have begun, this process verifies the program; what is wrong with it counts, not what they make of it.
    """
    machine, look, owner = host_machine(), COMPILING.get(), os.getpid()
    llvm()  # once for all of them

    def work(numbers: Iterator[int]) -> bytes:
        found: list[bytes] = []
        is_owner = os.getpid() == owner
        if is_owner:
            verify()
        with suppress(LamellaError):
            for number in numbers:
                if is_owner:
                    look(number, total)
                piece = make(number)
                made = _built(number, piece, assemble(piece.text, machine))
                sizes = (made.number, *made.local_bytes)
                found += [b"".join(size.to_bytes(8, "little") for size in sizes), made.content]
        return pack_objects(found)

    return [item for content in share_aside(total, compilers - 1, work) for item in _unpack(content)]


def _unpack(content: bytes) -> Iterator[_BuiltPiece]:
    parts = iter(unpack_objects(content))
    for head, made in zip(parts, parts, strict=True):
        number, *sizes = (
            int.from_bytes(head[place : place + 8], "little") for place in range(0, len(head), 8)
        )
        yield _BuiltPiece(number, tuple(sizes), made)


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
