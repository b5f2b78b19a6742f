"""The log of a training in a folder: `training.csv`, and an event file that TensorBoard reads."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lamella.base.paths import is_there, read_text
from lamella.base.writer import append_bytes, make_folder, write_text
from lamella.train.loop import StepReport
from lamella.train.reports.events import first_record, scalar_record

TABLE = "training.csv"
HEADS = ("step", "loss", "rate", "gradient_norm", "tokens_per_second", "evaluation")
FLUSH = 64
"""Steps that are written at once at most."""
PATIENCE = 2.0
"""Seconds after which what is there is written."""


class TrainingLog:
    """Writes the steps of a run as they come; a run that goes on keeps the rows before it.

    A killed process may leave half a row or half a record: rows behind the checkpoint are written again, and each
    process has an event file of its own.
    """

    def __init__(self, folder: Path, resumed: int = 0) -> None:
        make_folder(folder)
        self._table = folder / TABLE
        write_text(self._table, "".join(f"{row}\n" for row in (",".join(HEADS), *self._rows(resumed))))
        now = time.time()
        self._events = folder / f"events.out.tfevents.{int(now)}.lamella.{os.getpid()}.{resumed}"
        append_bytes(self._events, first_record(now))
        self._lines: list[str] = []
        self._records: list[bytes] = []
        self._written = time.monotonic()

    def _rows(self, resumed: int) -> list[str]:
        """The rows of steps that are not taken again."""
        if not resumed or not is_there(self._table):
            return []
        rows = [line for line in read_text(self._table).splitlines()[1:] if line.count(",") == len(HEADS) - 1]
        return [
            line for line in rows if line.split(",")[0].isdecimal() and int(line.split(",")[0]) <= resumed
        ]

    def add(self, report: StepReport) -> None:
        """Log one step."""
        speed = report.tokens / report.seconds if report.seconds > 0 else 0.0
        found = (
            report.step, report.loss, report.rate, report.gradient_norm, round(speed, 1), report.evaluation
        )  # fmt: skip
        self._lines.append(",".join("" if item is None else repr(item) for item in found) + "\n")
        values = {
            "loss": report.loss, "rate": report.rate, "tokens_per_second": speed,
            "gradient_norm": report.gradient_norm, "evaluation": report.evaluation,
        }  # fmt: skip
        known = {tag: value for tag, value in values.items() if value is not None}
        self._records.append(scalar_record(time.time(), report.step, known))
        if len(self._lines) >= FLUSH or time.monotonic() - self._written > PATIENCE:
            self.flush()

    def flush(self) -> None:
        """Write what is not written yet."""
        append_bytes(self._table, "".join(self._lines).encode("ascii"))
        append_bytes(self._events, b"".join(self._records))
        self._lines.clear()
        self._records.clear()
        self._written = time.monotonic()
