"""Text from a model of the Module DSL or a Hugging Face folder, from the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from lamella.base.diagnostic import printable
from lamella.cli.options import print_findings, print_json, without_notes
from lamella.cli.watching.waiting import waiting
from lamella.pipeline.generating import read_tokens
from lamella.pipeline.languages import language_of, part_of
from lamella.pipeline.options import options_of


def speaks(file: Path, language: str | None) -> bool:
    """Whether a file is a model that is asked directly, without a plan of its own."""
    return language_of(file, language) == "module"


def talk(
    file: Path,
    prompt: str,
    words: Mapping[str, object],
    sampling: Mapping[str, object],
    as_json: bool,
    backend: str | None = None,
) -> None:
    """Print what follows a prompt, piece by piece as it is known."""
    generating = part_of("module", "generating")
    chosen = generating.Sampling(**sampling)
    tell = None if as_json else _echo
    tokens, text, findings = generating.generate_text(file, prompt, chosen, options_of(words), tell, backend)
    if as_json:
        told = [item.to_json() for item in findings]
        print_json({"ok": True, "diagnostics": told, "tokens": tokens, "text": text})
    else:
        click.echo()
        print_findings(without_notes(findings))


def continue_tokens(
    file: Path,
    loop: str,
    start: str,
    words: Mapping[str, object],
    sampling: Mapping[str, object],
    as_json: bool,
    backend: str | None = None,
) -> None:
    """Print the numbers of the tokens that follow others."""
    generating = part_of("module", "generating")
    chosen, given = generating.Sampling(**sampling), read_tokens(start)
    with waiting(f"reading {printable(str(file))}"):
        length = len(given) + chosen.max_tokens
        generator = generating.Generator(file, length, options_of(words), backend)
    target, _, source = loop.partition("=")
    generator.require_ends(target, source)
    tokens = list(generator.run(given, chosen))
    if as_json:
        told = [item.to_json() for item in generator.findings]
        print_json({"ok": True, "diagnostics": told, "tokens": tokens})
    else:
        print_findings(without_notes(generator.findings))
        click.echo(",".join(map(str, tokens)))


def _echo(text: str) -> None:
    """A piece of text; characters that a terminal would obey are shown, not sent."""
    shown = "\n".join(printable(line, len(line) + 1) for line in text.split("\n"))
    click.echo(shown, nl=False)
