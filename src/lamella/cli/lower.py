"""`lamella lower`: write a model in a form below it, and compare the two."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import click
import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.paths import read_text
from lamella.base.placement import OperationPlacement, count_kernels, placement_of
from lamella.base.watching import PASS_TIMES
from lamella.base.writer import make_folder
from lamella.cli.colour import print_program
from lamella.cli.options import (
    command,
    file_argument,
    placement_json,
    print_findings,
    print_json,
    print_placement,
)
from lamella.cli.progress import show_progress
from lamella.cli.waiting import waiting
from lamella.graph.binding import describes_quantization
from lamella.graph.model import Model as GraphModel
from lamella.pipeline.api import UNIT, lower_model, make_executable, read, save
from lamella.pipeline.backends import JUDGES
from lamella.pipeline.diff import as_graph, first_divergence, measure
from lamella.pipeline.languages import FOLDER, MODULE, REGISTRY, Model, Printing, language_of, plan_reports
from lamella.pipeline.nem.numbers import carry_numbers
from lamella.pipeline.options import Options, drawing

STAGES = (".tensor", ".ll", ".llvm", ".s", ".asm", ".ptx", ".nem")
"""Endings of stages that are text."""
MODULES = re.compile(r"^# (\w+\.sknd)$", re.MULTILINE)
"""What stands above each module of a graph that is printed."""
TOLERANCE = 1e-3
"""How far numbers may lie apart after a pass has changed the order of sums, in parts of the largest."""


@command("lower")
@file_argument
def lower(file: Path, options: Options) -> None:
    """Write FILE in a form below it into a folder; what was written is read again and compared."""
    if options.to == UNIT:
        _write_unit(file, options)
    with waiting(f"lowering {printable(str(file))}"):
        model = read(file, options)
        if options.fit:
            _fit(model, options)
        with _pass_times(options.timing):
            lowered = lower_model(model, options.to, options)
        reasons = REGISTRY[model.language].explain(model, options) if options.explain else []
    for line in reasons:
        click.echo(printable(line))
    if options.explain and options.output is None:
        return
    printing = REGISTRY[lowered.language].printer()
    if options.print_all and printing is not None:
        _print_stages(lowered, printing, file.stem, options)
    elif options.output is None:
        _print(lowered, options)
    elif printing is None:
        target = _write(lowered, file, options.output, options)
        print_findings([item for item in _findings(lowered) if item not in _findings(model)])
        again = read(target, Options(limits=options.limits))
        _report(target, _compare(model, again, options) if options.compare else None, options.as_json)
    else:
        target = printing.write_into(lowered, options.output, file.stem)
        _compare_written(model, lowered, printing, target, options)


@contextmanager
def _pass_times(asked: bool) -> Iterator[None]:
    """Count the time of passes, and say it in the end."""
    times: dict[str, float] = {}
    before = PASS_TIMES.set(times if asked else None)
    try:
        yield
    finally:
        PASS_TIMES.reset(before)
    total = sum(times.values())
    for name, seconds in times.items():
        click.echo(f"{seconds * 1000:>10.1f} ms {seconds / total:>6.1%}  {name}", err=True)


def _compare_written(
    model: Model, lowered: Model, printing: Printing, target: Path, options: Options
) -> NoReturn:
    """Compare a model with what was written of it, and say which of its operations are no kernels."""
    found = printing.compare(model, lowered, target, options) if options.compare else None
    gaps = {} if found is None else {name: _difference(*pair) for name, pair in found.numbers.items()}
    placement = placement_of(lowered)
    lines: Sequence[str] = getattr(lowered, "lines", ())
    if not options.as_json:
        print_placement(options.to, placement)
        for line in lines:
            click.echo(printable(line))
    ran = () if found is None else found.placement
    allowed = TOLERANCE if found is None or found.tolerance is None else found.tolerance
    find = _stage(gaps, allowed) or partial(first_divergence, model, options)
    seen = Difference(max(gaps.values()), find, allowed) if gaps else None
    more: Mapping[str, object] = getattr(lowered, "facts", {})
    _report(target, seen, options.as_json, ran, placement, more)


def _fit(model: Model, options: Options) -> NoReturn:
    """Say what a model needs of the memories of a device, and end with the status."""
    graph = as_graph(model, options)
    if graph is None:
        raise click.UsageError("--fit is for models that are graphs")
    found = plan_reports().fit(graph, options)
    if options.as_json:
        print_json({"ok": found.fits, "diagnostics": [], **found.to_json()})
    else:
        for item in found.memories:
            click.echo(item.line())
        click.echo(f"fits {printable(found.device)}" if found.fits else printable(found.problem))
    sys.exit(0 if found.fits else 1)


def _stage(gaps: Mapping[str, float], tolerance: float) -> Callable[[], list[str]] | None:
    """What names the first stage whose numbers differ from the one above; None where there are no stages."""
    if not all(": " in name for name in gaps):
        return None
    wrong = next((name for name, gap in gaps.items() if not gap <= tolerance), "")
    return lambda: [f"first diverging stage: {printable(wrong)}"]


def _findings(model: Model) -> Sequence[Diagnostic]:
    """What was found on the way to a model, where it carries that."""
    found: Sequence[Diagnostic] = getattr(model, "findings", ())
    return found


def _write_unit(file: Path, options: Options) -> NoReturn:
    """Write a model of the Module DSL as a compiled unit, and read it again."""
    folder = options.output
    if folder is None:
        raise click.UsageError("--to ir writes files; say where with -o FOLDER")
    if language_of(file, options.language) not in (MODULE, FOLDER):
        raise click.UsageError("--to ir is for models of the Module DSL and Hugging Face folders")
    with waiting(f"lowering {printable(str(file))}"):
        unit = lower_model(file, UNIT, options)
        save(unit, folder)
    again = read(folder, Options(limits=options.limits))
    _report(folder, _compare(unit, again, options) if options.compare else None, options.as_json)


def _print(lowered: Model, options: Options) -> None:
    """The text of a graph or of kernels on standard output; other forms need a folder."""
    text = REGISTRY[lowered.language].text(lowered)
    if text is None:
        raise click.UsageError(f"--to {options.to} writes files; say where with -o FOLDER")
    placement = placement_of(lowered)
    if options.as_json:
        facts = {"form": options.to, "text": text, **placement_json(placement)}
        print_json({"ok": True, "diagnostics": [], **facts})
    else:
        print_placement(options.to, placement)
        print_program(text, options.to)
        _tell_modules(text)


def _tell_modules(text: str) -> None:
    """Say that several modules were printed, which are read again as files only."""
    names = MODULES.findall(text)
    if len(names) > 1:
        click.echo(f"these are {len(names)} files, {', '.join(names)}: -o FOLDER writes them so", err=True)


def _print_stages(lowered: Model, printing: Printing, stem: str, options: Options) -> None:
    """Every stage on standard output, as it would be written into a folder: its file, then its text."""
    with TemporaryDirectory(prefix="lamella-stages-") as folder:
        last = printing.write_into(lowered, Path(folder), stem)
        paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file() and path.suffix in STAGES]
        # The last stage of a plan stands above the folder of those before it.
        for path in sorted(paths, key=lambda path: path == last):
            click.echo(click.style(f"--- {path.relative_to(folder).as_posix()}", bold=True))
            print_program(read_text(path, options.limits), path.suffix.removeprefix("."))


def _write(lowered: Model, file: Path, folder: Path, options: Options) -> Path:
    """Write a graph as a folder, a stream as a file in it; gives what to read."""
    target = folder if options.to == "sknd" else folder / f"{file.stem}.{options.to}"
    make_folder(target.parent)
    save(lowered, target)
    carry_numbers(file, target, options.limits)
    return target


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a model and what was written of it are apart, and what names where they part."""

    largest: float
    find: Callable[[], list[str]]
    tolerance: float = TOLERANCE


