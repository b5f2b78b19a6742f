"""From text LLVM IR to machine code in memory: machines, assembly, the object cache, what the host can do."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator

from lamella.backend.cpu.jit.engine import (
    LLVM_FILE,
    MACHINES,
    PASSES,
    KeptObject,
    LoadedCode,
    Processor,
    assemble,
    assembly,
    build,
    code_error,
    find_machine,
    host_machine,
    llvm,
    load,
    load_all,
    object_key,
    pack_objects,
    unpack_objects,
)
from lamella.base.object_cache import ObjectCache, open_cache
from lamella.kernels.target import TILES

# --- assembly with the lines of the source as comments: they travel through LLVM as places of debug ---------


UNIT = """
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!3}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "kernels", directory: "")
!2 = !DISubroutineType(types: !{})
!3 = !{i32 2, !"Debug Info Version", i32 3}
"""
PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)\b.*")
NOISE = re.compile(
    r"\s*\.(file|ident|addrsig)\b.*|\s*\.cfi_.*|\.L(tmp|func_begin|func_end)\d+:.*|\$L__(tmp|func_begin|func_end)\d+:.*"
)
TABLES = re.compile(r'\s*\.section\s+"?\.debug.*')


def readable_assembly(text: str, machine: Processor) -> str:
    """The assembly, or PTX, of a text, each part below the line of the source that it comes from."""
    placed, lines = place_lines(text)
    mark = "#" if machine.triple.startswith("x86") else "//"
    return "\n".join(_with_lines(assembly(placed, machine), lines, mark)) + "\n"


def place_lines(text: str) -> tuple[str, list[str]]:
    """The text with a place for each instruction, and the comments that the places stand for, from 1 on."""
    lines: list[str] = []
    written, nodes, scope, number = [], [], 0, 4
    locations: dict[tuple[int, str], int] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("define "):
            scope, number, current = number, number + 1, ""
            name = line.partition("@")[2].partition("(")[0]
            head = f'!{scope} = distinct !DISubprogram(name: "{name}", scope: !1, file: !1, line: 1, '
            nodes.append(f"{head}type: !2, unit: !0, spFlags: DISPFlagDefinition)")
            written.append(f"{line.rstrip('{').rstrip()} !dbg !{scope} {{")
        elif line.startswith("  ; "):
            current = line[4:]
        elif line.startswith("  ") and current:
            key = (scope, current)
            if key not in locations:
                lines.append(current)
                locations[key], number = number, number + 1
                nodes.append(f"!{locations[key]} = !DILocation(line: {len(lines)}, scope: !{scope})")
            written.append(f"{line}, !dbg !{locations[key]}")
        else:
            written.append(f"{line}, !dbg !{_start(nodes, scope)}" if _calls(line) else line)
    return "\n".join([*written, UNIT, *nodes]) + "\n", lines


def _calls(line: str) -> bool:
    """Whether an instruction before the first comment is a call: those must have a place."""
    return line.startswith("  ") and " call " in line


def _start(nodes: list[str], scope: int) -> int:
    """The place of instructions that come from no line."""
    found = f"!{1_000_000 + scope} = !DILocation(line: 0, scope: !{scope})"
    if found not in nodes:
        nodes.append(found)
    return 1_000_000 + scope


def _with_lines(code: str, lines: list[str], mark: str) -> Iterator[str]:
    shown = ""
    for line in code.splitlines():
        if TABLES.match(line):
            return
        place = PLACE.match(line)
        if place is None:
            if not NOISE.match(line):
                yield line.removesuffix(", debug")
            continue
        number = int(place.group(1))
        text = lines[number - 1] if 0 < number <= len(lines) else ""
        if text and text != shown:
            yield f"\t{mark} {text}"
        shown = text or shown


# --- whether the matrix tiles of the processor can be used: tried, because what it says of itself -----------


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


def has_tiles(machine: Processor, cache: ObjectCache | None = None) -> bool:
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


def _key(machine: Processor) -> bytes:
    parts = ("tiles", TRIAL, machine.cpu, machine.features, os.uname().release)
    return hashlib.sha256("\0".join(parts).encode()).digest()


__all__ = [
    "LLVM_FILE",
    "MACHINES",
    "PASSES",
    "KeptObject",
    "LoadedCode",
    "ObjectCache",
    "Processor",
    "assemble",
    "assembly",
    "build",
    "code_error",
    "find_machine",
    "has_tiles",
    "host_machine",
    "llvm",
    "load",
    "load_all",
    "object_key",
    "open_cache",
    "pack_objects",
    "readable_assembly",
    "unpack_objects",
]
