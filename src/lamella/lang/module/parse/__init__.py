"""Module DSL text to nodes, with several errors per run."""

from __future__ import annotations

from typing import NamedTuple

from lamella.base.collector import collector_paused
from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.lang.module.nodes import Document
from lamella.lang.module.parse.document import DocumentParser


class Parsed(NamedTuple):
    """A document and what was found wrong with its text; what could not be read is `Broken` in it or left out."""

    document: Document
    findings: tuple[Diagnostic, ...]


def parse(source: Source, limits: Limits = DEFAULT) -> Parsed:
    """The document of a text; never raises, whatever the text is."""
    with collector_paused():
        parser = DocumentParser(source, limits)
        document = parser.document()
    return Parsed(document, tuple(parser.findings))
