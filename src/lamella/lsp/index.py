"""What the names of one text mean: definitions, the scopes around them, and every place that uses one.

A language tells it what its nodes define, use and enclose (`Names`); everything an editor asks for is the same then.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias, cast

from lamella.base.cursor import Lexer, Tokens
from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Source, Span

SIGILS = "%@`"
"""What may stand before a name in its token, and is no part of it."""
HIDDEN = frozenset(("index",))
"""Kinds that an outline leaves out."""


@dataclass(slots=True, eq=False)
class Definition:
    """Something with a name: `span` is the name alone, `whole` all of it, `node` what the parser made of it."""

    name: str
    kind: str
    span: Span
    whole: Span
    node: object
    children: list[Definition] = field(default_factory=list)
    parent: Definition | None = None

    @property
    def is_top(self) -> bool:
        """Whether other files can see it."""
        return self.parent is None


@dataclass(frozen=True, slots=True)
class External:
    """A name that this text does not define: of the library, of an import; or a `member` of what has the name."""

    name: str
    member: str = ""
    kind: str = ""


Meaning: TypeAlias = "Definition | External"


class Use(NamedTuple):
    """A place in a text where a name stands, and what it means there."""

    span: Span
    meaning: Meaning
    defines: bool = False


@dataclass(slots=True, eq=False)
class Scope:
    """A stretch of text and the names that are known in it beside those around it."""

    start: int
    end: int
    around: Scope | None
    owner: Definition | None
    names: dict[str, Definition] = field(default_factory=dict)
    inner: list[Scope] = field(default_factory=list)
    waiting: list[tuple[str, Span, External | None]] = field(default_factory=list)

    def find(self, name: str) -> Definition | None:
        """What a name means here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.around
        return None


