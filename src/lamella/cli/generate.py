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
from lamella.graph.model import Model as GraphModel
from lamella.pipeline.api import make_executable, read
from lamella.pipeline.generate import (
    Generated,
    GraphOfTokens,
    decode,
    rate_by_names,
    read_tokens,
    sampling_of,
)
from lamella.pipeline.languages import NAC, ONNX, SKRIPTND, architectures, language_of
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
        by_names = language in (NAC, SKRIPTND, ONNX)
        _print_tokens(_by_names(file, options) if by_names else _by_cache(file, options), options)


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
        print_json({"ok": True, "diagnostics": [item.to_json() for item in found.findings], **facts})
    else:
        click.echo()
        print_findings(without_notes(found.findings))
        print_placement(options.backend, placement)
        _print_accuracy(found)


def _by_cache(file: Path, options: Options) -> Generated:
    """Tokens from a model of the Module DSL, which keeps keys and values."""
    prompt = read_tokens(options.tokens or "")
    with waiting(f"generating with {printable(str(file))}"):
        return architectures().generate_tokens(file, prompt, options)


def _by_names(file: Path, options: Options) -> Generated:
    """Tokens from a NAC file or a graph, whose input and output are known by name."""
    prompt = read_tokens(options.tokens or "")
    arrays = read_inputs(options.inputs, options.limits)
    with waiting(f"reading {printable(str(file))}"):
        model = read(file, options)
        executable = make_executable(model, options.backend, options)
    named = GraphOfTokens(executable, model) if isinstance(model, GraphModel) else executable
    rate = rate_by_names(named, options.ends, arrays)
    tokens = list(decode(rate, prompt, sampling_of(options)))
    return Generated(tokens, executable, findings=tuple(executable.findings))


def _print_tokens(found: Generated, options: Options) -> None:
    placement, drawn = placement_of(found.executable), found.executable.drawn
    if options.as_json:
        facts = {"tokens": found.tokens, **random_json(drawn, options), **placement_json(placement)}
        facts |= _accuracy_json(found)
        print_json({"ok": True, "diagnostics": [item.to_json() for item in found.findings], **facts})
        return
    print_findings(without_notes(found.findings))
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
