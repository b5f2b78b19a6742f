"""NEM files for the commands: check, format, show; loads no numpy."""

from __future__ import annotations

import json
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import read_bytes
from lamella.lang.nem import parse, write
from lamella.pipeline.languages import Description, is_stream, language_of
from lamella.pipeline.nem.describe import describe_library, find_file, library_to_json, read_library
from lamella.pipeline.nem.program import read_program, read_source
from lamella.pipeline.options import Options
from lamella.plan.stcb import list_stream, read_stream, to_json


def check(path: Path, options: Options) -> list[Diagnostic]:
    """The rules of the language and of the plan; a stream is read with all its checks."""
    if options.language is None and is_stream(path):
        read_stream(read_bytes(path, options.limits), options.limits)
        return []
    return list(read_program(path, options.device, options.limits, options.root).findings)


def need_program(path: Path, language: str | None) -> None:
    """Say what a file is, where a NEM program is needed."""
    name = language_of(path, language)
    if name != "nem":
        raise InputError(f"'{path.name}' is {name}, not a NEM program", path=path)
    if language is None:
        refuse_stream(path)


def refuse_stream(path: Path) -> None:
    """A bound stream is not a program."""
    if is_stream(path):
        hint = "streams are checked, shown and run; programs in .nem are simulated, bound and formatted"
        raise InputError(f"'{path.name}' is a bound stream, not a program", path=path, hint=hint)


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """The text of a file and its canonical form; a text with syntax errors raises."""
    refuse_stream(path)
    source = read_source(path, limits)
    document, findings = parse(source, limits)
    if errors(findings):
        raise LamellaError(errors(findings))
    return source.text, write(document)


def describe(name: str, options: Options) -> Description:
    """A program, a configuration, a stream, or a shipped device by its name."""
    path = find_file(name)
    if options.language is None and is_stream(path):
        stream = read_stream(read_bytes(path, options.limits), options.limits)
        return Description("\n".join(list_stream(stream)), json.loads(to_json(stream)))
    only = "" if path.name == Path(name).name else name
    checked = read_library(path, options.limits)
    text = describe_library(checked.library, checked.plan, only)
    data = library_to_json(checked.library, checked.plan, only)
    return Description(text, data, tuple(checked.findings))
