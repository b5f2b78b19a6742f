"""Checking and formatting files; loads one language, and no numpy where the language can do without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Unpack

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.pipeline.api_options import CheckOptions
from lamella.pipeline.backends import find_left
from lamella.pipeline.given import Use, find_inert, options_of
from lamella.pipeline.languages import file_language, subject_of
from lamella.pipeline.options import Options
from lamella.pipeline.signatures import documented


@documented(CheckOptions)
def check(path: str | Path, language: str | None = None, **options: Unpack[CheckOptions]) -> list[Diagnostic]:
    """What is wrong in a file; never raises for bad input. Files that it names stay below the `root` option.

    With `backend`, one that runs kernels, a note says what does not run there.
    """
    try:
        asked = options_of({"backend": options.pop("backend", None)}, by_command=True)
        chosen = options_of({"language": language, **options})
        chosen = replace(chosen, backend=asked.backend, given=chosen.given | asked.given)
        inert = find_inert(Use(("check",), subject_of(Path(path), language), str(path)), chosen)
        if inert is not None:
            raise inert.error()
        return check_file(Path(path), chosen)
    except LamellaError as problem:
        return list(problem.findings)


def check_file(path: Path, options: Options) -> list[Diagnostic]:
    """What is wrong in a file, and what of it a backend that is named has no kernels for."""
    try:
        language = file_language(path, options.language)
        found = language.check(path, options)
        if options.backend is None or errors(found):
            return found
        return [*found, *find_left(language.load(path, options), options)]
    except LamellaError as problem:
        return list(problem.findings)
