"""`lamella check`: report what is wrong in files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Unpack

import click

from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.limits import Limits
from lamella.cli.options import (
    Guarded,
    ModelOptions,
    allow_option,
    device_option,
    has_errors,
    json_option,
    language_option,
    limit_option,
    model_options,
    print_findings,
    print_json,
    root_option,
    summary,
    types_option,
)
from lamella.cli.watching.waiting import waiting
from lamella.pipeline.check import check_file
from lamella.pipeline.languages import language_of, part_of
from lamella.pipeline.options import Options as PipelineOptions
from lamella.pipeline.options import options_of


class Options(ModelOptions):
    """What the command line gives to `check`."""

    files: tuple[Path, ...]
    strict: bool
    as_json: bool
    device: str | None
    language: str | None
    root: Path | None
    lock: bool
    verify_backward: bool
    allow: tuple[str, ...]
    types: dict[str, str]
    limits: Limits


@click.command(cls=Guarded)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--strict", is_flag=True, help="Warnings count as errors, and so do notes on the spelling of kernels."
)
@click.option(
    "--lock", is_flag=True, help="Module DSL: write module.lock beside FILE, with what its imports lead to."
)
@click.option(
    "--verify-backward",
    is_flag=True,
    help="Module DSL: run every gradient on small random inputs, and compare it with differences.",
)
@allow_option
@json_option
@device_option
@types_option
@model_options
@language_option
@root_option
@limit_option
def check(**options: Unpack[Options]) -> None:
    """Check files by the rules of their languages; nothing in them is executed but by --verify-backward."""
    words: dict[str, object] = dict(options)
    files, strict, as_json = options["files"], options["strict"], options["as_json"]
    for word in ("files", "strict", "as_json", "verify_backward"):
        del words[word]
    chosen = options_of(words)
    findings: list[Diagnostic] = []
    told: list[str] = []
    for file in files:
        with waiting(f"checking {printable(str(file))}"):
            findings += check_file(file, chosen)
            if options["verify_backward"] and not has_errors(findings, False):
                wrong, lines = _verify(file, chosen)
                findings += wrong
                told += lines
    failed = has_errors(findings, strict)
    if as_json:
        more = {"verified": told} if options["verify_backward"] else {}
        print_json({"ok": not failed, "diagnostics": [item.to_json() for item in findings], **more})
    else:
        print_findings(findings)
        for line in told:
            click.echo(line)
        total = summary(findings)
        click.echo(
            f"{len(files)} file{'s' if len(files) > 1 else ''} checked: {total or 'nothing found'}",
            err=failed,
        )
    sys.exit(1 if failed else 0)


def _verify(file: Path, options: PipelineOptions) -> tuple[list[Diagnostic], list[str]]:
    """What is wrong with the gradients of a file, and what was compared."""
    language = language_of(file, options.language)
    if language != "module":
        raise click.UsageError(
            f"--verify-backward is for the Module DSL, and '{printable(str(file))}' is {language}"
        )
    found: tuple[list[Diagnostic], list[str]] = part_of(language, "verifying").verify(file, options)
    return found
