"""Tensor language text to nodes, with several errors per run."""

from __future__ import annotations

from typing import NamedTuple

from lamella.base.collector import collector_paused
from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.lang.tensor.nodes import Program
from lamella.lang.tensor.parse.program import ProgramParser


class Parsed(NamedTuple):
    """A program and what was found wrong with its text; what could not be read is not in it."""

    program: Program
    findings: tuple[Diagnostic, ...]


def parse(source: Source, limits: Limits = DEFAULT) -> Parsed:
    """The program of a text; never raises, whatever the text is."""
    with collector_paused():
        parser = ProgramParser(source, limits)
        program = parser.program()
    return Parsed(program, tuple(sort_findings(parser.findings)))
