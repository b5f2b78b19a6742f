"""`lamella diff`: what two models have in common, and where their numbers part."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click

from lamella.base.diagnostic import printable
from lamella.base.writer import write_text
from lamella.cli.colour import print_report
from lamella.cli.options import command, print_json
from lamella.cli.report import read_inputs
from lamella.cli.waiting import waiting
from lamella.pipeline.diff import (
    Comparison,
    KernelComparison,
    PlanComparison,
    are_kernels,
    compare,
    compare_kernels,
    compare_plan,
    comparison_lines,
    comparison_to_json,
    gap_to_json,
    gap_words,
    is_plan,
    load_sides,
    page_of,
    reproduce,
)
from lamella.pipeline.options import Options

GRAPHS_ALONE = ("output", "html", "reduce", "corners", "backends", "precisions")
"""Options that cannot have an effect where plans are compared."""


@command("diff")
@click.argument("left", type=click.Path(path_type=Path, readable=False))
@click.argument("right", type=click.Path(path_type=Path, readable=False), required=False)
def diff(left: Path, right: Path | None, options: Options) -> None:
    """Compare LEFT with RIGHT: interfaces, weights, operations, and all tensors on the same inputs.

    Each is a graph: .sknd, .nac, .nacs, .module, .pt2, .onnx, a compiled unit, a Hugging Face folder; or both are
    kernels, such as two stages of `lamella lower`, and those of one name run on the same arguments; or RIGHT is a plan
    that was made of LEFT; or both are plans, such as one and its bound stream. Without RIGHT,
    LEFT runs on two backends (`--backend reference --backend cpu`) or in two precisions. The first operation whose
    inputs agree and whose results do not is named, with the cause that its numbers prove. The status is 1 where results
    differ by more than the tolerance, or cannot be compared.
    """
    paths = [left] if right is None else [left, right]
    if options.reduce and options.output is None:
        raise click.UsageError("--reduce writes files; say where with -o FOLDER")
    if are_kernels(paths, options):
        _refuse(options, ("output",), "kernels")
        with waiting("comparing"):
            kernels = compare_kernels(paths, options)
        _report_kernels(kernels, options)
    given = read_inputs(options.inputs, options.limits)
    if is_plan(paths, options):
        _refuse(options, GRAPHS_ALONE, "plans")
        with waiting("comparing"):
            plan = compare_plan(paths, options, given)
        _report_plan(plan, options)
    with waiting("comparing"):
        sides = load_sides(paths, replace(options, contents=given))
        fixed = {name for side in sides for name in side.model.fixed}
        open_inputs = {name: array for name, array in given.items() if name not in fixed}
        found = compare(*sides, options, open_inputs)
        written = reproduce(found, options)
    if options.html is not None:
        write_text(options.html, page_of(found, options.tolerance))
    _report(found, written, options)


def _refuse(options: Options, names: Sequence[str], what: str) -> None:
    """A wrong use where an option speaks of graphs alone."""
    wrong = next((name for name in names if name in options.given), None)
    if wrong is not None:
        raise click.UsageError(f"--{wrong.removesuffix('s')} is for two graphs, not for {what}")


def _report_kernels(found: KernelComparison, options: Options) -> NoReturn:
    """Say how far kernels are apart, and end with the status."""
    first = found.first(options.tolerance)
    if options.as_json:
        facts = {"kernels": [gap_to_json(item) for item in found.gaps]}
        named = None if first is None else first.name
        print_json({"ok": first is None, "diagnostics": [], **facts, "first_diverging": named})
    else:
        for item in found.gaps:
            click.echo(f"kernel {printable(item.name)}: {gap_words(item)}")
        if first is not None:
            print_report(f"first diverging kernel: {printable(first.name)}")
    sys.exit(0 if first is None else 1)


def _report_plan(found: PlanComparison, options: Options) -> NoReturn:
    """Say how far a plan is from its model, and end with the status."""
    first = found.first()
    if options.as_json:
        outputs = [gap_to_json(item) for item in found.gaps]
        facts = {"tolerance": found.tolerance, "outputs": outputs, "not_compared": list(found.apart)}
        named = None if first is None else first.name
        print_json(
            {"equal": found.equal, "ok": found.equal, "diagnostics": [], **facts, "first_diverging": named}
        )
    else:
        for item in found.gaps:
            click.echo(f"output {printable(item.name)}: {gap_words(item)}")
        if found.apart:
            click.echo(f"not compared, other names or sizes: {printable(', '.join(found.apart))}")
        allowed = f"within {found.tolerance}" if found.tolerance else "bit by bit"
        print_report(f"{'equal' if first is None else 'not equal'} {allowed}")
    sys.exit(0 if first is None else 1)


def _report(found: Comparison, written: tuple[Path, tuple[int, int]] | None, options: Options) -> None:
    """Say what was found and written, and end with the status."""
    equal = found.agrees(options.tolerance)
    if options.as_json:
        facts: dict[str, object] = {"reproducer": None}
        if written is not None:
            facts = {"reproducer": str(written[0]), "reproducer_operations": list(written[1])}
        print_json({"ok": equal, "diagnostics": [], **comparison_to_json(found), **facts})
    else:
        for line in (
            *found.sides[0].notes,
            *found.sides[1].notes,
            *comparison_lines(found, options.tolerance),
        ):
            print_report(line)
        if written is not None:
            counts = " and ".join(map(str, written[1]))
            click.echo(f"{printable(str(written[0]))}: {counts} operations")
    sys.exit(0 if equal else 1)
