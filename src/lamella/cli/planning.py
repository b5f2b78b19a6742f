"""Plans from the command line: what `run` takes for them, what they may touch, and what is printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar

import click

from lamella.base.diagnostic import printable
from lamella.cli.options import named_values, print_findings, print_json, without_notes
from lamella.cli.watching.waiting import waiting
from lamella.pipeline.api import load
from lamella.pipeline.languages import part_of
from lamella.pipeline.options import Options, options_of

F = TypeVar("F", bound=Callable[..., object])
CAPABILITIES = ("prompt", "print", "read", "write", "models")
FOLDERS = ("read", "write", "models")
"""Capabilities that reach one folder and what lies below it."""


class PlanOptions(TypedDict):
    """What the command line gives for a plan."""

    prompt: tuple[str, ...]
    plan: bool
    allow: dict[str, Path]
    patch: dict[str, str]
    rewrite: bool


def _allowed(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> dict[str, Path]:
    """`--allow print --allow read=DIR` as capabilities with their folders."""
    return {name: Path(folder) for name, _, folder in (word.partition("=") for word in value)}


def _require_capabilities(allowed: Mapping[str, Path]) -> None:
    for name, folder in allowed.items():
        if name not in CAPABILITIES or (name in FOLDERS) != (folder != Path()):
            known = ", ".join(f"{item}=DIR" if item in FOLDERS else item for item in CAPABILITIES)
            raise click.UsageError(f"'{printable(name)}' is no capability; there are: {known}")


PLAN_OPTIONS = (
    click.option(
        "--prompt",
        multiple=True,
        metavar="TEXT",
        help="Continue a text; NAC: run the plan, and answer it; repeatable.",
    ),
    click.option("--plan", is_flag=True, help="NAC: run the plan of the file, not its model alone."),
    click.option(
        "--allow",
        multiple=True,
        metavar="WHAT[=DIR]",
        callback=_allowed,
        help="What a plan may do: prompt, read=DIR, write=DIR, models=DIR.",
    ),
    click.option(
        "--patch",
        multiple=True,
        metavar="KEY=VALUE",
        callback=named_values,
        help="Another value for a constant of the plan; repeatable.",
    ),
    click.option("--rewrite", is_flag=True, help="Write the patched constants into FILE."),
)


def plan_options(command: F) -> F:
    """Give a command the options of plans."""
    for option in reversed(PLAN_OPTIONS):
        command = option(command)
    return command


def wants_plan(options: PlanOptions) -> bool:
    """Whether the plan of a file is asked for, not its model alone."""
    return bool(options["prompt"] or options["plan"] or options["patch"] or options["rewrite"])


def run_plan(file: Path, options: PlanOptions, words: Mapping[str, object], as_json: bool) -> None:
    """Run the plan of a file within what is allowed; it prints, and so does what it returns with --json."""
    _require_capabilities(options["allow"])
    plans = part_of("nac", "plans")
    chosen: Options = options_of(words)
    with waiting(f"reading {printable(str(file))}"):
        model = load(file, **words)
    if model.language != "nac":
        raise click.UsageError(f"only NAC files have plans, and '{printable(str(file))}' is {model.language}")
    model = plans.patch(model, options["patch"])
    if options["rewrite"]:
        plans.rewrite(model)
    if not (options["prompt"] or options["plan"]):
        return
    printed: list[str] = []
    console = plans.Console(_collect(printed) if as_json else _echo, _ask)
    allowed = {"print": Path(), **options["allow"]}
    outcome = plans.execute(model, console, chosen, answers=options["prompt"], allowed=allowed)
    if as_json:
        told = [item.to_json() for item in outcome.findings]
        values = [_plain(item) for item in outcome.values]
        print_json(
            {
                "ok": True,
                "diagnostics": told,
                "printed": "".join(printed),
                "returned": values,
                "steps": outcome.steps,
            }
        )
        return
    print_findings(without_notes(outcome.findings))


def _echo(stream: str, text: str) -> None:
    """What a plan prints; characters that a terminal would obey are shown, not sent."""
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
