"""What a language tells an editor beside its nodes: one small protocol, which four modules of this folder fill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lamella.base.source import Source
from lamella.lsp.index import Definition, External, FileIndex


@dataclass(frozen=True, slots=True)
class Word:
    """Something that may be written at a place: a name or a keyword, and a line about it."""

    text: str
    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ForeignDefinition:
    """A definition of another file, by its name there; without a name the file itself."""

    path: Path
    name: str = ""
    member: str = ""


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """What only a whole check knows: lines about names (`Owner/name`) and about places (offsets of the same text)."""

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    places: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


class EditorLanguage(Protocol):
    """The module of a language."""

    KEYWORDS: frozenset[str]
    """Words that are offered everywhere."""

    def index_text(self, source: Source) -> FileIndex:
        """What the names of a text mean; never raises, whatever the text is."""

    def canonical(self, index: FileIndex) -> str:
        """The canonical form of a text without syntax errors."""

    def describe(self, definition: Definition) -> str:
        """A definition as a hover shows it, in the language itself."""

    def locate(self, external: External, index: FileIndex, path: Path) -> ForeignDefinition | None:
        """Where a name that the text does not define is defined."""

    def explain(self, external: External) -> str:
        """What a name means that no text defines, such as an opcode; empty where nothing is known."""

    def words(self, index: FileIndex, path: Path, before: str) -> Iterable[Word]:
        """What may follow `before`, the line up to the cursor, beside names in scope and keywords."""

    def find_facts(self, path: Path) -> CheckFacts:
        """What a whole check of a file finds out about its names."""


SHOWN_LINES = 12
"""Lines of a definition that a hover shows."""


def excerpt(text: str, most: int = SHOWN_LINES) -> str:
    """The first lines of a text; what is left out is marked."""
    lines = text.rstrip().splitlines()
    return "\n".join(lines if len(lines) <= most else [*lines[:most], "…"])
