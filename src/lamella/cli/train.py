"""`lamella train`: a model learns from data, or takes steps of the training graph that a NAC file carries."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

import click

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.system import peak_bytes
from lamella.base.writer import require_room, write_text
from lamella.cli.options import command, file_argument, print_findings, print_json, without_notes
from lamella.cli.progress import show_progress
from lamella.cli.report import array_facts, read_inputs, report_run
from lamella.cli.waiting import ERASE, waiting
from lamella.pipeline.api import make_executable
from lamella.pipeline.languages import NAC, Executable, language_of
from lamella.pipeline.options import Options
from lamella.pipeline.profile import Profile
from lamella.train.adapters.specs import DORA, LORA
from lamella.train.fit import Fit, follow, ranked
from lamella.train.loop import StepReport
from lamella.train.memory import shown_bytes
from lamella.train.ranks.trainer import World
from lamella.train.ranks.transport import Link, Processes, Transport, given_place
from lamella.train.reports.log import TrainingLog
from lamella.train.reports.page import training_page

LINES = 20
"""Lines that a training prints about its steps where nobody watches, and there are more of them."""
DIGITS = {"f32": 7, "f64": 15}
"""Digits of a loss that mean something, by the type that it was computed in."""
PAUSE = 0.1
"""Seconds between two states of the line that is watched."""


@command("train")
@file_argument
def train(file: Path, options: Options) -> None:
    """Train the model of FILE on --data: mean cross-entropy of what follows, or of targets; print the losses.

    FILE is a .module file, a Hugging Face folder, .sknd, .onnx, .pt2 or .nac. Without --data a .nac file takes --steps
    steps of its own training graph, each on the same inputs and targets.
    """
    if language_of(file, options.language) is NAC and options.data is None:
        _train_own_graph(file, options)
    else:
        _fit(file, options)


# --- learning from data -----------------------------------------------------------------------------------------


def _fit(file: Path, options: Options) -> None:
    if options.data is None:
        raise InputError("there are no data to learn from", hint="say --data F (docs/layers/training.md)")
    place = given_place()
    if options.ranks is None and place is not None and place[1] > 1:
        raise InputError(
            f"{place[1]} processes were started, and nothing says how they share the training",
            hint=f"say --ranks dp={place[1]}, or start one",
        )
    with ranked(file, options) as world:
        if world is not None and world.transport.rank:
            follow(file, options, None, world)
        else:
            _take_first(file, options, world)


def _take_first(file: Path, options: Options, world: World | None) -> None:
    """Train as the process that prints and writes."""
    with waiting(f"reading {printable(str(file))}"):
        fit = Fit(file, options, None, world)
        if options.html is not None:
            require_room(options.html)
    traced: list[str] = []
    if options.observe:
        fit.trainer.enable_traces(traced.append if options.as_json else click.echo)
    log = None if options.log is None else TrainingLog(options.log, fit.resumed)
    if not options.as_json:
        print_findings(without_notes(fit.source.model.findings))
        for line in _headings(fit):
            click.echo(line)
    for report in _watched(fit, fit.run(), options.as_json):
        if log is not None:
            log.add(report)
    if log is not None:
        log.flush()
    files, findings = ((), ()) if options.save is None else fit.save(options.save)
    facts = _facts(fit, files) | ({"traces": traced} if traced else {})
    if options.html is not None:
        title = f"lamella train {printable(file.name)}"
        write_text(options.html, training_page(title, fit.loop.losses, fit.loop.evaluations, facts))
    if options.as_json:
        diagnostics = [item.to_json() for item in without_notes((*fit.source.model.findings, *findings))]
        print_json({"ok": True, "diagnostics": diagnostics, "losses": fit.loop.losses, **facts})
        return
    print_findings(without_notes(findings))
    for line in _endings(fit, facts):
        click.echo(line)


def _carried(transport: Transport) -> str:
    """What carries arrays between ranks, where that is worth a word."""
    link = transport.link if isinstance(transport, Processes) else Link()
    return (
        ", through nccl" if link.name == "nccl" else f", through gloo: {link.reason}" if link.reason else ""
    )


def _headings(fit: Fit) -> Iterator[str]:
    rest = sum(
        math.prod(size) for name, size in fit.weight_shapes().items() if name not in fit.source.gradients
    )
    frozen = f", {rest:,} frozen" if rest else ""
    parts = f" in {fit.options.accumulate} parts" if fit.options.accumulate > 1 else ""
    yield f"{fit.batches.data.describe()}; {fit.settings.steps:,} steps of {fit.batches.size}{parts}"
    whose = "of them" if fit.adapters is None else "frozen ones"
    random = f"; {len(fit.drawn)} {whose} begin random, seed {fit.options.start_seed}" if fit.drawn else ""
    arrays = f"{fit.parameter_count:,} parameters in {len(fit.source.gradients)} arrays"
    yield f"{arrays}{frozen}, {fit.options.optimizer}{random}"
    spec = None if fit.adapters is None else fit.adapters.adapted.spec
    experts = [] if fit.adapters is None else fit.adapters.unadapted_experts()
    if experts and spec is not None:
        count = sum(math.prod(size for size in item.shape if isinstance(size, int)) for item in experts)
        why = "targets=experts adapts them" if spec.kind == LORA else "lora alone adapts them"
        yield f"{count:,} numbers of experts stay as they are: {why}"
    if spec is not None and spec.dropout and spec.kind == DORA:
        yield f"steps do without the dropout of the adapter, {spec.dropout:g}, which dora has not; its file keeps it"
    if fit.plan is not None:
        where = "pinned memory" if fit.options.backend == "cuda" else "a file"
        moved = f", {len(fit.plan.moved)} tensors in {where}" if fit.plan.moved else ""
        yield f"a step takes {shown_bytes(fit.plan.total)}{moved}"
    if fit.world is not None:
        yield f"{fit.world.mesh.size} ranks: {fit.world.mesh}{_carried(fit.world.transport)}"
    if fit.resumed:
        yield f"goes on behind step {fit.resumed}"
    elif fit.options.resume:
        yield "there is no checkpoint to go on from: it begins"


def _watched(fit: Fit, reports: Iterable[StepReport], is_silent: bool) -> Iterator[StepReport]:
    """The steps as they are taken; a line that changes where somebody looks, and some lines that stay."""
    live = sys.stderr.isatty()
    every = max(1, fit.settings.steps // LINES)
    digits = DIGITS[fit.trainer.settings.dtype]
    shown = 0.0
    for report in reports:
        if live and time.monotonic() - shown > PAUSE:
            sys.stderr.write(f"{ERASE}{_state(fit, report)}")
            sys.stderr.flush()
            shown = time.monotonic()
        is_kept = (
            report.step % every == 0
            or report.step in (1, fit.settings.steps)
            or report.evaluation is not None
        )
        if is_kept and not is_silent:
            click.echo((ERASE if live else "") + _line(report, digits))
        yield report
    if live:
        sys.stderr.write(ERASE)


def _line(report: StepReport, digits: int) -> str:
    words = [f"step {report.step}", f"loss {report.loss:.{digits}g}", f"rate {report.rate:.3g}"]
    if report.gradient_norm is not None:
        words.append(f"norm {report.gradient_norm:.4g}")
    if report.evaluation is not None:
        words.append(f"evaluation {report.evaluation:.{digits}g}")
    if report.saved is not None:
        words.append(f"kept in {printable(report.saved.name)}")
    return "  ".join(words)


def _state(fit: Fit, report: StepReport) -> str:
    """The line that is watched: loss, speed, memory, and how long it still takes."""
    speed = fit.loop.tokens / fit.loop.seconds if fit.loop.seconds > 0 else 0.0
    taken = max(1, fit.loop.done - fit.resumed)
    left = (fit.settings.steps - fit.loop.done) * fit.loop.seconds / taken
    minutes, seconds = divmod(round(left), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"step {report.step}/{fit.settings.steps}  loss {report.loss:.5g}  {speed:,.0f} tokens/s  "
        f"{peak_bytes() / 1e6:,.0f} MB  {hours}:{minutes:02}:{seconds:02} left"
    )


def _facts(fit: Fit, files: Iterable[Path]) -> dict[str, object]:
    """What is told of a training beside its losses."""
    loop = fit.loop
    return {
        "steps": loop.done,
        "resumed": fit.resumed,
        "evaluations": [{"step": step, "loss": loss} for step, loss in loop.evaluations],
        "parameters": fit.parameter_count,
        "tokens": loop.tokens,
        "seconds": round(loop.seconds, 3),
        "tokens_per_second": round(loop.tokens / loop.seconds, 1) if loop.seconds > 0 else None,
        "peak_bytes": peak_bytes(),
        "settings": dict(fit.settings.fingerprint or {}),
        "written": [printable(str(item)) for item in files],
    }


def _endings(fit: Fit, facts: Mapping[str, object]) -> Iterator[str]:
    losses = fit.loop.losses
    yield f"loss {losses[0]:.5g} → {losses[-1]:.5g}"
    yield from (f"evaluation behind step {step}: {loss:.5g}" for step, loss in fit.loop.evaluations[-1:])
    yield from (str(item) for item in cast("list[str]", facts["written"]))


# --- the training graph of a NAC file ---------------------------------------------------------------------------


def _train_own_graph(file: Path, options: Options) -> None:
    """Take steps of the graph, each on the same inputs and targets."""
    options = replace(options, training=True)
    arrays = read_inputs(options.inputs, options.limits)
    profile = Profile(show_progress)
    start = time.perf_counter()
    with waiting(f"reading {printable(str(file))}"):
        training = cast("Training", make_executable(file, options.backend, options))
    training.progress = profile if options.profile or options.run_timeline else show_progress
    profile.load_seconds = time.perf_counter() - start
    given = _with_targets(training, arrays, read_inputs(options.targets, options.limits, "--target"))
    start = time.perf_counter()
    outputs, losses = _take_steps(training, given, options)
    profile.run_seconds = time.perf_counter() - start
    if options.save is not None:
        training.save(options.save)
    shown = [item if math.isfinite(item) else None for item in losses]
    report_run(
        training, outputs, options, {"losses": shown, "parameters": array_facts(training.state)}, profile
    )


class Training(Executable, Protocol):
    """A step of training that keeps its parameters."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The inputs that are targets, by their numbers."""

    @property
    def loss(self) -> str:
        """The output that is the loss; empty where there is none."""

    @property
    def state(self) -> Mapping[str, Array]:
        """The parameters, by name."""

    def save(self, path: Path) -> None:
        """Write the parameters, or the file with them."""