def _report(
    target: Path,
    seen: Difference | None,
    as_json: bool,
    ran: Sequence[OperationPlacement] = (),
    placement: Sequence[OperationPlacement] = (),
    more: Mapping[str, object] | None = None,
) -> NoReturn:
    """Say what was written, and where its numbers part; `ran` is where the operations of the comparison ran."""
    difference = None if seen is None else seen.largest
    close = seen is None or seen.largest <= seen.tolerance
    lines = [] if close or seen is None else seen.find()
    if as_json:
        shown = difference if difference is None or np.isfinite(difference) else str(difference)
        facts = {"written": str(target), "largest_difference": shown, **placement_json(ran or placement)}
        facts |= {"first_diverging": lines} if lines else {}
        facts |= more or {}
        print_json({"ok": close, "diagnostics": [], **facts})
    else:
        said = "" if difference is None else f": read again, largest difference {difference:.3g}"
        said += f", {count_kernels(ran)} by kernels" if ran else ""
        click.echo(f"{printable(str(target))}{said}")
        if not close:
            click.echo(
                f"the numbers differ by more than {TOLERANCE if seen is None else seen.tolerance}", err=True
            )
        for line in lines:
            click.echo(line, err=True)
    sys.exit(0 if close else 1)


def _compare(before: Model, after: Model, options: Options) -> Difference:
    """The largest difference between the outputs of two models on the same random inputs.

    What says how it is quantised leaves as ONNX with its codes, and is compared as it runs quantised.
    """
    options = replace(options, quantized=options.quantized or options.to == "onnx")
    find = partial(first_divergence, before, options, after)
    found = []
    plain = drawing(Options(seed=options.seed, limits=options.limits, quantized=options.quantized))
    for model, chosen in ((before, options), (after, plain)):
        given = chosen if _is_quantized(model) else replace(chosen, quantized=False)
        executable = make_executable(model, JUDGES.get(model.language), given)
        executable.progress = show_progress
        found.append(executable())
    first, second = found
    if first.keys() != second.keys():
        return Difference(float("inf"), find)
    return Difference(max((_difference(first[name], second[name]) for name in first), default=0.0), find)


def _is_quantized(model: Model) -> bool:
    """Whether a model is a graph that says how it is quantised."""
    return isinstance(model, GraphModel) and describes_quantization(model.graph)


def _difference(one: Array, other: Array) -> float:
    """The largest difference, in parts of the largest number or of one."""
    gap = measure("", one, other)
    return gap.largest / max(gap.scale, 1.0)
