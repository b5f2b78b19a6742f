"""An independent writer of NAC bytes: sections are given as bytes, so that they can be as wrong as one likes."""

from __future__ import annotations

import struct
from collections.abc import Mapping

HEADERS: Mapping[str, tuple[int, int, tuple[str, ...]]] = {
    "1.5": (1, 90, ("MMAP", "OPS ", "CMAP", "CNST", "PERM", "DATA", "PROC", "META", "RSRC")),
    "1.6": (1, 88, ("MMAP", "OPS ", "CMAP", "CNST", "PERM", "DATA", "PROC", "ORCH", "RSRC")),
    "1.7": (2, 92, ("MMAP", "OPS ", "CMAP", "CNST", "PERM", "DATA", "PROC", "ORCH", "TRNG", "RSRC")),
    "1.8": (2, 100, ("MMAP", "OPS ", "CMAP", "CNST", "PERM", "DATA", "PROC", "ORCH", "TRNG", "RSRC", "ARRS")),
}
"""Version byte, length and slots of each header."""

EMPTY: Mapping[str, bytes] = {
    **{tag: struct.pack("<I", 0) for tag in ("MMAP", "OPS ", "CMAP", "CNST", "PERM")},
    **{"DATA": bytes(8), "ORCH": bytes(8)},
}
"""What the sections that are always there hold when they hold nothing."""


def count(*records: bytes) -> bytes:
    """Records behind their number."""
    return struct.pack("<I", len(records)) + b"".join(records)


def short(text: bytes) -> bytes:
    """A text behind its length of one byte."""
    return bytes([len(text)]) + text


def long(text: bytes) -> bytes:
    """A text behind its length of two bytes."""
    return struct.pack("<H", len(text)) + text


def u16(*values: int) -> bytes:
    """Numbers of 16 bits."""
    return struct.pack(f"<{len(values)}H", *values)


def i16(*values: int) -> bytes:
    """Signed numbers of 16 bits."""
    return struct.pack(f"<{len(values)}h", *values)


def container(
    sections: Mapping[str, bytes | None] | None = None,
    version: str = "1.6",
    *,
    bits: int = 0,
    counts: tuple[int, int, int] = (0, 0, 0),
    offsets: Mapping[str, int] | None = None,
    tags: Mapping[str, bytes] | None = None,
) -> bytes:
    """A file of these sections behind each other; a section that is None is left out.

    `offsets` and `tags` replace what would be right.
    """
    byte, size, slots = HEADERS[version]
    body, places = b"", {}
    empty = EMPTY if bits < 0x80 else {**EMPTY, "DATA": bytes(12)}
    for tag, content in {**empty, **(sections or {})}.items():
        if tag in slots and content is not None:
            places[tag] = size + len(body)
            body += (tags or {}).get(tag, tag.encode()) + content
    places |= offsets or {}
    inputs, outputs, d_model = counts
    head = struct.pack("<3sBBHHBH", b"NAC", byte, bits, inputs, outputs, 0, d_model)
    table = b"".join(struct.pack("<Q", places.get(tag, 0)) for tag in slots)
    return (head + table).ljust(size, b"\0") + body


def patched(data: bytes, offset: int, replacement: bytes) -> bytes:
    """Bytes with some of them replaced."""
    return data[:offset] + replacement + data[offset + len(replacement) :]
