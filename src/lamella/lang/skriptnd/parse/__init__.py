"""SkriptND text to nodes, with several errors per run."""

from __future__ import annotations

from typing import NamedTuple

from lamella.base.collector import collector_paused
from lamella.base.cursor import END, SyntaxProblem
from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.lang.skriptnd.nodes import Document, Operator
from lamella.lang.skriptnd.parse.document import DocumentParser
from lamella.lang.skriptnd.parse.outline import Entry, Outline, outline

__all__ = ["Entry", "Outline", "Parsed", "outline", "parse", "parse_operator"]


class Parsed(NamedTuple):
    """A document and what was found wrong with its text; what could not be read is not in it."""

    document: Document
    findings: tuple[Diagnostic, ...]


def parse(source: Source, limits: Limits = DEFAULT) -> Parsed:
    """The document of a text; never raises, whatever the text is."""
    with collector_paused():
        parser = DocumentParser(source, limits)
        document = parser.document()
    return Parsed(document, tuple(parser.findings))


def parse_operator(
    source: Source, entry: Entry, limits: Limits = DEFAULT
) -> tuple[Operator | None, list[Diagnostic]]:
    """One operator of an outline, with its findings; None where it cannot be read at all."""
    with collector_paused():
        parser = DocumentParser(source, limits, entry.span.start, entry.span.end)
        try:
            operator = parser.definition()
            if parser.kind != END:
                parser.problem("the end of the definition", "here")
        except SyntaxProblem:
            return None, parser.findings
    return operator, parser.findings
