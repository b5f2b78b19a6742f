"""The training graph of a file in a few words: where it stands, how long it is, what it changes and what it aims at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lamella.base.diagnostic import printable
from lamella.lang.nac import check
from lamella.lang.nac.check.sections.entry import GRAPH, has_entry, read_entry
from lamella.lang.nac.check.sections.training import is_target, is_update
from lamella.lang.nac.nodes import File

SECTION = "TRNG"
SHOWN = 8


@dataclass(frozen=True, slots=True)
class TrainingFacts:
    """What `show` says of a training graph; a problem where it cannot be read."""

    source: str
    instructions: int = 0
    parameters: Sequence[str] = ()
    targets: int = 0
    problem: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """The facts as people read them."""
        if self.problem:
            return [("cannot be read", printable(self.problem, 300))]
        names = ", ".join(printable(name) for name in self.parameters[:SHOWN])
        more = ", …" if len(self.parameters) > SHOWN else ""
        return [
            ("instructions", f"{self.instructions:,} in {self.source}"),
            ("trains", f"{len(self.parameters)}: {names}{more}" if names else "nothing"),
            ("targets", str(self.targets)),
        ]

    def to_json(self) -> dict[str, object]:
        """The facts as data."""
        if self.problem:
            return {"source": self.source, "problem": self.problem}
        counts = {"instructions": self.instructions, "targets": self.targets}
        return {"source": self.source, **counts, "parameters": list(self.parameters)}


def find_training(file: File) -> TrainingFacts | None:
    """What a file says of its training; None where it says nothing."""
    if file.training:
        names = {item.id: item.name for item in reversed(file.parameters)}
        ids = [number for item in file.training if is_update(item) for number in item.constants[:1]]
        trained = [names.get(number, f"#{number}") for number in ids]
        targets = {number for item in file.training if is_target(item) for number in item.constants[:1]}
        return TrainingFacts(SECTION, len(file.training), trained, len(targets))
    if not has_entry(file):
        return None
    entry, findings = read_entry(file, check)
    if entry is None:
        return TrainingFacts(GRAPH, problem=findings[0].message if findings else "nothing is there")
    return TrainingFacts(GRAPH, len(entry.graph.instructions), list(entry.gradients), len(entry.targets))
