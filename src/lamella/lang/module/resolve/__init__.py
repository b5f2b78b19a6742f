"""Name resolution of a program: its files, their imports, scopes and versions."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic, LamellaError, sort_findings
from lamella.base.errors import Found
from lamella.base.limits import Limits
from lamella.base.paths import shown
from lamella.base.source import Span
from lamella.lang.module.nodes import (
    ArrayType,
    Declaration,
    Document,
    Export,
    Import,
    Imported,
    InstanceType,
    Let,
    Module,
    Param,
    Preset,
    Primitive,
    Recipe,
    RuntimeDim,
)
from lamella.lang.module.resolve.lineage import find_module, trace_lineage
from lamella.lang.module.resolve.lock import Lock, Locked, check_lock, read_lock, write_lock
from lamella.lang.module.resolve.nodes import Declared, Namespace, Resolved, ResolvedImport, Scope, SourceUnit
from lamella.lang.module.resolve.workspace import (
    Located,
    ModuleFile,
    SearchFolder,
    Unlocated,
    Workspace,
    candidates,
    locate,
)
from lamella.lang.module.rules import graphs, syntax
from lamella.lang.module.rules import names as rules
from lamella.lang.module.suggest import suggest
from lamella.lang.module.words import RESERVED

PRIMITIVES = ("primitives",)
"""The folder of the standard library whose names are always visible."""

Steps: TypeAlias = Generator[tuple[SourceUnit, Span], bool | None, None]
"""The reading of imports; it asks for other files and hears whether they may be used."""
ALL = "*"
"""The kind of an export of all that a file imports."""


# --- the files of a program in topological order: each after those that it imports --------------------------


def resolve(unit: SourceUnit, workspace: Workspace) -> Resolved:
    """A file and all that it imports: what its names mean, and what is wrong with them."""
    resolver = Resolver(unit, workspace)
    scope = resolver.enter(unit)
    resolver.check()
    return Resolved(unit, scope, tuple(resolver.uses), tuple(sort_findings(resolver.findings)))


@dataclass(frozen=True, slots=True, eq=False)
class _OpenFile:
    """A file whose imports are being read."""

    unit: SourceUnit
    steps: Steps


class Resolver:
    """The symbol tables of all files of a program so far; as a library it finds what no import names."""

    def __init__(self, main: SourceUnit, workspace: Workspace) -> None:
        self.main = main
        self.workspace = workspace
        self.findings: list[Diagnostic] = []
        self.uses: list[ResolvedImport] = []
        self._scopes: dict[SourceUnit, Scope] = {}
        self._primitives: dict[str, Declared] = {}
        self._public: dict[SourceUnit, dict[str, Declared]] = {}
        self._unchecked: list[SourceUnit] = []

    # --- files ----------------------------------------------------------------------------------------------

    def enter(self, unit: SourceUnit) -> Scope:
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

    def _answer(self, asked: SourceUnit, span: Span, frames: list[_OpenFile]) -> bool | None:
        """Whether a file may be used; None where its own imports are read first, which begins now."""
        above = [frame.unit for frame in frames]
        # It is being read further up: the import would never end, so it is refused and both files go on without it.
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

    def _open(self, unit: SourceUnit) -> _OpenFile:
        self.findings += self.workspace.findings(unit)
        bindings = Bindings(unit, self._primitive_names())
        # Known before its imports are: a file that is part of a circle still has its own declarations.
        self._scopes[unit] = Scope(
            unit, bindings.local, bindings.imported, bindings.spaces, self, self._scopes, bindings.lost
        )
        self._public[unit] = {name: item for name, item in bindings.local.items() if _is_public(item)}
        return _OpenFile(unit, self._read(unit, bindings))

    def _read(self, unit: SourceUnit, bindings: Bindings) -> Steps:
        """Read the imports of one file, then what depends on them."""
        importer = Importer(self, unit, bindings)
        for item in unit.document.items:
            if isinstance(item, Import):
                before = len(self.findings)
                yield from importer.bring(item)
                bindings.lost.update(_unbound(item) if len(self.findings) > before else ())
        bindings.settle()
        self.findings += bindings.findings
        self._export(unit, bindings)
        if not unit.standard:
            self._unchecked.append(unit)

    def _export(self, unit: SourceUnit, bindings: Bindings) -> None:
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
                repair = suggest(item.name, (*bindings.imported, *bindings.local))
                self.findings.append(rules.UNKNOWN.at(item.span, name=item.name, where="here", repair=repair))
            elif kind_of(found.declaration) != item.kind:
                kind = kind_of(found.declaration)
                self.findings.append(
                    rules.EXPORTED.at(item.span, name=item.name, found=kind, wanted=item.kind)
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

    def public(self, unit: SourceUnit) -> dict[str, Declared]:
        """The names of a file that others may import."""
        return self._public.get(unit, {})

    def find_in(self, place: SearchFolder, folder: tuple[str, ...], name: str) -> Declared | None:
        """The declaration of a folder of files, in the highest version of its file."""
        files = place.index(folder).get(name)
        if not files:
            return None
        try:
            unit = self.workspace.unit(place, files[-1])
        except LamellaError:
            return None
        # Past the limit on files a name that only a further file could give stays unknown.
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


# --- one import: what it brings into a file -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class FileSpace:
    """The public names of a file."""

    program: Resolver
    unit: SourceUnit

    def find(self, name: str) -> Declared | None:
        """The public declaration of that name."""
        return self.program.public(self.unit).get(name)

    def names(self) -> Iterator[str]:
        """The names of all public declarations."""
        return iter(self.program.public(self.unit))


@dataclass(frozen=True, slots=True, eq=False)
class FolderSpace:
    """The public names of all files of a folder; a file is read when a name of it is asked for."""

    program: Resolver
    place: SearchFolder
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

    program: Resolver
    unit: SourceUnit
    bindings: Bindings

    def bring(self, item: Import) -> Steps:
        """Bind the names of one import."""
        places = self.program.workspace.places(self.unit, self.program.main)
        found = locate(item.path, item.version, places)
        if isinstance(found, Located) and found.place.standard and not self.unit.standard:
            self.program.findings += self._find_hidden(item, places)
        if isinstance(found, Unlocated):
            self.program.findings.append(_nowhere(item, found))
        elif found.file is None:
            yield from self._bring_folder(item, found)
        elif found.name is None:
            yield from self._bring_file(item, found.place, found.file)
        else:
            yield from self._bring_declaration(item, found.place, found.file, found.name)

    def _find_hidden(self, item: Import, places: Iterable[SearchFolder]) -> Iterator[Diagnostic]:
        """Files of one's own that an import seems to mean, and that the library hides: its names come first."""
        for place in places:
            other = next(candidates(place, item.path), None) if not place.standard else None
            if other is not None:
                below = "/".join(other.parts) if other.file is None else other.file.below
                name = ".".join(item.path)
                yield rules.HIDDEN_BY_LIBRARY.at(item.span, what=f"'{shown(place.root / below)}'", name=name)

    def _open(
        self, place: SearchFolder, file: ModuleFile, item: Import, path: tuple[str, ...]
    ) -> Generator[tuple[SourceUnit, Span], bool | None, SourceUnit | None]:
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
            self.program.uses.append(ResolvedImport(name, target, item.span))
        return target if usable else None

    def _bring_declaration(self, item: Import, place: SearchFolder, file: ModuleFile, name: str) -> Steps:
        """`import a.b.C` and `import a.b.C as D`; a list of names cannot come from a declaration."""
        target = yield from self._open(place, file, item, item.path)
        if target is None:
            return
        declared = self.program.public(target).get(name)
        if declared is None or item.names is not None:
            self.program.findings.append(_nowhere(item, Unlocated()))
            return
        self.bindings.spaces.setdefault(".".join(item.path[:-1]), FileSpace(self.program, target))
        self._bind(declared, Imported(name, item.alias, item.span), ".".join(item.path))

    def _bind(self, declared: Declared, wanted: Imported, path: str) -> None:
        if wanted.alias is None:
            self.bindings.add(wanted.name, declared, path, wanted.span)
        else:
            self.bindings.add_alias(wanted.alias, declared, wanted.span)

    def _bring_file(self, item: Import, place: SearchFolder, file: ModuleFile) -> Steps:
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
            repair = suggest(wanted.name, names)
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
            repair = suggest(wanted.name, index)
            finding = rules.UNKNOWN_IMPORT.at(wanted.span, name=wanted.name, where=f"'{path}'", repair=repair)
            self.program.findings.append(finding)
            return
        target = yield from self._open(found.place, fitting[-1], item, (*item.path, wanted.name))
        if target is not None:
            public = self.program.public(target)
            self._bring_name(wanted, public.get(wanted.name), path, public)


