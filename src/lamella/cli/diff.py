"""`lamella diff`: what two models have in common, and where their numbers part."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Unpack

import click

from lamella.base.diagnostic import printable
from lamella.base.limits import Limits
from lamella.base.writer import make_folder
from lamella.cli.options import (
    Guarded,
    ModelOptions,
    json_option,
    limit_option,
    model_options,
    print_json,
    types_option,
    weights_option,
)
from lamella.cli.watching.waiting import waiting
from lamella.pipeline.compare import (
    TOLERANCE,
    compare,
    comparison_lines,
    comparison_to_json,
    load_sides,
    write_reproducer,
)
from lamella.pipeline.options import options_of


class Options(ModelOptions):
    """What the command line gives to `diff`."""

    left: Path
    right: Path | None
    backends: tuple[str, ...]
    weights: Path | None
    as_json: bool
    limits: Limits
    types: dict[str, str]
    seed: int
    tolerance: float
    output: Path | None


@click.command(cls=Guarded)
@click.argument("left", type=click.Path(path_type=Path))
@click.argument("right", type=click.Path(path_type=Path), required=False)
@json_option
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0.0),
    default=TOLERANCE,
    show_default=True,
    help="How far results may lie apart, in parts of the largest number.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the inputs.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the first diverging operation and its inputs into this folder.",
)
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Run on reference, cpu, interpreter or nacvm; given twice, the first is LEFT's and the second RIGHT's.",
)
@weights_option
@types_option
@model_options
@limit_option
def diff(**options: Unpack[Options]) -> None:
    """Compare LEFT with RIGHT: interfaces, weights, operations, and results on the same random inputs.

    Each is a graph: .sknd, .nac, .nacs, .module, .pt2, a Hugging Face folder. Without RIGHT, LEFT runs on two
    backends: `lamella diff LEFT --backend reference --backend cpu`. The status is 1 where results differ by more
    than the tolerance, or cannot be compared.
    """
    own = ("left", "right", "backends", "as_json", "tolerance", "output")
    words = options_of({key: value for key, value in options.items() if key not in own})
    paths = [path for path in (options["left"], options["right"]) if path is not None]
    with waiting("comparing"):
        left, right = load_sides(paths, options["backends"], words)
        found = compare(left, right, words, options["tolerance"])
    written = None
    if options["output"] is not None and found.diverging is not None:
        make_folder(options["output"])
        written = write_reproducer(left, found.diverging, options["output"], words)
    equal = found.agrees(options["tolerance"])
    if options["as_json"]:
        told = None if written is None else str(written)
        print_json({"ok": equal, "diagnostics": [], **comparison_to_json(found), "reproducer": told})
    else:
        for line in (*left.notes, *right.notes, *comparison_lines(found)):
            click.echo(line)
        if written is not None:
            click.echo(printable(str(written)))
    sys.exit(0 if equal else 1)
