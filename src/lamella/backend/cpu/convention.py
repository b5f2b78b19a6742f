"""The calling convention of kernels for threads, as the comment that stands before their assembly.

What `emit.memory.parameters` reads: a slot of 8 bytes for a scalar, and for a memref its address and each
size and stride that its type leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamella.backend.cpu.compiled import Compiled
from lamella.base.diagnostic import printable
from lamella.kernels.sizes import default_sizes
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Function, Group, Memref, Parameter
from lamella.lang.tensor.nodes.types import COMPLEX
from lamella.lang.tensor.write import write_type

SLOT = 8
HEAD = """\
Calling convention. Every kernel has two parameters:
  0: the address, in global memory, of the slots of its arguments: 8 bytes each, little-endian, in the order below
  1: u64, the number of work-groups, which is the grid's x
A block is a work-group, a warp of 32 threads is a subgroup; shared memory is static, none is asked for at launch.
Strides count elements; the first mode of a memref is the fastest. Arrays that are written overlap no other."""


def calling_convention(compiled: Compiled) -> str:
    """Each kernel with its block, its grid, its shared memory and its slots, as comments of PTX."""
    lines = HEAD.splitlines()
    known = {function.name: len(function.parameters) for function in compiled.program.functions}
    for entry, function in zip(compiled.entries, compiled.lowered.functions, strict=True):
        lines += ["", *_kernel(entry.symbol, function, entry.local_bytes, known[function.name])]
    return "".join(f"// {printable(line, 200)}".rstrip() + "\n" for line in lines)


def _kernel(symbol: str, function: Function, local_bytes: int, own: int) -> Iterator[str]:
    """One kernel; the parameters behind its own tell how its work-groups lie along x and y."""
    rows, columns = default_sizes(function).work_group_size
    sizes = f"block ({rows}, {columns}, 1), grid (work-groups, 1, 1), {local_bytes} bytes of shared memory"
    yield f"{symbol} is @{function.name}: {sizes}"
    slot = 0
    for parameter in function.parameters:
        for words in slots_of(parameter):
            yield f"  slot {slot}: {words}"
            slot += 1
    if len(function.parameters) > own:
        wide, high = (item.value.name for item in function.parameters[own:])
        yield f"  %{wide} and %{high} are the work-groups along x and y; the grid's x is x times y times z"
    if not slot:
        yield "  no slots: the address is not read"


def slots_of(parameter: Parameter) -> list[str]:
    """What each slot of a parameter holds, in order."""
    name, type_ = f"%{parameter.value.name}", parameter.type
    shown = f"{name}: {write_type(type_)}"
    if isinstance(type_, Memref):
        return [f"{shown}, the address of its first element", *_open(name, type_, "i64, ", "")]
    if isinstance(type_, Group):
        found = [f"{shown}, the address of an array of the addresses of its memrefs"]
        found += _open(name, type_.memref, "the address of an array of i64, ", " of each memref")
        found += [f"i64, how many memrefs {name} has"] if type_.size is None else []
        return found + ([f"i64, the offset of {name} in elements"] if type_.offset is None else [])
    element = str(type_)
    if element in COMPLEX and BYTES[element] > SLOT:
        return [f"{shown}, the real part", f"{shown}, the imaginary part"]
    parts = ", real part first" if element in COMPLEX else ""
    low = f" in the low {BYTES[element]} bytes" if BYTES[element] < SLOT else ""
    return [f"{shown}{low}{parts}"]


def _open(name: str, type_: Memref, kind: str, rest: str) -> list[str]:
    """The slots of the sizes and the strides that a type leaves open, from the first mode on."""
    sizes = [f"{kind}size {mode} of {name}{rest}" for mode, size in enumerate(type_.shape) if size is None]
    strides = [
        f"{kind}stride {mode} of {name}{rest}" for mode, step in enumerate(type_.stride) if step is None
    ]
    return sizes + strides
