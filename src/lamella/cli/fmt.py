"""`lamella fmt`: print a file in canonical form."""

from __future__ import annotations

from pathlib import Path

import click

from lamella.base.diagnostic import printable
from lamella.base.limits import Limits
from lamella.base.writer import write_text
from lamella.cli.options import Guarded, file_argument, language_option, limit_option
from lamella.pipeline.check import canonical_text
from lamella.pipeline.languages import is_binary


@click.command(cls=Guarded)
@file_argument
@click.option("--write", "in_place", is_flag=True, help="Replace the file instead of printing.")
@click.option("--check", "only_check", is_flag=True, help="Only say whether the file is canonical.")
@language_option
@limit_option
def fmt(file: Path, in_place: bool, only_check: bool, language: str | None, limits: Limits) -> None:
    """Print a file in canonical form; comments are kept. Of a binary the text is printed that says the same."""
    if (in_place or only_check) and is_binary(file):
        raise click.UsageError(f"'{printable(file.name)}' is binary: fmt only prints its text")
    before, after = canonical_text(file, language, limits)
    if only_check:
        if before != after:
            raise click.ClickException(f"{printable(str(file))} is not in canonical form")
    elif not in_place:
        click.echo(after, nl=False)
    elif before != after:
        if str(file) == "-":
            raise click.UsageError("standard input cannot be replaced")
        write_text(file, after)
