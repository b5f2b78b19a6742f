"""Graphs as machine code whose straight-line parts run as launch lists."""

from __future__ import annotations

from typing import Any

from lamella.backend.cpu import compile_program
from lamella.backend.cpu.run.lists import NativeMachine, SharedArena
from lamella.backend.executor.kernels import KernelExecutable, compile_graph
from lamella.kernels.nodes import KernelGraph


def compile_lists(kernels: KernelGraph, threads: int | None = None, **options: Any) -> KernelExecutable:
    """A graph by its kernels, in one native call where it is straight-line code."""
    compiled = compile_program(kernels.program, threads=threads)
    return compile_graph(kernels, compiled.call, machine=NativeMachine(compiled, SharedArena()), **options)
