"""Assembly text to its nodes, with several errors per run."""

from __future__ import annotations

from typing import NamedTuple

from lamella.base.collector import collector_paused
from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.lang.nac.assembly.nodes import Assembly
from lamella.lang.nac.assembly.parse.document import AssemblyParser


class ParsedAssembly(NamedTuple):
    """An assembly text and what was found wrong with it; what could not be read is not in it."""

    assembly: Assembly
    findings: tuple[Diagnostic, ...]


def parse_assembly(source: Source, limits: Limits = DEFAULT) -> ParsedAssembly:
    """The nodes of a text; never raises, whatever the text is."""
    with collector_paused():
        parser = AssemblyParser(source, limits)
        assembly = parser.assembly()
    return ParsedAssembly(assembly, tuple(sort_findings(parser.findings)))
