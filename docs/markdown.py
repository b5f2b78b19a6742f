"""Pieces of Markdown that generated pages are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable


def cell(text: str) -> str:
    """Text that stays inside one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def code(text: str) -> str:
    """Code that stays inside one cell of a table, whatever is in it."""
    inside = " ".join(text.split()).replace("|", "\\|")
    return f"`` {inside} ``" if "`" in inside else f"`{inside}`"


def fenced(lines: Iterable[str]) -> list[str]:
    """Lines as Markdown shows them, whatever is in them."""
    shown = list(lines)
    fence = "`" * max(3, 1 + max((len(run) for line in shown for run in re.findall("`+", line)), default=0))
    return [f"{fence}text", *shown, fence]
