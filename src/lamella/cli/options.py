"""Options of the commands, made from the table of the pipeline, and the output habits that commands share."""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import click
from click.core import ParameterSource

from lamella.base.diagnostic import NOTE, Diagnostic, LamellaError, errors, printable, render
from lamella.base.limits import Limits, from_options
from lamella.base.placement import OperationPlacement, placement_line, placement_to_json
from lamella.base.suggest import nearest
from lamella.cli.tuned import telling_tuning, tuning_json
from lamella.pipeline.comparison_options import PEERS, SHOWN_LEVELS
from lamella.pipeline.effects import Option, steps_of
from lamella.pipeline.given import Inert, Use, find_inert, offered, options_of
from lamella.pipeline.languages import shown_subject, subject_of
from lamella.pipeline.options import Options, drawing, kind_of

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}
IMPLIED: Mapping[str, Mapping[str, object]] = {"run": {"kernel": ""}, "train": {"training": True}}
"""What a command decides beside its options."""
MOVED = {
    "run": {
        "--prompt": "lamella generate FILE --prompt TEXT",
        "--tokens": "lamella generate FILE --tokens 1,2,3",
        "--generate": "lamella generate FILE --tokens 1,2,3",
        "--start": "lamella generate FILE --tokens 1,2,3",
        "--temperature": "lamella generate FILE --temperature T",
        "--train-steps": "lamella train FILE --steps N",
        "--target": "lamella train FILE --target K=FILE.npy; --backend cuda runs on a GPU",
        "--lr": "lamella train FILE --lr X",
        "--save": "lamella train FILE --save OUT",
    }
}
"""Options that are those of another command now."""
PATHS = ("file", "files", "left", "right")
"""Arguments that are inputs; an option is to have an effect on one of them."""
REPORTS = ("timeline", "run_timeline", "html", "page", "picture")
"""Options that name a file which tells of the input."""
WHOLE = ("config", "types", "embed")
"""Options whose values may hold commas; of the others one word gives several."""


class Words(click.Choice[str]):
    """One of several words; for another one the closest is suggested."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.choices:
            return value
        known = [str(item) for item in self.choices]
        close = nearest(value, known)
        meant = f"; did you mean '{close[0]}'?" if close else ""
        return self.fail(f"'{printable(value, 60)}' is not one of {', '.join(known)}{meant}", param, ctx)


class WordList(Words):
    """Several words with commas between them, each of them one of those that are known."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return ",".join(super(WordList, self).convert(word.strip(), param, ctx) for word in value.split(","))


file_argument = click.argument("file", type=click.Path(path_type=Path, readable=False, allow_dash=True))


# --- values as a user writes them -------------------------------------------------------------------------------


