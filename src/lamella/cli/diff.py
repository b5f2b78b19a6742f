"""`lamella diff`: what two models have in common, and where their numbers part."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lamella.base.diagnostic import printable
from lamella.base.writer import make_folder
from lamella.cli.options import command, print_json
from lamella.cli.waiting import waiting
from lamella.pipeline.compare import (
    compare,
    comparison_lines,
    comparison_to_json,
    load_sides,
    write_reproducer,
)
from lamella.pipeline.options import Options


@command("diff")
@click.argument("left", type=click.Path(path_type=Path))
@click.argument("right", type=click.Path(path_type=Path), required=False)
def diff(left: Path, right: Path | None, options: Options) -> None:
    """Compare LEFT with RIGHT: interfaces, weights, operations, and results on the same random inputs.

    Each is a graph: .sknd, .nac, .nacs, .module, .pt2, a Hugging Face folder. Without RIGHT, LEFT runs on two
    backends: `lamella diff LEFT --backend reference --backend cpu`. The status is 1 where results differ by more
    than the tolerance, or cannot be compared.
    """
    paths = [left] if right is None else [left, right]
    with waiting("comparing"):
        one, other = load_sides(paths, options.backends, options)
        found = compare(one, other, options, options.tolerance)
    written = None
    if options.output is not None and found.diverging is not None:
        make_folder(options.output)
        written = write_reproducer(one, found.diverging, options.output, options)
    equal = found.agrees(options.tolerance)
    if options.as_json:
        path = None if written is None else str(written)
        print_json({"ok": equal, "diagnostics": [], **comparison_to_json(found), "reproducer": path})
    else:
        for line in (*one.notes, *other.notes, *comparison_lines(found)):
            click.echo(line)
        if written is not None:
            click.echo(printable(str(written)))
    sys.exit(0 if equal else 1)
