"""`lamella convert`: write a model under another ending of its language."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import click

from lamella.base.diagnostic import printable
from lamella.cli.options import (
    Common,
    Guarded,
    common_options,
    print_json,
)
from lamella.cli.watching.waiting import waiting
from lamella.pipeline.api import load, save


class Options(Common):
    """What the command line gives to `convert`."""

    output: Path


@click.command(cls=Guarded)
@common_options
@click.argument("output", type=click.Path(path_type=Path))
def convert(**options: Unpack[Options]) -> None:
    """Read FILE and write it as OUTPUT: .nac is assembled from .nacs, .nacs is the text of .nac.

    What is large in a binary is put beside the text, into a file whose name tells its content.
    """
    own = ("file", "as_json", "output")
    words: dict[str, object] = {key: value for key, value in options.items() if key not in own}
    with waiting(f"converting {printable(str(options['file']))}"):
        save(load(options["file"], **words), options["output"])
    if options["as_json"]:
        print_json({"ok": True, "diagnostics": [], "written": str(options["output"])})
    else:
        click.echo(printable(str(options["output"])))
