"""`lamella show`: say what is in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol, cast

import click

from lamella.base.diagnostic import errors, printable
from lamella.base.optional import load_late
from lamella.cli.colour import print_program, print_report
from lamella.cli.options import command, print_findings, print_json
from lamella.cli.waiting import waiting
from lamella.pipeline.languages import Description, shown_language
from lamella.pipeline.options import Options


class Planning(Protocol):
    """The module that plans the memory of a training; few who look at a file ask for it."""

    def describe_memory(self, path: Path, options: Options) -> Description:
        """The memory of a step of training."""


class Dividing(Protocol):
    """The module that divides the training of a model among ranks; few who look at a file ask for it."""

    def describe_ranks(self, path: Path, options: Options) -> Description:
        """The ranks of a step of training."""


@command("show")
@click.argument("file")
def show(file: str, options: Options) -> None:
    """Say what is in FILE: a program, a model (file or folder, also one of Hugging Face), a stream, weights.

    The name of a module or an operator of the library (nn, nn.conv), of a model or a primitive of the Module DSL's
    (std.models.llama), of a shipped device (npm_lite) or of a target of kernels (cpu-avx512) does too.
    """
    with waiting(f"reading {printable(file)}"):
        description = _describe(file, options)
    wrong = errors(description.findings)
    if options.as_json:
        diagnostics = [item.to_json() for item in wrong]
        print_json({"ok": not wrong, "diagnostics": diagnostics, **description.data})
    else:
        if "text" in description.data:
            print_program(f"{description.text}\n", shown_language(file, options.language).name)
        else:
            print_report(description.text)
        print_findings(wrong)
        if wrong:
            click.echo("what is in error is not shown", err=True)
    if wrong:
        sys.exit(1)


def _describe(file: str, options: Options) -> Description:
    if options.ranks is not None:
        ranks = cast(Dividing, load_late("lamella.train.ranks.describe"))
        return ranks.describe_ranks(Path(file), options)
    if options.memory:
        return cast(Planning, load_late("lamella.train.memory")).describe_memory(Path(file), options)
    return shown_language(file, options.language).show(file, options)
