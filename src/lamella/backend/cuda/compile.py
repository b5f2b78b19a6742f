"""Compilation of a program for a GPU: lowered and emitted as for a processor, as PTX that the driver assembles."""

from __future__ import annotations

from dataclasses import replace

from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.compiled import CachedProgram
from lamella.backend.cpu.jit import open_cache
from lamella.backend.cpu.run.kernels import LaunchCompiler
from lamella.backend.cuda.build import build_program
from lamella.backend.cuda.device_code import device_code
from lamella.backend.cuda.driver import device
from lamella.backend.cuda.kernels import CudaKernels
from lamella.backend.interpreter import compile_program as interpret
from lamella.backend.named import NamedKernels
from lamella.base.limits import DEFAULT, Limits
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.rewrite import walk
from lamella.kernels.sizes import choose_sizes
from lamella.kernels.split_rows import split_rows
from lamella.kernels.target import Target, list_gpu_targets
from lamella.lang.tensor.nodes import Builtin, Dictionary, DictionaryEntry, Function, Parallel, Program

PROCESSOR_LANES, WARP, FOREACH_ITEMS = 16, 32, 128


def device_target() -> Target:
    """The target of the GPU of this process, with the multiprocessors that it has.

    One that has no target of its own, as those that come later, takes the code of the last before it.
    """
    here = device()
    found = list_gpu_targets(10 * here.major + here.minor)[-1]
    return replace(found, multiprocessors=here.multiprocessors)


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
    built = build_program(program, chosen, open_cache())
    rows = list(zip(built.entries, program.functions, strict=True))
    blocks = {entry.symbol: choose_sizes(item, chosen).work_group_size for entry, item in rows}
    code = device_code(built, blocks, {item.name: _place(item) for _, item in rows})
    compiled = CachedProgram(program, built.entries, lambda: emit(program, chosen))
    return CudaKernels(compiled, code, limits=limits, proved=proved, ways=ways)


def _place(function: Function) -> str:
    """Where the text of a kernel stands, where it has one."""
    span = function.span
    return f"{span.source.name}:{span.line}" if span.source.text else ""


def fit_kernels(graph: KernelGraph) -> KernelGraph:
    """The kernels of a graph with sizes that fit the device, and long rows split across several subgroups."""
    groups: dict[str, int] = {}
    for call in (item for calls in graph.calls.values() for item in calls):
        groups[call.kernel] = min(call.groups, groups.get(call.kernel, call.groups))
    return replace(graph, program=split_rows(with_sizes(graph.program), groups))


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