def _limits(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> Limits:
    try:
        return from_options(value)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def _named_values(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> dict[str, str]:
    """`--set a=1 --set b=2`, or `--patch a=1,b=2`, as names and values."""
    found: dict[str, str] = {}
    for word in value if parameter.name in WHOLE else [part for item in value for part in item.split(",")]:
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"'{word}' is not NAME=VALUE")
        found[name.strip()] = text.strip()
    return found


def _extents(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> dict[str, int]:
    found = _named_values(ctx, parameter, value)
    wrong = next((f"{name}={text}" for name, text in found.items() if not text.isdecimal()), None)
    if wrong is not None:
        raise click.BadParameter(f"'{wrong}' is not NAME=NUMBER")
    long = next((name for name, text in found.items() if len(text) > 18), None)
    if long is not None:
        raise click.BadParameter(f"the extent of '{long}' has more than 18 digits")
    return {name: int(text) for name, text in found.items()}


def _finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no finite number")
    return value


def _groups(ctx: click.Context, parameter: click.Parameter, value: str | None) -> object:
    """`--groups 4` or `--groups 4,2` as a number, or as one for each axis."""
    if value is None:
        return None
    words = value.split(",")
    if len(words) > 3 or not all(word.strip().isdecimal() and len(word) < 20 for word in words):
        raise click.BadParameter(f"'{printable(value)}' is not one, two or three numbers, such as 4 or 4,2")
    numbers = tuple(int(word) for word in words)
    return numbers if len(numbers) > 1 else numbers[0]


def _numbers(
    ctx: click.Context, parameter: click.Parameter, value: str | None, *, least: int | None, most: int | None
) -> tuple[int, ...] | None:
    """`--batch 1,8` as numbers."""
    if value is None:
        return None
    words = value.split(",")
    if not all(word.strip().isdecimal() and len(word) < 20 for word in words):
        raise click.BadParameter(f"'{printable(value)}' is not numbers, such as 1 or 1,2")
    found = tuple(int(word) for word in words)
    wrong = next((item for item in found if item < (least or 0) or (most is not None and item > most)), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong} is not between {least} and {most}")
    return found


def _split(ctx: click.Context, parameter: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:
    """`--against torch,openvino` as words."""
    return tuple(word for item in value for word in item.split(","))


def _order(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"program|random(:\d{1,18})?", value):
        raise click.BadParameter("orders are: program, random, random:SEED")
    return value


def _line_printer(
    ctx: click.Context, parameter: click.Parameter, value: bool | None
) -> Callable[[str], None] | None:
    return partial(click.echo, err=True) if value else None


def refuse_dash(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """`-` names no file: `lower -o -` is `lower` without it, which prints; nothing else is a stream of text."""
    if value != Path("-"):
        return value
    if ctx.command.name == "lower" and parameter.name == "output":
        return None
    raise click.BadParameter("'-' is no file; give a name")


FOLDER = click.Path(path_type=Path, readable=False, file_okay=False, exists=True)
SPECIAL: Mapping[str, Mapping[str, object]] = {
    "limits": {"multiple": True, "callback": _limits},
    "order": {"callback": _order},
    "against": {"type": WordList(PEERS), "callback": _split},
    "levels": {"type": WordList(SHOWN_LEVELS), "callback": _split},
    "groups": {"callback": _groups},
    "trace": {"is_flag": True, "default": None, "callback": _line_printer},
    "root": {"type": FOLDER},
    "architecture": {"type": click.Path(path_type=Path, readable=False, dir_okay=False)},
}
"""What click needs beyond the kind of an option."""


def click_option(name: str, row: Option, command: str) -> click.Option:
    """An option of the table as one of click; its default is the table's, so that only what is given counts."""
    words: dict[str, object] = {
        "help": row.helps.get(command, row.help),
        "metavar": row.metavar,
        "required": command == row.required,
        "hidden": command in row.hidden,
        **_by_kind(row, kind_of(name)),
        **SPECIAL.get(name, {}),
    }
    return click.Option([*row.flags, name], **words)  # type: ignore[arg-type]  # a table, not a call


def _by_kind(row: Option, kind: str) -> dict[str, object]:
    """The type of click for the values of an option."""
    if row.choices:
        return {"type": Words(row.choices), "multiple": kind.startswith("tuple")}
    if kind == "bool":
        # A pair of flags has a default of its own: which of the two is given must be seen.
        return {"default": None} if "/" in row.flags[0] else {"is_flag": True}
    if kind == "int":
        return {"type": click.IntRange(_whole(row.least), _whole(row.most))}
    if kind == "float":
        bound = click.FLOAT if row.least is None else click.FloatRange(min=row.least, max=row.most)
        return {"type": bound, "callback": _finite}
    if kind == "Path":
        return {"type": click.Path(path_type=Path, readable=False), "callback": refuse_dash}
    if kind == "tuple[int, ...]":
        return {"callback": partial(_numbers, least=_whole(row.least), most=_whole(row.most))}
    if kind == "tuple[str, ...]":
        return {"multiple": True}
    if kind == "Mapping[str, int]":
        return {"multiple": True, "callback": _extents}
    return {"multiple": True, "callback": _named_values} if kind.startswith("Mapping") else {}


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


# --- commands ---------------------------------------------------------------------------------------------------


class Command(click.Command):
    """A command whose options are shown by group, and whose LamellaError becomes findings and status 1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the arguments; an option that moved to another command says to which."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            now = MOVED.get(self.name or "", {}).get(problem.option_name)
            if now is None:
                raise
            raise click.UsageError(
                f"{problem.option_name} is not here any more\n  hint: {now}", ctx
            ) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except LamellaError as problem:
            fail(problem.findings, bool(ctx.params.get("as_json")))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options under the names of their groups."""
        rows = offered(self.name or "")
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            row = rows.get(parameter.name or "")
            if record is not None:
                groups.setdefault("general" if row is None else row.group, []).append(record)
        for group in sorted(groups, key=lambda name: name == "general"):
            with formatter.section(f"Options, {group}"):
                formatter.write_dl(groups[group])


def command(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command: it gets its arguments, and as `options` what the table offers to the command.

    Options that cannot have an effect on any of its inputs end it with status 2.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        arguments: list[click.Parameter] = getattr(function, "__click_params__", [])
        rows = offered(name)

        @click.pass_context
        def callback(ctx: click.Context, /, **values: object) -> None:
            given = {key: values.pop(key) for key in rows}
            words = {key: value for key, value in given.items() if value is not None and _is_given(ctx, key)}
            options = options_of(words, by_command=True)
            _require_effects(name, values, options)
            _keep_inputs(values, options)
            with telling_tuning(ctx, options.as_json):
                function(**values, options=drawing(options))

        options = [click_option(key, row, name) for key, row in rows.items()]
        text = inspect.cleandoc(function.__doc__ or "")
        params = [*reversed(arguments), *options]
        return Command(name, params=params, callback=callback, help=text)

    return decorate


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def _require_effects(name: str, arguments: Mapping[str, object], options: Options) -> None:
    """A wrong use where an option has no effect on any input; what an input is not is reported by what reads it."""
    found: list[Inert | None] = []
    target = arguments.get("target")
    for path in _inputs(arguments):
        try:
            language = options.language
            subject = shown_subject(path, language) if name == "show" else subject_of(Path(path), language)
        except LamellaError:
            return
        given = {key: getattr(options, key) for key in options.given}
        steps = steps_of(name, subject, given, target if isinstance(target, Path) else None)
        implied = IMPLIED.get(name, {})
        found.append(find_inert(Use(steps, subject, path, name, implied), options))
    inert = next(iter(found), None)
    if inert is not None and None not in found:
        raise click.UsageError(f"{inert.message}\n  hint: {inert.hint}")


def _keep_inputs(arguments: Mapping[str, object], options: Options) -> None:
    """A wrong use where a picture or a report would replace what it is about."""
    sources = {os.path.realpath(path) for path in _inputs(arguments)}
    for name in REPORTS:
        path = getattr(options, name)
        if path is not None and os.path.realpath(path) in sources:
            raise click.UsageError(f"'{printable(str(path))}' is the input itself, and would be replaced")


def _inputs(arguments: Mapping[str, object]) -> list[str]:
    items = [arguments[key] for key in PATHS if arguments.get(key) is not None]
    return [str(part) for item in items for part in (item if isinstance(item, tuple) else (item,))]


def print_findings(findings: Iterable[Diagnostic], stream_is_error: bool = True) -> None:
    """Findings as a person reads them, errors alone where a command is to be quiet; colours only on a terminal."""
    for finding in errors(findings) if is_quiet() else findings:
        text = render(finding)
        tag = f"{finding.severity}[{finding.code}]"
        coloured = click.style(tag, fg=COLOURS[finding.severity], bold=True)
        click.echo(text.replace(tag, coloured, 1), err=stream_is_error)


def is_quiet() -> bool:
    """Whether `lamella --quiet` was asked for errors alone."""
    return _is_asked("quiet")


def _is_asked(flag: str) -> bool:
    """Whether `lamella` itself was given a flag."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.find_root().params.get(flag))


def print_placement(backend: str | None, placement: Sequence[OperationPlacement]) -> None:
    """One line that names each operation that does not run as a kernel; nothing where all do."""
    line = placement_line(placement)
    if line is not None:
        click.echo(f"{backend or 'cpu'}: {line}", err=True)


def placement_json(placement: Sequence[OperationPlacement]) -> dict[str, object]:
    """Where operations run, for the one JSON object of a command; empty where there are no kernels."""
    return {"placement": placement_to_json(placement)} if placement else {}


def without_notes(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """What a command other than `check` repeats: errors and warnings; notes where it is to be verbose."""
    return [item for item in findings if item.severity != NOTE or _is_asked("verbose")]


def print_json(value: Mapping[str, object]) -> None:
    """One JSON object on standard output, with what was measured for it."""
    click.echo(json.dumps({**value, **tuning_json()}, allow_nan=False))


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


def has_errors(findings: Iterable[Diagnostic], strict: bool) -> bool:
    """Whether the findings end a command with status 1; `--strict` counts warnings too, and spellings of kernels."""
    found = list(findings)
    # notes on spellings and extensions; those on what is not proved stay notes
    counted = [item for item in found if item.severity == "warning" or item.code.startswith("TEN0")]
    return bool(errors(found)) or (strict and bool(counted))
