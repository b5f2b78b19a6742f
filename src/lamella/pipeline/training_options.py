"""The rows of the table of options that only `lamella train` has: how steps are taken, on what, kept where."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from lamella.base.records import dataclass
from lamella.pipeline.comparison_options import ComparisonOptions
from lamella.pipeline.effects import NAC, SOURCES, TRAINABLE, Need, on, own

FIT = on("fit", TRAINABLE)
SCHEDULES = ("constant", "linear", "cosine", "wsd")
DECAYING = SCHEDULES[1:]
BASES = ("nf4", "int8")


@dataclass(frozen=True, slots=True)
class TrainingOptions(ComparisonOptions):
    """What training is given beyond a model, and a comparison."""

    steps: int | None = field(
        default=None,
        metadata=own(
            "How many steps are taken; by default one walk through --data, and one step without it.",
            {"train": NAC, "fit": TRAINABLE},
            "--steps N | train | training",
            least=1,
            most=1_000_000_000,
        ),
    )
    targets: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "NAC, without --data: what is aimed at, by number; repeatable.",
            on("train", NAC),
            "--target K=FILE.npy | train | training",
        ),
    )
    save: Path | None = field(
        default=None,
        metadata=own(
            "Write what was trained: weights (.safetensors), the model with them (.nac, .sknd, .onnx), or a folder.",
            {"train": NAC, "fit": TRAINABLE},
            "--save OUT | train | training",
        ),
    )

    # --- what a step learns from --------------------------------------------------------------------------------
    batch: int | None = field(
        default=None,
        metadata=own(
            "Sequences or examples of a step; by default the model's own, or 8.",
            FIT,
            "--batch B | train | inputs",
            least=1,
            most=1 << 20,
        ),
    )
    sequence: int | None = field(
        default=None,
        metadata=own(
            "Tokens of a sequence; by default the model's own, or 128.",
            FIT,
            "--sequence T | train | inputs",
            least=1,
            most=1 << 24,
        ),
    )
    shuffle: bool = field(
        default=False,
        metadata=own(
            "Take the data in another order in each walk, by the seed; by default in its own.",
            FIT,
            "--shuffle | train | inputs",
        ),
    )
    eval_data: Path | None = field(
        default=None,
        metadata=own(
            "Data that are not learnt from, whose loss is measured.", FIT, "--eval-data F | train | inputs"
        ),
    )
    eval_every: int = field(
        default=0,
        metadata=own(
            "Measure it every N steps, and in the end; by default in the end.",
            FIT,
            "--eval-every N | train | inputs",
            needs=(Need(("eval_data",)),),
            least=1,
        ),
    )

    # --- how parameters change ----------------------------------------------------------------------------------
    optimizer: str = field(
        default="adamw",
        metadata=own(
            "The rule of steps; adamw by default, an unknown name lists all.",
            FIT,
            "--optimizer NAME | train | training",
        ),
    )
    weight_decay: float = field(
        default=0.01,
        metadata=own(
            "The weight decay; 0.01 by default.", FIT, "--weight-decay X | train | training", least=0
        ),
    )
    beta1: float = field(
        default=0.9,
        metadata=own(
            "The share that a mean of gradients keeps; 0.9 by default.",
            FIT,
            "--beta1 X | train | training",
            least=0,
            most=1,
        ),
    )
    beta2: float = field(
        default=0.999,
        metadata=own(
            "The share that a mean of squares keeps; 0.999 by default.",
            FIT,
            "--beta2 X | train | training",
            least=0,
            most=1,
        ),
    )
    momentum: float = field(
        default=0.0,
        metadata=own(
            "The share of its velocity that sgd keeps; 0 by default.",
            FIT,
            "--momentum X | train | training",
            needs=(Need(("optimizer",), ("sgd",)),),
            least=0,
            most=1,
        ),
    )
    schedule: str = field(
        default="constant",
        metadata=own(
            "How the rate changes behind the warm-up; constant by default.",
            FIT,
            "--schedule | train | training",
            choices=SCHEDULES,
        ),
    )
    warmup: int = field(
        default=0,
        metadata=own(
            "Steps in which the rate comes up from 0; none by default.",
            FIT,
            "--warmup N | train | training",
            least=0,
        ),
    )
    decay: int | None = field(
        default=None,
        metadata=own(
            "Steps in which the rate of wsd comes down; by default a tenth of all.",
            FIT,
            "--decay N | train | training",
            needs=(Need(("schedule",), ("wsd",)),),
            least=1,
        ),
    )
    min_lr: float = field(
        default=0.0,
        metadata=own(
            "The rate in the end, of schedules that decay; 0 by default.",
            FIT,
            "--min-lr X | train | training",
            needs=(Need(("schedule",), DECAYING),),
            least=0,
        ),
    )
    clip: float | None = field(
        default=None,
        metadata=own(
            "The largest norm of all gradients together; by default any.",
            FIT,
            "--clip X | train | training",
            least=0,
        ),
    )
    accumulate: int = field(
        default=1,
        metadata=own(
            "Take the gradients of a batch in N parts, which needs less memory.",
            FIT,
            "--accumulate N | train | training",
            least=1,
            most=1 << 20,
        ),
    )
    memory_budget: str | None = field(
        default=None,
        metadata=own(
            "The most memory that a step may take, such as 300MB: where all fits, nothing is computed twice; otherwise "
            "activations are offloaded until it does, those with @memory(offload) first.",
            {**FIT, **on("memory", SOURCES)},
            "--memory-budget SIZE | train show | training",
            needs=(Need(("memory",), steps=("memory",)),),
        ),
    )
    ranks: str | None = field(
        default=None,
        metadata=own(
            "Train on several processes: dp=N that take parts of each batch, tp=N slices of weights, ep=N of experts, "
            "pp=N stages (docs/layers/training.md).",
            {**FIT, **on("ranks", SOURCES)},
            "--ranks dp=N,… | train show sim | training",
            helps={
                "show": "Module DSL: what each of several ranks has, and what they exchange in a step of training.",
                "sim": "Module DSL: the time line of a step of training on several ranks, by --link.",
            },
        ),
    )
    link: str | None = field(
        default=None,
        metadata=own(
            "What a rank does in a second, and what lies between two: flops=5e13,memory=1e12,bandwidth=2.5e10,"
            "latency=1e-5.",
            on("ranks", SOURCES),
            "--link KEY=NUMBER,… | sim | device",
            needs=(Need(("ranks",)),),
        ),
    )
    recipe: str | None = field(
        default=None,
        metadata=own(
            "Module DSL: compute products in the types of a recipe of the file, or of a policy: bf16, fp16, "
            "fp8_hybrid, fp8_pure, fp4.",
            on("fit", SOURCES),
            "--recipe NAME | train | training",
        ),
    )

    # --- adapters -----------------------------------------------------------------------------------------------
    adapters: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "Train small additions and freeze the rest: lora, dora, ia3, prefix, prompt or bottleneck, such as "
            "lora:rank=8,alpha=16,targets=q,v; repeatable.",
            {**FIT, "merge": TRAINABLE},
            "--adapter KIND:… | train convert | adapters",
            helps={"convert": "Put the adapter of a folder, as `train` and PEFT write it, into the weights."},
        ),
    )
    base: str | None = field(
        default=None,
        metadata=own(
            "Keep the frozen weights that adapters add to in so few bits.",
            FIT,
            "--base | train | adapters",
            choices=BASES,
        ),
    )
    merge: bool = field(
        default=False,
        metadata=own(
            "Save the model with the adapters in its weights, not the adapters alone.",
            FIT,
            "--merge | train | adapters",
            needs=(Need(("save",)),),
        ),
    )

    unmerge: bool = field(
        default=False,
        metadata=own(
            "Take the adapter out of weights that hold it.",
            on("merge", TRAINABLE),
            "--unmerge | convert | adapters",
            needs=(Need(("adapters",)),),
        ),
    )

    # --- what stays ---------------------------------------------------------------------------------------------
    save_every: int = field(
        default=0,
        metadata=own(
            "Write a checkpoint every N steps into OUT.training, which is whole whenever the run is killed.",
            FIT,
            "--save-every N | train | output",
            needs=(Need(("save",)),),
            least=1,
        ),
    )
    resume: bool = field(
        default=False,
        metadata=own(
            "Go on behind the last checkpoint in OUT.training, bit by bit as if nothing had happened.",
            FIT,
            "--resume | train | output",
            needs=(Need(("save",)),),
        ),
    )
    log: Path | None = field(
        default=None,
        metadata=own(
            "Write losses, rates and speeds into this folder, as CSV and as events for TensorBoard.",
            FIT,
            "--log DIR | train | output",
        ),
    )
