"""Context of a check: scopes of names, what the block at hand allows, findings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.records import dataclass
from lamella.base.source import NOWHERE, Span, Trivia
from lamella.base.suggest import MOST_GUESSES, did_you_mean
from lamella.lang.skriptnd.affine import read_affine, symbol_of
from lamella.lang.skriptnd.check.kinds import UNKNOWN, Algebra, ValueKind
from lamella.lang.skriptnd.nodes import (
    Access,
    Expand,
    Expr,
    Item,
    Member,
    Name,
    NullTest,
    Omitted,
    Operator,
    Range,
    Zip,
)
from lamella.lang.skriptnd.rules import names as rules

# --- the names in a piece of syntax, and the extents that declare one ---------------------------------------


def names_in(node: object) -> Iterator[str]:
    """The names that a node uses, possibly several times; a walk without recursion."""
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, Name):
            yield item.id
        elif isinstance(item, Member | NullTest):
            yield item.name
        elif isinstance(item, tuple):
            if not isinstance(item, Span):
                stack.extend(item)
        # A span is a tuple, notes are a dataclass: neither is syntax.
        elif hasattr(item, "__dataclass_fields__") and not isinstance(item, Trivia):
            if isinstance(item, Access):
                yield item.tensor
            stack.extend(getattr(item, field) for field in item.__dataclass_fields__)


def affine_in(node: object, known: Collection[str]) -> str | None:
    """The new name that an extent declares: the only one in it, multiplied and moved by numbers."""
    form = read_affine(node)
    name = None if form is None else symbol_of(form)
    return None if name in known else name


Find: TypeAlias = Callable[[str], Operator | None]
Infer: TypeAlias = "Callable[[OperatorContext, Expr], ValueKind]"
Node: TypeAlias = Expr | Item | Omitted | Range | Expand | Zip

SHOWN = 40


@dataclass(frozen=True, slots=True)
class DeclaredName:
    """What a name stands for: its kind, what it is in words, where it was declared."""

    kind: ValueKind
    what: str
    span: Span = NOWHERE


class NameScope:
    """A scope of the symbol table: the names of one level, and the level around it."""

    __slots__ = ("names", "outer")

    def __init__(self, outer: NameScope | None = None) -> None:
        self.names: dict[str, DeclaredName] = {}
        self.outer = outer

    def find(self, name: str) -> DeclaredName | None:
        """What a name stands for here."""
        scope: NameScope | None = self
        while scope is not None:
            entry = scope.names.get(name)
            if entry is not None:
                return entry
            scope = scope.outer
        return None

    def visible(self) -> Iterator[str]:
        """The names that have a meaning here, the nearest level first."""
        scope: NameScope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.outer

    def hides(self, name: str) -> bool:
        """Whether a level inside the outermost gives a name a meaning of its own."""
        scope: NameScope = self
        while scope.outer is not None:
            if name in scope.names:
                return True
            scope = scope.outer
        return False


@dataclass(slots=True)
class CheckedBlock:
    """What the block being checked is called and what it allows."""

    block: str = ""
    accesses: bool = False
    guards: bool = False
    hidden: frozenset[str] = frozenset()
    """Names of @using, which this block does not see."""
    later: Collection[str] = ()
    """Names that are defined further down."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """What an index of the formula being checked runs up to, should it not be declared."""


class OperatorContext:
    """The state of checking one operator."""

    def __init__(self, infer: Infer, findings: list[Diagnostic]) -> None:
        self.findings = findings
        self.algebra = Algebra()
        self.scope = NameScope()
        self.generics: dict[str, str] = {}
        """The generic types with what restricts them; empty where a finding leaves that open."""
        self.place = CheckedBlock()
        self.bounds: dict[str, Expr] = {}
        """The upper bounds of dynamic extents, by name."""
        self.infer: Callable[[Expr], ValueKind] = partial(infer, self)
        self._unknown: set[str] = set()

    def report(self, finding: Diagnostic) -> ValueKind:
        """Keep a finding; what it is about is not known from here on."""
        self.findings.append(finding)
        return UNKNOWN

    @contextmanager
    def inner(self) -> Iterator[NameScope]:
        """A level of names inside the present one."""
        outer = self.scope
        self.scope = NameScope(outer)
        try:
            yield self.scope
        finally:
            self.scope = outer

    @contextmanager
    def at(self, place: CheckedBlock) -> Iterator[None]:
        """Check at another place for a while."""
        outer, self.place = self.place, place
        try:
            yield
        finally:
            self.place = outer

    def declare(self, name: str, entry: DeclaredName) -> None:
        """Give a name a meaning; a second meaning on the same level is a finding."""
        earlier = self.scope.names.get(name)
        if earlier is not None:
            self.report(duplicate(name, entry, earlier))
            return
        if name in self.generics and self.scope.outer is None:
            self.report(rules.DUPLICATE.at(entry.span, name=name, what="a generic type"))
        self.scope.names[name] = entry

    def lookup(self, name: str, span: Span) -> ValueKind:
        """The kind of a name that is used."""
        entry = self.scope.find(name)
        unseen = name in self.place.later or name in self.place.hidden
        if entry is not None and (not unseen or self.scope.hides(name)):
            return entry.kind
        if name not in self._unknown:
            self._unknown.add(name)
            self.report(self._not_found(name, span))
        return UNKNOWN

    def _not_found(self, name: str, span: Span) -> Diagnostic:
        if name in self.place.later:
            return rules.USED_BEFORE.at(span, name=name)
        if name in self.place.hidden:
            return rules.HIDDEN_SYMBOL.at(span, name=name, block=self.place.block)
        hint = self._guess(name)
        if not hint and name in self.place.limits:
            hint = f"declare the index behind the formula: ', {name} < {self.place.limits[name]}'"
        return rules.UNDECLARED.at(span, name=name, hint=hint)

    def _guess(self, name: str) -> str:
        """A name that may have been meant; not sought for without end."""
        if len(self._unknown) > MOST_GUESSES:
            return ""
        return did_you_mean(name, self.scope.visible())

    def present(self, names: Iterable[str]) -> None:
        """Promote optional values on this level: they were tested not to be null."""
        for name in names:
            entry = self.scope.find(name)
            if entry is not None:
                self.scope.names[name] = DeclaredName(entry.kind.present(), entry.what, entry.span)


def duplicate(name: str, entry: DeclaredName, earlier: DeclaredName) -> Diagnostic:
    """The finding that a name has two meanings."""
    label = Label(earlier.span, f"'{name}' is declared here")
    return rules.DUPLICATE.at(entry.span, name=name, what=earlier.what, labels=[label])


def excerpt(node: Node) -> str:
    """The text of a node as messages show it."""
    text = " ".join(node.span.text[: 4 * SHOWN].split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
