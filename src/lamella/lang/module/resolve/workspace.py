"""Files read as programs: each once, and only through the one resolver of paths."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import read_text, shipped, shown
from lamella.base.source import Source
from lamella.lang.module.parse import Parsed, parse
from lamella.lang.module.resolve.nodes import Unit
from lamella.lang.module.resolve.places import File, Place, real_path

STANDARD = "models"
"""The folder of the package that programs see as `std`."""


class Workspace:
    """The standard library, the search paths, and every file that was read so far."""

    def __init__(
        self, search: tuple[Path, ...] = (), limits: Limits = DEFAULT, standard: Path | None = None
    ) -> None:
        self.limits = limits
        self.standard = Place(shipped(STANDARD) if standard is None else standard, limits, standard=True)
        self.search = tuple(self._place(path) for path in search)
        self._folders: dict[Path, Place] = {place.root: place for place in self.search}
        self._units: dict[Path, Unit] = {}
        self._findings: dict[Unit, tuple[Diagnostic, ...]] = {}

    def _place(self, folder: Path) -> Place:
        return Place(folder, self.limits)

    def read(self, path: Path) -> Unit:
        """The file that the user named; InputError where it cannot be read."""
        file = self.standard.file_at(path)
        if file is not None:
            return self.unit(self.standard, file)
        unit = self.take(Source(shown(path), read_text(path, self.limits)), path)
        self._units[real_path(path)] = unit
        return unit

    def take(self, source: Source, path: Path | None = None) -> Unit:
        """A text that was read already, as the main file of a program."""
        stem = path.name.partition(".")[0] if path is not None else source.name
        return self._parse(source, stem, path, 1, False)

    def unit(self, place: Place, file: File) -> Unit:
        """A file of a place; InputError where it cannot be read."""
        path = place.root / file.below
        key = real_path(path)
        if key not in self._units:
            source = Source(f"{STANDARD}/{file.below}" if place.standard else shown(path), place.text(file))
            name = place.dotted((*file.folder, file.stem))
            self._units[key] = self._parse(source, name, path, file.version, place.standard)
        return self._units[key]

    def _parse(self, source: Source, name: str, path: Path | None, version: int, standard: bool) -> Unit:
        parsed = (
            _parse_shipped(source.name, source.text, self.limits) if standard else parse(source, self.limits)
        )
        digest = sha256(source.text.encode("utf-8", "surrogatepass")).hexdigest()
        unit = Unit(name, parsed.document, path, version, digest, standard)
        self._findings[unit] = tuple(parsed.findings)
        return unit

    def findings(self, unit: Unit) -> tuple[Diagnostic, ...]:
        """What is wrong with the text of a file."""
        return self._findings.get(unit, ())

    def places(self, importer: Unit, main: Unit) -> list[Place]:
        """Where an import of a file is looked for, in order."""
        folders = [unit.path.parent for unit in (importer, main) if unit.path is not None]
        near = [self._near(folder) for folder in dict.fromkeys(folders)]
        return list(dict.fromkeys([self.standard, *near, *self.search]))

    def _near(self, folder: Path) -> Place:
        if folder not in self._folders:
            self._folders[folder] = self._place(folder)
        return self._folders[folder]


@lru_cache(maxsize=128)
def _parse_shipped(name: str, text: str, limits: Limits) -> Parsed:
    """A file of the standard library, whose immutable syntax tree all programs of a process share."""
    return parse(Source(name, text), limits)
