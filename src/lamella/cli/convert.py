"""`lamella convert`: write a model under another ending."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lamella.base.diagnostic import printable
from lamella.base.optional import Late
from lamella.cli.options import command, file_argument, print_findings, print_json, refuse_dash
from lamella.cli.waiting import waiting
from lamella.pipeline.convert import convert as convert_file
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    from lamella.train.adapters import merge as adapters
else:
    adapters = Late("lamella.train.adapters.merge")  # which few conversions need


@command("convert")
@file_argument
@click.argument(
    "target", metavar="OUTPUT", type=click.Path(path_type=Path, readable=False), callback=refuse_dash
)
def convert(file: Path, target: Path, options: Options) -> None:
    """Write FILE as OUTPUT: .sknd, .nac, .nacs and .onnx into each other; .pt2, .module, HF folders into them.

    A .module file or a Hugging Face folder becomes another such folder where OUTPUT has no ending.

    A graph that becomes NAC is optimised first, by what is exact. What is large in a binary is put beside a text, into
    a file whose name tells its content. --weights gives a NAC file other numbers and leaves its code as it is.

    With --adapter OUTPUT is the same model with an adapter in its weights, or, with --unmerge, without it.
    """
    with waiting(f"converting {printable(str(file))}"):
        merges = bool(options.adapters)
        found = adapters.merge(file, target, options) if merges else convert_file(file, target, options)
    written = [printable(str(path)) for path in found.written]
    if options.as_json:
        diagnostics = [item.to_json() for item in found.findings]
        print_json({"ok": True, "diagnostics": diagnostics, "written": written[-1], **(found.data or {})})
        return
    print_findings(found.findings)
    for line in (*found.lines, *written):
        click.echo(line)
