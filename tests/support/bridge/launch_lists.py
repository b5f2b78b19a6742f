"""Graphs as machine code whose straight-line parts run as launch lists."""

from __future__ import annotations

from typing import Any, NamedTuple

from lamella.backend.cpu import compile_program
from lamella.backend.cpu.run.lists import NativeList, NativeMachine
from lamella.backend.cpu.run.memory import SharedArena
from lamella.backend.cpu.run.proving import ProvingSource
from lamella.backend.executor.kernels import KernelExecutable, compile_graph
from lamella.backend.executor.run import names_of
from lamella.backend.executor.segments import Segment
from lamella.kernels.launches import LaunchList
from lamella.kernels.nodes import KernelGraph


def compile_lists(kernels: KernelGraph, threads: int | None = None, **options: Any) -> KernelExecutable:
    """A graph by its kernels, in one native call where it is straight-line code."""
    compiled = compile_program(kernels.program, threads=threads)
    return compile_graph(
        kernels, compiled.call, machine=NativeMachine(ProvingSource(compiled), SharedArena()), **options
    )


class SegmentLists(NamedTuple):
    """The launches of a segment: those that run once, those of each call, and the memory of these."""

    once: list[LaunchList]
    each: LaunchList
    arena_bytes: int


def lists_of(run: KernelExecutable) -> list[SegmentLists]:
    """The segments of the nodes of a graph, in order."""
    graph = run.model.graph
    runner = run._context.runner
    needed = frozenset(names_of([*graph.outputs, *(item.value for item in graph.updates)]))
    found = []
    for item in runner.cut(graph.nodes, needed):
        if isinstance(item, Segment):
            assert isinstance(item.each, NativeList)
            once = [part.launches.whole for part in item.once if isinstance(part.launches, NativeList)]
            found.append(SegmentLists(once, item.each.whole, item.each.arena_bytes))
    return found
