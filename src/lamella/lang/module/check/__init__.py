"""What is wrong with a document, before any of its declarations has values."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.lang.module.nodes import Document
from lamella.lang.module.resolve import Scope


def check(document: Document, scope: Scope | None = None) -> Iterator[Diagnostic]:
    """Every finding of the rules that need no values."""
    yield from ()