def _with_targets(
    training: Training, arrays: Mapping[str, Array], targets: Mapping[str, Array]
) -> dict[str, Array]:
    """The arrays of a step: inputs by their names, targets by their numbers."""
    found = dict(arrays)
    for number, array in targets.items():
        known = number.isascii() and number.isdigit() and len(number) < 10
        if not known or int(number) >= len(training.targets):
            count = len(training.targets)
            raise click.UsageError(
                f"there is no target {printable(number, 80)}; the file has {count}, from 0"
            )
        found[training.targets[int(number)]] = array
    missing = [number for number, name in enumerate(training.targets) if name not in found]
    if missing:
        raise click.UsageError(f"target {missing[0]} is not given; say --target {missing[0]}=FILE.npy")
    return found


def _take_steps(
    training: Training, arrays: Mapping[str, Array], options: Options
) -> tuple[dict[str, Array], list[float]]:
    """The outputs of the last step, and the losses of all, which are printed one by one."""
    outputs: dict[str, Array] = {}
    losses: list[float] = []
    for number in range(1, (options.steps or 1) + 1):
        outputs = training(**arrays)
        losses += [float(outputs[training.loss])] if training.loss else []
        if not options.as_json:
            click.echo(f"step {number}" + (f"  loss {losses[-1]:.7g}" if losses else ""))
    return outputs, losses
