"""Folders in which imports are looked for, and the files in them by version and by what they declare."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import Refusal, read_included, resolve_include, shown

_FILE = re.compile(r"([A-Za-z_]\w*)(?:\.v([0-9]{1,9}))?\.module", re.ASCII)
_DECLARED = re.compile(
    r"^(?:abstract +)?(?:module|block|model|primitive|recipe|export +\w+) +([A-Za-z_]\w*)",
    re.ASCII | re.MULTILINE,
)
_MOST_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class File:
    """A file of a place: its folder and stem as an import names them, and its version."""

    folder: tuple[str, ...]
    stem: str
    version: int
    name: str

    @property
    def below(self) -> str:
        """The path from the place."""
        return "/".join((*self.folder, self.name))


def real_path(path: Path) -> Path:
    """A path without links; one that the system cannot even look up stays as it is."""
    with suppress(OSError, ValueError):
        return Path(os.path.realpath(path))
    return path


class Place:
    """A folder below which imports are looked for; it is read when it is asked, and each thing once."""

    def __init__(self, root: Path, limits: Limits, standard: bool = False) -> None:
        self.root = root
        self.standard = standard
        self._limits = limits
        self._files: dict[tuple[str, ...], list[File]] = {}
        self._texts: dict[File, str] = {}
        self._declares: dict[File, frozenset[str]] = {}
        self._indices: dict[tuple[str, ...], dict[str, list[File]]] = {}

    def dotted(self, parts: tuple[str, ...]) -> str:
        """The name of a file or folder as imports write it."""
        return ".".join(("std", *parts) if self.standard else parts)

    def files(self, folder: tuple[str, ...]) -> list[File]:
        """The files of a folder, by stem and version."""
        if folder not in self._files:
            self._files[folder] = sorted(self._list(folder), key=lambda item: (item.stem, item.version))
        return self._files[folder]

    def _list(self, folder: tuple[str, ...]) -> Iterator[File]:
        path = self.root.joinpath(*folder)
        with suppress(OSError, ValueError), os.scandir(path) as entries:
            for _, entry in zip(range(_MOST_ENTRIES), entries, strict=False):
                found = _FILE.fullmatch(entry.name)
                if found:
                    yield File(folder, found[1], int(found[2] or 1), entry.name)

    def file_at(self, path: Path) -> File | None:
        """The file of this place that a path leads to; None where it lies elsewhere."""
        real, top = real_path(path), real_path(self.root)
        if not real.is_relative_to(top):
            return None
        *folder, name = real.relative_to(top).parts or ("",)
        return next((item for item in self.files(tuple(folder)) if item.name == name), None)

    def versions(self, parts: tuple[str, ...]) -> list[File]:
        """The file that a path names, in all its versions, the highest last."""
        return [item for item in self.files(parts[:-1]) if item.stem == parts[-1]]

    @cached_property
    def folders(self) -> list[str]:
        """The folders directly in the place."""
        return self.subfolders(())

    def subfolders(self, folder: tuple[str, ...]) -> list[str]:
        """The folders directly in a folder of the place."""
        with suppress(OSError), os.scandir(self.root.joinpath(*folder)) as entries:
            return sorted(entry.name for entry in entries if entry.name.isidentifier() and entry.is_dir())
        return []

    def text(self, file: File) -> str:
        """The text of a file; InputError where it cannot be read or leads out of the place."""
        if file not in self._texts:
            found = resolve_include(self.root, self.root / "_", file.below, self._limits)
            if isinstance(found, Refusal):
                path = shown(self.root / file.below)
                raise InputError(f"'{path}' {found.reason}", path=path, hint=found.hint)
            self._texts[file] = read_included(self.root, found, self._limits)
        return self._texts[file]

    def declares(self, file: File) -> frozenset[str]:
        """The names that a file seems to declare or export, found without reading it as a program."""
        if file not in self._declares:
            found: frozenset[str] = frozenset()
            with suppress(LamellaError):
                found = frozenset(_DECLARED.findall(self.text(file)))
            self._declares[file] = found
        return self._declares[file]

    def index(self, folder: tuple[str, ...]) -> dict[str, list[File]]:
        """The public names of all files of a folder, each with the files that seem to declare it."""
        if folder not in self._indices:
            found: dict[str, list[File]] = {}
            for file in self.files(folder):
                for name in sorted(self.declares(file)):
                    if not name.startswith("_"):
                        found.setdefault(name, []).append(file)
            self._indices[folder] = found
        return self._indices[folder]
