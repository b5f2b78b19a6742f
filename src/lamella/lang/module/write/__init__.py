"""Module DSL nodes to canonical text."""

from __future__ import annotations

from lamella.lang.module.nodes import Document
from lamella.lang.module.write.document import DocumentWriter
from lamella.lang.module.write.expressions import write_expression
from lamella.lang.module.write.types import write_path, write_type

__all__ = ["write", "write_expression", "write_path", "write_type"]


def write(document: Document) -> str:
    """The canonical text of a document: `parse` of it is an equal document, and `write` of that the same text."""
    return DocumentWriter().write(document)
