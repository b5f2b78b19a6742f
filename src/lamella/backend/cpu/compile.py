"""A program on its way to machine code: checked, lowered in its own language, emitted; or kept from another time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
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
from lamella.base.child_process import MOST_TICKETS, may_fork, share_with_children
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.object_cache import ObjectCache
from lamella.base.optional import load_late
from lamella.base.package import fingerprint
from lamella.base.records import dataclass, replace
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

    def emit_kernel(self, program: Program, target: Target, number: int, symbol: str) -> Compiled:
        """The LLVM text of one kernel of a program without errors, under a symbol."""


def emit(program: Program, target: Target) -> Compiled:
    """The LLVM text of a program for a target; a program with errors raises them.

    Checks, passes and emission are loaded here and not before: code from the cache needs none of them, and they are
    half of what a process has to load.
    """
    return _emission().emit(program, target)


def verify(program: Program, target: Target) -> None:
    """Raise what is wrong with a program."""
    _emission().verify(program, target)


def emit_kernel(program: Program, target: Target, number: int, symbol: str) -> Compiled:
    """The LLVM text of one kernel of a program without errors, under a symbol."""
    return _emission().emit_kernel(program, target, number, symbol)


def _emission() -> Emission:
    return cast(Emission, load_late("lamella.backend.cpu.emission"))


FEWEST_SHARED, MOST_COMPILERS = 12, 8
"""Kernels that are worth another process, and processes that share them: each takes about 60 MB while it works."""
SYMBOL_DIGITS = 32
"""Hexadecimal digits of a kernel's key in its symbol."""


class _BuiltKernel(NamedTuple):
    """A kernel as machine code: the local memory of a work-group, and the object."""

    local_bytes: int
    content: bytes


@dataclass(frozen=True, slots=True)
class _KernelBuilder:
    """Makes machine code of single kernels of a program, which is kept for all programs that have them."""

    program: Program
    target: Target
    keys: tuple[bytes, ...]
    """What the machine code of each kernel depends on."""
    store: ObjectCache | None

    def find(self, number: int) -> _BuiltKernel | None:
        """A kernel from another time."""
        found = None if self.store is None else self.store.get(self.keys[number])
        return None if found is None else _BuiltKernel(int.from_bytes(found[:8], "little"), found[8:])

    def keep(self, number: int, kernel: _BuiltKernel) -> None:
        """Keep a kernel for another time."""
        if self.store is not None:
            self.store.put(self.keys[number], kernel.local_bytes.to_bytes(8, "little") + kernel.content)

    def verify(self) -> None:
        """Raise what is wrong with the program."""
        _emission().verify(self.program, self.target)

    def write(self, number: int) -> Compiled:
        """The text of a kernel for LLVM."""
        return _emission().emit_kernel(self.program, self.target, number, _symbol(self.keys[number]))


