"""`lamella demo`: the whole story in one command, with a report to look at."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, cast

import click

from lamella.base.diagnostic import printable
from lamella.base.optional import load_late
from lamella.base.writer import write_text
from lamella.cli.options import command, print_json
from lamella.cli.waiting import BAR, ERASE
from lamella.demo import MARK, STAGES, DemoStage
from lamella.pipeline.options import Options

T = TypeVar("T")
PAUSE = 0.1
"""Seconds between two states of the bar."""


class StoryTold(Protocol):
    """The stages in order."""

    def stages(self) -> Iterator[DemoStage]:
        """Run the stages one after the other."""


class Telling(Protocol):
    """The module that runs the stages: it loads nearly everything, and the first line should not wait for that."""

    Story: Callable[[Path, StageBar, bool], StoryTold]


class Drawing(Protocol):
    """The module that draws the report."""

    def report_page(self, story: StoryTold, stages: Sequence[DemoStage], /) -> str:
        """The whole page."""


@command("demo")
@click.argument("folder", type=click.Path(path_type=Path, readable=False, file_okay=False), default="demo")
@click.option(
    "--quick",
    is_flag=True,
    help="Learn and measure for a moment only: the stages are the same, the numbers are worse.",
)
def demo(folder: Path, quick: bool, options: Options) -> None:
    """Train a classifier of digits, write it in every format, compile it for the CPU and for an NPU, into FOLDER.

    Every stage runs on images that nobody learnt from and is compared with the one above; FOLDER/report.html shows it.
    """
    if not options.as_json:
        click.echo("a classifier of handwritten digits through five languages; every number is computed now")
    bar, found = StageBar(), list[DemoStage]()
    bar.begin(0)
    story = cast(Telling, load_late("lamella.demo.story")).Story(folder, bar, quick)
    for stage in _watched(story.stages(), bar):
        found.append(stage)
        if not options.as_json:
            _print_stage(stage, len(found))
    report = folder / MARK
    write_text(report, cast(Drawing, load_late("lamella.demo.page")).report_page(story, found))
    if options.as_json:
        print_json({"ok": True, "stages": [item.to_json() for item in found], "report": str(report)})
        return
    _print_summary(found)
    click.echo(printable(str(report)))


class StageBar:
    """A line on standard error that says which stage runs, and how far it is; only on a terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._words = ""

    def begin(self, number: int) -> None:
        """Say which stage begins."""
        self._words = f"[{number + 1}/{len(STAGES)}] {STAGES[number]}"
        self._write(f"{self._words} …")

    def __call__(self, items: Iterable[T], total: int, /) -> Iterator[T]:
        """The items as they come, counted on a bar."""
        shown = 0.0
        for done, item in enumerate(items, 1):
            yield item
            if time.monotonic() - shown > PAUSE:
                shown = time.monotonic()
                full = BAR * done // max(1, total)
                self._write(f"{self._words} {'█' * full}{'░' * (BAR - full)} {100 * done // max(1, total)} %")
        self._write(f"{self._words} …")

    def end(self) -> None:
        """Take the line back."""
        self._write("")

    def _write(self, words: str) -> None:
        if self._live:
            sys.stderr.write(f"{ERASE}{words}")
            sys.stderr.flush()


def _watched(stages: Iterator[DemoStage], bar: StageBar) -> Iterator[DemoStage]:
    """The stages, each with a line that says that it runs."""
    for number in range(len(STAGES)):
        bar.begin(number)
        stage = next(stages)
        bar.end()
        yield stage


def _print_stage(stage: DemoStage, number: int) -> None:
    right = "" if stage.accuracy is None else f"; {stage.accuracy:.2%} of unseen images are read right"
    click.echo(
        f"{number}  {click.style(stage.name, bold=True)} ({stage.language}): {printable(stage.sentence)}{right}"
    )
    if stage.above:
        click.echo(f"   beside the one above: {printable(stage.above)}")


def _print_summary(stages: Sequence[DemoStage]) -> None:
    click.echo()
    click.echo(f"{'stage':14}{'reads right':>12}{'seconds':>9}  beside the one above")
    for item in stages:
        right = "" if item.accuracy is None else f"{item.accuracy:.2%}"
        click.echo(f"{item.name:14}{right:>12}{item.seconds:>9.1f}  {printable(item.above)}".rstrip())
