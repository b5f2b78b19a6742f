"""The target that this process runs on: the one whose vectors the host has, with the host's own name and features."""

from __future__ import annotations

import platform
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from lamella.backend.cpu.jit import has_tiles, host_machine, open_cache
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.paths import read_text
from lamella.kernels.target import TILES, Target, find_target

NAMES = MappingProxyType({"avx512": "cpu-avx512", "avx2": "cpu-avx2", "neon": "cpu-aarch64"})
PLAIN = "cpu-avx2"
"""What a processor without these is written for; LLVM takes wide vectors apart."""


@cache
def host_target() -> Target:
    """The target of the host; its tiles are there only where a trial says that they work."""
    machine = host_machine()
    base = find_target(NAMES.get(machine.level, PLAIN))
    if has_tiles(machine, open_cache()):
        base = find_target("cpu-amx")
    features = machine.features if base.amx else without_tiles(machine.features)
    return replace(base, triple=machine.triple, cpu=machine.cpu, features=features)


def without_tiles(features: str) -> str:
    """Features with those of the tiles switched off."""
    return ",".join(f"-{item[1:]}" if item[1:] in TILES else item for item in features.split(","))


def host_like(name: str) -> Target:
    """A target by name, if this machine can run its code."""
    found, host = find_target(name), host_target()
    levels = {"cpu-avx2": 1, "cpu-avx512": 2, "cpu-amx": 3}
    able = levels.get(host.name, 0) >= levels.get(found.name, 9) or host.name == found.name
    if not able:
        hint = "backend='cuda' runs on a GPU" if found.has_threads else f"it is like {host.name}"
        raise InputError(f"this processor cannot run code for '{found.name}'", hint=hint)
    return found


def processor() -> str:
    """The name of the processor of this machine."""
    try:
        lines = read_text(Path("/proc/cpuinfo")).splitlines()
    except LamellaError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
