"""Files on disk, binary and assembly: mapped when read, so that weights stay unread, and written whole or not."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import Mapped, default_root, map_bytes, read_bytes_in, read_text, shown
from lamella.base.source import Source
from lamella.base.writer import remove_leftovers, write_text
from lamella.base.writer import write_pieces as replace_file
from lamella.lang.nac.assembly import Assembled, assemble, disassemble_apart
from lamella.lang.nac.nodes import Data, File
from lamella.lang.nac.parse import parse
from lamella.lang.nac.write import write_pieces

# --- assembly texts on disk, with a companion file for their large data -------------------------------------


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
    stem = re.sub(r"[^0-9A-Za-z_.-]", "_", path.stem).lstrip(".") or "data"
    name = f"{stem}-{_checksum(parts)}.bin"
    companion = path.parent / name if parts else None
    if companion is not None:
        remove_leftovers(path.parent, re.compile(rf"{re.escape(stem)}-[0-9a-f]{{{DIGITS}}}\.bin"))
        replace_file(companion, parts, through_links=False)
    write_text(path, disassemble_apart(file, name).text)
    return companion


def _checksum(parts: tuple[Data, ...]) -> str:
    checksum = sha256()
    for part in parts:
        checksum.update(part)
    return checksum.hexdigest()[:DIGITS]


class OpenedFile(NamedTuple):
    """A file, what was found wrong with it, and its bytes.

    `mapped.check_whole()` comes before weights are touched: another process may have cut the file off meanwhile.
    """

    file: File
    findings: tuple[Diagnostic, ...]
    mapped: Mapped


def open_file(path: Path, limits: Limits = DEFAULT) -> OpenedFile:
    """Open a `.nac` file; every size in it is compared with the bytes that are there. InputError: it cannot be read."""
    mapped = map_bytes(path, limits)
    return OpenedFile(*parse(mapped.data, shown(path), limits), mapped)


def save_file(path: Path, file: File) -> None:
    """Write a `.nac` file, also in the place of the one it was read from; weights are not copied on the way.

    LamellaError: it cannot be said in version 1.6, or not be written; what stood there before is then still there.
    """
    replace_file(path, write_pieces(file))