def _unbound(item: Import) -> Iterator[str]:
    """The names that an import was to bind."""
    if item.names:
        yield from (wanted.alias or wanted.name for wanted in item.names)
    else:
        yield item.alias or item.path[-1]


def _highest(files: list[ModuleFile]) -> list[ModuleFile]:
    """The highest version of each file; they come in order."""
    return list({file.stem: file for file in files}.values())


def _only_module(public: dict[str, Declared], name: str) -> Declared | None:
    """What the alias of a file also names: its declaration of that name, or the only module in it."""
    if name in public:
        return public[name]
    modules = [item for item in public.values() if isinstance(item.declaration, Module)]
    return modules[0] if len(modules) == 1 else None


def _nowhere(item: Import, found: Unlocated) -> Diagnostic:
    path = ".".join(item.path)
    if found.versions:
        known = " and ".join(f"version {number}" for number in found.versions)
        return rules.UNKNOWN_VERSION.at(item.span, name=path, version=item.version, repair=known)
    where = "the standard library, the folder of this file or the search paths"
    return rules.UNKNOWN_IMPORT.at(item.span, name=path, where=where, repair="")


# --- the names that imports bring into one file, and the clashes among them ---------------------------------


class Bindings:
    """Names so far; aliases are judged when all names are there."""

    def __init__(self, unit: SourceUnit, primitives: Collection[str]) -> None:
        self.local: dict[str, Declared] = {}
        self.imported: dict[str, Declared] = {}
        self.spaces: dict[str, Namespace] = {}
        self.lost: set[str] = set()
        self.findings: list[Diagnostic] = []
        self._unit = unit
        self._primitives = primitives
        self._origins: dict[str, str] = {}
        self._aliases: list[tuple[str, Declared | Namespace, Span]] = []
        for item in unit.document.items:
            if isinstance(item, Module | Primitive | Recipe | Preset):
                self._declare(Declared(unit, item))

    def _declare(self, declared: Declared) -> None:
        name, span = declared.name, declared.declaration.span
        if name in self.local:
            self.findings.append(rules.DUPLICATE.at(span, kind="name", name=name, where="this file"))
        elif name in self._primitives and not self._unit.standard:
            self.findings.append(rules.HIDES_PRIMITIVE.at(span, name=name))
        self.local.setdefault(name, declared)

    def add(self, name: str, declared: Declared, path: str, span: Span) -> None:
        """A name under which a declaration is imported as it is."""
        before = self.imported.get(name)
        if before is None:
            self.imported[name] = declared
            self._origins[name] = path
        elif not before.is_same(declared):
            first, second = f"'{self._origins[name]}'", f"'{path}'"
            self.findings.append(rules.CONFLICT.at(span, name=name, first=first, second=second))

    def add_alias(self, name: str, meaning: Declared | Namespace, span: Span) -> None:
        """A name that the import chose itself."""
        self._aliases.append((name, meaning, span))

    def settle(self) -> None:
        """Judge the aliases, and the declarations that hide an import."""
        self.findings += list(self._hidden())
        for name, meaning, span in self._aliases:
            taken = self._taken(name, meaning)
            if taken:
                self.findings.append(rules.ALIAS.at(span, name=name, what=taken))
            elif isinstance(meaning, Declared):
                self.imported[name] = meaning
            else:
                self.spaces[name] = meaning

    def _hidden(self) -> Iterator[Diagnostic]:
        for name, declared in self.local.items():
            if name in self.imported:
                where = f"'{self._origins[name]}'"
                yield rules.HIDES_IMPORT.at(declared.declaration.span, name=name, where=where)

    def _taken(self, name: str, meaning: Declared | Namespace) -> str:
        """What an alias is already the name of, or an empty text."""
        before = self.imported.get(name)
        if isinstance(meaning, Declared) and before is not None and before.is_same(meaning):
            return ""
        if name in self.local:
            return "a declaration of this file"
        if before is not None or (name in self.spaces and not isinstance(meaning, Declared)):
            return "another import"
        return "a primitive" if name in self._primitives else ""


