"""`lamella lower`: write a model in a form below it, and compare the two."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click
import numpy as np

from lamella.base.arrays import Array
from lamella.cli.options import Common, Guarded, ModelOptions, common_options, model_options, print_json
from lamella.pipeline.api import compile, load, save
from lamella.pipeline.api import lower as lower_model
from lamella.pipeline.languages import Model

FORMS = ("sknd", "stcb")


class Options(Common, ModelOptions):
    """What the command line gives to `lower`."""

    to: str
    output: Path
    passes: tuple[str, ...]
    seed: int
    compare: bool


@click.command(cls=Guarded)
@common_options
@model_options
@click.option("--to", type=click.Choice(FORMS), required=True, help="The form to lower to.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The folder to write.")
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
    model = load(options["file"], **words)
    lowered = lower_model(model, options["to"], **words)
    output = options["output"]
    target = output if options["to"] == "sknd" else output / f"{options['file'].stem}.{options['to']}"
    output.mkdir(parents=True, exist_ok=True)
    save(lowered, target)
    difference = _compare(model, load(target), options["seed"]) if options["compare"] else None
    if options["as_json"]:
        print_json({"ok": True, "written": str(target), "largest_difference": difference})
        return
    said = "" if difference is None else f": read again, largest difference {difference:.3g}"
    click.echo(f"{target}{said}")


def _compare(before: Model, after: Model, seed: int) -> float:
    """The largest difference between the outputs of two models on the same random inputs."""
    first, second = (compile(model, seed=seed)() for model in (before, after))
    return max((_difference(first[name], second[name]) for name in first if name in second), default=0.0)


def _difference(one: Array, other: Array) -> float:
    if one.shape != other.shape:
        return float("inf")
    left, right = (array.astype(np.float64) for array in (one, other))
    apart = np.abs(left - right)
    apart[(left == right) | (np.isnan(left) & np.isnan(right))] = 0
    return float(apart.max(initial=0.0))
