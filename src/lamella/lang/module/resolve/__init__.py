"""Names of a program: files, imports, scopes, versions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, LamellaError, sort_findings
from lamella.base.errors import Found
from lamella.base.limits import Limits
from lamella.base.source import Span
from lamella.lang.module.nodes import (
    ArrayType,
    Declaration,
    Document,
    Export,
    Import,
    InstanceType,
    Let,
    Module,
    Param,
    Preset,
    Primitive,
    Recipe,
    RuntimeDim,
)
from lamella.lang.module.resolve.bindings import Bindings
from lamella.lang.module.resolve.imports import PRIMITIVES, Importer, Steps
from lamella.lang.module.resolve.lineage import find_module, trace_lineage
from lamella.lang.module.resolve.lock import Lock, Locked, check_lock, read_lock, write_lock
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.resolve.nodes import Declared, Resolved, Scope, Unit, Use
from lamella.lang.module.resolve.places import Place
from lamella.lang.module.resolve.workspace import Workspace
from lamella.lang.module.rules import graphs, names, syntax
from lamella.lang.module.rules import names as rules
from lamella.lang.module.rules.syntax import LIMIT
from lamella.lang.module.words import RESERVED

# --- names that one declaration gives twice in one of its two worlds, constants and tensors, or -------------


def find_duplicates(document: Document) -> Iterator[Diagnostic]:
    """The names that a declaration of a file gives twice."""
    for item in document.items:
        if isinstance(item, Module):
            yield from _in_module(item)
        elif isinstance(item, Primitive):
            params = (("parameter", param.name, param.span) for param in item.params)
            yield from _twice(params, item.name)
        elif isinstance(item, Recipe | Preset):
            fields = (("field", field.name, field.span) for field in item.fields if field.name != "-")
            yield from _twice(fields, item.name)


def find_reserved(document: Document, primitives: Collection[str]) -> Iterator[Diagnostic]:
    """Declarations and parameters with names that cannot be declared; a tensor may be named like a primitive."""
    for item in document.items:
        if not isinstance(item, Module):
            continue
        names = [(item.kind, item.name, item.span)]
        names += [("config parameter", param.name, param.span) for param in item.params or ()]
        names += [entry for entry in _own_tensors(item) if entry[1] not in primitives]
        for kind, name, span in names:
            if name in RESERVED:
                yield rules.RESERVED.at(span, name=name, kind=kind)


def _own_tensors(module: Module) -> list[tuple[str, str, Span]]:
    """The parameters that a declaration gives itself, not those of its instances."""
    return [
        ("parameter", item.path.parts[0].name, item.span)
        for item in module.tensors
        if len(item.path.parts) == 1 and not item.path.parts[0].indices
    ]


def _in_module(module: Module) -> Iterator[Diagnostic]:
    params = [("config parameter", param.name, param.span) for param in module.params or ()]
    lets = [
        ("let name", item.name, item.span) for item in module.bindings if isinstance(item, Let | RuntimeDim)
    ]
    yield from _twice([*params, *lets], module.name)
    constants = [("constant", item.name, item.span) for item in module.constants]
    yield from _twice([*_own_tensors(module), *constants], module.name)


def _twice(names: Iterable[tuple[str, str, Span]], owner: str) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for kind, name, span in names:
        if name in seen:
            yield rules.DUPLICATE.at(span, kind=kind, name=name, where=f"'{owner}'")
        seen.add(name)


# --- names that declarations use: what they extend and what their parameters are ----------------------------


def check_uses(scope: Scope, limits: Limits) -> Iterator[Diagnostic]:
    """What the declarations of a file name and nobody declares, whether or not it is ever instantiated."""
    declared = [item for item in scope.local.values() if isinstance(item.declaration, Module)]
    yield from _check_lineages(declared, scope, limits)
    for item in declared:
        if isinstance(item.declaration, Module):
            yield from _check_params(item.declaration, scope)


def _check_lineages(declared: list[Declared], scope: Scope, limits: Limits) -> Iterator[Diagnostic]:
    for item in declared:
        try:
            trace_lineage(item, scope, limits)
        except Found as problem:
            yield problem.finding
            if problem.finding.code == LIMIT.code:  # the others of a lineage without end would say the same
                return


def _check_params(module: Module, scope: Scope) -> Iterator[Diagnostic]:
    for param in module.tensors:
        for kind in _instances(param):
            try:
                find_module(kind, scope)
            except Found as problem:
                yield problem.finding


def _instances(param: Param) -> Iterator[InstanceType]:
    for kind in (param.type, param.otherwise):
        if isinstance(kind, InstanceType):
            yield kind
        elif isinstance(kind, ArrayType) and isinstance(kind.element, InstanceType):
            yield kind.element


# --- the files of a program, each after those that it imports -----------------------------------------------


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


__all__ = [
    "Declared",
    "Lock",
    "Locked",
    "Resolved",
    "Scope",
    "Unit",
    "Use",
    "Workspace",
    "check_lock",
    "read_lock",
    "resolve",
    "write_lock",
]