def build_objects(
    program: Program, target: Target, store: ObjectCache | None = None
) -> tuple[tuple[KernelSymbol, ...], list[bytes]]:
    """The kernels of a program and their machine code, compiled on as many processors as there are.

    Kernels that the store has of other programs are not compiled again.
    """
    builder = _KernelBuilder(program, target, kernel_keys(program, target), store)
    places = {key: number for number, key in reversed(list(enumerate(builder.keys)))}
    found = {number: kernel for number in places.values() if (kernel := builder.find(number)) is not None}
    new = [number for number in sorted(places.values()) if number not in found]
    count = len(new)
    is_shared = FEWEST_SHARED <= count <= MOST_TICKETS and may_fork()
    compilers = min(count_processors(), MOST_COMPILERS, count // 2) if is_shared else 1
    made: dict[int, _BuiltKernel] = {}
    if compilers > 1:
        made = _build_shared(builder, new, compilers)
    else:
        builder.verify()
    # What a child took that failed is compiled here, and says what is wrong.
    made |= _build_here(builder, [number for number in new if number not in made], count)
    for number, kernel in made.items():
        builder.keep(number, kernel)
    found |= made
    numbers = [places[key] for key in builder.keys]
    sizes = [found[number].local_bytes for number in numbers]
    entries = entries_of(program, list(map(_symbol, builder.keys)), sizes)
    return entries, [found[number].content for number in sorted(found)]


def _build_here(builder: _KernelBuilder, numbers: Sequence[int], total: int) -> dict[int, _BuiltKernel]:
    """Kernels compiled in this process, LLVM's work being done beside ours."""
    machine, look = host_machine(), COMPILING.get()
    done = total - len(numbers)
    if not numbers:
        look(done, total)
        return {}
    # LLVM runs without the lock of Python; it has one of its own, so that more threads would only wait.
    with ThreadPoolExecutor(1, "llvm") as pool:
        # It is loaded while the first kernel is written; what fails there fails again below.
        pool.submit(llvm)
        waiting: list[tuple[int, Compiled, Future[bytes]]] = []
        for number in numbers:
            written = builder.write(number)
            waiting.append((number, written, pool.submit(assemble, written.text, machine)))
            look(done + sum(item.done() for _, _, item in waiting), total)
        found: dict[int, _BuiltKernel] = {}
        for number, written, item in waiting:
            found[number] = _BuiltKernel(written.entries[0].local_bytes, item.result())
            look(done + len(found), total)
    return found


def _build_shared(builder: _KernelBuilder, numbers: Sequence[int], compilers: int) -> dict[int, _BuiltKernel]:
    """Kernels compiled by this process and children of it, each taking the next one; what failed is missing.

    While others have begun, this process verifies the program; what is wrong with it counts, not what they make of it.
    """
    machine, look, owner = host_machine(), COMPILING.get(), os.getpid()
    llvm()  # once for all of them

    def work(places: Iterator[int]) -> bytes:
        found: list[bytes] = []
        is_owner = os.getpid() == owner
        if is_owner:
            builder.verify()
        with suppress(LamellaError):
            for place in places:
                if is_owner:
                    look(place, len(numbers))
                written = builder.write(numbers[place])
                head = (numbers[place], written.entries[0].local_bytes)
                found.append(b"".join(item.to_bytes(8, "little") for item in head))
                found.append(assemble(written.text, machine))
        return pack_objects(found)

    parts = share_with_children(len(numbers), compilers - 1, work)
    return {number: kernel for content in parts for number, kernel in _unpack(content)}


def _unpack(content: bytes) -> Iterator[tuple[int, _BuiltKernel]]:
    parts = iter(unpack_objects(content))
    for head, made in zip(parts, parts, strict=True):
        number, size = (int.from_bytes(head[place : place + 8], "little") for place in (0, 8))
        yield number, _BuiltKernel(size, made)


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
    keys = () if store is None else kernel_keys(program, chosen)
    key = _program_key(program, keys)
    content = None if store is None else store.get(key)
    ways = LaunchCompiler(
        chosen,
        lambda tested: compile_program(tested, limits=limits, target=chosen, threads=threads, proved=True),
        lambda whole: _interpret(whole, limits),
    )

    if content is not None:
        entries = entries_of(program, list(map(_symbol, keys)), _sizes(content, program))
        objects = unpack_objects(content[_head_bytes(program) :])
    else:
        entries, objects = build_objects(program, chosen, store)
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


def kernel_keys(program: Program, target: Target) -> tuple[bytes, ...]:
    """What the machine code of each kernel depends on: its text, the target, the processor, LLVM, and this package.

    What a kernel is called is not among it: models give the same kernels other numbers.
    """
    rest = "\0".join((repr(target), fingerprint(*PARTS)))
    return tuple(
        object_key(f"{write(Program((replace(item, name='kernel'),)))}\0{rest}", host_machine())
        for item in program.functions
    )


def _symbol(key: bytes) -> str:
    """The name of a kernel's code: kernels of one text share it, whatever they are called."""
    return f"kernel_{key.hex()[:SYMBOL_DIGITS]}"


def _program_key(program: Program, keys: Sequence[bytes]) -> bytes:
    """What the machine code of a whole program depends on: its kernels, and what they are called."""
    names = "\0".join(item.name for item in program.functions)
    return hashlib.sha256(b"".join((*keys, names.encode()))).digest()
