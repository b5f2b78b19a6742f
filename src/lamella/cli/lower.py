"""`lamella lower`: write a model in a form below it, and compare the two."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, Unpack

import click
import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.writer import make_folder
from lamella.cli.options import (
    Common,
    Guarded,
    ModelOptions,
    Words,
    common_options,
    model_options,
    print_json,
    types_option,
    weights_option,
)
from lamella.cli.watching.bar import watch
from lamella.cli.watching.waiting import waiting
from lamella.pipeline.api import compile, is_late, load, save
from lamella.pipeline.api import lower as lower_model
from lamella.pipeline.comparing.numbers import apart
from lamella.pipeline.languages import Model, Printing, language_of, part_of, printing_of
from lamella.pipeline.options import options_of

FORMS = ("sknd", "nac", "ir", "tensor", "llvm", "asm", "ptx", "stcb")
UNIT = "ir"
"""The compiled unit of the Module DSL: graph, schedule and schemas as JSON."""
TOLERANCE = 1e-3
"""How far numbers may lie apart after a pass has changed the order of sums, in parts of the largest."""


class Options(Common, ModelOptions):
    """What the command line gives to `lower`."""

    weights: Path | None
    types: dict[str, str]
    to: str
    output: Path | None
    after: str | None
    target: str | None
    passes: tuple[str, ...]
    seed: int
    compare: bool


@click.command(cls=Guarded)
@common_options
@model_options
@weights_option
@types_option
@click.option("--to", type=Words(FORMS), required=True, help="The form to lower to.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The folder to write; without it the text of kernels is printed.",
)
@click.option("--after", metavar="PASS", help="Kernels: stop behind this pass.")
@click.option("--target", metavar="NAME", help="Kernels: compile for this; by default for this machine.")
@click.option(
    "--pass", "passes", multiple=True, metavar="NAME", help="Run this pass over the graph; repeatable."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the comparison's inputs.",
)
@click.option(
    "--compare/--no-compare", default=True, help="Run both on random inputs and compare the numbers."
)
def lower(**options: Unpack[Options]) -> None:
    """Write FILE in a form below it into a folder; what was written is read again and compared."""
    own = ("file", "as_json", "to", "output", "compare")
    words: dict[str, object] = {key: value for key, value in options.items() if key not in own}
    if options["to"] == UNIT:
        _write_unit(options, words)
    with waiting(f"lowering {printable(str(options['file']))}"):
        model = load(options["file"], **words)
        later = {key: words[key] for key in words if not is_late(key, model)}
        lowered = lower_model(model, options["to"], **later)
    printing = printing_of(lowered.language)
    if options["output"] is None:
        _print(lowered, printing, options)
    elif printing is None:
        target = _write(lowered, options["output"], options)
        again = load(target, limits=options["limits"])
        _report(target, _compare(model, again, later) if options["compare"] else None, options["as_json"])
    else:
        target = printing.write_into(lowered, options["output"], options["file"].stem)
        numbers = printing.compare(model, lowered, target, options_of(later)) if options["compare"] else {}
        pairs = [_difference(*pair) for pair in numbers.values()]
        _report(target, max(pairs, default=None), options["as_json"])


def _write_unit(options: Options, words: Mapping[str, object]) -> NoReturn:
    """Write a model of the Module DSL as a compiled unit, and read it again."""
    file, folder = options["file"], options["output"]
    if folder is None:
        raise click.UsageError("--to ir writes files; say where with -o FOLDER")
    if language_of(file, options["language"]) != "module":
        raise click.UsageError("--to ir is for models of the Module DSL and Hugging Face folders")
    with waiting(f"lowering {printable(str(file))}"):
        before, after = part_of("module", "units").write_unit(file, folder, options_of(words))
    later = {key: words[key] for key in words if not is_late(key, before)}
    _report(folder, _compare(before, after, later) if options["compare"] else None, options["as_json"])


def _print(lowered: Model, printing: Printing | None, options: Options) -> None:
    """The text of kernels on standard output; other forms need a folder."""
    if printing is None:
        raise click.UsageError(f"--to {options['to']} writes files; say where with -o FOLDER")
    text = printing.printed(lowered)
    if options["as_json"]:
        print_json({"ok": True, "diagnostics": [], "form": options["to"], "text": text})
    else:
        click.echo(text, nl=False)


def _write(lowered: Model, folder: Path, options: Options) -> Path:
    """Write a graph as a folder, a stream as a file in it; gives what to read."""
    target = folder if options["to"] == "sknd" else folder / f"{options['file'].stem}.{options['to']}"
    make_folder(target.parent)
    save(lowered, target)
    return target


def _report(target: Path, difference: float | None, as_json: bool) -> NoReturn:
    close = difference is None or difference <= TOLERANCE
    if as_json:
        told = difference if difference is None or np.isfinite(difference) else str(difference)
        print_json({"ok": close, "diagnostics": [], "written": str(target), "largest_difference": told})
    else:
        said = "" if difference is None else f": read again, largest difference {difference:.3g}"
        click.echo(f"{printable(str(target))}{said}")
        if not close:
            click.echo(f"the numbers differ by more than {TOLERANCE}", err=True)
    sys.exit(0 if close else 1)


def _compare(before: Model, after: Model, words: Mapping[str, object]) -> float:
    """The largest difference between the outputs of two models on the same random inputs."""
    found = []
    both = {key: words[key] for key in ("seed", "limits")}
    more = {key: words[key] for key in ("types", "shape", "weights") if not is_late(key, before)}
    for model, given in ((before, {**both, **more}), (after, both)):
        executable = compile(model, None, **given)
        executable.watch = watch
        found.append(executable())
    first, second = found
    if first.keys() != second.keys():
        return float("inf")
    return max((_difference(first[name], second[name]) for name in first), default=0.0)


def _difference(one: Array, other: Array) -> float:
    """The largest difference, in parts of the largest number or of one."""
    gap = apart("", one, other)
    return gap.largest / max(gap.scale, 1.0)
