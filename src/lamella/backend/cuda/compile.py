"""A program on its way to a GPU: lowered and emitted as for a processor, written as PTX, assembled by the driver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.compiled import CachedProgram, KernelSymbol, Pipeline, TensorMap
from lamella.backend.cpu.jit import (
    Processor,
    assembly,
    object_key,
    open_cache,
    pack_objects,
    unpack_objects,
)
from lamella.backend.cpu.run.kernels import LaunchCompiler
from lamella.backend.cuda.driver import device
from lamella.backend.cuda.kernels import CudaKernels, load_code
from lamella.backend.cuda.modules import assemble_ptx
from lamella.backend.interpreter import compile_program as interpret
from lamella.backend.named import NamedKernels
from lamella.base.limits import DEFAULT, Limits
from lamella.base.package import fingerprint
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.rewrite import walk
from lamella.kernels.share_rows import share_rows
from lamella.kernels.target import TARGETS, Target, find_target
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Builtin, Dictionary, DictionaryEntry, Function, Parallel, Program

PARTS = ("backend/cpu", "backend/cuda", "kernels", "lang/tensor")
"""The parts of the package that code for the device depends on."""
PROCESSOR_LANES, WARP, FOREACH_ITEMS = 16, 32, 128


def device_target() -> Target:
    """The target of the GPU of this process."""
    name = device().architecture
    return TARGETS[name] if name in TARGETS else replace(find_target("cuda"), name=name, cpu=name)


def compile_program(
    program: Program, *, limits: Limits = DEFAULT, target: Target | None = None, proved: bool = False
) -> CudaKernels:
    """Make the kernels of a program callable on the GPU; launches are proved or tested as on the processor.

    Code that was made of the same text before is taken from the user's cache.
    """
    chosen = target or device_target()
    ways = LaunchCompiler(
        chosen,
        lambda tested: compile_program(tested, limits=limits, target=chosen, proved=True),
        lambda whole: _interpret(whole, limits),
    )
    entries, content = _code(program, chosen)
    code = load_code(content, entries, program.functions, chosen)
    compiled = CachedProgram(program, entries, lambda: emit(program, chosen))
    return CudaKernels(compiled, code, limits=limits, proved=proved, ways=ways)


def fit_kernels(graph: KernelGraph) -> KernelGraph:
    """The kernels of a graph with sizes that fit the device, and long rows shared by several subgroups."""
    groups: dict[str, int] = {}
    for call in (item for calls in graph.calls.values() for item in calls):
        groups[call.kernel] = min(call.groups, groups.get(call.kernel, call.groups))
    return replace(graph, program=share_rows(with_sizes(graph.program), groups))


def with_sizes(program: Program) -> Program:
    """The kernels of a graph with sizes that fit the device, where they leave them open.

    Those that count their work-items are written for the subgroup of a processor, one in a work-group.
    """
    return replace(program, functions=tuple(map(_sized, program.functions)))


def _sized(function: Function) -> Function:
    given = Dictionary() if function.attributes is None else function.attributes
    if given.find("subgroup_size") is not None:
        return function
    nodes = [item.instruction for item in walk(function.body)]
    counts = any(isinstance(item, Builtin) and item.name == "subgroup_local_id" for item in nodes)
    alone = any(isinstance(item, Parallel) for item in nodes)
    size = PROCESSOR_LANES if counts else WARP
    rows = size if alone else FOREACH_ITEMS
    entries = (DictionaryEntry("subgroup_size", size), DictionaryEntry("work_group_size", (rows, 1)))
    kept = [entry for entry in given.entries if entry.key != "work_group_size"]
    whole = tuple(sorted([*kept, *entries], key=lambda entry: entry.key))
    return replace(function, attributes=replace(given, entries=whole))


def _interpret(program: Program, limits: Limits) -> NamedKernels:
    return interpret(program, limits=limits, check_bounds=True)


def _code(program: Program, target: Target) -> tuple[tuple[KernelSymbol, ...], bytes]:
    """The kernels of a program and their machine code."""
    store, machine = open_cache(), Processor(target.triple, target.cpu, target.features)
    parts = ("cuda", str(device().driver), write(program), repr(target), fingerprint(*PARTS))
    key = b"" if store is None else object_key("\0".join(parts), machine)
    kept = None if store is None else store.get(key)
    if kept is not None:
        told, content = unpack_objects(kept)
        return decode_entries(told), content
    compiled = emit(program, target)
    text = assembly(compiled.text, machine)
    if any(entry.pipeline is not None for entry in compiled.entries):
        # What is linked is compiled apart: warpgroups then get no registers of their own and wait for each product.
        content = text.encode() + b"\0"
    else:
        content = assemble_ptx(text, None)
    if store is not None:
        store.put(key, pack_objects([encode_entries(compiled.entries), content]))
    return compiled.entries, content


def encode_entries(entries: Sequence[KernelSymbol]) -> bytes:
    """What is known of kernels beside their code, as JSON."""
    return json.dumps([asdict(item) for item in entries]).encode()


def decode_entries(content: bytes) -> tuple[KernelSymbol, ...]:
    """The same, read again; it comes from a file whose digest was verified."""
    return tuple(_entry(**item) for item in json.loads(content))


def _entry(
    name: str,
    symbol: str,
    local_bytes: int,
    pipeline: dict[str, object] | None,
    together: int,
    is_early: bool,
) -> KernelSymbol:
    found = None
    if pipeline is not None:
        listed = pipeline.pop("maps")
        maps = tuple(_map(**item) for item in listed) if isinstance(listed, list) else ()
        found = Pipeline(**pipeline, maps=maps)  # type: ignore[arg-type]
    return KernelSymbol(name, symbol, local_bytes, found, together, is_early)


def _map(slot: int, element: str, shape: list[int], stride: int, columns: int) -> TensorMap:
    return TensorMap(slot, element, (shape[0], shape[1]), stride, columns)
