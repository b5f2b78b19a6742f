"""Assembly texts on disk, with a companion file for their large data."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import default_root, read_bytes_in, read_text, shown
from lamella.base.source import Source
from lamella.base.writer import write_pieces, write_text
from lamella.lang.nac.assembly import Assembled, assemble, disassemble_apart
from lamella.lang.nac.nodes import Data, File

DIGITS = 12
"""Digits of the checksum in the name of a companion."""


def open_assembly(path: Path, limits: Limits = DEFAULT) -> Assembled:
    """The file that a `.nacs` text describes; files that it names lie in its folder. InputError: it cannot be read."""
    folder = default_root(path)
    source = Source(shown(path), read_text(path, limits))
    return assemble(source, lambda name: read_bytes_in(folder, name, limits), limits)


def save_assembly(path: Path, file: File) -> Path | None:
    """Write a `.nacs` text and, where data is large, its companion, whose path is returned.

    The name of the companion tells its content, so that a text never meets data that is not its own, wherever writing
    ends. OutputError: it cannot be written; what stood there before is then still there.
    """
    parts = disassemble_apart(file, "").parts
    name = _companion_name(path, parts)
    companion = path.parent / name if parts else None
    if companion is not None:
        write_pieces(companion, parts)
    write_text(path, disassemble_apart(file, name).text)
    return companion


def _companion_name(path: Path, parts: tuple[Data, ...]) -> str:
    checksum = sha256()
    for part in parts:
        checksum.update(part)
    stem = re.sub(r"[^0-9A-Za-z_.-]", "_", path.stem).lstrip(".") or "data"
    return f"{stem}-{checksum.hexdigest()[:DIGITS]}.bin"
