"""`lamella show`: say what is in a file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lamella.base.diagnostic import errors
from lamella.base.writer import write_text
from lamella.cli.options import command, print_findings, print_json
from lamella.pipeline.languages import files_of, part_of, shown_language
from lamella.pipeline.options import Options


@command("show")
@click.argument("file")
def show(file: str, options: Options) -> None:
    """Say what is in FILE: a program, a model (file or folder, also one of Hugging Face), a stream, weights.

    The name of a module or an operator of the library (nn, nn.conv), of a model or a primitive of the Module DSL's
    (std.models.llama), of a shipped device (npm_lite) or of a target of kernels (cpu-avx512) does too.
    """
    language = shown_language(file, options.language)
    _write_files(file, options)
    description = files_of(language).describe(file, options)
    wrong = errors(description.findings)
    if options.as_json:
        told = [item.to_json() for item in wrong]
        print_json({"ok": not wrong, "diagnostics": told, **description.data})
    else:
        click.echo(description.text)
        print_findings(wrong)
        if wrong:
            click.echo("what is in error is not shown", err=True)
    if wrong:
        sys.exit(1)


def _write_files(file: str, options: Options) -> None:
    """Write what is asked for beside the text of a NAC file: a picture of the bytes, the resources."""
    if options.picture is None and options.extract is None:
        return
    model = part_of("nac", "model").read_model(Path(file), options.limits)
    if options.picture is not None:
        write_text(options.picture, part_of("nac", "showing.picture").byte_map(model))
    if options.extract is not None:
        part_of("nac", "converting.resources").extract(model, options.extract)
