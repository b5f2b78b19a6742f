"""Nodes to the bytes of version 1.6: the same file gives the same bytes."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.lang.nac.nodes import Data, File
from lamella.lang.nac.write.file import to_pieces


def write(file: File) -> bytes:
    """The bytes of a file; LamellaError holds everything that they cannot say."""
    return b"".join(write_pieces(file))


def write_pieces(file: File) -> tuple[Data, ...]:
    """The bytes of a file one piece behind the other; weights are not copied. LamellaError as `write`."""
    pieces, findings = to_pieces(file)
    if findings:
        raise LamellaError(findings)
    return pieces


def find_unwritable(file: File) -> list[Diagnostic]:
    """Everything in a file that the bytes of version 1.6 cannot say."""
    return to_pieces(file)[1]
