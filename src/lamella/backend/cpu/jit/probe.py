"""Whether the matrix tiles of the processor can be used: tried, because what it says of itself may be wrong.

The system must grant the tiles to the process, and a product of two of them must come out right. An illegal
instruction would end a process, so another one tries, once; its answer is kept in the object cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import sys

from lamella.backend.cpu.jit.cache import ObjectCache
from lamella.backend.cpu.jit.machine import Machine
from lamella.kernels.target import TILES

SYS_ARCH_PRCTL = 158
ARCH_REQ_XCOMP_PERM = 0x1023
XFEATURE_XTILEDATA = 18
PATIENCE_S = 20

# ldtilecfg [rdi]; tilezero 0; tileloadd 1 and 2, [rsi+rcx]; tdpbf16ps 0,1,2; tilestored [rdx+rcx], 0; tilerelease; ret
CODE = "c4e2784907c4e27b49c0c4e27b4b0c0ec4e27b4b140ec4e26a5cc1c4e27a4b040ac4e27849c0c3"
TRIAL = f"""
import ctypes, mmap, sys
if ctypes.CDLL(None).syscall({SYS_ARCH_PRCTL}, {ARCH_REQ_XCOMP_PERM}, {XFEATURE_XTILEDATA}):
    sys.exit(1)
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("{CODE}"))
config = bytes([1]) + bytes(15) + bytes([64, 0] * 3) + bytes(26) + bytes([16] * 3) + bytes(13)
ones = bytes.fromhex("803f") * 512
found = ctypes.create_string_buffer(1024)
run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
run(ctypes.cast(config, ctypes.c_void_p), ctypes.cast(ones, ctypes.c_void_p), ctypes.addressof(found), 64)
sys.exit(found.raw != bytes.fromhex("00000042") * 256)
"""
"""A process of its own: a product of ones, 32 deep, is 32 everywhere."""


def has_tiles(machine: Machine, cache: ObjectCache | None = None) -> bool:
    """Whether tile instructions for bf16 and i8 work here; asks the system to grant them to this process."""
    if not (machine.has(*TILES) and _on_linux() and grant_tiles()):
        return False
    key = _key(machine)
    kept = None if cache is None else cache.get(key)
    if kept is None:
        kept = b"yes" if try_tiles() else b"no"
        if cache is not None:
            cache.put(key, kept)
    return kept == b"yes"


def _on_linux() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64"


def grant_tiles() -> bool:
    """Ask the system to let this process use the tiles; threads that start later may use them too."""
    answer: int = ctypes.CDLL(None).syscall(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
    return answer == 0


def try_tiles() -> bool:
    """Multiply two tiles in another process; any end but the right one is a no."""
    command = [sys.executable, "-I", "-S", "-c", TRIAL]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        return False
    return done.returncode == 0


def _key(machine: Machine) -> bytes:
    parts = ("tiles", TRIAL, machine.cpu, machine.features, os.uname().release)
    return hashlib.sha256("\0".join(parts).encode()).digest()
