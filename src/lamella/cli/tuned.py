"""What measuring found for a command: told on standard error when it has ended, or in its one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from lamella.base.tuning import TuningReport
from lamella.base.watching import TUNED

META = "lamella.tuning"
"""Where the context of a command keeps what was measured for it."""


@contextmanager
def telling_tuning(context: click.Context, as_json: bool) -> Iterator[None]:
    """Listen to what is measured while a command runs, and print it in the end where that is for people."""
    reports: list[TuningReport] = context.meta.setdefault(META, [])
    before = TUNED.set(reports.append)
    try:
        yield
    finally:
        TUNED.reset(before)
        for line in () if as_json else (line for report in reports for line in report.lines()):
            click.echo(line, err=True)


def tuning_json() -> dict[str, object]:
    """What was measured so far for the command that runs, as data; nothing where nothing was."""
    context = click.get_current_context(silent=True)
    reports: list[TuningReport] = [] if context is None else context.meta.get(META, [])
    return {"tuning": [report.to_json() for report in reports]} if reports else {}
