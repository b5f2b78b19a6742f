"""`lamella show`: say what is in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Unpack

import click

from lamella.base.diagnostic import errors, printable
from lamella.base.limits import Limits
from lamella.base.writer import write_text
from lamella.cli.options import (
    Guarded,
    ModelOptions,
    allow_option,
    json_option,
    language_option,
    limit_option,
    model_options,
    print_findings,
    print_json,
    types_option,
)
from lamella.pipeline.languages import files_of, part_of, shown_language
from lamella.pipeline.options import options_of

WRITING = ("picture", "extract")
"""Options that write files."""


class Options(ModelOptions):
    """What the command line gives to `show`."""

    file: str
    as_json: bool
    language: str | None
    listing: bool
    picture: Path | None
    extract: Path | None
    types: dict[str, str]
    limits: Limits


@click.command(cls=Guarded)
@click.argument("file")
@json_option
@click.option("--listing", is_flag=True, help="NAC: the instructions as pseudo-code, with memory commands.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    metavar="OUT.svg",
    help="NAC: draw the bytes, coloured by section.",
)
@click.option(
    "--extract",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="NAC: write the resources of the file into this folder.",
)
@allow_option
@types_option
@model_options
@language_option
@limit_option
def show(**options: Unpack[Options]) -> None:
    """Say what is in FILE: a program, a model (file or folder, also one of Hugging Face), a stream, weights.

    The name of a module or an operator of the library (nn, nn.conv), of a model or a primitive of the Module DSL's
    (std.models.llama), of a shipped device (npm_lite) or of a target of kernels (cpu-avx512) does too.
    """
    words: dict[str, object] = {
        key: value for key, value in options.items() if key not in ("file", "as_json", *WRITING)
    }
    language = shown_language(options["file"], options["language"])
    if options["listing"] and language != "nac":
        raise click.UsageError(f"--listing is for NAC, and '{printable(options['file'])}' is {language}")
    _write_files(language, options)
    description = files_of(language).describe(options["file"], options_of(words))
    wrong = errors(description.findings)
    if options["as_json"]:
        told = [item.to_json() for item in wrong]
        print_json({"ok": not wrong, "diagnostics": told, **description.data})
    else:
        click.echo(description.text)
        print_findings(wrong)
        if wrong:
            click.echo("what is in error is not shown", err=True)
    if wrong:
        sys.exit(1)


def _write_files(language: str, options: Options) -> None:
    """Write what is asked for beside the text: a picture of the bytes, the resources."""
    picture, folder = options["picture"], options["extract"]
    if picture is None and folder is None:
        return
    if language != "nac":
        word = "--picture" if picture is not None else "--extract"
        raise click.UsageError(f"{word} is for NAC, and '{printable(options['file'])}' is {language}")
    model = part_of("nac", "model").read_model(Path(options["file"]), options["limits"])
    if picture is not None:
        write_text(picture, part_of("nac", "showing.picture").byte_map(model))
    if folder is not None:
        part_of("nac", "converting.resources").extract(model, folder)
