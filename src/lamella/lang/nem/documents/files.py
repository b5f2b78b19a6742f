"""The files that a document consists of: found, read and parsed once each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import STANDARD_INPUT, Refusal, read_included, resolve_include, shipped, shown
from lamella.base.source import Source
from lamella.lang.nem.documents.library import BASELINE, FILE_ALIASES, SHIPPED
from lamella.lang.nem.parse import Parsed, parse


@dataclass(frozen=True, slots=True, eq=False)
class File:
    """A parsed file, compared by identity; the path is canonical, None for a text that is no file."""

    path: Path | None
    root: Path
    source: Source
    parsed: Parsed


def read_file(path: Path, root: Path, limits: Limits) -> File:
    """Read and parse a file that `locate` found; InputError where that is not possible."""
    source = Source(_name_of(path), read_included(root, path, limits))
    return File(path, root, source, parse(source, limits))


def _name_of(path: Path) -> str:
    """How findings name a file; a shipped one has the same name on every machine."""
    return f"lamella/devices/{path.name}" if path.parent == shipped("devices") else shown(path)


@cache
def baseline_file() -> File:
    """The standard baseline as it comes with the package."""
    folder = shipped("devices")
    return read_file(folder / BASELINE, folder, DEFAULT)


def locate(text: str, including: Path | None, root: Path, limits: Limits) -> tuple[Path, Path] | Refusal:
    """The canonical path of a file that a document names and the root it lies below, or why it is refused.

    The baseline and the shipped device files are known by their bare names, where no file of that name stands
    beside the including one.
    """
    found = resolve_include(root, including or STANDARD_INPUT, text, limits)
    if isinstance(found, Path):
        return found, root
    name = FILE_ALIASES.get(text, text)
    beside = including.parent if including else root
    if name not in SHIPPED.values() or os.path.lexists(beside / text):
        return found
    folder = shipped("devices")
    return folder / name, folder


class Shelf:
    """The files read so far; the limit on their number holds for all of them together."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.files: dict[Path, File] = {}
        self.failures = 0
        self.closed = False

    def has_room(self, path: Path | None) -> bool:
        """Whether a file is here already or may still be read; what could not be read counts as well."""
        return path in self.files or len(self.files) + self.failures < self.limits.max_includes

    def take(self, path: Path, root: Path) -> File:
        """A file, read at most once."""
        if path not in self.files:
            builtin = baseline_file()
            self.files[path] = builtin if path == builtin.path else read_file(path, root, self.limits)
        return self.files[path]
