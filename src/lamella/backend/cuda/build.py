"""Compilation of GPU kernels to machine code: each by itself, in parallel processes, cached for all programs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from lamella.backend.cpu.compile import emit_kernel, verify
from lamella.backend.cpu.jit import (
    Processor,
    assembly,
    llvm,
    object_key,
    pack_objects,
    unpack_objects,
)
from lamella.backend.cuda.assembler import Assembler, drop_waiting, find_waiting
from lamella.backend.cuda.binaries import (
    BuiltKernel,
    BuiltProgram,
    decode_kernel,
    decode_program,
    encode_kernel,
    encode_program,
    finished,
)
from lamella.backend.cuda.driver import device
from lamella.backend.cuda.modules import assemble_ptx
from lamella.base.child_process import MOST_TICKETS, may_fork, share_with_children
from lamella.base.diagnostic import LamellaError
from lamella.base.object_cache import ObjectCache
from lamella.base.package import fingerprint
from lamella.base.records import dataclass, replace
from lamella.base.system import count_processors
from lamella.base.watching import COMPILING
from lamella.kernels.rewrite import walk
from lamella.kernels.target import Target
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Program

PARTS = ("backend/cpu", "backend/cuda", "kernels", "lang/tensor")
"""The parts of the package that code for the device depends on."""
FEWEST_SHARED, MOST_COMPILERS = 6, 16
"""Kernels that are worth another process, and processes that share them."""
SYMBOL_DIGITS = 32
"""Hexadecimal digits of a kernel's key in its symbol."""


def build_program(program: Program, target: Target, store: ObjectCache | None) -> BuiltProgram:
    """The code of a program; kernels that the cache has, of this program or of others, are not compiled again."""
    keys = kernel_keys(program, target)
    names = "\0".join(item.name for item in program.functions)
    key = hashlib.sha256(b"".join((b"cuda program", *keys, names.encode()))).digest()
    kept = None if store is None else store.get(key)
    if kept is not None:
        return decode_program(kept, key)
    places = {item: number for number, item in reversed(list(enumerate(keys)))}
    assembler = Assembler()
    found = _build(program, target, {number: item for item, number in places.items()}, store, assembler)
    entries = tuple(
        replace(found[places[item]].entry, name=function.name)
        for item, function in zip(keys, program.functions, strict=True)
    )
    kept_key = None if store is None else key
    built = BuiltProgram(entries, {item.entry.symbol: item.content for item in found.values()}, kept_key)
    if store is not None:
        assembler.keep(lambda: store.put(key, encode_program(built)))
    assembler.finish()
    return built


def kernel_keys(program: Program, target: Target) -> tuple[bytes, ...]:
    """The cache keys of kernels: their text, the target, the driver, LLVM, and this package.

    What a kernel is called is not part of the key: models give the same kernels other numbers.
    """
    rest = "\0".join(("cuda", str(device().driver), repr(target), fingerprint(*PARTS)))
    return tuple(
        object_key(f"{write(Program((replace(item, name='kernel'),)))}\0{rest}", _machine(target))
        for item in program.functions
    )


def _machine(target: Target) -> Processor:
    return Processor(target.triple, target.cpu, target.features)


# --- compiling -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PtxWriter:
    """Writes single kernels of a program as PTX."""

    program: Program
    target: Target
    keys: dict[int, bytes]

    def weight(self, number: int) -> int:
        """Less than 0 by the statements of a kernel."""
        return -sum(1 for _ in walk(self.program.functions[number].body))

    def write(self, number: int) -> BuiltKernel:
        """The PTX of a kernel."""
        symbol = f"kernel_{self.keys[number].hex()[:SYMBOL_DIGITS]}"
        written = emit_kernel(self.program, self.target, number, symbol)
        text = assembly(written.text, _machine(self.target))
        return BuiltKernel(written.entries[0], text.encode() + b"\0")


def _build(
    program: Program,
    target: Target,
    keys: dict[int, bytes],
    store: ObjectCache | None,
    assembler: Assembler,
) -> dict[int, BuiltKernel]:
    """Kernels by their numbers."""
    sought = {number: _find(key, store) for number, key in keys.items()}
    found = {number: item for number, item in sought.items() if item is not None}
    new = [number for number in sorted(keys) if number not in found]
    made = _write_all(_PtxWriter(program, target, keys), new)
    for number, kernel in made.items():
        # What is linked is compiled apart: warpgroups then get no registers of their own and wait for each product.
        is_loaded = kernel.entry.pipeline is not None
        found[number] = (
            kernel if is_loaded else assembler.begin(keys[number], kernel, partial(_assemble, kernel))
        )
    for number in made:
        assembler.keep(partial(_keep, keys[number], found[number], store))
    return found


def _find(key: bytes, store: ObjectCache | None) -> BuiltKernel | None:
    """A kernel from the cache, of this process or another one."""
    found = find_waiting(key)
    content = None if store is None or found is not None else store.get(key)
    return found if content is None else decode_kernel(content)


def _keep(key: bytes, kernel: BuiltKernel, store: ObjectCache | None) -> None:
    try:
        if store is not None:
            store.put(key, encode_kernel(kernel))
    finally:
        drop_waiting(key)


def _write_all(writer: _PtxWriter, numbers: Sequence[int]) -> dict[int, BuiltKernel]:
    """The PTX of some kernels, by child processes too where there are many."""
    count = len(numbers)
    is_shared = FEWEST_SHARED <= count <= MOST_TICKETS and may_fork()
    compilers = min(count_processors(), MOST_COMPILERS, count // 2) if is_shared else 1
    # What takes longest is begun first.
    numbers = sorted(numbers, key=writer.weight)
    made: dict[int, BuiltKernel] = {}
    if compilers > 1:
        made = _write_shared(writer, numbers, compilers)
    elif count:
        verify(writer.program, writer.target)
    # What a child took that failed is written here, and says what is wrong.
    look = COMPILING.get()
    for number in numbers:
        if number not in made:
            look(len(made), count)
            made[number] = writer.write(number)
    look(count, count)
    return made


def _write_shared(writer: _PtxWriter, numbers: Sequence[int], compilers: int) -> dict[int, BuiltKernel]:
    """Kernels written by this process and child processes, each taking the next one; what failed is missing.

    While others have begun, this process verifies the program; what is wrong with it counts, not what they make of it.
    """
    look, owner = COMPILING.get(), os.getpid()
    llvm()  # once for all of them

    def work(places: Iterator[int]) -> bytes:
        found: list[bytes] = []
        is_owner = os.getpid() == owner
        if is_owner:
            verify(writer.program, writer.target)
        with suppress(LamellaError):
            for place in places:
                if is_owner:
                    look(place, len(numbers))
                number = numbers[place]
                found += [number.to_bytes(8, "little"), encode_kernel(writer.write(number))]
        return pack_objects(found)

    parts = share_with_children(len(numbers), compilers - 1, work)
    return {number: kernel for content in parts for number, kernel in _unpack(content)}


def _unpack(content: bytes) -> Iterator[tuple[int, BuiltKernel]]:
    parts = iter(unpack_objects(content))
    for head, made in zip(parts, parts, strict=True):
        yield int.from_bytes(head, "little"), decode_kernel(made)


def _assemble(written: BuiltKernel) -> bytes:
    """The machine code of a kernel; the driver works for several threads at once."""
    return assemble_ptx(finished(written.content)[:-1].decode(), None)
