"""Hostile NAC files by their case in the list of attacks: N1 to N5, N13, N14, N16 and N19."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache

from lamella.lang.nac.write import write
from tests.support.lang.nac.containers import HEADERS, container, count, i16, long, patched, short, u16
from tests.support.lang.nac.models import perceptron

MOST = (1 << 32) - 1
SECTIONS = ("MMAP", "OPS ", "CMAP", "CNST", "PERM", "DATA", "ORCH", "RSRC")
"""Sections that begin with a count, or hold one."""


@cache
def right() -> bytes:
    """A small file that nothing is wrong with and that has all sections of version 1.6."""
    return write(perceptron())


def place_of(tag: str, data: bytes | None = None) -> int:
    """The offset of a section as the header has it."""
    slot = HEADERS["1.6"][2].index(tag)
    found: int = struct.unpack_from("<Q", data or right(), 12 + 8 * slot)[0]
    return found


def with_offset(tag: str, offset: int) -> bytes:
    """The right file with another offset of a section."""
    return patched(right(), 12 + 8 * HEADERS["1.6"][2].index(tag), struct.pack("<Q", offset))


def offsets() -> Mapping[str, tuple[bytes, str]]:
    """N2: offsets that cannot be right, each with a code that must be found."""
    found: dict[str, tuple[bytes, str]] = {}
    for tag in HEADERS["1.6"][2]:
        name, here = tag.strip(), place_of(tag)
        found[f"{name} in the header"] = with_offset(tag, 40), "NAC010"
        found[f"{name} at the first byte"] = with_offset(tag, 1), "NAC010"
        found[f"{name} at the end"] = with_offset(tag, len(right())), "NAC010"
        found[f"{name} past the end"] = with_offset(tag, len(right()) + 1), "NAC010"
        found[f"{name} at 2^64 - 1"] = with_offset(tag, (1 << 64) - 1), "NAC010"
        found[f"{name} at 2^63"] = with_offset(tag, 1 << 63), "NAC010"
        other = place_of("DATA" if tag != "DATA" else "PERM")
        found[f"{name} where another begins"] = with_offset(tag, other), "NAC011"
        found[f"{name} in the middle of another"] = with_offset(tag, other + 5), "NAC012"
        found[f"{name} one byte late"] = with_offset(tag, here + 1), "NAC012"
        found[f"{name} at the last byte"] = with_offset(tag, len(right()) - 1), "NAC020"
        found[f"{name} without a tag"] = patched(right(), here, bytes(4)), "NAC012"
        found[f"{name} with a tag of another"] = patched(right(), here, b"WXYZ"), "NAC012"
        found[f"{name} absent, its bytes there"] = with_offset(tag, 0), "NAC013"
    swapped = patched(with_offset("CMAP", place_of("PERM")), 12 + 32, struct.pack("<Q", place_of("CMAP")))
    return {**found, "two slots exchanged": (swapped, "NAC012")}


def counts() -> Mapping[str, bytes]:
    """N4: counts that cannot be right, with ten bytes behind them."""
    huge, ten = struct.pack("<I", MOST), bytes(10)
    found = {tag.strip(): container({tag: huge + ten}) for tag in SECTIONS[:5]}
    return {
        **found,
        "RSRC": container({"RSRC": huge + ten}),
        "DATA parameters": container({"DATA": huge + ten}),
        "DATA inputs": container({"DATA": bytes(4) + huge + ten}),
        "DATA tensors": container({"DATA": bytes(8) + huge + ten}, bits=0x80),
        "ORCH bytecode": container({"ORCH": huge + bytes(4) + ten}),
        "ORCH constants": container({"ORCH": bytes(4) + huge + ten}),
        "PROC": container({"PROC": huge + ten}),
        "TRNG": container({"TRNG": huge + ten}, "1.8", bits=0x40),
        "ARRS": container({"ARRS": huge + ten}, "1.8"),
        "commands of a tick": container({"MMAP": count(u16(0) + b"\xff" + bytes(9))}),
        "outputs": container({"OPS ": count(b"\3\0" + bytes(10))}, counts=(0, 65535, 0)),
        "constants of an instruction": container(
            {"OPS ": count(b"\x0a\1" + i16(32767) + bytes(8)), "PERM": count(u16(1) + short(b"Ti"))}
        ),
    }


def texts() -> Mapping[str, tuple[bytes, str]]:
    """N5: lengths and letters of names, each with the code that must be found."""
    bad: Mapping[str, tuple[bytes, str]] = {
        "past the section": (b"\xff", "NAC020"),
        "not UTF-8": (b"\xc3\x28", "NAC021"),
        "half a character": ("é".encode()[:1], "NAC021"),
        "a surrogate": (b"\xed\xb3\xbf", "NAC021"),
        "NUL": (b"a\0b", "NAC021"),
    }
    found: dict[str, tuple[bytes, str]] = {}
    for name, (text, code) in bad.items():
        cut = code == "NAC020"
        brief = b"\xff" + text if cut else short(text)
        wide = u16(65535) + text if cut else long(text)
        found |= {
            f"operation {name}": (container({"CMAP": count(u16(201) + brief)}), code),
            f"signature {name}": (container({"PERM": count(u16(1) + brief)}), code),
            f"string {name}": (container({"CNST": count(u16(1) + b"\4" + wide)}), code),
            f"parameter {name}": (container({"DATA": count(u16(1) + wide) + bytes(4)}), code),
            f"input {name}": (container({"DATA": bytes(4) + count(u16(1) + wide)}), code),
            f"resource {name}": (container({"RSRC": count(wide + bytes(4))}), code),
        }
    return found


def constants() -> Mapping[str, tuple[bytes, str]]:
    """N13: constants whose type or length cannot be."""
    records = {
        "type 7": (b"\7" + u16(0), "NAC023"),
        "type 255": (b"\xff" + u16(8) + bytes(8), "NAC023"),
        "a null of 4 bytes": (b"\0" + u16(4) + bytes(4), "NAC024"),
        "a bool of 0 bytes": (b"\1" + u16(0), "NAC024"),
        "a bool of 65535 bytes": (b"\1" + u16(65535) + bytes(9), "NAC024"),
        "an integer of 4 bytes": (b"\2" + u16(4) + bytes(4), "NAC024"),
        "an integer of 9 bytes": (b"\2" + u16(9) + bytes(9), "NAC024"),
        "a number of 0 bytes": (b"\3" + u16(0), "NAC024"),
        "an integer cut off": (b"\2" + u16(8) + bytes(3), "NAC020"),
        "a list of integers past the section": (b"\5" + u16(65535) + bytes(16), "NAC020"),
        "a list of numbers past the section": (b"\6" + u16(5) + bytes(16), "NAC020"),
    }
    found = {
        name: (container({"CNST": count(u16(2) + text)}), code) for name, (text, code) in records.items()
    }
    for name, (text, code) in records.items():
        plan = struct.pack("<II", 0, 1) + u16(2) + text
        found[f"{name}, of the orchestrator"] = container({"ORCH": plan}), code
    return found


def tensor(metadata: bytes, size: int = 4, length: int | None = None) -> bytes:
    """A file with one tensor of this metadata."""
    record = struct.pack("<HIQ", 1, len(metadata) if length is None else length, size) + metadata + bytes(4)
    return container({"DATA": count(u16(1) + long(b"w")) + bytes(4) + count(record)}, bits=0x80)


def tensors() -> Mapping[str, tuple[bytes, str]]:
    """N14: metadata that does not agree with itself."""
    one = struct.pack("<I", 1)
    channel = b"\7\1" + one + b"\3\0"
    block = b"\7\1" + one + b"\4" + u16(64) + b"\1" + one
    return {
        "no metadata": (tensor(b""), "NAC026"),
        "a rank without a shape": (tensor(b"\0\1"), "NAC026"),
        "no quantisation code": (tensor(b"\0\1" + one), "NAC026"),
        "a byte too many": (tensor(b"\0\1" + one + b"\0\0"), "NAC026"),
        "rank 255": (tensor(b"\0\xff" + one * 255 + b"\0"), "NAC022"),
        "rank 255 and no shape": (tensor(b"\0\xff\0"), "NAC022"),
        "quantisation code 5": (tensor(b"\0\1" + one + b"\5"), "NAC027"),
        "quantisation code 255": (tensor(b"\0\1" + one + b"\xff"), "NAC027"),
        "a scale cut off": (tensor(b"\7\1" + one + b"\2\0\0"), "NAC026"),
        "2^32 - 1 scales": (tensor(channel + b"\xff" * 4 + bytes(8)), "NAC026"),
        "scales cut off": (tensor(channel + struct.pack("<I", 2) + bytes(4)), "NAC026"),
        "scales left over": (tensor(channel + struct.pack("<I", 1) + bytes(8)), "NAC026"),
        "2^32 - 1 scales of blocks": (tensor(block + b"\xff" * 4 + bytes(8)), "NAC026"),
        "an original rank of 255": (tensor(b"\7\1" + one + b"\4" + u16(64) + b"\xff"), "NAC022"),
        "metadata past the section": (tensor(b"\0\0\0", length=MOST), "NAC020"),
        "data past the section": (tensor(b"\0\0\0", 5), "NAC020"),
        "2^64 - 1 bytes of data": (tensor(b"\0\0\0", (1 << 64) - 1), "NAC020"),
        "2^63 bytes of data": (tensor(b"\0\0\0", 1 << 63), "NAC020"),
        "internal weights and a clear flag": (patched(tensor(b"\0\0\0"), 4, b"\0"), "NAC013"),
        "no weights and a set flag": (patched(container(), 4, b"\x80"), "NAC020"),
        "an array of rank 255": (container({"ARRS": count(u16(0) + b"\0\xff" + bytes(99))}, "1.8"), "NAC022"),
    }


def instructions() -> Mapping[str, tuple[bytes, str]]:
    """Instructions whose length nobody knows."""
    sign = {"PERM": count(u16(1) + short(b"Ti"))}
    records = {
        **{f"operation {number}": (bytes([number, 0]), "NAC028") for number in (1, 4, 5, 8, 9)},
        "variant 6 of an input": (b"\2\6", "NAC028"),
        "variant 2 of an output": (b"\3\2", "NAC028"),
        "a folded constant with a variant": (b"\0\1", "NAC028"),
        "-1 constants": (b"\x0a\1" + i16(-1) + bytes(8), "NAC029"),
        "-32768 constants": (b"\7\0" + i16(-32768) + bytes(8), "NAC029"),
        "half an instruction": (b"\x0a", "NAC020"),
        "no offsets": (b"\x0a\1" + i16(0), "NAC020"),
    }
    return {name: (container({"OPS ": count(text), **sign}), code) for name, (text, code) in records.items()}
