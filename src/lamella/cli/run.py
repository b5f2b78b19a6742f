"""`lamella run`: execute a program or a model."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import click

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.optional import load_late
from lamella.cli.colour import print_report
from lamella.cli.options import (
    command,
    file_argument,
    has_errors,
    placement_json,
    print_findings,
    print_json,
    print_placement,
    without_notes,
)
from lamella.cli.plan import run_plan
from lamella.cli.progress import show_progress
from lamella.cli.report import (
    array_facts,
    print_outputs,
    print_random,
    random_json,
    read_inputs,
    report_run,
)
from lamella.cli.waiting import waiting
from lamella.pipeline.accuracy import FULL, AccuracyReport, compare_precision
from lamella.pipeline.api import make_executable, read
from lamella.pipeline.effects import steps_of
from lamella.pipeline.languages import Model, architectures, fixed_inputs, subject_of
from lamella.pipeline.options import Options
from lamella.pipeline.profile import Profile


@command("run")
@file_argument
def run(file: Path, options: Options) -> None:
    """Execute FILE; without --input the inputs are random, from the seed, and so are missing weights.

    A folder of Hugging Face does what it is made for with --text, --audio or --image.
    """
    subject = subject_of(file, options.language)
    step = steps_of("run", subject, dict.fromkeys(options.given))[-1]
    if step == "observe":
        _observe(file, options)
    elif step == "task":
        _perform(file, options)
    elif step == "plan":
        run_plan(file, options, options.answers)
    elif options.judge is not None:
        _compare(file, options.judge, replace(options, kernel=options.kernel or ""))
    else:
        _execute(file, replace(options, kernel=options.kernel or ""))


def _execute(file: Path, options: Options) -> None:
    """Run a model once, and print what it gives."""
    option = "--arg" if options.arguments else "--input"
    arrays = read_inputs((*options.inputs, *options.arguments), options.limits, option)
    profile = Profile(show_progress)
    start = time.perf_counter()
    options = replace(options, contents=arrays)
    with waiting(f"reading {printable(str(file))}"):
        model = read(file, options)
        executable = make_executable(model, options.backend, options)
    arrays = {name: array for name, array in arrays.items() if name not in fixed_inputs(model)}
    profile.regions = tuple(getattr(model, "regions", ()))
    executable.progress = profile if options.profile or options.run_timeline else show_progress
    profile.load_seconds = time.perf_counter() - start
    start = time.perf_counter()
    outputs = executable(**arrays)
    profile.run_seconds = time.perf_counter() - start
    accuracy = _accuracy(model, options, arrays, outputs) if options.precision != FULL else None
    report_run(executable, outputs, options, {} if accuracy is None else accuracy.to_json(), profile)
    if accuracy is not None and not options.as_json:
        click.echo(accuracy.line())


def _compare(file: Path, judge: Path, options: Options) -> None:
    """Run a kernel on all backends, and say how far each is from the judge; the status is 1 where one differs."""
    given = read_inputs((*options.inputs, *options.arguments), options.limits, "--arg")
    with waiting(f"comparing with {printable(str(judge))}"):
        found = load_late("lamella.pipeline.tensor.judged").judge_kernel(
            read(file, options), judge, options, given
        )
    agrees = all(item.agrees(options.tolerance) for item in found)
    if options.as_json:
        facts = [item.to_json(options.tolerance) for item in found]
        print_json({"ok": agrees, "diagnostics": [], "tolerance": options.tolerance, "backends": facts})
    else:
        for item in found:
            for line in item.lines(options.tolerance):
                print_report(line)
    if not agrees:
        sys.exit(1)


def _perform(file: Path, options: Options) -> None:
    """Do what a folder is made for, and print what that gives."""
    with waiting(f"reading {printable(str(file))}"):
        # Few runs are tasks, and every start would pay for what they load.
        task, found = load_late("lamella.pipeline.tasks").perform(file, options)
    if options.as_json:
        diagnostics = [item.to_json() for item in found.findings]
        facts = {"task": task.name, "results": list(found.items), **placement_json(found.placement)}
        print_json({"ok": True, "diagnostics": diagnostics, **facts})
        return
    print_findings(without_notes(found.findings))
    print_placement(options.backend, found.placement)
    for line in found.lines:
        click.echo(printable(line, len(line) + 1))


def _accuracy(
    model: Model, options: Options, arrays: dict[str, Array], outputs: dict[str, Array]
) -> AccuracyReport:
    """How far the outputs of a reduced precision lie from those of the model as it is."""
    full = make_executable(model, options.backend, replace(options, precision=FULL))
    return compare_precision(options.precision, outputs, full(**arrays))


def _observe(file: Path, options: Options) -> None:
    """Run once, and print what the annotations of a model watch."""
    arrays = read_inputs(options.inputs, options.limits)
    with waiting(f"reading {printable(str(file))}"):
        found = architectures().observe(file, options, arrays, options.backend)
    failed = has_errors(found.findings, False)
    if options.as_json:
        diagnostics = [item.to_json() for item in found.findings]
        more = random_json(found.drawn, options) | placement_json(found.placement)
        facts = {"outputs": array_facts(found.outputs), "observed": list(found.lines)}
        print_json({"ok": not failed, "diagnostics": diagnostics, **facts, **more})
    else:
        print_findings(found.findings)
        print_random(found.drawn, options)
        print_placement(options.backend, found.placement)
        for line in found.lines:
            click.echo(line)
        print_outputs(dict(found.outputs))
    if failed:
        sys.exit(1)
