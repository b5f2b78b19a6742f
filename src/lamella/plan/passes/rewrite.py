"""The one walk that changes documents: parts are found by identity, everything else is kept as it is.

A pass collects its edits, then applies them once. Notes (comments, blank lines) travel with their statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from lamella.base.source import Trivia
from lamella.lang.nem.nodes import Chain, Decorator, Document, Loop, Name, Statement, Task, Wait
from lamella.lang.nem.resolve.scope import declared_names

Part = TypeVar("Part")


class Edits:
    """What is to be changed in a document; statements and parts are named by the objects themselves."""

    def __init__(self) -> None:
        self._parts: dict[int, object] = {}
        self._decorators: dict[int, tuple[Decorator, ...]] = {}
        self._tokens: dict[int, tuple[Name, ...]] = {}
        self._notes: dict[int, Trivia] = {}
        self._dropped: set[int] = set()
        self._before: dict[int, list[Statement]] = {}
        self._first: dict[int, list[Statement]] = {}
        self._last: dict[int, list[Statement]] = {}

    def swap(self, old: Part, new: Part) -> None:
        """Put one part (a statement, an operand, an expression …) in the place of another."""
        self._parts[id(old)] = new

    def decorate(self, statement: Task | Loop, decorators: tuple[Decorator, ...]) -> None:
        """Give a task or loop other decorators."""
        self._decorators[id(statement)] = decorators

    def tie(self, statement: Task | Wait, tokens: tuple[Name, ...]) -> None:
        """Let a task or wait wait for other tokens."""
        self._tokens[id(statement)] = tokens

    def annotate(self, statement: Statement, notes: Trivia) -> None:
        """Give a statement other comments and blank lines."""
        self._notes[id(statement)] = notes

    def drop(self, statement: Statement) -> None:
        """Leave a statement out."""
        self._dropped.add(id(statement))

    def put_before(self, statement: Statement, new: Statement) -> None:
        """Put a statement before another, behind those already put there."""
        self._before.setdefault(id(statement), []).append(new)

    def put_first(self, loop: Loop, new: Statement) -> None:
        """Put a statement at the beginning of a loop's body, behind those already put there."""
        self._first.setdefault(id(loop), []).append(new)

    def put_last(self, loop: Loop, new: Statement) -> None:
        """Put a statement at the end of a loop's body."""
        self._last.setdefault(id(loop), []).append(new)

    def apply(self, document: Document) -> Document:
        """The document with all edits made."""
        return replace(document, statements=self._list(document.statements))

    def _list(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for statement in body:
            found += self._before.get(id(statement), ())
            if id(statement) in self._dropped:
                continue
            made = statement
            if isinstance(statement, Loop):
                inner = (
                    *self._first.get(id(statement), ()),
                    *self._list(statement.body),
                    *self._last.get(id(statement), ()),
                )
                made = replace(statement, body=inner)
            found.append(self._head(statement, made))
        return tuple(found)

    def _head(self, statement: Statement, made: Statement) -> Statement:
        """A statement with its parts changed; the body of a loop is done already."""
        if isinstance(made, Loop):
            first, last = self._part(made.first), self._part(made.last)
            made = replace(made, first=first, last=last, decorators=self._part(made.decorators))
        else:
            made = self._part(made)
        if isinstance(made, Task | Loop) and id(statement) in self._decorators:
            made = replace(made, decorators=self._decorators[id(statement)])
        tokens = self._tokens.get(id(statement))
        if isinstance(made, Task | Wait) and tokens is not None:
            made = replace(made, deps=tokens) if isinstance(made, Task) else replace(made, tokens=tokens)
        notes = self._notes.get(id(statement))
        return made if notes is None else replace(made, notes=notes)

    def _part(self, part: Part) -> Part:
        """A part with the parts inside it changed; chains, which nest deep, take one call a level."""
        found: object = self._parts.get(id(part), part)
        if found is not part or not self._parts:
            return cast("Part", found)
        if isinstance(part, Chain):
            rest = [(sign, self._part(operand)) for sign, operand in part.rest]
            found = replace(part, first=self._part(part.first), rest=tuple(rest))
        elif isinstance(part, tuple):
            found = tuple([self._part(item) for item in part])
        elif is_dataclass(part) and not isinstance(part, type):
            values = {item.name: getattr(part, item.name) for item in fields(part) if item.compare}
            found = replace(part, **{name: self._part(value) for name, value in values.items()})
        return cast("Part", found)


def walk(document: Document) -> Iterator[tuple[Statement, tuple[Loop, ...]]]:
    """All statements in textual order, each with the loops around it, outermost first."""
    todo: list[tuple[Statement, tuple[Loop, ...]]] = [(item, ()) for item in reversed(document.statements)]
    while todo:
        statement, around = todo.pop()
        yield statement, around
        if isinstance(statement, Loop):
            todo += [(item, (*around, statement)) for item in reversed(statement.body)]


def loops_of(document: Document) -> list[Loop]:
    """The loops in textual order: the n-th is loop number n of the plan."""
    return [statement for statement, _ in walk(document) if isinstance(statement, Loop)]


def names_in(part: object) -> Iterator[Name]:
    """Every name inside a part, declared or used, in no order; without recursion."""
    todo = [part]
    while todo:
        item = todo.pop()
        if isinstance(item, Name):
            yield item
        elif isinstance(item, tuple):
            todo += item
        elif is_dataclass(item):
            todo += [getattr(item, field.name) for field in fields(item) if field.compare]


def declared_in(document: Document) -> dict[str, int]:
    """How often each name is declared, in whatever list; a loop declares its variable."""
    found: dict[str, int] = {}
    for statement, _ in walk(document):
        names = (statement.variable,) if isinstance(statement, Loop) else declared_names(statement)
        for name in names:
            found[name.id] = found.get(name.id, 0) + 1
    return found