# --- names that one declaration gives twice, among its constants or among its tensors, and reserved ones ----


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
    inputs, outputs = (list(_ports(module, kind)) for kind in ("input", "output"))
    yield from _twice([*_own_tensors(module), *constants, *inputs], module.name)
    yield from _twice(outputs, module.name)


def _ports(module: Module, kind: str) -> Iterator[tuple[str, str, Span]]:
    """The inputs or the outputs of a forward section, under the names that they have without one too."""
    forward, is_input = module.forward, kind == "input"
    ports = () if forward is None else (forward.inputs if is_input else forward.outputs) or ()
    yield from ((kind, port.name or ("in" if is_input else "out"), port.span) for port in ports)


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
            if isinstance(item.declaration, Module) and (item.declaration.extends or "") in scope.lost:
                continue
            yield problem.finding
            if (
                problem.finding.code == syntax.LIMIT.code
            ):  # the others of a lineage without end would say the same
                return


def _check_params(module: Module, scope: Scope) -> Iterator[Diagnostic]:
    for param in module.tensors:
        for kind in _instances(param):
            if kind.module in scope.lost:
                continue
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


__all__ = [
    "Declared",
    "Lock",
    "Locked",
    "Resolved",
    "ResolvedImport",
    "Scope",
    "SourceUnit",
    "Workspace",
    "check_lock",
    "read_lock",
    "resolve",
    "write_lock",
]
