"""Text from a model of the Module DSL or a Hugging Face folder, from the command line."""

from __future__ import annotations

from pathlib import Path

import click

from lamella.base.diagnostic import printable
from lamella.base.placement import placement_of
from lamella.cli.options import placement_json, print_findings, print_json, print_placement, without_notes
from lamella.cli.watching.waiting import waiting
from lamella.pipeline.generating import read_tokens
from lamella.pipeline.languages import part_of
from lamella.pipeline.options import Options


def speak(file: Path, options: Options) -> None:
    """Print what follows a prompt, or the tokens that follow others."""
    if options.prompt and options.generate is not None:
        raise click.UsageError("--prompt continues a text, --generate numbers of tokens; give one of them")
    if options.prompt:
        _talk(file, options)
    else:
        _continue_tokens(file, options)


def _talk(file: Path, options: Options) -> None:
    """Print what follows a prompt, piece by piece as it is known."""
    generating = part_of("module", "generating")
    tell = None if options.as_json else _echo
    answer = generating.generate_text(file, "\n".join(options.prompt), options, tell)
    placement = placement_of(answer.executable)
    if options.as_json:
        facts = {"tokens": answer.tokens, "text": answer.text, **placement_json(placement)}
        told = [item.to_json() for item in answer.findings]
        print_json({"ok": True, "diagnostics": told, **facts})
    else:
        click.echo()
        print_findings(without_notes(answer.findings))
        print_placement(options.backend, placement)


def _continue_tokens(file: Path, options: Options) -> None:
    """Print the numbers of the tokens that follow others."""
    generating = part_of("module", "generating")
    given = read_tokens(options.start)
    with waiting(f"reading {printable(str(file))}"):
        length = len(given) + options.max_tokens
        generator = generating.Generator(file, length, options, options.backend)
    target, _, source = (options.generate or "").partition("=")
    generator.require_ends(target, source)
    tokens = list(generator.run(given, generating.sampling_of(options)))
    drawn, seed = generator.drawn, options.start_seed
    placement = placement_of(generator.executable)
    if options.as_json:
        more = {"random": drawn.to_json(seed)} if drawn.weights else {}
        more |= placement_json(placement)
        told = [item.to_json() for item in generator.findings]
        print_json({"ok": True, "diagnostics": told, "tokens": tokens, **more})
    else:
        print_findings(without_notes(generator.findings))
        if drawn.weights:
            click.echo(drawn.line(seed), err=True)
        click.echo(",".join(map(str, tokens)))
        print_placement(options.backend, placement)


def _echo(text: str) -> None:
    """A piece of text; characters that a terminal would obey are shown, not sent."""
    shown = "\n".join(printable(line, len(line) + 1) for line in text.split("\n"))
    click.echo(shown, nl=False)
