"""Files on disk: mapped, so that one of any size is open before its weights are read, and written whole or not."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import Mapped, map_bytes, shown
from lamella.base.writer import write_pieces as replace_file
from lamella.lang.nac.nodes import File
from lamella.lang.nac.parse import parse
from lamella.lang.nac.write import write_pieces


class Opened(NamedTuple):
    """A file, what was found wrong with it, and its bytes.

    `mapped.check_whole()` comes before weights are touched: another process may have cut the file off meanwhile.
    """

    file: File
    findings: tuple[Diagnostic, ...]
    mapped: Mapped


def open_file(path: Path, limits: Limits = DEFAULT) -> Opened:
    """Open a `.nac` file; every size in it is compared with the bytes that are there. InputError: it cannot be read."""
    mapped = map_bytes(path, limits)
    return Opened(*parse(mapped.data, shown(path), limits), mapped)


def save_file(path: Path, file: File) -> None:
    """Write a `.nac` file, also in the place of the one it was read from; weights are not copied on the way.

    LamellaError: it cannot be said in version 1.6, or not be written; what stood there before is then still there.
    """
    replace_file(path, write_pieces(file))
