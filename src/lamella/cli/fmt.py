"""`lamella fmt`: print a file in canonical form."""

from __future__ import annotations

from pathlib import Path

import click

from lamella.base.diagnostic import printable
from lamella.base.writer import write_text
from lamella.cli.options import command, file_argument
from lamella.pipeline.check import canonical_text
from lamella.pipeline.languages import is_binary
from lamella.pipeline.options import Options


@command("fmt")
@file_argument
def fmt(file: Path, options: Options) -> None:
    """Print a file in canonical form; comments are kept. Of a binary the text is printed that says the same."""
    if (options.in_place or options.only_check) and is_binary(file):
        raise click.UsageError(f"'{printable(file.name)}' is binary: fmt only prints its text")
    before, after = canonical_text(file, options.language, options.limits)
    if options.only_check:
        if before != after:
            raise click.ClickException(f"{printable(str(file))} is not in canonical form")
    elif not options.in_place:
        click.echo(after, nl=False)
    elif before != after:
        if str(file) == "-":
            raise click.UsageError("standard input cannot be replaced")
        write_text(file, after)
