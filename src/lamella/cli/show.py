"""`lamella show`: say what is in a file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lamella.base.diagnostic import errors
from lamella.base.limits import Limits
from lamella.base.paths import read_bytes
from lamella.cli.options import (
    Guarded,
    json_option,
    language_option,
    limit_option,
    print_findings,
    print_json,
)
from lamella.pipeline.describe import describe_library, find_file, library_to_json, read_library
from lamella.pipeline.languages import is_stream, language_of
from lamella.plan.stcb import list_stream, read_stream, to_json


@click.command(cls=Guarded)
@click.argument("file")
@json_option
@language_option
@limit_option
def show(file: str, as_json: bool, language: str | None, limits: Limits) -> None:
    """Say what is in FILE: a NEM program or configuration, a task-control stream, or a shipped device's name."""
    path = find_file(file)
    if language is None and is_stream(path):
        stream = read_stream(read_bytes(path, limits), limits)
        click.echo(to_json(stream) if as_json else "\n".join(list_stream(stream)))
        return
    language_of(path, language)
    only = "" if path.name == Path(file).name else file
    checked = read_library(path, limits)
    if as_json:
        print_json(library_to_json(checked.library, checked.plan, only))
    else:
        click.echo(describe_library(checked.library, checked.plan, only))
    wrong = errors(checked.findings)
    if wrong:
        print_findings(wrong)
        click.echo("what is in error is not shown", err=True)
        sys.exit(1)
