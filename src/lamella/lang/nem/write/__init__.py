"""NEM nodes to canonical text."""

from __future__ import annotations

from lamella.lang.nem.nodes import Document
from lamella.lang.nem.write.document import DocumentWriter


def write(document: Document) -> str:
    """The canonical text of a document: `parse` of it is an equal document, and `write` of that the same text."""
    return DocumentWriter().document(document)
