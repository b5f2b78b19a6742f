"""The rows of the table of options that `lamella sim` has: pictures of a schedule, advice, explanations, bounds."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from lamella.base.records import dataclass
from lamella.pipeline.diff_options import DiffOptions
from lamella.pipeline.effects import GRAPHS, NAC, NEM, on, own


@dataclass(frozen=True, slots=True)
class SimulationOptions(DiffOptions):
    """What a simulation is given beyond a plan, and a comparison."""

    timeline: Path | None = field(
        default=None,
        metadata=own("Write a Chrome trace that Perfetto opens.", on("sim", NEM), "--trace | sim | output"),
    )
    html: Path | None = field(
        default=None,
        metadata=own(
            "Write a self-contained page with the timeline.",
            {**on("sim", NEM), **on("diff, quantize", GRAPHS | NAC)},
            "--html | sim diff quantize | output",
            helps={
                "diff": "Write a self-contained page with the graph coloured by error.",
                "quantize": "Write a self-contained page with the ranked layers.",
            },
        ),
    )
    advise: bool = field(
        default=False,
        metadata=own(
            "Propose changes, each with its re-simulated gain.", on("sim", NEM), "--advise | sim | output"
        ),
    )
    fix: Path | None = field(
        default=None, metadata=own("Write the improved program.", on("sim", NEM), "--fix | sim | output")
    )
    layer: str | None = field(
        default=None,
        metadata=own(
            "Explain a layer (a section, loop, task or line): its roofs, and what would change it, simulated.",
            on("sim", NEM),
            "--explain LAYER | sim | output",
        ),
    )
    untiled: Path | None = field(
        default=None,
        metadata=own(
            "Compare with the bounds of the network: the program before tiling, one task for each operation.",
            on("sim", NEM),
            "--against UNTILED.nem | sim | output",
        ),
    )
