"""The files of a program, each after those that it imports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, LamellaError, sort_findings
from lamella.base.source import Span
from lamella.lang.module.nodes import Declaration, Export, Import, Module, Preset, Primitive
from lamella.lang.module.resolve.bindings import Bindings
from lamella.lang.module.resolve.duplicates import find_duplicates, find_reserved
from lamella.lang.module.resolve.imports import PRIMITIVES, Importer, Steps
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.resolve.nodes import Declared, Resolved, Scope, Unit, Use
from lamella.lang.module.resolve.places import Place
from lamella.lang.module.resolve.uses import check_uses
from lamella.lang.module.resolve.workspace import Workspace
from lamella.lang.module.rules import graphs, names, syntax

ALL = "*"
"""The kind of an export of all that a file imports."""


def resolve(unit: Unit, workspace: Workspace) -> Resolved:
    """A file and all that it imports: what its names mean, and what is wrong with them."""
    resolver = Resolver(unit, workspace)
    scope = resolver.enter(unit)
    resolver.check()
    return Resolved(unit, scope, tuple(resolver.uses), tuple(sort_findings(resolver.findings)))


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """A file whose imports are being read."""

    unit: Unit
    steps: Steps


class Resolver:
    """All files of a program so far; as a library it finds what no import names."""

    def __init__(self, main: Unit, workspace: Workspace) -> None:
        self.main = main
        self.workspace = workspace
        self.findings: list[Diagnostic] = []
        self.uses: list[Use] = []
        self._scopes: dict[Unit, Scope] = {}
        self._primitives: dict[str, Declared] = {}
        self._public: dict[Unit, dict[str, Declared]] = {}
        self._unchecked: list[Unit] = []

    # --- files ----------------------------------------------------------------------------------------------

    def enter(self, unit: Unit) -> Scope:
        """The scope of a file; those that it imports come first, without recursion."""
        frames = [] if unit in self._scopes else [self._open(unit)]
        answer: bool | None = None
        while frames:
            try:
                asked, span = frames[-1].steps.send(answer)
            except StopIteration:
                frames.pop()
                answer = True
            else:
                answer = self._answer(asked, span, frames)
        return self._scopes[unit]

    def _answer(self, asked: Unit, span: Span, frames: list[_Frame]) -> bool | None:
        """Whether a file may be used; None where its own imports are read first, which begins now."""
        above = [frame.unit for frame in frames]
        if asked in above:
            cycle = " -> ".join([*(unit.name for unit in above[above.index(asked) :]), asked.name])
            self.findings.append(graphs.IMPORT_CYCLE.at(span, name=asked.name, cycle=cycle))
            return False
        if asked in self._scopes:
            return True
        if self._is_full():
            what, limit = "the number of files of the program", self.workspace.limits.max_includes
            self.findings.append(syntax.LIMIT.at(span, what=what, limit=limit, option="max_includes"))
            return False
        frames.append(self._open(asked))
        return None

    def _is_full(self) -> bool:
        return len(self._scopes) >= self.workspace.limits.max_includes

    def _open(self, unit: Unit) -> _Frame:
        self.findings += self.workspace.findings(unit)
        bindings = Bindings(unit, self._primitive_names())
        # Known before its imports are: a file that is part of a circle still has its own declarations.
        self._scopes[unit] = Scope(
            unit, bindings.local, bindings.imported, bindings.spaces, self, self._scopes
        )
        self._public[unit] = {name: item for name, item in bindings.local.items() if _is_public(item)}
        return _Frame(unit, self._read(unit, bindings))

    def _read(self, unit: Unit, bindings: Bindings) -> Steps:
        """Read the imports of one file, then what depends on them."""
        importer = Importer(self, unit, bindings)
        for item in unit.document.items:
            if isinstance(item, Import):
                yield from importer.bring(item)
        bindings.settle()
        self.findings += bindings.findings
        self._export(unit, bindings)
        if not unit.standard:
            self._unchecked.append(unit)

    def _export(self, unit: Unit, bindings: Bindings) -> None:
        """Names that importers of a file see though it imports them itself."""
        for item in unit.document.items:
            if not isinstance(item, Export):
                continue
            if item.kind == ALL:
                shown = self._public[unit]
                self._public[unit] = {**bindings.imported, **shown}
                continue
            found = bindings.imported.get(item.name) or bindings.local.get(item.name)
            if found is None:
                repair = guess(item.name, (*bindings.imported, *bindings.local))
                self.findings.append(names.UNKNOWN.at(item.span, name=item.name, where="here", repair=repair))
            elif kind_of(found.declaration) != item.kind:
                kind = kind_of(found.declaration)
                self.findings.append(
                    names.EXPORTED.at(item.span, name=item.name, found=kind, wanted=item.kind)
                )
            else:
                self._public[unit][item.name] = found

    def check(self) -> None:
        """Judge the declarations of all files by their names alone; more files may be read meanwhile."""
        while self._unchecked:
            unit = self._unchecked.pop()
            self.findings += find_duplicates(unit.document)
            self.findings += find_reserved(unit.document, self._primitive_names())
            self.findings += check_uses(self._scopes[unit], self.workspace.limits)

    # --- what an import and a scope ask ---------------------------------------------------------------------

    def public(self, unit: Unit) -> dict[str, Declared]:
        """The names of a file that others may import."""
        return self._public.get(unit, {})

    def find_in(self, place: Place, folder: tuple[str, ...], name: str) -> Declared | None:
        """The declaration of a folder of files, in the highest version of its file."""
        files = place.index(folder).get(name)
        if not files:
            return None
        try:
            unit = self.workspace.unit(place, files[-1])
        except LamellaError:
            return None
        if unit not in self._scopes and self._is_full():
            return None
        self.enter(unit)
        return self._public[unit].get(name)

    def _primitive_names(self) -> dict[str, object]:
        return dict.fromkeys(self.workspace.standard.index(PRIMITIVES))

    def primitive(self, name: str) -> Declared | None:
        """The primitive of that name."""
        if name not in self._primitives:
            found = self.find_in(self.workspace.standard, PRIMITIVES, name)
            if found is None or not isinstance(found.declaration, Primitive):
                return None
            self._primitives[name] = found
        return self._primitives[name]

    def primitives(self) -> Iterator[str]:
        """The names of all primitives."""
        return iter(self._primitive_names())

    def standard(self, name: str) -> Declared | None:
        """A declaration of the standard library by its bare name, whichever file holds it."""
        place = self.workspace.standard
        found = (self.find_in(place, (folder,), name) for folder in place.folders)
        return next((item for item in found if item is not None), None)

    def home(self, name: str) -> str | None:
        """The dotted path by which a declaration of the standard library is imported."""
        place = self.workspace.standard
        folders = (folder for folder in place.folders if name in place.index((folder,)))
        return next((f"std.{folder}.{name}" for folder in folders), None)


def kind_of(declaration: Declaration) -> str:
    """The word that begins a declaration."""
    return declaration.kind if isinstance(declaration, Module) else type(declaration).__name__.lower()


def _is_public(declared: Declared) -> bool:
    """Whether others may import a declaration; a preset is for the model of its own file, unless it is exported."""
    return not declared.name.startswith("_") and not isinstance(declared.declaration, Preset)
