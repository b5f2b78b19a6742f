"""Plans from the command line: what they may touch, and what is printed."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np

from lamella.base.diagnostic import printable
from lamella.base.suggest import list_known
from lamella.cli.options import print_findings, print_json, without_notes
from lamella.cli.waiting import waiting
from lamella.pipeline.api import read
from lamella.pipeline.languages import Console, nac_plans, training_plans
from lamella.pipeline.options import Options

CAPABILITIES = ("prompt", "print", "read", "write", "models", "train")
FOLDERS = ("read", "write", "models")
"""Capabilities that reach one folder and what lies below it."""
MOST_SHOWN = 64
"""Elements of an array that is printed whole."""


def read_capabilities(words: Sequence[str]) -> dict[str, Path]:
    """`--allow print --allow read=DIR` as capabilities with their folders."""
    found: dict[str, Path] = {}
    for word in words:
        name, equals, folder = word.partition("=")
        if name not in CAPABILITIES or (name in FOLDERS) != bool(folder) or (equals and not folder):
            known = [f"{item}=DIR" if item in FOLDERS else item for item in CAPABILITIES]
            raise click.UsageError(f"'{printable(word)}' is no capability; {list_known(word, known)}")
        found[name] = Path(folder)
    return found


def run_plan(file: Path, options: Options, answers: Sequence[str]) -> None:
    """Run the plan of a file within what is allowed; what it prints and returns is printed."""
    allowed = {"print": Path(), **read_capabilities(options.allow)}
    plans = nac_plans()
    with waiting(f"reading {printable(str(file))}"):
        model = plans.patch(read(file, options), options.patch)
    if options.rewrite:
        plans.rewrite(model)
    if not (answers or options.run_plan):
        return
    printed: list[str] = []
    ends: list[str] = []
    console = Console(_collect(printed) if options.as_json else partial(_echo, ends), _ask)
    make_host = training_plans().TrainingHost if "train" in allowed else None
    outcome = plans.execute(model, console, options, answers=answers, allowed=allowed, make_host=make_host)
    if options.as_json:
        diagnostics = [item.to_json() for item in outcome.findings]
        values = [_plain(item) for item in outcome.values]
        print_json(
            {
                "ok": True,
                "diagnostics": diagnostics,
                "printed": "".join(printed),
                "returned": values,
                "steps": outcome.steps,
            }
        )
        return
    print_findings(without_notes(outcome.findings))
    # Who only answers a plan wants to read what it says; of one that says nothing what it returns is printed.
    if options.run_plan or not ends:
        if "".join(ends[-1:]) not in ("", "\n"):
            click.echo()
        for number, value in enumerate(outcome.values):
            click.echo(f"returned {number}: {_value_text(value)}")


def _value_text(value: object) -> str:
    """A value that a plan returns, as a person reads it: arrays with type, shape and numbers, or their digest."""
    if not isinstance(value, np.ndarray):
        return printable(repr(value), 1000)
    head = f"{value.dtype}{list(value.shape)}"
    if value.size <= MOST_SHOWN:
        return f"{head}  {printable(str(value.tolist()), 4000)}"
    return f"{head}  sha256 {hashlib.sha256(value.tobytes()).hexdigest()[:16]}"


def _echo(ends: list[str], stream: str, text: str) -> None:
    """What a plan prints; characters that a terminal would obey are shown, not sent. `ends` gets the last of each."""
    ends.append(text[-1:])
    shown = "\n".join(printable(line, len(line) + 1) for line in text.split("\n"))
    click.echo(shown, nl=False, err=stream == "stderr")


def _collect(printed: list[str]) -> Callable[[str, str], None]:
    def collect(stream: str, text: str) -> None:
        if stream == "stdout":
            printed.append(text)

    return collect


def _ask(question: str) -> str:
    """The line that a person types."""
    click.echo(printable(question), nl=False, err=True)
    return sys.stdin.readline().rstrip("\n")


def _plain(value: object) -> object:
    """A value as JSON can say it."""
    found = value.tolist() if hasattr(value, "tolist") else value
    try:
        return json.loads(json.dumps(found, allow_nan=False))
    except (TypeError, ValueError):
        return str(found)
