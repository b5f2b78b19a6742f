"""`lamella lsp`: the language server of the four text languages, for editors."""

from __future__ import annotations

import click

from lamella import __version__
from lamella.base.diagnostic import LamellaError
from lamella.base.optional import load_late
from lamella.cli.options import fail


@click.command()
def lsp() -> None:
    """Answer an editor over standard input and output: findings, hover, definitions, names, words, formatting."""
    try:
        load_late("lamella.lsp.server").serve(__version__)
    except LamellaError as problem:
        fail(problem.findings)
