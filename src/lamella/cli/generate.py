"""`lamella generate`: continue a text or tokens with a model."""

from __future__ import annotations

from pathlib import Path

import click

from lamella.base.diagnostic import printable
from lamella.base.placement import placement_of
from lamella.cli.options import (
    command,
    file_argument,
    placement_json,
    print_findings,
    print_json,
    print_placement,
    without_notes,
)
from lamella.cli.plan import run_plan
from lamella.cli.report import print_random, random_json, read_inputs
from lamella.cli.waiting import waiting
from lamella.pipeline.generate import Generated, read_tokens
from lamella.pipeline.generation import generate_tokens
from lamella.pipeline.languages import NAC, architectures, language_of
from lamella.pipeline.options import Options


@command("generate")
@file_argument
def generate(file: Path, options: Options) -> None:
    """Continue a text (--prompt) or tokens (--tokens) with FILE: an HF folder, .module, .nac, .onnx or .sknd file.

    The prompt is read at once, then each token that was chosen. A text takes the tokenizer.json of the folder; a NAC
    file answers by the plan that it carries. A graph without states is given all tokens in each step.
    """
    if bool(options.prompt) == (options.tokens is not None):
        raise click.UsageError("give --prompt TEXT or --tokens ID,ID…, one of them")
    language = language_of(file, options.language)
    if options.prompt and language is NAC:
        run_plan(file, options, options.prompt)
    elif options.prompt:
        _print_text(file, options)
    else:
        _print_tokens(_continue(file, options), options)


def _print_text(file: Path, options: Options) -> None:
    """Print what follows a prompt, piece by piece as it is known."""
    found = architectures().generate_text(
        file, "\n".join(options.prompt), options, None if options.as_json else _echo
    )
    placement = placement_of(found.executable)
    if options.as_json:
        facts = {
            "tokens": found.tokens,
            "text": found.text,
            **placement_json(placement),
            **_accuracy_json(found),
        }
        print_json({"ok": True, "diagnostics": [item.to_json() for item in found.told()], **facts})
    else:
        click.echo()
        print_findings(without_notes(found.told()))
        print_placement(options.backend, placement)
        _print_accuracy(found)


def _continue(file: Path, options: Options) -> Generated:
    """The tokens that follow those of the command."""
    prompt = read_tokens(options.tokens or "")
    arrays = read_inputs(options.inputs, options.limits)
    with waiting(f"generating with {printable(str(file))}"):
        return generate_tokens(file, prompt, arrays, options)


def _print_tokens(found: Generated, options: Options) -> None:
    placement, drawn = placement_of(found.executable), found.executable.drawn
    if options.as_json:
        facts = {"tokens": found.tokens, **random_json(drawn, options), **placement_json(placement)}
        facts |= _accuracy_json(found)
        print_json({"ok": True, "diagnostics": [item.to_json() for item in found.told()], **facts})
        return
    print_findings(without_notes(found.told()))
    print_random(drawn, options)
    click.echo(",".join(map(str, found.tokens)))
    print_placement(options.backend, placement)
    _print_accuracy(found)


def _accuracy_json(found: Generated) -> dict[str, object]:
    return {} if found.accuracy is None else found.accuracy.to_json()


def _print_accuracy(found: Generated) -> None:
    """What a reduced precision costs, of the scores behind the prompt."""
    if found.accuracy is not None:
        click.echo(found.accuracy.line(), err=True)


def _echo(text: str) -> None:
    """A piece of text; characters that a terminal would obey are shown, not sent."""
    shown = "\n".join(printable(line, len(line) + 1) for line in text.split("\n"))
    click.echo(shown, nl=False)
