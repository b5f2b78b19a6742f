"""Checking and formatting files; loads one language, and no numpy where the language can do without."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.limits import Limits
from lamella.pipeline.languages import file_language, files_of, language_of
from lamella.pipeline.options import Options, options_of


def check(path: str | Path, language: str | None = None, **options: object) -> list[Diagnostic]:
    """What is wrong in a file; never raises for bad input. Files that it names stay below the `root` option."""
    try:
        return check_file(Path(path), options_of({"language": language, **options}))
    except LamellaError as problem:
        return list(problem.findings)


def check_file(path: Path, options: Options) -> list[Diagnostic]:
    """What is wrong in a file."""
    try:
        return files_of(file_language(path, options.language)).check(path, options)
    except LamellaError as problem:
        return list(problem.findings)


def canonical_text(path: Path, language: str | None, limits: Limits) -> tuple[str, str]:
    """The text of a file and its canonical form; a text with syntax errors raises."""
    return files_of(language_of(path, language)).canonical(path, limits)
