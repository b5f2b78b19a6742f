"""`lamella check`: report what is wrong in files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import Limits
from lamella.cli.options import (
    Guarded,
    device_option,
    has_errors,
    json_option,
    language_option,
    limit_option,
    print_findings,
    print_json,
    root_option,
    summary,
)
from lamella.pipeline.check import check as check_file


@click.command(cls=Guarded)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@json_option
@device_option
@language_option
@root_option
@limit_option
def check(
    files: tuple[Path, ...],
    strict: bool,
    as_json: bool,
    device: str | None,
    language: str | None,
    root: Path | None,
    limits: Limits,
) -> None:
    """Check files by the rules of their languages; nothing in them is executed."""
    findings: list[Diagnostic] = []
    for file in files:
        findings += check_file(file, language, device, limits, root)
    failed = has_errors(findings, strict)
    if as_json:
        print_json({"ok": not failed, "diagnostics": [item.to_json() for item in findings]})
    else:
        print_findings(findings)
        total = summary(findings)
        click.echo(
            f"{len(files)} file{'s' if len(files) > 1 else ''} checked: {total or 'nothing found'}",
            err=failed,
        )
    sys.exit(1 if failed else 0)
