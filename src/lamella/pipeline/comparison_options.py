"""The rows of the table of options that say how models are measured and compared, and in which precision."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from lamella.base.records import dataclass
from lamella.pipeline.effects import (
    ANY,
    BY_KERNELS,
    GRAPHS,
    NAC,
    TENSOR,
    TRAINABLE,
    Need,
    kinds,
    on,
    own,
    row,
)
from lamella.pipeline.quantize_options import QuantizeOptions

CODE = ("tensor", "llvm", "asm", "ptx")
"""Forms that kernels are lowered to."""
PEERS = ("torch", "inductor", "onnxruntime", "openvino")
"""What is measured beside ours."""
PRECISIONS = ("f32", "bf16", "w8", "w4", "fp8", "int8")
"""What products with weights compute in; all but the first are those of `reduce_precision`."""
SHOWN_LEVELS = ("source", "weights", "nac", "kernels", "machine", "plan")
"""What a page of the studio shows beside the graph."""
VIEWED = GRAPHS | NAC | kinds("tensor nem data")
"""What a page is made of."""
GPUS = ("cuda", "sm_75", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120", "sm_90a")
"""Targets whose kernels may be measured, where that GPU is here."""
PRODUCTS = {"compile": BY_KERNELS - kinds("kernels"), "fit": TRAINABLE, **on("lower, bench", GRAPHS | NAC)}
"""Where kernels of products are written."""
REALS = ("f32", "f64")
"""Types that real numbers are computed in as a whole."""


@dataclass(frozen=True, slots=True)
class ComparisonOptions(QuantizeOptions):
    """What a contest and a comparison are given beyond models, and a quantisation."""

    # --- contests: who is measured, and under which terms -----------------------------------------------------
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

    # --- the precision of products ----------------------------------------------------------------------------
    precision: str = field(
        default="f32",
        metadata=row(
            "Compute products with weights in this precision: weights of 8 or 4 bits, or both factors narrow.",
            PRODUCTS,
            "--precision | run lower bench | backend",
            needs=(
                Need(("backend",), ("cuda",), steps=("fit",), unless="f32"),
                Need(("backend",), ("cpu", "cuda"), NAC, ("compile",), unless="f32"),
                Need(("backend",), (None, "cpu", "cuda"), BY_KERNELS - NAC, ("compile",), unless="f32"),
                Need(("dtype",), (None, "f32")),
                Need(("quantized",), (None, False)),
                Need(("after", "explain"), steps=("lower",), instead=Need(("to",), CODE)),
                Need(("to",), ("sknd", *CODE), steps=("lower",)),
            ),
            choices=PRECISIONS,
        ),
    )

    tune: bool = field(
        default=False,
        metadata=row(
            "On a GPU: measure several kernels for each product, cuBLASLt too, and take the fastest; choices are kept.",
            PRODUCTS,
            "--tune | run lower bench | backend",
            needs=(
                Need(("backend",), ("cuda",), steps=("compile", "fit")),
                Need(("target",), GPUS, steps=("lower",)),
                Need(("to",), CODE, steps=("lower",)),
            ),
        ),
    )
    tune_seconds: float = field(
        default=30.0,
        metadata=row(
            "How long --tune may measure, for each model; 30 seconds by default, 0 takes what was kept alone.",
            PRODUCTS,
            "--tune-seconds N | run lower bench | backend",
            needs=(Need(("tune",)),),
            least=0,
            most=86_400,
        ),
    )

    # --- comparisons ------------------------------------------------------------------------------------------
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
            {**on("diff", ANY), **on("execute", TENSOR)},
            "--tolerance | diff run | output",
            least=0,
            needs=(Need(("judge",), steps=("execute",)),),
        ),
    )

    # --- the studio -------------------------------------------------------------------------------------------
    levels: tuple[str, ...] = field(
        default=(),
        metadata=own(
            f"What to show beside the graph: {', '.join(SHOWN_LEVELS)}; by default all that is made quickly.",
            {"view": GRAPHS | NAC},
            "--levels LEVEL,… | view | output",
            choices=SHOWN_LEVELS,
        ),
    )
    errors: bool = field(
        default=False,
        metadata=own(
            "Run the models on the same random inputs, one model on cpu and reference, and show where numbers part.",
            {"view": GRAPHS | NAC},
            "--errors | view | output",
        ),
    )
    serve: bool = field(
        default=False,
        metadata=own(
            "Serve the page on this machine alone, and make it anew when a file changes.",
            {"view": VIEWED},
            "--serve | view | output",
        ),
    )
