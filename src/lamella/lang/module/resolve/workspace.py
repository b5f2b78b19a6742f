"""Files read as programs: each once, and only through the one resolver of paths."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import Refusal, read_included, read_text, resolve_include, shipped, shown
from lamella.base.source import Source
from lamella.lang.module.parse import ParsedModule, parse
from lamella.lang.module.resolve.nodes import SourceUnit

# --- folders that imports are searched in, and their files by version and by what they declare --------------


_FILE = re.compile(r"([A-Za-z_]\w*)(?:\.v([0-9]{1,9}))?\.module", re.ASCII)
_DECLARED = re.compile(
    r"^(?:abstract +)?(?:module|block|model|primitive|recipe|export +\w+) +([A-Za-z_]\w*)",
    re.ASCII | re.MULTILINE,
)
_MOST_ENTRIES = 10_000


@dataclass(frozen=True, slots=True)
class ModuleFile:
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


class SearchFolder:
    """A folder below which imports are looked for; it is read when it is asked, and each thing once."""

    def __init__(self, root: Path, limits: Limits, standard: bool = False) -> None:
        self.root = root
        self.standard = standard
        self._limits = limits
        self._files: dict[tuple[str, ...], list[ModuleFile]] = {}
        self._texts: dict[ModuleFile, str] = {}
        self._declares: dict[ModuleFile, frozenset[str]] = {}
        self._indices: dict[tuple[str, ...], dict[str, list[ModuleFile]]] = {}

    def dotted(self, parts: tuple[str, ...]) -> str:
        """The name of a file or folder as imports write it."""
        return ".".join(("std", *parts) if self.standard else parts)

    def files(self, folder: tuple[str, ...]) -> list[ModuleFile]:
        """The files of a folder, by stem and version."""
        if folder not in self._files:
            self._files[folder] = sorted(self._list(folder), key=lambda item: (item.stem, item.version))
        return self._files[folder]

    def _list(self, folder: tuple[str, ...]) -> Iterator[ModuleFile]:
        path = self.root.joinpath(*folder)
        with suppress(OSError, ValueError), os.scandir(path) as entries:
            # Bounded: a folder may hold any number of entries.
            for _, entry in zip(range(_MOST_ENTRIES), entries, strict=False):
                found = _FILE.fullmatch(entry.name)
                if found:
                    yield ModuleFile(folder, found[1], int(found[2] or 1), entry.name)

    def file_at(self, path: Path) -> ModuleFile | None:
        """The file of this place that a path leads to; None where it lies elsewhere."""
        real, top = real_path(path), real_path(self.root)
        if not real.is_relative_to(top):
            return None
        *folder, name = real.relative_to(top).parts or ("",)
        return next((item for item in self.files(tuple(folder)) if item.name == name), None)

    def versions(self, parts: tuple[str, ...]) -> list[ModuleFile]:
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

    def text(self, file: ModuleFile) -> str:
        """The text of a file; InputError where it cannot be read or leads out of the place."""
        if file not in self._texts:
            # Through the one resolver of paths: no link leads out of the folder.
            found = resolve_include(self.root, self.root / "_", file.below, self._limits)
            if isinstance(found, Refusal):
                path = shown(self.root / file.below)
                raise InputError(f"'{path}' {found.reason}", path=path, hint=found.hint)
            self._texts[file] = read_included(self.root, found, self._limits)
        return self._texts[file]

    def declares(self, file: ModuleFile) -> frozenset[str]:
        """The names that a file seems to declare or export, found without reading it as a program."""
        if file not in self._declares:
            # By a pattern, not by the parser: the index of a folder must not cost parsing all its files.
            found: frozenset[str] = frozenset()
            with suppress(LamellaError):
                found = frozenset(_DECLARED.findall(self.text(file)))
            self._declares[file] = found
        return self._declares[file]

    def index(self, folder: tuple[str, ...]) -> dict[str, list[ModuleFile]]:
        """The public names of all files of a folder, each with the files that seem to declare it."""
        if folder not in self._indices:
            found: dict[str, list[ModuleFile]] = {}
            for file in self.files(folder):
                for name in sorted(self.declares(file)):
                    if not name.startswith("_"):
                        found.setdefault(name, []).append(file)
            self._indices[folder] = found
        return self._indices[folder]


# --- what the path of an import leads to: a declaration in a file, a file, or a folder of files -------------


@dataclass(frozen=True, slots=True)
class Located:
    """A file, a name in a file, or, where there is no file, a folder."""

    place: SearchFolder
    parts: tuple[str, ...]
    file: ModuleFile | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Unlocated:
    """A path that leads nowhere with its version; the versions that are there."""

    versions: tuple[int, ...] = ()


def locate(path: tuple[str, ...], version: int | None, places: Iterable[SearchFolder]) -> Located | Unlocated:
    """Where a path leads: the first place that has it decides."""
    others: set[int] = set()
    for place in places:
        for parts in _spellings(path, place):
            for found in candidates(place, parts):
                number = None if found.file is None else found.file.version
                if version is None or number is None or number == version:
                    return found
                others.add(number)
    return Unlocated(tuple(sorted(others)))


def _spellings(path: tuple[str, ...], place: SearchFolder) -> Iterator[tuple[str, ...]]:
    """A path as a place spells it: the standard library with and without `std`, other places never with it."""
    if path[0] != "std":
        yield path
    elif place.standard and len(path) > 1:
        yield path[1:]


def candidates(place: SearchFolder, parts: tuple[str, ...]) -> Iterator[Located]:
    """All that a path may mean in one place, the likeliest first and the highest version before others."""
    above, last = parts[:-1], parts[-1]
    if above:
        for file in reversed(place.versions(above)):
            if last in place.declares(file):
                yield Located(place, above, file, last)
    for file in reversed(place.versions(parts)):
        yield Located(place, parts, file)
    if above:
        for file in reversed(place.index(above).get(last, ())):
            yield Located(place, (*file.folder, file.stem), file, last)
    if place.files(parts):
        yield Located(place, parts)


STANDARD = "models"
"""The folder of the package that programs see as `std`."""


class Workspace:
    """The standard library, the search paths, and every file that was read so far."""

    def __init__(
        self, search: tuple[Path, ...] = (), limits: Limits = DEFAULT, standard: Path | None = None
    ) -> None:
        self.limits = limits
        self.standard = (
            _shipped_folder(limits) if standard is None else SearchFolder(standard, limits, standard=True)
        )
        self.search = tuple(self._place(path) for path in search)
        self._folders: dict[Path, SearchFolder] = {place.root: place for place in self.search}
        self._units: dict[Path, SourceUnit] = {}
        self._findings: dict[SourceUnit, tuple[Diagnostic, ...]] = {}

    def _place(self, folder: Path) -> SearchFolder:
        return SearchFolder(folder, self.limits)

    def read(self, path: Path) -> SourceUnit:
        """The file that the user named; InputError where it cannot be read."""
        file = self.standard.file_at(path)
        if file is not None:
            return self.unit(self.standard, file)
        unit = self.take(Source(shown(path), read_text(path, self.limits)), path)
        self._units[real_path(path)] = unit
        return unit

    def take(self, source: Source, path: Path | None = None) -> SourceUnit:
        """A text that was read already, as the main file of a program."""
        stem = path.name.partition(".")[0] if path is not None else source.name
        return self._parse(source, stem, path, 1, False)

    def unit(self, place: SearchFolder, file: ModuleFile) -> SourceUnit:
        """A file of a place; InputError where it cannot be read."""
        path = place.root / file.below
        # A file that several links lead to is one file, with one set of declarations.
        key = real_path(path)
        if key not in self._units:
            source = Source(f"{STANDARD}/{file.below}" if place.standard else shown(path), place.text(file))
            name = place.dotted((*file.folder, file.stem))
            self._units[key] = self._parse(source, name, path, file.version, place.standard)
        return self._units[key]

    def _parse(
        self, source: Source, name: str, path: Path | None, version: int, standard: bool
    ) -> SourceUnit:
        if standard:
            parsed = _parse_shipped(source.name, source.text, self.limits)
        else:
            parsed = parse(source, self.limits)
        digest = sha256(source.text.encode("utf-8", "surrogatepass")).hexdigest()
        unit = SourceUnit(name, parsed.document, path, version, digest, standard)
        self._findings[unit] = tuple(parsed.findings)
        return unit

    def findings(self, unit: SourceUnit) -> tuple[Diagnostic, ...]:
        """What is wrong with the text of a file."""
        return self._findings.get(unit, ())

    def places(self, importer: SourceUnit, main: SourceUnit) -> list[SearchFolder]:
        """Where an import of a file is looked for, in order."""
        folders = [unit.path.parent for unit in (importer, main) if unit.path is not None]
        near = [self._near(folder) for folder in dict.fromkeys(folders)]
        return list(dict.fromkeys([self.standard, *near, *self.search]))

    def _near(self, folder: Path) -> SearchFolder:
        if folder not in self._folders:
            self._folders[folder] = self._place(folder)
        return self._folders[folder]


@lru_cache(maxsize=16)
def _shipped_folder(limits: Limits) -> SearchFolder:
    """The standard library, whose files a process reads and indexes once."""
    return SearchFolder(shipped(STANDARD), limits, standard=True)


@lru_cache(maxsize=128)
def _parse_shipped(name: str, text: str, limits: Limits) -> ParsedModule:
    """A file of the standard library, whose immutable syntax tree all programs of a process share."""
    return parse(Source(name, text), limits)
