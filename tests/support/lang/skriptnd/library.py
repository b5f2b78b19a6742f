"""The operators of the standard library as the checks ask for them, read by the parser alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import lamella.ops
from lamella.base.source import Source
from lamella.lang.skriptnd import Document, parse
from lamella.lang.skriptnd.nodes import Operator
from lamella.ops.library import Library

LIBRARY = Library()

FOLDER = Path(lamella.ops.__file__).parent


@cache
def module(path: Path) -> Document:
    """One module of the library; its text must be right."""
    document, findings = parse(Source(path.name, path.read_text(encoding="utf-8")))
    assert not [item for item in findings if item.severity == "error"], findings
    return document


@cache
def operators(newer: bool = False) -> dict[str, Operator]:
    """All operators by qualified name; those of the newer draft replace their namesakes."""
    folders = [FOLDER, FOLDER / "newer"] if newer else [FOLDER]
    paths = [path for folder in folders for path in sorted(folder.glob("*.sknd"))]
    return {f"{path.stem}.{item.name}": item for path in paths for item in module(path).declarations}


def find(name: str) -> Operator | None:
    """An operator of the library by its qualified name, also one that is derived from another."""
    found = operators().get(name)
    derived = None if found is not None else LIBRARY.find(name)
    return found if derived is None else derived.operator


def find_newer(name: str) -> Operator | None:
    """An operator of the newer library by its qualified name."""
    return operators(newer=True).get(name)
