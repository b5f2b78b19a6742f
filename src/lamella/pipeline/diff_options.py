"""The rows of the table of options that only `lamella diff` has: how two models are compared."""

from __future__ import annotations

from dataclasses import field

from lamella.base.records import dataclass
from lamella.pipeline.effects import ANY, GRAPHS, NAC, on, own
from lamella.pipeline.precision_options import PRECISIONS, PrecisionOptions

REALS = ("f32", "f64")
"""Types that real numbers are computed in as a whole."""


@dataclass(frozen=True, slots=True)
class DiffOptions(PrecisionOptions):
    """What a comparison is given beyond two models, a contest and the precision of products."""

    precisions: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "Compute in this precision; given twice, the first is LEFT's, the second RIGHT's.",
            on("diff", GRAPHS | NAC),
            "--precision | diff | backend",
            choices=(*REALS, *PRECISIONS[1:]),
        ),
    )
    corners: bool = field(
        default=False,
        metadata=own(
            "Put NaN, infinities, denormals, zeros and the largest numbers among those that are drawn.",
            on("diff", GRAPHS | NAC),
            "--corners | diff | inputs",
        ),
    )
    reduce: bool = field(
        default=False,
        metadata=own(
            "Shrink both models to the fewest operations that still differ, and write these into the folder of -o.",
            on("diff", GRAPHS | NAC),
            "--reduce | diff | output",
        ),
    )
    tolerance: float = field(
        default=1e-5,
        metadata=own(
            "How far results may lie apart, in parts of the largest number; 1e-5 by default.",
            on("diff", ANY),
            "--tolerance | diff | output",
            least=0,
        ),
    )
