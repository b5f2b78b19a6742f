"""`lamella demo`: one small classifier through all layers, every stage compared with the one above, as a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MARK = "report.html"
"""The file by which a folder of ours is known."""
STAGES = ("architecture", "training", "formats", "machine code", "integers", "NPU")


@dataclass(frozen=True, slots=True)
class DemoStage:
    """One stage: what was made, its numbers, and how it compares with the one above."""

    name: str
    language: str
    sentence: str
    accuracy: float | None = None
    """The share of unseen images that it reads right."""
    above: str = ""
    """How far its numbers lie from those of the stage above, in words."""
    facts: Mapping[str, object] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    excerpt: str = ""
    """Some of the text that was made."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, object]:
        """As data."""
        return {
            "name": self.name,
            "language": self.language,
            "sentence": self.sentence,
            "accuracy": self.accuracy,
            "above": self.above,
            **self.facts,
            "files": list(self.files),
            "seconds": round(self.seconds, 3),
        }
