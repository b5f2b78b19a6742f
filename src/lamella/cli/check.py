"""`lamella check`: report what is wrong in files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lamella import __version__
from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.sarif import to_sarif
from lamella.cli.explain import find_rule
from lamella.cli.options import command, has_errors, is_quiet, print_findings, print_json, summary
from lamella.cli.waiting import waiting
from lamella.pipeline.check import check_file
from lamella.pipeline.languages import MODULE, architectures, language_of
from lamella.pipeline.options import Options


@command("check")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, readable=False, allow_dash=True)
)
def check(files: tuple[Path, ...], options: Options) -> None:
    """Check files by the rules of their languages; nothing in them is executed but by --verify-backward."""
    findings: list[Diagnostic] = []
    verified: list[str] = []
    for file in files:
        with waiting(f"checking {printable(str(file))}"):
            findings += check_file(file, options)
            if options.verify_backward and not has_errors(findings, False):
                wrong, lines = _verify(file, options)
                findings += wrong
                verified += lines
    failed = has_errors(findings, options.strict)
    if options.as_sarif:
        rules = {code: find_rule(code) for code in {item.code for item in findings}}
        print_json(to_sarif(findings, {code: rule for code, rule in rules.items() if rule}, __version__))
    elif options.as_json:
        more = {"verified": verified} if options.verify_backward else {}
        print_json({"ok": not failed, "diagnostics": [item.to_json() for item in findings], **more})
    else:
        print_findings(findings)
        for line in verified:
            click.echo(line)
        total = summary(findings)
        if not is_quiet():
            click.echo(
                f"{len(files)} file{'s' if len(files) > 1 else ''} checked: {total or 'nothing found'}",
                err=failed,
            )
    sys.exit(1 if failed else 0)


def _verify(file: Path, options: Options) -> tuple[list[Diagnostic], list[str]]:
    """What is wrong with the gradients of a file, and what was compared."""
    if language_of(file, options.language) is not MODULE:
        return [], []
    return architectures().verify(file, options)
