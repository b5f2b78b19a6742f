"""Options and output habits that the commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn, TypedDict, TypeVar

import click

from lamella.base.diagnostic import NOTE, Diagnostic, LamellaError, errors, render
from lamella.base.limits import Limits, from_options
from lamella.pipeline.languages import LANGUAGES

F = TypeVar("F", bound=Callable[..., object])
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on standard output."
)
device_option = click.option(
    "--device", metavar="DEVICE", help="Target device: a shipped name such as npm_lite, or a .nem file."
)
language_option = click.option(
    "--language", type=click.Choice(sorted(LANGUAGES)), help="Read the file as this language."
)
root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Includes may reach all below this folder; by default the folder of FILE.",
)
file_argument = click.argument("file", type=click.Path(path_type=Path, allow_dash=True))


def _limits(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> Limits:
    try:
        return from_options(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


limit_option = click.option(
    "--limit", "limits", multiple=True, metavar="NAME=N", callback=_limits, help="Raise or lower one limit."
)


class Common(TypedDict):
    """What the commands on plans share."""

    file: Path
    as_json: bool
    device: str | None
    language: str | None
    root: Path | None
    limits: Limits


def common_options(command: F) -> F:
    """Give a command the file and the options that those on plans share."""
    for option in (limit_option, root_option, language_option, device_option, json_option, file_argument):
        command = option(command)
    return command


def print_findings(findings: Iterable[Diagnostic], stream_is_error: bool = True) -> None:
    """Findings as a person reads them; colours only on a terminal."""
    for finding in findings:
        text = render(finding)
        tag = f"{finding.severity}[{finding.code}]"
        coloured = click.style(tag, fg=COLOURS[finding.severity], bold=True)
        click.echo(text.replace(tag, coloured, 1), err=stream_is_error)


def without_notes(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """What a command other than `check` repeats: errors and warnings."""
    return [item for item in findings if item.severity != NOTE]


def print_json(value: object) -> None:
    """One JSON object on standard output."""
    click.echo(json.dumps(value, allow_nan=False))


def fail(findings: Sequence[Diagnostic], as_json: bool = False) -> NoReturn:
    """Show findings and end with status 1."""
    if as_json:
        print_json({"ok": False, "diagnostics": [item.to_json() for item in findings]})
    else:
        print_findings(findings)
        click.echo(summary(findings), err=True)
    sys.exit(1)


def summary(findings: Sequence[Diagnostic]) -> str:
    """`2 errors, 1 warning`; empty where there is nothing to count."""
    counts = []
    for severity in ("error", "warning", "note"):
        count = sum(item.severity == severity for item in findings)
        if count:
            counts.append(f"{count} {severity}{'s' if count > 1 else ''}")
    return ", ".join(counts)


class Guarded(click.Command):
    """A command whose LamellaError becomes findings on standard error and status 1."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except LamellaError as problem:
            fail(problem.findings, bool(ctx.params.get("as_json")))


def has_errors(findings: Iterable[Diagnostic], strict: bool) -> bool:
    """Whether the findings end a command with status 1; `--strict` counts warnings too."""
    found = list(findings)
    return bool(errors(found)) or (strict and any(item.severity == "warning" for item in found))
