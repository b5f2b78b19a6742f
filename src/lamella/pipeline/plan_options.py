"""The rows of the table of options that speak of plans: what is asked on the way from a graph, and of a run."""

from __future__ import annotations

from dataclasses import field

from lamella.base.records import dataclass
from lamella.pipeline.effects import GRAPHS, NAC, NEM, Need, kinds, on, own, row
from lamella.pipeline.training_options import TrainingOptions

PLAN_FORMS = ("nem", "stcb")
"""What plans are written as."""


@dataclass(frozen=True, slots=True)
class PlanOptions(TrainingOptions):
    """What training is given, and plans."""

    allow_future: bool = field(
        default=False,
        metadata=row(
            "NEM: bind opcodes of future hardware too.",
            on("lower, bind", NEM),
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
    order: str = field(
        default="program",
        metadata=row(
            "NEM: another legal order of the tasks.",
            on("compile", NEM | kinds("stream")),
            "--order program|random[:N] | run | backend",
        ),
    )
