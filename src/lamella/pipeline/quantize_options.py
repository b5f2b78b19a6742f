"""The rows of the table of options that only `lamella quantize` has: what codes are, and how they are chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lamella.pipeline.effects import GRAPHS, NAC, TRAINABLE, Need, on, own

SCHEMES = ("int8", "w4a8", "w8", "w4")
INTEGER_SCHEMES = ("int8", "w4a8")
"""Schemes whose activations have codes."""
ISLANDS = ("f32", "f16", "bf16")
QUANTIZED = on("quantize", GRAPHS | NAC)
WITH_CODES = (Need(("scheme",), (None, *INTEGER_SCHEMES)),)


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """What a quantisation is given beyond a model."""

    scheme: str = field(
        default="int8",
        metadata=own(
            "Bits of weights and activations: int8 both in 8, w4a8 weights in 4; w8, w4 weights alone.",
            QUANTIZED,
            "--scheme | quantize | codes",
            choices=SCHEMES,
        ),
    )
    method: str | None = field(
        default=None,
        metadata=own(
            "How ranges of activations are chosen: minmax, percentile[:P], mse (the default) or kl.",
            QUANTIZED,
            "--method METHOD | quantize | codes",
            needs=WITH_CODES,
        ),
    )
    per: str | None = field(
        default=None,
        metadata=own(
            "What shares a scale of weights; channel by default, group:32 for w4.",
            QUANTIZED,
            "--per tensor|channel|group:N | quantize | codes",
        ),
    )
    symmetric: bool = field(
        default=False,
        metadata=own(
            "Codes of activations without zero points.",
            QUANTIZED,
            "--symmetric | quantize | codes",
            needs=WITH_CODES,
        ),
    )
    kept: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "Layers that stay real, by patterns of their results, weights or operators; repeatable.",
            QUANTIZED,
            "--keep PATTERN | quantize | codes",
        ),
    )
    islands: str | None = field(
        default=None,
        metadata=own(
            "The type of what stays real between integers; f32 by default.",
            QUANTIZED,
            "--islands | quantize | codes",
            choices=ISLANDS,
            needs=WITH_CODES,
        ),
    )
    wide_outputs: bool = field(
        default=False,
        metadata=own(
            "Codes of 16 bits for products that only real operations read.",
            QUANTIZED,
            "--wide-outputs | quantize | codes",
            needs=WITH_CODES,
        ),
    )
    data: Path | None = field(
        default=None,
        metadata=own(
            "Calibration data: .npz or .npy with arrays named like inputs, or a folder; by default random.",
            {**QUANTIZED, "fit": TRAINABLE},
            "--data F.npz|DIR | quantize train | inputs",
            helps={
                "train": "What is learnt from: tokens (.npy), arrays (.npz, .safetensors), texts, records (.jsonl, "
                ".parquet); F[:90] takes the first 90 items, bytes:F the bytes of a file."
            },
        ),
    )
    samples: int = field(
        default=64,
        metadata=own(
            "How many batches of the data are used at most; 64 by default.",
            QUANTIZED,
            "--samples N | quantize | inputs",
            needs=(Need(("data",)),),
            least=1,
            most=1 << 20,
        ),
    )
    equalize: bool | None = field(
        default=None,
        metadata=own(
            "Equalise the weights of neighbours; by default where a weight has one scale.",
            QUANTIZED,
            "--equalize/--no-equalize | quantize | improvements",
        ),
    )
    gptq: bool | None = field(
        default=None,
        metadata=own(
            "Round weights of linear layers by what they are multiplied with; by default those of 4 bits.",
            QUANTIZED,
            "--gptq/--no-gptq | quantize | improvements",
        ),
    )
    bias_correction: bool | None = field(
        default=None,
        metadata=own(
            "Take the mean errors of layers out of their biases; by default it is done.",
            QUANTIZED,
            "--bias-correction/--no-bias-correction | quantize | improvements",
        ),
    )
    rank: bool | None = field(
        default=None,
        metadata=own(
            "Run the model with each layer quantised alone, for the report; by default it is done.",
            QUANTIZED,
            "--rank/--no-rank | quantize | output",
        ),
    )
    accuracy_budget: float | None = field(
        default=None,
        metadata=own(
            "The relative error that outputs may have; layers are promoted until they keep to it.",
            QUANTIZED,
            "--accuracy-budget X | quantize | improvements",
            least=0,
        ),
    )
    size_budget: int | None = field(
        default=None,
        metadata=own(
            "The bytes that weights may have; layers are narrowed until they fit.",
            QUANTIZED,
            "--size-budget BYTES | quantize | improvements",
            least=0,
        ),
    )