@dataclass(eq=False)
class FileIndex:
    """One text: its nodes, what is wrong with its syntax, and what its names mean."""

    source: Source
    lexer: Lexer
    document: object
    findings: tuple[Diagnostic, ...]
    root: Scope
    definitions: list[Definition]
    uses: list[Use]
    """In the order of the text."""

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens of the text."""
        return self.lexer.cut(self.source)

    def use_at(self, offset: int) -> Use | None:
        """The name that stands at an offset, or ends there; a sigil before a name belongs to it."""
        offset += self.source.text[offset : offset + 1] in tuple(SIGILS)
        found = bisect_left(self.uses, offset + 1, key=lambda use: use.span.start) - 1
        if found >= 0 and offset <= self.uses[found].span.end:
            return self.uses[found]
        return None

    def visible(self, offset: int) -> Iterator[Definition]:
        """The definitions that may be named at an offset, the nearest first."""
        scope = self.root
        while inner := next((item for item in scope.inner if item.start <= offset <= item.end), None):
            scope = inner
        around: Scope | None = scope
        while around is not None:
            yield from around.names.values()
            around = around.around

    def top(self, name: str) -> Definition | None:
        """What the text defines by a name for others."""
        return self.root.names.get(name)


Visit: TypeAlias = "Callable[[Names, object], None]"


class Names:
    """Collects what the names of a text mean, node by node; a language says what each kind of node does."""

    def __init__(self, source: Source, lexer: Lexer, visits: Mapping[type, Visit]) -> None:
        self.source = source
        self.lexer = lexer
        self.scope = self.root = Scope(0, len(source.text), None, None)
        self.uses: list[Use] = []
        self.definitions: list[Definition] = []
        self._visits = visits

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens of the text, cut where nodes do not say where their names stand."""
        return self.lexer.cut(self.source)

    def walk(self, node: object) -> None:
        """Visit a node, or each of several; one that the language says nothing of is walked through."""
        # A stack of its own: chains of members in hostile files are deep.
        stack, visits = [node], self._visits
        while stack:
            item = stack.pop()
            kind = type(item)
            visit = visits.get(kind)
            if visit is not None:
                visit(self, item)
                continue
            if kind is tuple:
                stack += reversed(cast("tuple[object, ...]", item))
                continue
            names = _FIELDS.get(kind)
            if names is None:
                names = _FIELDS[kind] = _fields(kind)
            for name in names:
                stack.append(getattr(item, name))

    def define(self, name: str, kind: str, whole: Span, node: object, span: Span | None = None) -> Definition:
        """A name is defined in the scope at hand; a second definition of it is a use of the first."""
        place = span or self.find_name(name, whole) or Span(whole.source, whole.start, whole.start)
        earlier = self.scope.names.get(name)
        if earlier is not None:
            self.uses.append(Use(place, earlier, defines=True))
            return earlier
        found = Definition(name, kind, place, whole, node, parent=self.scope.owner)
        self.scope.names[name] = found
        (self.definitions if found.parent is None else found.parent.children).append(found)
        if place.end > place.start:
            self.uses.append(Use(place, found, defines=True))
        return found

    def assign(self, name: str, kind: str, whole: Span, node: object) -> None:
        """A name that is written: one that is known already is meant, else it is defined here."""
        known = self.scope.find(name)
        if known is None:
            self.define(name, kind, whole, node)
        elif place := self.find_name(name, whole):
            self.uses.append(Use(place, known, defines=True))

    def use(self, name: str, span: Span | None, external: External | None = None) -> None:
        """A name is used; what it means is decided when its scope ends, for some are defined below."""
        if span is None or span.end == span.start:
            return
        known = self.scope.names.get(name)
        if known is not None:
            self.uses.append(Use(span, known))
        else:
            self.scope.waiting.append((name, span, external))

    def refer(self, span: Span | None, meaning: Meaning) -> None:
        """A place means something that no scope needs to be asked for."""
        if span is not None:
            self.uses.append(Use(span, meaning))

    @contextmanager
    def inside(self, whole: Span, owner: Definition | None = None) -> Iterator[None]:
        """Names that are defined in the block are known in this stretch of text alone."""
        inner = Scope(whole.start, whole.end, self.scope, owner or self.scope.owner)
        self.scope.inner.append(inner)
        self.scope = inner
        try:
            yield
        finally:
            self.scope = self._leave(inner)

    def _leave(self, scope: Scope) -> Scope:
        """Decide what the names of a scope mean; those it does not know are left to the one around it."""
        around = scope.around or scope
        for name, span, external in scope.waiting:
            if name in scope.names:
                self.uses.append(Use(span, scope.names[name]))
            elif scope.around is None:
                self.uses.append(Use(span, external or External(name)))
            else:
                around.waiting.append((name, span, external))
        scope.waiting.clear()
        return around

    def find_name(self, name: str, within: Span, skip: int = 0) -> Span | None:
        """The place of the first token in a stretch that is this name, a sigil left out."""
        _, texts, starts, _ = self.tokens
        for index in range(bisect_left(starts, within.start + skip, 0, self.tokens.end), self.tokens.end):
            start, text = starts[index], texts[index]
            if start >= within.end:
                return None
            shift = 1 if text[:1] in SIGILS and text != name else 0
            if text == name or text[shift : shift + len(name)] == name == text.strip(SIGILS):
                return Span(self.source, start + shift, start + shift + len(name))
        return None

    def finish(self, document: object, findings: tuple[Diagnostic, ...]) -> FileIndex:
        """The index of the whole text."""
        self._leave(self.root)
        self.uses.sort(key=lambda use: use[0][1:])
        return FileIndex(self.source, self.lexer, document, findings, self.root, self.definitions, self.uses)


_FIELDS: dict[type, tuple[str, ...]] = {}
_PLAIN = re.compile(r"(?:str|int|float|bool|None|Span|Trivia|[ |])+")


def _fields(kind: type) -> tuple[str, ...]:
    """The fields of a node in which others may stand, the last one first."""
    if not is_dataclass(kind):
        return ()
    return tuple(item.name for item in reversed(fields(kind)) if not _PLAIN.fullmatch(str(item.type)))
