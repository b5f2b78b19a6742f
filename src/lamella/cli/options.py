"""Options and output habits that the commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn, TypedDict, TypeVar

import click

from lamella.base.diagnostic import NOTE, Diagnostic, LamellaError, errors, printable, render
from lamella.base.limits import Limits, from_options
from lamella.pipeline.languages import LANGUAGES
from lamella.pipeline.options import DIALECTS

F = TypeVar("F", bound=Callable[..., object])
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


class Words(click.Choice[str]):
    """One of several words; another one is told what may be meant."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.choices:
            return value
        known = [str(item) for item in self.choices]
        close = get_close_matches(value[:60].lower(), known, 1)
        meant = f"; did you mean '{close[0]}'?" if close else ""
        return self.fail(f"'{printable(value, 60)}' is not one of {', '.join(known)}{meant}", param, ctx)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on standard output."
)
device_option = click.option(
    "--device", metavar="DEVICE", help="Target device: a shipped name such as npm_lite, or a .nem file."
)
language_option = click.option(
    "--language", type=Words(sorted(LANGUAGES)), help="Read the file as this language."
)
root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Includes may reach all below this folder; by default the folder of FILE.",
)
allow_option = click.option(
    "--allow",
    multiple=True,
    metavar="PATTERN",
    help="Hugging Face: tensors of a checkpoint that may stay unused, such as 'vision.*'; repeatable.",
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


def named_values(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> dict[str, str]:
    """`--set a=1 --set b=2`, or `--shape B=2,T=8`, as names and values."""
    found: dict[str, str] = {}
    for word in (
        value
        if parameter.name in ("config", "types", "embed")
        else [part for item in value for part in item.split(",")]
    ):
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"'{word}' is not NAME=VALUE")
        found[name.strip()] = text.strip()
    return found


def _extents(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> dict[str, int]:
    found = named_values(ctx, parameter, value)
    wrong = next((f"{name}={text}" for name, text in found.items() if not text.isdecimal()), None)
    if wrong is not None or any(len(text) > 18 for text in found.values()):
        raise click.BadParameter(f"'{wrong or 'an extent'}' is not NAME=NUMBER")
    return {name: int(text) for name, text in found.items()}


MODEL_OPTIONS = (
    click.option("--model", metavar="NAME", help="Which graph of the file; by default the first."),
    click.option(
        "--set",
        "config",
        multiple=True,
        metavar="NAME=VALUE",
        callback=named_values,
        help="An attribute, a type, or a config parameter.",
    ),
    click.option(
        "--cache",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Module DSL: a model that is called again for the next tokens, with room for N of them.",
    ),
    click.option("--preset", metavar="NAME", help="Module DSL: a named set of config values of the file."),
    click.option(
        "--dialect",
        type=Words(DIALECTS),
        help="SkriptND: which library gives operators their meaning.",
    ),
    click.option("--keep", multiple=True, metavar="OPERATOR", help="Take this operator whole; repeatable."),
    click.option(
        "--decompose", multiple=True, metavar="OPERATOR", help="Replace this operator by its composition."
    ),
    click.option(
        "--shape",
        multiple=True,
        metavar="B=2,T=8",
        callback=_extents,
        help="Extents that the model leaves open.",
    ),
)


weights_option = click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="A .safetensors file or a folder of .dat files; by default the model's folder, then the seed.",
)


types_option = click.option(
    "--type",
    "types",
    multiple=True,
    metavar="NAME=f32[2,8]",
    callback=named_values,
    help="NAC: what an input is, where the file does not say; repeatable.",
)


class ModelOptions(TypedDict):
    """What the commands on graphs share."""

    model: str | None
    config: dict[str, str]
    cache: int
    preset: str | None
    dialect: str | None
    keep: tuple[str, ...]
    decompose: tuple[str, ...]
    shape: dict[str, int]


def model_options(command: F) -> F:
    """Give a command the options that choose and configure a graph."""
    for option in reversed(MODEL_OPTIONS):
        command = option(command)
    return command


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
    """Whether the findings end a command with status 1; `--strict` counts warnings too, and spellings of kernels."""
    found = list(findings)
    # notes on spellings and extensions; those on what is not proved stay notes
    counted = [item for item in found if item.severity == "warning" or item.code.startswith("TEN0")]
    return bool(errors(found)) or (strict and bool(counted))
