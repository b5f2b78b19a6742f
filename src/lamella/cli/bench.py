"""`lamella bench`: measure a model beside peers, and beside what the machine can do."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lamella.base.diagnostic import printable
from lamella.base.writer import write_text
from lamella.cli.options import command, file_argument, print_json
from lamella.cli.waiting import ERASE
from lamella.pipeline.bench import Heat, processor
from lamella.pipeline.bench import bench as hold_contests
from lamella.pipeline.bench.page import bench_page
from lamella.pipeline.bench.tables import heat_lines
from lamella.pipeline.options import Options


@command("bench")
@file_argument
def bench(file: Path, options: Options) -> None:
    """Measure FILE on our backends and in peers, in turn, each in its own process; a .pt2 file runs in all of them."""
    heats: list[Heat] = []
    if not options.as_json:
        click.echo(f"{printable(str(file))} on {printable(processor())}")
    for heat in hold_contests(file, options, _say):
        heats.append(heat)
        _say("")
        if not options.as_json:
            for line in heat_lines(heat):
                click.echo(printable(line))
    if options.page is not None:
        write_text(options.page, bench_page(str(file), processor(), heats))
    if options.as_json:
        facts = {"model": str(file), "processor": processor(), "contests": [heat.to_json() for heat in heats]}
        print_json({"ok": True, "diagnostics": [], **facts})


def _say(words: str) -> None:
    """What is going on, where a person is looking; nothing takes the words back."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{ERASE}{printable(words)}")
        sys.stderr.flush()
