"""Checking and formatting files; loads one language, and no numpy where the language can do without."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.pipeline.given import Use, find_inert, options_of
from lamella.pipeline.languages import file_language, subject_of
from lamella.pipeline.options import Options


def check(path: str | Path, language: str | None = None, **options: object) -> list[Diagnostic]:
    """What is wrong in a file; never raises for bad input. Files that it names stay below the `root` option."""
    try:
        chosen = options_of({"language": language, **options})
        inert = find_inert(Use(("check",), subject_of(Path(path), language), str(path)), chosen)
        if inert is not None:
            raise inert.error()
        return check_file(Path(path), chosen)
    except LamellaError as problem:
        return list(problem.findings)


def check_file(path: Path, options: Options) -> list[Diagnostic]:
    """What is wrong in a file."""
    try:
        return file_language(path, options.language).check(path, options)
    except LamellaError as problem:
        return list(problem.findings)
