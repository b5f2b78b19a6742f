"""SkriptND nodes to canonical text."""

from __future__ import annotations

from lamella.lang.skriptnd.nodes import Document
from lamella.lang.skriptnd.write.document import DocumentWriter
from lamella.lang.skriptnd.write.expressions import write_expression

__all__ = ["write", "write_expression"]


def write(document: Document) -> str:
    """The canonical text of a document: `parse` of it is an equal document, and `write` of that the same text."""
    return DocumentWriter().document(document)
