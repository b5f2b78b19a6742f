"""One import: what it brings into a file."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.paths import shown
from lamella.base.source import Span
from lamella.lang.module.nodes import Import, Imported, Module
from lamella.lang.module.resolve.bindings import Bindings
from lamella.lang.module.resolve.locate import Located, Wrong, candidates, locate
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.resolve.nodes import Declared, Unit, Use
from lamella.lang.module.resolve.places import File, Place
from lamella.lang.module.resolve.workspace import Workspace
from lamella.lang.module.rules import names as rules

PRIMITIVES = ("primitives",)
"""The folder of the standard library whose names are always visible."""

Steps: TypeAlias = Generator[tuple[Unit, Span], bool | None, None]
"""The reading of imports; it asks for other files and hears whether they may be used."""


class Program(Protocol):
    """What an import sees of the program it belongs to."""

    main: Unit
    workspace: Workspace
    findings: list[Diagnostic]
    uses: list[Use]

    def public(self, unit: Unit) -> dict[str, Declared]:
        """The names of a file that others may import."""

    def find_in(self, place: Place, folder: tuple[str, ...], name: str) -> Declared | None:
        """The declaration of a folder of files."""


@dataclass(frozen=True, slots=True, eq=False)
class FileSpace:
    """The public names of a file."""

    program: Program
    unit: Unit

    def find(self, name: str) -> Declared | None:
        """The public declaration of that name."""
        return self.program.public(self.unit).get(name)

    def names(self) -> Iterator[str]:
        """The names of all public declarations."""
        return iter(self.program.public(self.unit))


@dataclass(frozen=True, slots=True, eq=False)
class FolderSpace:
    """The public names of all files of a folder; a file is read when a name of it is asked for."""

    program: Program
    place: Place
    folder: tuple[str, ...]

    def find(self, name: str) -> Declared | None:
        """The public declaration of that name."""
        return self.program.find_in(self.place, self.folder, name)

    def names(self) -> Iterator[str]:
        """The names of all public declarations."""
        return iter(self.place.index(self.folder))


@dataclass(frozen=True, slots=True)
class Importer:
    """The imports of one file."""

    program: Program
    unit: Unit
    bindings: Bindings

    def bring(self, item: Import) -> Steps:
        """Bind the names of one import."""
        places = self.program.workspace.places(self.unit, self.program.main)
        found = locate(item.path, item.version, places)
        if isinstance(found, Located) and found.place.standard and not self.unit.standard:
            self.program.findings += self._find_hidden(item, places)
        if isinstance(found, Wrong):
            self.program.findings.append(_nowhere(item, found))
        elif found.file is None:
            yield from self._bring_folder(item, found)
        elif found.name is None:
            yield from self._bring_file(item, found.place, found.file)
        else:
            yield from self._bring_declaration(item, found.place, found.file, found.name)

    def _find_hidden(self, item: Import, places: Iterable[Place]) -> Iterator[Diagnostic]:
        """Files of one's own that an import seems to mean, and that the library hides: its names come first."""
        for place in places:
            other = next(candidates(place, item.path), None) if not place.standard else None
            if other is not None:
                below = "/".join(other.parts) if other.file is None else other.file.below
                name = ".".join(item.path)
                yield rules.HIDDEN_BY_LIBRARY.at(item.span, what=f"'{shown(place.root / below)}'", name=name)

    def _open(
        self, place: Place, file: File, item: Import, path: tuple[str, ...]
    ) -> Generator[tuple[Unit, Span], bool | None, Unit | None]:
        """The file, with its own imports read; None where it cannot be used."""
        try:
            target = self.program.workspace.unit(place, file)
        except LamellaError as problem:
            first = problem.findings[0]
            finding = rules.UNREADABLE_IMPORT.at(
                item.span, name=".".join(path), why=first.message, repair=first.hint
            )
            self.program.findings.append(finding)
            return None
        usable = yield target, item.span
        if usable and not self.unit.standard:
            name = ".".join(path) if target.standard else target.name
            self.program.uses.append(Use(name, target, item.span))
        return target if usable else None

    def _bring_declaration(self, item: Import, place: Place, file: File, name: str) -> Steps:
        """`import a.b.C` and `import a.b.C as D`; a list of names cannot come from a declaration."""
        target = yield from self._open(place, file, item, item.path)
        if target is None:
            return
        declared = self.program.public(target).get(name)
        if declared is None or item.names is not None:
            self.program.findings.append(_nowhere(item, Wrong()))
            return
        self.bindings.spaces.setdefault(".".join(item.path[:-1]), FileSpace(self.program, target))
        self._bind(declared, Imported(name, item.alias, item.span), ".".join(item.path))

    def _bind(self, declared: Declared, wanted: Imported, path: str) -> None:
        if wanted.alias is None:
            self.bindings.add(wanted.name, declared, path, wanted.span)
        else:
            self.bindings.add_alias(wanted.alias, declared, wanted.span)

    def _bring_file(self, item: Import, place: Place, file: File) -> Steps:
        """`import a.b`, `import a.b as c`, `import a.b.*` and `from a.b import C`."""
        target = yield from self._open(place, file, item, item.path)
        if target is None:
            return
        space, path = FileSpace(self.program, target), ".".join(item.path)
        public = self.program.public(target)
        if item.alias is not None:
            self.bindings.add_alias(item.alias, space, item.span)
            only = _only_module(public, item.path[-1])
            if only is not None:
                self.bindings.add_alias(item.alias, only, item.span)
            return
        self.bindings.spaces[path] = space
        for name, declared in () if item.names else public.items():
            self.bindings.add(name, declared, path, item.span)
        for wanted in item.names or ():
            self._bring_name(wanted, public.get(wanted.name), path, public)

    def _bring_name(
        self, wanted: Imported, declared: Declared | None, path: str, names: dict[str, Declared]
    ) -> None:
        if declared is None:
            repair = guess(wanted.name, names)
            self.program.findings.append(
                rules.UNKNOWN_IMPORT.at(wanted.span, name=wanted.name, where=f"'{path}'", repair=repair)
            )
        else:
            self._bind(declared, wanted, f"{path}.{wanted.name}")

    def _bring_folder(self, item: Import, found: Located) -> Steps:
        """`import a`, `from a import C` where `a` is a folder; the primitives are visible without it."""
        place, path = found.place, ".".join(item.path)
        space = FolderSpace(self.program, place, found.parts)
        if item.alias is not None:
            self.bindings.add_alias(item.alias, space, item.span)
            return
        self.bindings.spaces[path] = space
        if item.names:
            for wanted in item.names:
                yield from self._bring_from(item, wanted, found)
        elif not (place.standard and found.parts == PRIMITIVES):
            for file in _highest(place.files(found.parts)):
                target = yield from self._open(place, file, item, (*item.path, file.stem))
                for name, declared in {} if target is None else self.program.public(target).items():
                    self.bindings.add(name, declared, f"{path}.{file.stem}", item.span)

    def _bring_from(self, item: Import, wanted: Imported, found: Located) -> Steps:
        """One name of a folder; only the file that declares it is read."""
        path, index = ".".join(item.path), found.place.index(found.parts)
        files = index.get(wanted.name, [])
        fitting = [file for file in files if item.version in (None, file.version)]
        if not fitting:
            repair = guess(wanted.name, index)
            finding = rules.UNKNOWN_IMPORT.at(wanted.span, name=wanted.name, where=f"'{path}'", repair=repair)
            self.program.findings.append(finding)
            return
        target = yield from self._open(found.place, fitting[-1], item, (*item.path, wanted.name))
        if target is not None:
            public = self.program.public(target)
            self._bring_name(wanted, public.get(wanted.name), path, public)


def _highest(files: list[File]) -> list[File]:
    """The highest version of each file; they come in order."""
    return list({file.stem: file for file in files}.values())


def _only_module(public: dict[str, Declared], name: str) -> Declared | None:
    """What the alias of a file also names: its declaration of that name, or the only module in it."""
    if name in public:
        return public[name]
    modules = [item for item in public.values() if isinstance(item.declaration, Module)]
    return modules[0] if len(modules) == 1 else None


def _nowhere(item: Import, found: Wrong) -> Diagnostic:
    path = ".".join(item.path)
    if found.versions:
        known = " and ".join(f"version {number}" for number in found.versions)
        return rules.UNKNOWN_VERSION.at(item.span, name=path, version=item.version, repair=known)
    where = "the standard library, the folder of this file or the search paths"
    return rules.UNKNOWN_IMPORT.at(item.span, name=path, where=where, repair="")
