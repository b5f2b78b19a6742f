"""Objects of x86-64 brought into memory without LLVM: what a compiled model needs to run again is not a compiler.

An object of ours is code and constants that find each other by distance, and calls of functions of C. One that has
anything else is left to LLVM, which knows everything.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass

HEADER = np.dtype(
    {
        "names": ["mark", "machine", "sections", "count"],
        "formats": ["S6", "<u2", "<u8", "<u2"],
        "offsets": [0, 18, 40, 60],
        "itemsize": 64,
    }
)
SECTION = np.dtype(
    {
        "names": ["kind", "flags", "offset", "size", "link", "info", "alignment"],
        "formats": ["<u4", "<u8", "<u8", "<u8", "<u4", "<u4", "<u8"],
        "offsets": [4, 8, 24, 32, 40, 44, 48],
        "itemsize": 64,
    }
)
SYMBOL = np.dtype(
    {
        "names": ["name", "info", "section", "value"],
        "formats": ["<u4", "u1", "<u2", "<u8"],
        "offsets": [0, 4, 6, 8],
        "itemsize": 24,
    }
)
RELOCATION = np.dtype([("place", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
Records = npt.NDArray[np.void]

X86_64 = 62
BITS, SYMBOLS, RELOCATIONS, FRAMES = 1, 2, 4, 0x7000_0001
WRITABLE, IN_MEMORY, EXECUTABLE = 1, 2, 4
DISTANCES = (2, 4)
"""Kinds of relocations: a signed distance of 32 bits, to a place or to a function."""
LOCAL_SECTIONS = 0xFF00
"""Numbers of sections from here on mean something else."""
LINE, STUB = 64, 16
JUMP = bytes.fromhex("ff2500000000")
"""jmp to the address that stands behind it: a function of C may lie farther away than a distance reaches."""


def place_objects(
    objects: Sequence[bytes], symbols: Sequence[str], resolve: Callable[[str], int]
) -> tuple[object, dict[str, int]]:
    """What code lives as long as, and the addresses of the symbols that are there.

    Unsupported: only LLVM can load this.
    """
    if not hasattr(mmap, "PROT_EXEC"):
        raise Unsupported("this system has other ways to make memory executable")
    try:
        return _place(objects, symbols, resolve)
    except (ValueError, IndexError, KeyError, OverflowError, OSError):
        raise Unsupported("an object is damaged") from None


def _place(
    objects: Sequence[bytes], symbols: Sequence[str], resolve: Callable[[str], int]
) -> tuple[object, dict[str, int]]:
    found = [_Object.read(item) for item in objects]
    open_names = sorted({name for item in found for name in item.open_names()})
    stubs = {name: place * STUB for place, name in enumerate(open_names)}
    size = STUB * len(stubs)
    for item in found:
        size = item.lay(EXECUTABLE, size)
    # Constants lie on pages of their own, which nobody can run.
    size = constants = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    for item in found:
        size = item.lay(0, size)
    memory = mmap.mmap(-1, max(size, 1))
    view = np.frombuffer(memory, np.uint8)
    address = int(view.__array_interface__["data"][0])
    for name, start in stubs.items():
        content = JUMP + resolve(name).to_bytes(8, "little")
        view[start : start + len(content)] = np.frombuffer(content, np.uint8)
    exported: dict[str, int] = {}
    for item in found:
        item.write(view, stubs)
        exported |= item.exported(address)
    _protect(address, constants, mmap.PROT_READ | mmap.PROT_EXEC)
    _protect(address + constants, len(memory) - constants, mmap.PROT_READ)
    return memory, {name: exported[name] for name in symbols if name in exported}


def _protect(address: int, size: int, rights: int) -> None:
    if size and ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), rights):
        raise Unsupported("the system lets no code be made")


@dataclass(slots=True)
class _Object:
    """One object with the places of its sections in memory."""

    content: bytes
    sections: Records
    symbols: Records
    names: int
    """Where the names of symbols begin."""
    places: npt.NDArray[np.int64]
    """The place of each section; -1 of those that are not in memory."""

    @classmethod
    def read(cls, content: bytes) -> _Object:
        """An object of bytes; ValueError and its like where they are none."""
        head = np.frombuffer(content, HEADER, 1)[0]
        if bytes(head["mark"]) != b"\x7fELF\x02\x01" or head["machine"] != X86_64:
            raise Unsupported("it is no object of this processor")
        sections = np.frombuffer(content, SECTION, int(head["count"]), int(head["sections"]))
        loaded = _is_loaded(sections)
        if any(sections["flags"][loaded] & WRITABLE) or any(sections["kind"][loaded] != BITS):
            raise Unsupported("it has memory of its own")
        if any(sections["size"] > len(content)) or any(sections["alignment"] > mmap.PAGESIZE):
            raise Unsupported("a section is larger than the object")
        tables = sections[sections["kind"] == SYMBOLS]
        if len(tables) != 1:
            raise Unsupported("it has no table of symbols")
        symbols = np.frombuffer(
            content, SYMBOL, int(tables[0]["size"]) // SYMBOL.itemsize, int(tables[0]["offset"])
        )
        names = int(sections[int(tables[0]["link"])]["offset"])
        return cls(content, sections, symbols, names, np.full(len(sections), -1, np.int64))

    def lay(self, flag: int, start: int) -> int:
        """Give a place to the sections with code, or to those without; gives where they end."""
        chosen = _is_loaded(self.sections) & ((self.sections["flags"] & EXECUTABLE) == flag)
        for number in np.flatnonzero(chosen):
            aligned = max(LINE, int(self.sections[number]["alignment"]))
            self.places[number] = start = -(-start // aligned) * aligned
            start += int(self.sections[number]["size"])
        return start

    def open_names(self) -> Iterator[str]:
        """The names of what it asks of others."""
        return (self._name(item) for item in self.symbols[1:] if not item["section"])

    def exported(self, address: int) -> dict[str, int]:
        """The addresses of what it gives to others."""
        found = {}
        for item in self.symbols:
            section = int(item["section"])
            if item["info"] >> 4 and 0 < section < LOCAL_SECTIONS and self.places[section] >= 0:
                found[self._name(item)] = address + int(self.places[section]) + int(item["value"])
        return found

    def write(self, view: npt.NDArray[np.uint8], stubs: dict[str, int]) -> None:
        """Copy the sections to their places, and write the distances between them."""
        for number in np.flatnonzero(self.places >= 0):
            item, start = self.sections[number], int(self.places[number])
            content = np.frombuffer(self.content, np.uint8, int(item["size"]), int(item["offset"]))
            view[start : start + len(content)] = content
        targets = self._targets(stubs)
        for item in self.sections[self.sections["kind"] == RELOCATIONS]:
            if item["info"] >= len(self.places):
                raise Unsupported("a relocation has no section")
            if self.places[item["info"]] >= 0:
                self._relocate(view, item, targets)

    def _targets(self, stubs: dict[str, int]) -> npt.NDArray[np.int64]:
        """The place of each symbol; -1 of those that are not in memory."""
        number = self.symbols["section"].astype(np.int64)
        inside = (number > 0) & (number < len(self.places))
        base = np.where(inside, self.places[np.where(inside, number, 0)], -1)
        found = np.where(base >= 0, base + self.symbols["value"].astype(np.int64), -1)
        for place in np.flatnonzero(number[1:] == 0) + 1:
            found[place] = stubs[self._name(self.symbols[place])]
        return found

    def _relocate(self, view: npt.NDArray[np.uint8], table: np.void, targets: npt.NDArray[np.int64]) -> None:
        count = int(table["size"]) // RELOCATION.itemsize
        items = np.frombuffer(self.content, RELOCATION, count, int(table["offset"]))
        start, size = int(self.places[table["info"]]), int(self.sections[table["info"]]["size"])
        known = np.isin(items["kind"], DISTANCES).all() and (items["symbol"] < len(targets)).all()
        if not known or (items["place"] > size - 4).any() or (targets[items["symbol"]] < 0).any():
            raise Unsupported("it has a relocation of another kind")
        places = start + items["place"].astype(np.int64)
        distances = targets[items["symbol"]] + items["addend"] - places
        if (np.abs(distances) >= 1 << 31).any():
            raise Unsupported("it is too large")
        words = distances.astype("<i4").view(np.uint8).reshape(-1, 4)
        view[places[:, None] + np.arange(4)] = words

    def _name(self, symbol: np.void) -> str:
        start = self.names + int(symbol["name"])
        return self.content[start : self.content.index(0, start)].decode("utf-8", "replace")


def _is_loaded(sections: Records) -> npt.NDArray[np.bool_]:
    """Which sections are in memory; what unwinds a stack is not, because nothing of ours throws."""
    found: npt.NDArray[np.bool_] = (sections["flags"] & IN_MEMORY != 0) & (sections["kind"] != FRAMES)
    return found & (sections["size"] > 0)
