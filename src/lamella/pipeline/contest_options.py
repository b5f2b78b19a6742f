"""The rows of the table of options that only `lamella bench` has: who is measured, and under which terms."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from lamella.base.records import dataclass
from lamella.pipeline.effects import GRAPHS, NAC, on, own
from lamella.pipeline.quantize_options import QuantizeOptions

PEERS = ("torch", "inductor", "onnxruntime", "openvino")
"""What is measured beside ours."""


@dataclass(frozen=True, slots=True)
class ContestOptions(QuantizeOptions):
    """What a contest is given beyond a model, and a quantisation."""

    against: tuple[str, ...] = field(
        default=(),
        metadata=own(
            f"Peers to measure beside ours: {', '.join(PEERS)}; by default those that are installed, "
            "but for inductor.",
            on("bench", GRAPHS | NAC),
            "--against PEER,… | bench | contest",
            choices=PEERS,
        ),
    )
    thread_counts: tuple[int, ...] = field(
        default=(),
        metadata=own(
            "Numbers of threads, a contest for each; 1 by default.",
            on("bench", GRAPHS | NAC),
            "--threads N,… | bench | contest",
            least=1,
            most=1024,
        ),
    )
    batches: tuple[int, ...] = field(
        default=(),
        metadata=own(
            "Sizes of the first open extent of the inputs, contests for each; by default the model's own.",
            on("bench", GRAPHS | NAC),
            "--batch N,… | bench | contest",
            least=1,
            most=1 << 20,
        ),
    )
    round_seconds: float = field(
        default=0.5,
        metadata=own(
            "How long each contestant is measured in each of five rounds; 0.5 by default.",
            on("bench", GRAPHS | NAC),
            "--seconds S | bench | contest",
            least=0,
            most=3600,
        ),
    )
    page: Path | None = field(
        default=None,
        metadata=own(
            "Write a self-contained page: the table, the roofline, the time line.",
            on("bench", GRAPHS | NAC),
            "--html OUT.html | bench | output",
        ),
    )
