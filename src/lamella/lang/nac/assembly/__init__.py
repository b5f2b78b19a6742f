"""The assembly text of NAC: one line for each instruction, tables for the rest, and the identical file back."""

from __future__ import annotations

from typing import NamedTuple

from lamella.base.diagnostic import errors, sort_findings
from lamella.base.gc import gc_paused
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.lang.nac.assembly.build import Assembled, ReadFile, build_file
from lamella.lang.nac.assembly.describe import Companion, describe
from lamella.lang.nac.assembly.parse import parse_assembly
from lamella.lang.nac.assembly.write import write_assembly
from lamella.lang.nac.nodes import Data, File


class Apart(NamedTuple):
    """A text, and the parts of the companion file that holds its large data."""

    text: str
    parts: tuple[Data, ...]


def assemble(source: Source, read: ReadFile | None = None, limits: Limits = DEFAULT) -> Assembled:
    """The file that a text describes; `read` gives the bytes of a file that the text names beside it.

    Of a text that cannot be read whole only that is found: the lines that are missing would be missed everywhere.
    """
    with gc_paused():
        assembly, wrong = parse_assembly(source, limits)
        file, more = build_file(assembly, read, limits)
    return Assembled(file, wrong if errors(wrong) else tuple(sort_findings([*wrong, *more])))


def disassemble(file: File) -> str:
    """The canonical text of a file, with all its data."""
    with gc_paused():
        return write_assembly(describe(file))


def disassemble_apart(file: File, companion: str) -> Apart:
    """The canonical text of a file whose large data lies in a companion file of this name."""
    beside = Companion(companion)
    with gc_paused():
        text = write_assembly(describe(file, beside))
    return Apart(text, tuple(beside.parts))


__all__ = [
    "Apart",
    "Assembled",
    "assemble",
    "build_file",
    "describe",
    "disassemble",
    "disassemble_apart",
    "parse_assembly",
    "write_assembly",
]
