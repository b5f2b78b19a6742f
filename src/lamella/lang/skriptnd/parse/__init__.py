"""SkriptND text to nodes, with several errors per run."""

from __future__ import annotations

import re
from typing import NamedTuple

from lamella.base.cursor import END, SyntaxProblem
from lamella.base.diagnostic import Diagnostic
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.records import dataclass
from lamella.base.source import Source, Span
from lamella.lang.skriptnd.nodes import Document, Operator
from lamella.lang.skriptnd.parse.document import SkriptndParser

# --- the outline of a module: its definitions, found without parsing the operators --------------------------


SPACE = r"(?:[ \t\r\n]++|#[^\r\n]*+)*+"
NAME = r"[A-Za-z_][0-9A-Za-z_]*+"
HEAD = re.compile(
    rf"{SPACE}(?:import\b(?P<modules>[^;#{{}}\"']*+);"
    rf"|(?P<public>public\b{SPACE})?(?P<kind>operator|graph)\b{SPACE}(?P<name>{NAME}){SPACE}(?P<open>\{{))"
)
TAIL = re.compile(SPACE + r"\Z")
MODULES = re.compile(rf"\s*{NAME}(?:\s*\.\s*{NAME})*\s*(?:,\s*{NAME}(?:\s*\.\s*{NAME})*\s*)*")
MARK = re.compile(
    r"[^{}\"'#]*+(?:(?P<brace>[{}])|#[^\r\n]*+|"
    + r'"(?:[^"\\\r\n]|\\"?)*+"'
    + r"|'(?:[^'\\\r\n]|\\'?)*+'"
    + r"|[\"'][^\r\n]*+|\Z)"
)


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """An operator or a graph that has not been read: its name and its place."""

    name: str
    graph: bool
    public: bool
    span: Span
    """From its first word to its last brace."""


@dataclass(frozen=True, slots=True)
class Outline:
    """What a module imports and defines."""

    modules: tuple[str, ...]
    entries: tuple[OutlineEntry, ...]
    regular: bool
    """Whether nothing else stands at the top level; a text that is not regular is to be read whole."""

    def find(self, name: str) -> OutlineEntry | None:
        """The first operator or graph of a name."""
        return next((entry for entry in self.entries if entry.name == name), None)


def outline(source: Source) -> Outline:
    """The imports and definitions of a module, found by their braces alone; never raises."""
    text = source.text
    modules: list[str] = []
    entries: list[OutlineEntry] = []
    position = 0
    regular = True
    while regular and (head := HEAD.match(text, position)) is not None:
        position = head.end()
        if head["name"] is None:
            regular = not entries and MODULES.fullmatch(head["modules"]) is not None
            modules += ["".join(name.split()) for name in head["modules"].split(",")]
            continue
        start = head.start("public") if head["public"] else head.start("kind")
        position, regular = _closing(text, position)
        graph, public = head["kind"] == "graph", bool(head["public"])
        entries.append(OutlineEntry(head["name"], graph, public, Span(source, start, position)))
    regular = regular and TAIL.match(text, position) is not None
    return Outline(tuple(modules), tuple(entries), regular)


def _closing(text: str, position: int) -> tuple[int, bool]:
    """Where the brace ends that was opened just before, and whether it does."""
    # Strings and comments are matched whole, so that braces within them do not count.
    opened = 1
    for mark in MARK.finditer(text, position):
        if mark["brace"] is not None:
            opened += 1 if mark["brace"] == "{" else -1
            if opened == 0:
                return mark.end(), True
    return len(text), False


__all__ = ["Outline", "OutlineEntry", "ParsedSkriptnd", "outline", "parse", "parse_operator"]


class ParsedSkriptnd(NamedTuple):
    """A document and what was found wrong with its text; what could not be read is not in it."""

    document: Document
    findings: tuple[Diagnostic, ...]


def parse(source: Source, limits: Limits = DEFAULT) -> ParsedSkriptnd:
    """The document of a text; never raises, whatever the text is."""
    with gc_paused():
        parser = SkriptndParser(source, limits)
        document = parser.document()
    return ParsedSkriptnd(document, tuple(parser.findings))


def parse_operator(
    source: Source, entry: OutlineEntry, limits: Limits = DEFAULT
) -> tuple[Operator | None, list[Diagnostic]]:
    """One operator of an outline, with its findings; None where it cannot be read at all."""
    with gc_paused():
        parser = SkriptndParser(source, limits, entry.span.start, entry.span.end)
        try:
            operator = parser.definition()
            if parser.kind != END:
                parser.problem("the end of the definition", "here")
        except SyntaxProblem:
            return None, parser.findings
    return operator, parser.findings
