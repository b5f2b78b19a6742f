"""The row of the table of options that says in which precision products compute."""

from __future__ import annotations

from dataclasses import field

from lamella.base.records import dataclass
from lamella.pipeline.contest_options import ContestOptions
from lamella.pipeline.effects import BY_KERNELS, GRAPHS, NAC, Need, kinds, on, row

PRECISIONS = ("f32", "bf16", "w8", "w4", "int8")
"""What products with weights compute in; all but the first are those of `reduce_precision`."""


@dataclass(frozen=True, slots=True)
class PrecisionOptions(ContestOptions):
    """What a contest is given, and the precision of products."""

    precision: str = field(
        default="f32",
        metadata=row(
            "Compute products with weights in this precision: weights of 8 or 4 bits, or both factors narrow.",
            {"compile": BY_KERNELS - kinds("kernels"), **on("lower, bench", GRAPHS | NAC)},
            "--precision | run lower bench | backend",
            needs=(
                Need(("backend",), ("cpu",), NAC, ("compile",), unless="f32"),
                Need(("backend",), (None, "cpu"), BY_KERNELS - NAC, ("compile",), unless="f32"),
                Need(("dtype",), (None, "f32")),
                Need(("quantized",), (None, False)),
                Need(("after", "explain"), steps=("lower",)),
                Need(("to",), ("sknd",), steps=("lower",)),
            ),
            choices=PRECISIONS,
        ),
    )
