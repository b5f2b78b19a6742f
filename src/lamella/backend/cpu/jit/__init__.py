"""From text LLVM IR to machine code in memory: machines, assembly, the object cache, what the host can do."""

from __future__ import annotations

from lamella.backend.cpu.jit.cache import ObjectCache, open_cache
from lamella.backend.cpu.jit.engine import (
    PASSES,
    CodeError,
    Loaded,
    assemble,
    assembly,
    build,
    load,
    object_key,
)
from lamella.backend.cpu.jit.lines import readable_assembly
from lamella.backend.cpu.jit.machine import MACHINES, Machine, find_machine, host_machine
from lamella.backend.cpu.jit.probe import has_tiles

__all__ = [
    "MACHINES",
    "PASSES",
    "CodeError",
    "Loaded",
    "Machine",
    "ObjectCache",
    "assemble",
    "assembly",
    "build",
    "find_machine",
    "has_tiles",
    "host_machine",
    "load",
    "object_key",
    "open_cache",
    "readable_assembly",
]
