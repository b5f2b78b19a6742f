"""`lamella sim`: schedule a plan to cycles and explain it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol, cast

import click

from lamella.base.diagnostic import errors, printable
from lamella.base.errors import InputError
from lamella.base.optional import load_late
from lamella.base.writer import write_text
from lamella.cli.colour import print_report
from lamella.cli.options import command, file_argument, print_findings, print_json, without_notes
from lamella.cli.waiting import waiting
from lamella.lang.nem import Plan, write
from lamella.pipeline.nem.files import need_program
from lamella.pipeline.nem.lowering import network_of
from lamella.pipeline.nem.numbers import carry_numbers, read_numbers
from lamella.pipeline.nem.program import Program, plan_of, read_checked, read_program
from lamella.pipeline.options import Options
from lamella.plan.advise import Advice, advise, fix
from lamella.plan.explain import PlanFile, explain
from lamella.plan.report import chrome_trace, find_named, summary
from lamella.plan.report.explanation import explanation_text
from lamella.plan.timing import TimingReport, simulate
from lamella.plan.timing.layers import find_layers
from lamella.plan.timing.network_bounds import NetworkBounds


@command("sim")
@file_argument
def sim(file: Path, options: Options) -> None:
    """Schedule FILE.nem on its device: cycles, bounds, who waited for what, memory over time.

    With --ranks FILE is a model of the Module DSL, and the time line is that of a step of its training.
    """
    if options.ranks is not None:
        _simulate_ranks(file, options)
        return
    limits = options.limits
    need_program(file, options.language)
    with waiting(f"scheduling {printable(str(file))}"):
        program = read_checked(file, options.device, limits, options.root)
        plan = plan_of(program)
        report = simulate(plan, limits)
    untiled = None
    if options.untiled is not None:
        untiled = plan_of(read_checked(options.untiled, options.device, limits, options.root))
        numbers = read_numbers(options.untiled, limits)
        told = numbers is not None or any(item.codec for item in untiled.buffers)
        if not told and any(item.codec for item in plan.buffers):
            # How few bytes codecs store only the numbers tell; without them a plan may seem to beat its bound.
            raise InputError(
                "the plan has weights that codecs store, and the numbers of this program are not beside it",
                path=options.untiled,
                hint=f"'{options.untiled.stem}.safetensors' is written with it by lower",
            )
        network = network_of(untiled, numbers, plan.device)
        report = _against(report, network, options.untiled)
    if options.timeline is not None:
        write_text(options.timeline, json.dumps(chrome_trace(report, plan), allow_nan=False))
    if options.html is not None:
        pages = cast(PlanPages, load_late("lamella.studio.page"))
        write_text(options.html, pages.plan_page(report, plan))
    if options.layer is not None:
        _explain(options.layer, _plan_file(program, untiled, options), program, report, options)
        return
    with waiting("trying changes"):
        found = (
            advise(program.source, program.path, options.device, limits, options.root)
            if options.advise
            else []
        )
    if options.as_json:
        named = {
            "named": [asdict(item) for item in find_named(plan)],
            "layers": [layer.to_json() for layer in find_layers(report, plan)],
        }
        extra = {"advice": [_advice_json(item) for item in found]} if options.advise else {}
        status = {"ok": True, "diagnostics": [item.to_json() for item in program.findings]}
        print_json({**report.to_json(), **named, **extra, **status})
    else:
        print_findings(without_notes(program.findings))
        print_report(summary(report, plan))
        if options.advise:
            _print_advice(found)
    if options.fix is not None:
        _fix(program, options.fix, options)


class PlanPages(Protocol):
    """The module that makes a page of a simulation; few who simulate a plan ask for it."""

    def plan_page(self, report: TimingReport, plan: Plan) -> str:
        """The page of a simulated plan."""


class RankReports(Protocol):
    """The module that simulates a training on ranks; few who simulate a plan ask for it."""

    def simulate_ranks(self, path: Path, options: Options) -> object:
        """The time line of a step."""

    def summary(self, timeline: object) -> str:
        """The time line in words."""

    def to_json(self, timeline: object) -> dict[str, object]:
        """The time line as data."""

    def chrome_trace(self, timeline: object) -> dict[str, object]:
        """The time line as Perfetto reads it."""

    def page(self, timeline: object) -> str:
        """The time line as a page."""


def _simulate_ranks(file: Path, options: Options) -> None:
    """Print the time line of a step of training on ranks."""
    reports = cast(RankReports, load_late("lamella.train.ranks.report"))
    timeline = reports.simulate_ranks(file, options)
    if options.timeline is not None:
        write_text(options.timeline, json.dumps(reports.chrome_trace(timeline), allow_nan=False))
    if options.html is not None:
        write_text(options.html, reports.page(timeline))
    if options.as_json:
        print_json({**reports.to_json(timeline), "ok": True, "diagnostics": []})
    else:
        print_report(reports.summary(timeline))


def _plan_file(program: Program, untiled: Plan | None, options: Options) -> PlanFile:
    plan, device = plan_of(program), options.device
    return PlanFile(plan, program.source, program.path, device, options.limits, options.root, untiled)


def _explain(layer: str, file: PlanFile, program: Program, report: TimingReport, options: Options) -> None:
    """Print why a layer takes its time, and what would change that."""
    found = explain(layer, file, report)
    if options.as_json:
        print_json({**found.to_json(), "ok": True})
    else:
        print_findings(without_notes(program.findings))
        click.echo(explanation_text(found), nl=False)


def _against(report: TimingReport, network: NetworkBounds, path: Path) -> TimingReport:
    """The report with the bounds of the network whose program before tiling is given."""
    if report.macs < network.macs:
        raise InputError(
            f"the plan does {report.macs:,} MACs, this network needs {network.macs:,}",
            path=path,
            hint="give the program that the plan was made from",
        )
    return replace(report, network=network)


def _print_advice(found: list[Advice]) -> None:
    if not found:
        click.echo("\nadvice: nothing was found that pays")
    for item in found:
        click.echo(f"\nadvice: {item.title} (line {item.line})")
        click.echo(f"  {item.why}")
        click.echo(f"  {_gain(item)}")


def _gain(item: Advice) -> str:
    cycles = f"{item.before_cycles:,} -> {item.after_cycles:,} cycles"
    return f"{cycles}, {item.before_bytes:,} -> {item.after_bytes:,} bytes moved"


def _advice_json(item: Advice) -> dict[str, object]:
    return {
        "title": item.title,
        "why": item.why,
        "line": item.line,
        "cycles": {"before": item.before_cycles, "after": item.after_cycles},
        "bytes": {"before": item.before_bytes, "after": item.after_bytes},
    }


def _fix(program: Program, target: Path, options: Options) -> None:
    """Write the program with everything done that pays; progress goes to standard error."""
    limits, root = options.limits, options.root
    fixed = fix(program.source, program.path, options.device, limits, root)
    if program.path is not None:
        carry_numbers(program.path, target, limits)
    write_text(target, write(fixed.document if fixed else program.document))
    done = fixed.done if fixed else ()
    for item in done:
        click.echo(f"fixed: {item.title}: {_gain(item)}", err=True)
    if not done:
        click.echo(f"nothing to improve; {target} is the program in canonical form", err=True)
    if errors(read_program(target, options.device, limits, root).findings):
        click.echo(f"{target} does not check where it stands: what it includes is not beside it", err=True)
