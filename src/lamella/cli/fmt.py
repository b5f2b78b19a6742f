"""`lamella fmt`: print a file in canonical form."""

from __future__ import annotations

from pathlib import Path

import click

from lamella.base.diagnostic import printable
from lamella.base.writer import write_text
from lamella.cli.colour import print_program
from lamella.cli.options import command, file_argument
from lamella.pipeline.languages import language_of
from lamella.pipeline.options import Options

BINARY_ENDINGS = (".nac",)
"""Files that are bytes: there is no text of them to replace."""


@command("fmt")
@file_argument
def fmt(file: Path, options: Options) -> None:
    """Print a file in canonical form; comments are kept. Of a binary the text is printed that says the same."""
    if (options.in_place or options.only_check) and file.suffix.lower() in BINARY_ENDINGS:
        raise click.UsageError(f"'{printable(file.name)}' is binary: fmt only prints its text")
    language = language_of(file, options.language)
    before, after = language.format(file, options.limits)
    if options.only_check:
        if before != after:
            raise click.ClickException(f"{printable(str(file))} is not in canonical form")
    elif not options.in_place:
        print_program(after, language.name)
    elif before != after:
        if str(file) == "-":
            raise click.UsageError("standard input cannot be replaced")
        write_text(file, after)
