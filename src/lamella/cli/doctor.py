"""`lamella doctor`: what is installed, what runs here, and what is missing for the rest."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import click

from lamella import __version__
from lamella.base.optional import load_late
from lamella.cli.options import command, print_json
from lamella.pipeline.options import Options


class Examined(Protocol):
    """What was found."""

    @property
    def findings(self) -> Sequence[str]:
        """What is wrong with the installation."""

    def lines(self) -> Iterator[str]:
        """All of it as a person reads it."""

    def to_json(self) -> dict[str, object]:
        """All of it as data."""


class Examining(Protocol):
    """The module that looks at the machine: it loads all backends, and the first line should not wait for them."""

    def examine(self) -> Examined:
        """Look at the installation and the machine."""


@command("doctor")
def doctor(options: Options) -> None:
    """Say what is installed, which backends run here and why others do not, and how to install what is missing."""
    head = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    if not options.as_json:
        click.echo(f"lamella {__version__} with Python {head['python']} on {head['system']}")
    found = cast(Examining, load_late("lamella.pipeline.doctor")).examine()
    if options.as_json:
        print_json({"ok": not found.findings, "version": __version__, **head, **found.to_json()})
    else:
        for line in found.lines():
            click.echo(line)
    if found.findings:
        sys.exit(1)
