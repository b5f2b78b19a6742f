"""`lamella convert`: write a model under another ending."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from lamella.base.diagnostic import printable
from lamella.cli.options import (
    Common,
    Guarded,
    ModelOptions,
    Words,
    allow_option,
    common_options,
    model_options,
    named_values,
    print_findings,
    print_json,
    types_option,
    weights_option,
)
from lamella.cli.watching.waiting import waiting
from lamella.pipeline.converting import convert as convert_file
from lamella.pipeline.options import options_of

METHODS = ("none", "fp16", "int8_tensor", "int8_channel", "block_fp8")
LEVELS = ("none", "exact", "relaxed")


class Options(Common, ModelOptions):
    """What the command line gives to `convert`."""

    output: Path
    weights: Path | None
    types: dict[str, str]
    quantize: str | None
    axis: int
    optimize: str | None
    external: bool | None
    plain_signatures: bool
    embed: dict[str, str]
    tokenizer: Path | None
    plan: Path | None
    allow: tuple[str, ...]
    seed: int


@click.command(cls=Guarded)
@common_options
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--quantize", type=Words(METHODS), help="NAC: store the weights by this method.")
@click.option("--axis", type=click.IntRange(min=0), default=0, help="NAC: the axis of int8_channel's scales.")
@click.option("--optimize", type=Words(LEVELS), help="How far the graph is simplified before.")
@click.option("--external/--internal", default=None, help="NAC: weights beside the file, or in it.")
@click.option("--plain-signatures", is_flag=True, help="NAC: signatures without roles, all tensors T.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, help="Seed of inputs that outputs are compared on."
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    help="NAC: put this tokenizer.json into it, as a manifest.",
)
@click.option("--plan", type=click.Path(path_type=Path), help="NAC: put the plan of this .nacs into it.")
@click.option(
    "--embed",
    multiple=True,
    metavar="NAME=FILE",
    callback=named_values,
    help="NAC: put a file into it under this name; repeatable.",
)
@allow_option
@weights_option
@types_option
@model_options
def convert(**options: Unpack[Options]) -> None:
    """Read FILE and write it as OUTPUT: .sknd, .nac and .nacs into each other; .pt2, .module, HF folders into them.

    A .module file or a Hugging Face folder becomes another such folder where OUTPUT has no ending.

    A graph that becomes NAC is optimised first, by what is exact. What is large in a binary is put beside a text, into
    a file whose name tells its content. --weights gives a NAC file other numbers and leaves its code as it is.
    """
    own = ("file", "as_json", "output")
    words: dict[str, object] = {key: value for key, value in options.items() if key not in own}
    with waiting(f"converting {printable(str(options['file']))}"):
        found = convert_file(options["file"], options["output"], options_of(words))
    written = [printable(str(path)) for path in found.written]
    if options["as_json"]:
        told = [item.to_json() for item in found.findings]
        print_json({"ok": True, "diagnostics": told, "written": written[-1], **(found.data or {})})
        return
    print_findings(found.findings)
    for line in (*found.lines, *written):
        click.echo(line)
