"""Files that were read, what they declare, and what the names in them mean."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span, where
from lamella.lang.module.nodes import Declaration, Document


@dataclass(frozen=True, slots=True, eq=False)
class SourceUnit:
    """A file: the dotted name it is imported by, its text as nodes, its version and the digest of its text."""

    name: str
    document: Document
    path: Path | None = None
    version: int = 1
    digest: str = ""
    standard: bool = False
    """Whether it is a file of the standard library."""


@dataclass(frozen=True, slots=True, eq=False)
class Declared:
    """A declaration and the file that holds it; two are the same where their declarations are one object."""

    unit: SourceUnit
    declaration: Declaration

    @property
    def name(self) -> str:
        """The name it is declared by."""
        return self.declaration.name

    def is_same(self, other: Declared) -> bool:
        """Whether both are one declaration."""
        return self.declaration is other.declaration


class StandardLibrary(Protocol):
    """The standard library as a scope sees it: found by name, read when asked for."""

    def primitive(self, name: str) -> Declared | None:
        """The primitive of that name."""

    def primitives(self) -> Iterator[str]:
        """The names of all primitives."""

    def standard(self, name: str) -> Declared | None:
        """A declaration of the standard library by its bare name, whichever file holds it."""

    def home(self, name: str) -> str | None:
        """The dotted path by which a declaration of the standard library is imported."""


class Namespace(Protocol):
    """What stands behind a qualified name: a file, or a folder of files."""

    def find(self, name: str) -> Declared | None:
        """The public declaration of that name."""

    def names(self) -> Iterator[str]:
        """The names of all public declarations."""


class NoLibrary:
    """The library of a program that has none."""

    __slots__ = ()

    def primitive(self, name: str) -> Declared | None:
        """Nothing has this name."""
        return None

    def primitives(self) -> Iterator[str]:
        """No names."""
        return iter(())

    def standard(self, name: str) -> Declared | None:
        """Nothing has this name."""
        return None

    def home(self, name: str) -> str | None:
        """No path."""
        return None


@dataclass(slots=True, eq=False)
class Scope:
    """The symbol table of one file: its own declarations, then imported ones, then the primitives."""

    unit: SourceUnit
    local: Mapping[str, Declared]
    imported: Mapping[str, Declared] = field(default_factory=dict)
    spaces: Mapping[str, Namespace] = field(default_factory=dict)
    """Namespaces by the dotted prefix that qualified names write."""
    library: StandardLibrary = field(default_factory=NoLibrary)
    scopes: dict[SourceUnit, Scope] = field(default_factory=dict)
    """The scopes of all files of the program."""
    lost: Collection[str] = ()
    """Names that a wrong import would have bound: that nothing declares them follows from that."""

    def find(self, name: str) -> Declared | None:
        """The declaration that a name, plain or qualified, means in this file."""
        if "." in name:
            return self._find_qualified(name)
        return self.local.get(name) or self.imported.get(name) or self.library.primitive(name)

    def _find_qualified(self, name: str) -> Declared | None:
        prefix, _, last = name.rpartition(".")
        space = self.spaces.get(prefix)
        return None if space is None else space.find(last)

    def standard(self, name: str) -> Declared | None:
        """A declaration of the standard library by its bare name, without an import: what sugared forms mean."""
        return self.library.standard(name)

    def of(self, declared: Declared) -> Scope:
        """The scope of the file that holds a declaration."""
        return self.scopes.get(declared.unit, self)

    def names(self) -> Iterator[str]:
        """All names that may be written in this file, for near misses."""
        yield from self.local
        yield from self.imported
        yield from self.library.primitives()
        for prefix, space in self.spaces.items():
            yield from (f"{prefix}.{name}" for name in space.names())


@dataclass(frozen=True, slots=True)
class ResolvedImport:
    """An import as it was resolved: the path that was written, and the file it led to."""

    path: str
    unit: SourceUnit
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Resolved:
    """A file with all it imports: its scope, the imports of the whole program, and what is wrong with them."""

    unit: SourceUnit
    scope: Scope
    uses: tuple[ResolvedImport, ...] = ()
    findings: tuple[Diagnostic, ...] = ()
