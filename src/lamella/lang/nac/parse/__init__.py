"""NAC bytes to nodes, with several errors per run."""

from __future__ import annotations

from typing import NamedTuple

from lamella.base.collector import collector_paused
from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.limits import DEFAULT, Limits
from lamella.lang.nac.nodes import File
from lamella.lang.nac.parse.header import read_header
from lamella.lang.nac.parse.reading import Reading
from lamella.lang.nac.parse.sections import read_sections


class Parsed(NamedTuple):
    """A file and what was found wrong with its bytes; what could not be read is not in it."""

    file: File
    findings: tuple[Diagnostic, ...]


def parse(data: bytes | memoryview, name: str = "<bytes>", limits: Limits = DEFAULT) -> Parsed:
    """The file of some bytes; never raises, whatever they are. Weights stay views of the bytes."""
    reading = Reading(memoryview(data).toreadonly().cast("B"), name, limits)
    with collector_paused():
        table = read_header(reading)
        file = File() if table is None else read_sections(reading, table)
    return Parsed(file, tuple(sort_findings(reading.findings)))
