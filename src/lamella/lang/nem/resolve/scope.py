"""The symbol table of a program: what each name means, where it is visible, and which were declared badly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.source import Span
from lamella.base.suggest import MOST_GUESSES, did_you_mean
from lamella.lang.nem import nodes
from lamella.lang.nem.resolved import Buffer, Index, Region
from lamella.lang.nem.rules import DUPLICATE_NAME, FORWARD, TOKEN_SCOPE, UNDEFINED


@dataclass(frozen=True, slots=True)
class IntegerMeaning:
    """A constant, an integer `let` or a loop variable."""

    index: Index
    kind: str
    constant: bool


@dataclass(frozen=True, slots=True)
class LiteralMeaning:
    """A `let` that names a string or a list."""

    value: nodes.Value
    kind: str


@dataclass(frozen=True, slots=True)
class TokenMeaning:
    """The token of a task."""

    task: int


@dataclass(frozen=True, slots=True)
class Poison:
    """A name whose declaration is in error: every use stays silent."""


Meaning = IntegerMeaning | LiteralMeaning | TokenMeaning | Buffer | Region | Poison
POISON = Poison()


def kind_of(meaning: Meaning) -> str:
    """What a name stands for, with its article, for messages."""
    if isinstance(meaning, IntegerMeaning | LiteralMeaning):
        return meaning.kind
    words = {TokenMeaning: "a token", Buffer: "a buffer", Region: "a region", Poison: "undefined"}
    return words[type(meaning)]


@dataclass(slots=True)
class NemSymbol:
    """A declared name with its place and whether anything used it."""

    name: str
    meaning: Meaning
    span: Span
    used: bool = False


@dataclass(slots=True)
class ScopeLevel:
    """The names of one statement list; `loop_line` is 0 for the program itself."""

    loop_line: int
    later: dict[str, Span]
    symbols: dict[str, NemSymbol] = field(default_factory=dict)


class NemScope:
    """The symbol table as a stack of open levels, outermost first."""

    def __init__(self) -> None:
        self.levels: list[ScopeLevel] = []
        self.all: list[NemSymbol] = []
        self._closed: dict[str, int] = {}
        self.missing: set[str] = set()

    def enter(self, body: tuple[nodes.Statement, ...], loop_line: int = 0) -> None:
        """Enter a statement list; the names it will declare are known for better messages."""
        later: dict[str, Span] = {}
        for statement in body:
            for name in declared_names(statement):
                later.setdefault(name.id, name.span)
        self.levels.append(ScopeLevel(loop_line, later))

    def leave(self) -> None:
        """Leave a statement list; its names are gone."""
        level = self.levels.pop()
        for name in level.symbols:
            self._closed[name] = level.loop_line

    def declare(self, name: nodes.Name, meaning: Meaning) -> Iterator[Diagnostic]:
        """Give a name its meaning; a name that is visible already is reported and becomes poison."""
        earlier = self._visible(name.id)
        if earlier is not None:
            if not isinstance(earlier.meaning, Poison) and not isinstance(meaning, Poison):
                yield DUPLICATE_NAME.at(
                    name.span, name=name.id, labels=[Label(earlier.span, "declared here")]
                )
            # Of two declarations of one kind the first serves; of two kinds every use would be judged by the wrong one.
            earlier.meaning = POISON if type(earlier.meaning) is not type(meaning) else earlier.meaning
            earlier.used = True
            return
        symbol = NemSymbol(name.id, meaning, name.span)
        self.levels[-1].symbols[name.id] = symbol
        self.all.append(symbol)

    def look_up(self, name: nodes.Name) -> tuple[Meaning, list[Diagnostic]]:
        """What a name means; an unknown one is reported once and is poison."""
        symbol = self._visible(name.id)
        if symbol is not None:
            symbol.used = True
            return symbol.meaning, []
        if name.id in self.missing:
            return POISON, []
        self.missing.add(name.id)
        return POISON, [self._unknown(name)]

    def find(self, name: str) -> Meaning | None:
        """What a name means here, or None; nothing is reported."""
        symbol = self._visible(name)
        return None if symbol is None else symbol.meaning

    def _visible(self, name: str) -> NemSymbol | None:
        for level in reversed(self.levels):
            symbol = level.symbols.get(name)
            if symbol is not None:
                return symbol
        return None

    def _unknown(self, name: nodes.Name) -> Diagnostic:
        for level in reversed(self.levels):
            if name.id in level.later:
                place = level.later[name.id]
                return FORWARD.at(
                    name.span, name=name.id, line=place.line, labels=[Label(place, "declared here")]
                )
        if name.id in self._closed:
            return TOKEN_SCOPE.at(name.span, name=name.id, line=self._closed[name.id])
        return UNDEFINED.at(name.span, hint=self._guess(name.id), name=name.id)

    def _guess(self, name: str) -> str | None:
        """What was probably meant: the newest names first, for the first names that are unknown."""
        if len(self.missing) > MOST_GUESSES:
            return None
        names = (known for level in reversed(self.levels) for known in reversed(level.symbols))
        return did_you_mean(name, names) or None


def declared_names(statement: nodes.Statement) -> tuple[nodes.Name, ...]:
    """The names a statement declares in its own list."""
    if isinstance(statement, nodes.Const | nodes.Let | nodes.RegionDef | nodes.Buffer):
        return (statement.name,)
    if isinstance(statement, nodes.Task):
        return () if statement.token is None else (statement.token,)
    return statement.names if isinstance(statement, nodes.Broken) else ()
