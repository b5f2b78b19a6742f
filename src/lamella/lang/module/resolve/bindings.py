"""The names that imports bring into one file, and the clashes among them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span
from lamella.lang.module.nodes import Module, Preset, Primitive, Recipe
from lamella.lang.module.resolve.nodes import Declared, Namespace, Unit
from lamella.lang.module.rules import names as rules


class Bindings:
    """Names so far; aliases are judged when all names are there."""

    def __init__(self, unit: Unit, primitives: Collection[str]) -> None:
        self.local: dict[str, Declared] = {}
        self.imported: dict[str, Declared] = {}
        self.spaces: dict[str, Namespace] = {}
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
