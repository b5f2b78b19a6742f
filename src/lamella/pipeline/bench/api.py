"""`lamella.bench`: contests of whole models from Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Unpack

from lamella.backend.cpu.host import processor
from lamella.base.diagnostic import printable
from lamella.base.writer import write_text
from lamella.pipeline.api_options import BenchOptions
from lamella.pipeline.bench import Heat
from lamella.pipeline.bench import bench as hold_contests
from lamella.pipeline.bench.page import bench_page
from lamella.pipeline.bench.tables import heat_lines
from lamella.pipeline.given import Use, find_inert, options_of
from lamella.pipeline.languages import subject_of
from lamella.pipeline.options import drawing
from lamella.pipeline.signatures import documented


@dataclass(frozen=True, slots=True)
class Contests:
    """How a model did beside its peers: one contest for each batch and number of threads."""

    model: str
    heats: tuple[Heat, ...]

    def __repr__(self) -> str:
        return "\n".join(printable(line) for heat in self.heats for line in heat_lines(heat))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"

    def save(self, path: str | Path) -> None:
        """Write the page of the contests: the table, the roofline, the time line."""
        write_text(Path(path), bench_page(self.model, processor(), self.heats))


@documented(BenchOptions)
def bench(
    path: str | Path, /, *, tell: Callable[[str], None] | None = None, **options: Unpack[BenchOptions]
) -> Contests:
    """Measure the model of a path on our backends and in peers, in turn, each in a process of its own.

    `tell` is given a word on what is measured next.
    """
    chosen, file = drawing(options_of(options, by_command=True)), Path(path)
    inert = find_inert(Use(("load", "bench"), subject_of(file, chosen.language), str(file)), chosen)
    if inert is not None:
        raise inert.error()
    return Contests(str(file), tuple(hold_contests(file, chosen, tell or (lambda words: None))))
