"""The calling convention of kernels for threads, as the comment that stands before their assembly.

What `emit.memory.parameters` reads: a slot of 8 bytes for a scalar, and for a memref its address and each
size and stride that its type leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamella.backend.cpu.compiled import MAP_BYTES, Compiled, KernelSymbol, maps_offset
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
  1: u64, the number of work-groups
A block is a work-group, or several of them along y; a subgroup is a warp of 32 threads or a part of one. Shared
memory is static, unless it says otherwise.
Strides count elements; the first mode of a memref is the fastest. Arrays that are written overlap no other."""


def calling_convention(compiled: Compiled) -> str:
    """Each kernel with its block, its grid, its shared memory and its slots, as comments of PTX."""
    lines = HEAD.splitlines()
    known = {function.name: len(function.parameters) for function in compiled.program.functions}
    for entry, function in zip(compiled.entries, compiled.lowered.functions, strict=True):
        lines += ["", *_kernel(entry, function, known[function.name])]
    return "".join(f"// {printable(line, 200)}".rstrip() + "\n" for line in lines)


def _kernel(entry: KernelSymbol, function: Function, own: int) -> Iterator[str]:
    """One kernel; the parameters behind its own tell how its work-groups lie along x and y."""
    yield f"{entry.symbol} is @{function.name}: {_shape(entry, function)}"
    slot = 0
    for parameter in function.parameters:
        for words in slots_of(parameter):
            yield f"  slot {slot}: {words}"
            slot += 1
    if len(function.parameters) > own:
        wide, high = (item.value.name for item in function.parameters[own:])
        yield f"  %{wide} and %{high} are the work-groups along x and y; all of them are x times y times z"
    yield from _maps(entry, slot)
    if not slot:
        yield "  no slots: the address is not read"


def _shape(entry: KernelSymbol, function: Function) -> str:
    """The block, the grid and the shared memory of a launch."""
    rows, columns = default_sizes(function).work_group_size
    if entry.pipeline is not None:
        found = entry.pipeline
        block = f"block ({found.threads}, 1, 1), grid (at most the multiprocessors, 1, 1)"
        return f"{block}, {found.local_bytes} bytes of shared memory at launch"
    grid = "work-groups" if entry.together == 1 else f"work-groups / {entry.together}, rounded up"
    block = f"block ({rows}, {columns * entry.together}, 1), grid ({grid}, 1, 1)"
    return f"{block}, {entry.local_bytes} bytes of shared memory"


def _maps(entry: KernelSymbol, slots: int) -> Iterator[str]:
    """The tensor maps that stand behind the slots."""
    if entry.pipeline is None:
        return
    for number, item in enumerate(entry.pipeline.maps):
        place = maps_offset(slots) + MAP_BYTES * number
        yield f"  byte {place}: the tensor map of slot {item.slot}, boxes of {item.columns} columns, swizzle 128"
    if entry.pipeline.cluster > 1:
        yield f"  clusters of {entry.pipeline.cluster} blocks where the work-groups are a multiple of it"


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
