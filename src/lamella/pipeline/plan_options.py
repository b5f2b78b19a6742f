"""The rows of the table of options that speak of plans: of the way from a graph, of a run, of a simulation."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from lamella.base.records import dataclass
from lamella.pipeline.effects import GRAPHS, NAC, NEM, SOURCES, TRAINABLE, Need, kinds, on, own, row
from lamella.pipeline.training_options import TrainingOptions

PLAN_FORMS = ("nem", "stcb")
"""What plans are written as."""
EFFORT = 3000
"""Thousands of steps of the search, about a minute's worth."""


@dataclass(frozen=True, slots=True)
class PlanOptions(TrainingOptions):
    """What training is given, and plans."""

    # --- simulations: pictures of a schedule, advice, explanations, bounds ------------------------------------
    timeline: Path | None = field(
        default=None,
        metadata=own(
            "Write a Chrome trace that Perfetto opens.",
            {**on("sim", NEM), **on("ranks", SOURCES)},
            "--trace | sim | output",
        ),
    )
    html: Path | None = field(
        default=None,
        metadata=own(
            "Write a self-contained page with the timeline.",
            {
                **on("sim", NEM),
                **on("ranks", SOURCES),
                **on("diff, quantize", GRAPHS | NAC),
                "fit": TRAINABLE,
            },
            "--html | sim diff quantize train | output",
            helps={
                "train": "Write a self-contained page with the curves of losses.",
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

    # --- the way to a plan, and its run -----------------------------------------------------------------------
    allow_future: bool = field(
        default=False,
        metadata=row(
            "NEM: bind opcodes of future hardware too.",
            {"lower": NEM | kinds("plans"), "bind": NEM},
            "--allow-future | lower bind | backend",
            needs=(Need(("to",), ("stcb",), steps=("lower",)),),
        ),
    )
    fit: bool = field(
        default=False,
        metadata=own(
            "Plans: say what each memory of the device needs and has, and why; write nothing.",
            on("lower", GRAPHS | NAC),
            "--fit | lower | output",
            needs=(Need(("to",), PLAN_FORMS), Need(("device",))),
        ),
    )
    wdm: bool = field(
        default=True,
        metadata=own(
            "Plans: store weights by codecs where the device has WDM and that saves time; or never.",
            on("lower", GRAPHS | NAC),
            "--wdm/--no-wdm | lower | output",
            needs=(Need(("to",), PLAN_FORMS), Need(("device",))),
        ),
    )
    effort: int = field(
        default=EFFORT,
        metadata=own(
            "Plans: how much the search for tiles may try, in thousands of steps; the first plan that is found always "
            "counts.",
            on("lower", GRAPHS | NAC),
            "--effort N | lower | output",
            needs=(Need(("to",), PLAN_FORMS), Need(("device",))),
        ),
    )
    order: str = field(
        default="program",
        metadata=row(
            "NEM: another legal order of the tasks.",
            on("compile", NEM | kinds("stream plans")),
            "--order program|random[:N] | run | backend",
        ),
    )
