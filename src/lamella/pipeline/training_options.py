"""The rows of the table of options that only `lamella train` has: how many steps, towards what, kept where."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from lamella.base.records import dataclass
from lamella.pipeline.comparison_options import ComparisonOptions
from lamella.pipeline.effects import NAC, on, own


@dataclass(frozen=True, slots=True)
class TrainingOptions(ComparisonOptions):
    """What training is given beyond a model, and a comparison."""

    steps: int = field(
        default=1,
        metadata=own(
            "How many steps are taken, each on the same inputs and targets; 1 by default.",
            on("train", NAC),
            "--steps N | train | training",
            least=1,
            most=1_000_000,
        ),
    )
    targets: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "What is aimed at, by number; repeatable.",
            on("train", NAC),
            "--target K=FILE.npy | train | training",
        ),
    )
    save: Path | None = field(
        default=None,
        metadata=own(
            "Write what was trained: weights (.safetensors), or FILE with them (.nac, .nacs).",
            on("train", NAC),
            "--save OUT | train | training",
        ),
    )
