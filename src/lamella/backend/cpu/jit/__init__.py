"""From text LLVM IR to machine code in memory: machines, assembly, the object cache, what the host can do."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lamella.backend.cpu.jit.engine import (
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
    load,
    load_all,
    object_key,
    pack_objects,
    unpack_objects,
)
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import MIB, Limits
from lamella.base.paths import read_bytes_in
from lamella.base.reader import Reader
from lamella.base.writer import remove_leftovers, write_bytes
from lamella.kernels.target import TILES

# --- objects on disk: found by what they were made from, verified before use, in a folder that is -----------


MAGIC = b"LAMELLA\x00"
VERSION = 1
LARGEST = 256 * MIB
ENDING = ".object"
OBJECTS = re.compile(rf"[0-9a-f]{{64}}{re.escape(ENDING)}")
KEY_BYTES = 32
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class ObjectCache:
    """A folder of objects that may hold so many bytes; those that nobody used for the longest time go first."""

    folder: Path
    largest: int = LARGEST

    def get(self, key: bytes) -> bytes | None:
        """The object of a key, if it is there and whole; it then counts as new."""
        try:
            data = read_bytes_in(self.folder, _name(key), Limits(max_data_bytes=self.largest))
            found = _unwrap(key, data)
        except LamellaError:
            return None
        with suppress(OSError):
            os.utime(self.folder / _name(key), follow_symlinks=False)
        return found

    def put(self, key: bytes, content: bytes) -> None:
        """Keep an object; a full disk or a folder that is gone is no reason to fail."""
        data = _wrap(key, content)
        if len(data) > self.largest:
            return
        with suppress(LamellaError):
            write_bytes(self.folder / _name(key), data, durable=False)
            # To go through thousands of files costs more than to write one. Keys are digests: of 64 small objects
            # one looks, so that on average the folder is a sixteenth above its bound at most before somebody does.
            if len(data) > self.largest // 1024 or key[0] % 64 == 0:
                self._evict()

    def _evict(self) -> None:
        """Remove the oldest files until three quarters of the bound are left, where it is passed; and leftovers."""
        remove_leftovers(self.folder, OBJECTS)
        files = sorted(_list_objects(self.folder), key=lambda item: item[1].st_mtime_ns)
        total = sum(found.st_size for _, found in files)
        if total <= self.largest:
            return
        for path, found in files:
            if total <= self.largest * 3 // 4:
                return
            with suppress(OSError):
                os.unlink(path)
            total -= found.st_size


def _name(key: bytes) -> str:
    return key.hex() + ENDING


def _wrap(key: bytes, content: bytes) -> bytes:
    length = len(content).to_bytes(8, "little")
    head = MAGIC + VERSION.to_bytes(4, "little") + key + length
    return head + hashlib.sha256(head + content).digest() + content


def _unwrap(key: bytes, data: bytes) -> bytes | None:
    reader = Reader(data)
    reader.expect(MAGIC, "an object of the cache")
    version, own = reader.u32(), reader.take(KEY_BYTES)
    length = reader.count(reader.u64(), 1)
    head, digest = data[: reader.position], reader.take(KEY_BYTES)
    content = reader.take(length)
    reader.finish("the object")
    whole = hashlib.sha256(head + content).digest() == digest
    return content if whole and version == VERSION and own == key else None


def _list_objects(folder: Path) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(ENDING) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    found.append((entry.path, entry.stat(follow_symlinks=False)))
    return found


def open_cache(folder: Path | None = None) -> ObjectCache | None:
    """The cache of this user, or None where there is no folder that only they can write to."""
    place = folder or _default_folder()
    if place is None:
        return None
    with suppress(OSError, ValueError):
        os.makedirs(place, mode=0o700, exist_ok=True)
        if _is_private(place):
            return ObjectCache(place)
    return None


def _default_folder() -> Path | None:
    """`$LAMELLA_CACHE`, else the folder for caches of the desktop standard; an empty variable switches it off."""
    named = os.environ.get("LAMELLA_CACHE")
    if named is not None:
        return Path(named) if named else None
    standard = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(standard):
        return Path(standard) / "lamella" / "objects"
    home = os.path.expanduser("~")
    return Path(home) / ".cache" / "lamella" / "objects" if os.path.isabs(home) else None


def _is_private(folder: Path) -> bool:
    found = os.lstat(folder)
    mine = found.st_uid == os.geteuid()
    return stat.S_ISDIR(found.st_mode) and mine and not found.st_mode & _OTHERS_WRITE


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
    "load",
    "load_all",
    "object_key",
    "open_cache",
    "pack_objects",
    "readable_assembly",
    "unpack_objects",
]
