"""`lamella doctor`: what is installed, what runs here, and what is missing for the rest."""

from __future__ import annotations

import sys

import click

from lamella import __version__
from lamella.cli.options import command, print_json
from lamella.pipeline.doctor import examine
from lamella.pipeline.options import Options


@command("doctor")
def doctor(options: Options) -> None:
    """Say what is installed, which backends run here and why others do not, and how to install what is missing."""
    found = examine(__version__)
    if options.as_json:
        print_json({"ok": not found.findings, **found.to_json()})
    else:
        for line in found.lines():
            click.echo(line)
    if found.findings:
        sys.exit(1)
