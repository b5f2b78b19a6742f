"""The table of options: of each what it is, how it is written, and on what input it can have an effect.

The fields of `Options` are the rows. The check of what the API is given, the options of every command and the error
about an option that cannot have an effect all come from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from lamella.base.limits import DEFAULT, Limits
from lamella.base.records import dataclass
from lamella.pipeline.backends import BACKENDS, TITLES, WITH_KERNELS
from lamella.pipeline.command_options import ALWAYS, MODELS, CommandOptions
from lamella.pipeline.comparison_options import CODE, REALS
from lamella.pipeline.effects import (
    ANY,
    BY_KERNELS,
    FOLDER,
    GRAPHS,
    MODULE,
    NAC,
    NEM,
    RUNNABLE,
    SKND,
    SOURCES,
    TENSOR,
    TRAINABLE,
    Need,
    Option,
    kinds,
    on,
    own,
    row,
)
from lamella.pipeline.languages import LANGUAGES, ONNX
from lamella.pipeline.plan_options import PLAN_FORMS

if TYPE_CHECKING:
    from lamella.base.arrays import Array

DIALECTS = ("specification", "newer")
METHODS = ("none", "fp16", "int8_tensor", "int8_channel", "block_fp8")
LEVELS = ("none", "exact", "relaxed")
FORMS = ("sknd", "nac", "onnx", "ir", "tensor", "llvm", "asm", "ptx", "nem", "stcb")
EXPLAINED = ("fuse", "select")
"""Passes that say what they do."""

READING = "check, show, load"
TEXTS = "check fmt show run convert lower sim bind view"
LOADERS = "run convert lower diff bench quantize view"
LATE = "compile, lower, diff, bench, quantize, view, plan, answer, write nac, write graph"
"""Steps in which a NAC file becomes a graph or a machine."""
NOT_MACHINE = Need(("backend",), (None, "interpreter"), TENSOR)
ON_INTERPRETER = Need(("backend",), ("interpreter",), BY_KERNELS, ("compile",))
BY_ARCHITECTURE = Need(("architecture",), on=FOLDER)


@dataclass(frozen=True, slots=True)
class Options(CommandOptions):
    """What the API and the commands are given; each language and each backend takes what concerns it."""

    given: frozenset[str] = frozenset()
    """The names of the options that somebody gave, not a row itself."""

    # --- reading --------------------------------------------------------------------------------------------
    language: str | None = field(
        default=None,
        metadata=row(
            "Read the file as this language, whatever its ending.",
            on("check, fmt, show, load, sim, bind", ANY),
            f"--language | {TEXTS} quantize | general",
            choices=(*LANGUAGES, ONNX.name),
        ),
    )
    limits: Limits = field(
        default=DEFAULT,
        metadata=row(
            "Raise or lower one limit; repeatable.",
            ALWAYS,
            f"--limit NAME=N | {TEXTS} diff bench quantize | general",
        ),
    )
    root: Path | None = field(
        default=None,
        metadata=row(
            "Files that FILE names lie below this folder; by default the folder of FILE.",
            {**on("check, load", NEM | SKND | SOURCES), **on("show, sim, bind", NEM)},
            "--root | check show run convert lower diff sim bind quantize view | general",
            needs=(BY_ARCHITECTURE,),
        ),
    )
    device: str | None = field(
        default=None,
        metadata=row(
            "NEM: the target device, a shipped name such as npm_lite or a .nem file.",
            {**on("check, load, sim, bind", NEM), **on("lower, compile, view", GRAPHS | NAC)},
            "--device DEVICE | check run convert lower sim bind view",
            needs=(
                Need(("to",), PLAN_FORMS, GRAPHS | NAC, ("lower",)),
                Need(("backend",), ("npu",), GRAPHS | NAC, ("compile",)),
            ),
        ),
    )
    model: str | None = field(
        default=None,
        metadata=row(
            "Which graph or declaration of the file; by default the first.",
            on(READING, SKND | SOURCES),
            f"--model NAME | {MODELS} sim",
            needs=(BY_ARCHITECTURE,),
        ),
    )
    config: Mapping[str, object] = field(
        default_factory=dict,
        metadata=row(
            "The value of an attribute, a generic type, or a config parameter; repeatable.",
            on(READING, SKND | SOURCES),
            f"--set NAME=VALUE | {MODELS} sim",
        ),
    )
    preset: str | None = field(
        default=None,
        metadata=row(
            "Module DSL: a named set of config values of the file.",
            on(READING, SOURCES),
            f"--preset NAME | {MODELS} sim",
        ),
    )
    cache: int = field(
        default=0,
        metadata=row(
            "Module DSL: a model that is called again for the next tokens, with room for N of them.",
            on("load", SOURCES),
            f"--cache N | {LOADERS}",
            never=("generate", "export", "fit"),
            least=0,
        ),
    )
    architecture: Path | None = field(
        default=None,
        metadata=row(
            "Hugging Face: read the folder as the model of this file, not as one of the library.",
            on(READING, FOLDER),
            f"--architecture F.module | {MODELS}",
        ),
    )
    via: str | None = field(
        default=None,
        metadata=row(
            "Hugging Face: through the Module DSL alone, or through transformers and torch.export; by default the "
            "second where no model of the library is the folder's.",
            on("load", FOLDER),
            f"--via | {LOADERS} generate",
            choices=("module", "torch"),
            never=("export", "fit"),
        ),
    )
    unused: tuple[str, ...] = field(
        default=(),
        metadata=row(
            "Hugging Face: tensors of a checkpoint that may stay unused, such as 'vision.*'; repeatable.",
            {**on(READING, FOLDER), "load": SOURCES},
            f"--unused PATTERN | {MODELS}",
            needs=(Need(("weights",), on=MODULE),),
        ),
    )
    dialect: str | None = field(
        default=None,
        metadata=row(
            "SkriptND: which library gives operators their meaning; by default the specification's.",
            {**on(READING, SKND), "show": SKND | kinds("library")},
            f"--dialect | {MODELS}",
            choices=DIALECTS,
        ),
    )
    keep: tuple[str, ...] = field(
        default=(),
        metadata=row(
            "SkriptND: take this operator whole; by default those of the library; repeatable.",
            on(READING, SKND),
            "--keep OPERATOR | check show run convert lower diff bench view",
        ),
    )
    decompose: tuple[str, ...] = field(
        default=(),
        metadata=row(
            "SkriptND: replace this operator by its composition, or all of them; repeatable.",
            on(READING, SKND),
            f"--decompose OPERATOR | {MODELS}",
        ),
    )
    shape: Mapping[str, int] = field(
        default_factory=dict,
        metadata=row(
            "Extents that the model leaves open.",
            {
                **on("check, show", SKND | kinds("torch onnx")),
                "verify": MODULE,
                "load": SKND | SOURCES | kinds("unit torch onnx"),
                **on(LATE, NAC),
            },
            f"--shape B=2,T=8 | {MODELS} sim",
            never=("generate", "export", "unit", "fit"),
        ),
    )
    weights: Path | None = field(
        default=None,
        metadata=row(
            "A .safetensors file, a folder of .dat files or a Hugging Face folder; by default what lies by the model.",
            {"load": SKND | SOURCES, "check": NAC, **on(f"{LATE}, fit", NAC)},
            "--weights | run convert lower diff bench quantize view",
        ),
    )
    types: Mapping[str, str] = field(
        default_factory=dict,
        metadata=row(
            "NAC: what an input is, where the file does not say; repeatable.",
            {**on("check, show", NAC), **on(f"{LATE}, fit", NAC)},
            "--type NAME=f32[2,8] | check show run convert lower diff bench quantize view",
            needs=(
                Need(("listing",), on=NAC, steps=("show",)),
                Need(("optimize", "plain_signatures", "quantize"), on=NAC, steps=("write nac",)),
            ),
        ),
    )
    lock: bool = field(
        default=False,
        metadata=row(
            "Module DSL: write module.lock beside FILE, with what its imports lead to.",
            on("check", MODULE),
            "--lock | check | output",
        ),
    )

    # --- compiling ------------------------------------------------------------------------------------------
    backend: str | None = field(
        default=None,
        metadata=own(
            f"How to run it. {TITLES}.",
            {
                "compile": RUNNABLE,
                "observe": SOURCES,
                "check": SKND | SOURCES,
                "quantize": GRAPHS | NAC,
                "fit": TRAINABLE,
            },
            "--backend | run check quantize | backend",
            needs=(Need(("backend",), WITH_KERNELS, steps=("check",)),),
            choices=BACKENDS,
            helps={
                "check": "Say which operations do not run as kernels of this backend, and why.",
                "quantize": "Run the model on this backend, reference or cpu; by default cpu.",
            },
        ),
    )
    backends: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "Run on this backend; given twice, the first is LEFT's, the second RIGHT's.",
            on("diff, bench", GRAPHS | NAC),
            "--backend | diff bench | backend",
            choices=BACKENDS,
            helps={"bench": "Measure this backend of ours; repeatable; cpu by default."},
        ),
    )
    strict_backend: bool = field(
        default=False,
        metadata=row(
            "An error where an operation does not run on the backend that was asked for, or has no kernel.",
            {**on("compile, lower", BY_KERNELS), "observe": SOURCES},
            "--strict-backend | run lower | backend",
            needs=(
                Need(("backend",), WITH_KERNELS, NAC, ("compile",)),
                Need(("backend",), (None, *WITH_KERNELS), BY_KERNELS - NAC, ("compile", "observe")),
                Need(("to",), CODE, steps=("lower",)),
            ),
        ),
    )
    threads: int = field(
        default=0,
        metadata=row(
            "How many threads run the work-groups of kernels; by default as many as there are processors.",
            {"compile": BY_KERNELS | TENSOR, "fit": TRAINABLE},
            "--threads N | run | backend",
            needs=(
                Need(("backend",), ("cpu",), NAC, ("compile",)),
                Need(("backend",), (None, "cpu"), (BY_KERNELS - NAC) | TENSOR),
                Need(("trace",), (None, False)),
                Need(("check_bounds",), (None, False)),
            ),
            least=0,
            most=1024,
        ),
    )
    dtype: str | None = field(
        default=None,
        metadata=row(
            "Compute real numbers in this type.",
            {"load": SKND | SOURCES, "compile": BY_KERNELS, "lower": GRAPHS | NAC, "fit": TRAINABLE},
            "--dtype | run | backend",
            needs=(
                Need(("backend",), ("reference", *WITH_KERNELS), NAC, ("compile",), unless="f64"),
                Need(("to",), CODE, ANY - SKND - SOURCES, ("lower",)),
            ),
            choices=REALS,
        ),
    )
    quantized: bool = field(
        default=False,
        metadata=row(
            "SkriptND: apply the quantisation that the model describes.",
            on("compile", SKND | kinds("graph kernels")),
            "--quantized | run | backend",
        ),
    )
    kernel: str | None = field(
        default=None,
        metadata=row(
            "Tensor language: the one kernel to run; by default the only one.",
            on("compile", TENSOR),
            "--kernel NAME | run | inputs",
        ),
    )
    groups: int | tuple[int, ...] = field(
        default=1,
        metadata=row(
            "Tensor language: how many work-groups are launched, along x or along x, y and z; 1 by default.",
            on("compile", TENSOR),
            "--groups N[,M[,K]] | run | inputs",
            needs=(Need(("kernel",)),),
            least=0,
        ),
    )
    check_bounds: bool = field(
        default=False,
        metadata=row(
            "Kernels: test views where they are made, not only where they are accessed.",
            on("compile", BY_KERNELS | TENSOR),
            "--check-bounds | run | backend",
            needs=(NOT_MACHINE, ON_INTERPRETER),
        ),
    )
    trace: Callable[[str], None] | None = field(
        default=None,
        metadata=row(
            "Kernels: print each executed statement with its values, up to a bound.",
            on("compile", BY_KERNELS | TENSOR),
            "--trace | run | backend",
            needs=(NOT_MACHINE, ON_INTERPRETER),
        ),
    )
    seed: int | None = field(
        default=None,
        metadata=row(
            "Seed of inputs and weights that nobody gives, and of chance; 0 by default.",
            {**on(f"{LATE}, export, unit, fit", ANY), "observe": SOURCES},
            f"--seed N | {LOADERS} | inputs",
            least=0,
        ),
    )
    contents: Mapping[str, Array] = field(
        default_factory=dict,
        metadata=row(
            "ONNX: arrays of inputs that must be known before the run. Module DSL, Hugging Face: of inputs that may "
            "be missing.",
            on("load, diff", kinds("onnx") | SOURCES),
        ),
    )
    random: bool = field(
        default=False,
        metadata=row("Draw the inputs that a call does not give.", on("compile", RUNNABLE)),
    )
    training: bool = field(
        default=False,
        metadata=row("NAC: a step of the training graph, not the program alone.", on("compile", NAC)),
    )
    lr: float | None = field(
        default=None,
        metadata=row(
            "The learning rate, 3e-4 by default; of a NAC file's own training graph, in the place of its rates.",
            {"compile": NAC, "fit": TRAINABLE},
            "--lr | train | training",
            needs=(Need(("training",), on=NAC, steps=("compile",)),),
        ),
    )

    # --- lowering -------------------------------------------------------------------------------------------
    to: str = field(
        default="",
        metadata=own(
            "The form to lower to.",
            on("lower, unit", ANY),
            "--to | lower | output",
            choices=FORMS,
            required="lower",
        ),
    )
    after: str | None = field(
        default=None,
        metadata=row(
            "Stop behind this pass: of kernels, of a graph on its way to kernels, such as fuse, or of plans: select.",
            on("lower", BY_KERNELS | TENSOR),
            "--after PASS | lower | backend",
            needs=(
                Need(("to",), ("tensor",), TENSOR),
                Need(("to",), ("tensor", "sknd", *PLAN_FORMS), BY_KERNELS),
            ),
        ),
    )
    explain: str | None = field(
        default=None,
        metadata=own(
            "Say what this pass does to the graph, line by line: what it fuses, or selects for a device, and why.",
            on("lower", GRAPHS | NAC),
            "--explain | lower | backend",
            choices=EXPLAINED,
            needs=(Need(("to",), ("sknd", *PLAN_FORMS)),),
        ),
    )
    target: str | None = field(
        default=None,
        metadata=row(
            "Kernels: compile for this; by default for this machine.",
            {"lower": BY_KERNELS | TENSOR, "compile": BY_KERNELS | TENSOR},
            "--target NAME | lower | backend",
            needs=(
                Need(("to",), CODE, TENSOR, ("lower",)),
                Need(("to",), CODE, BY_KERNELS, ("lower",)),
                Need(("backend",), ("cpu",), NAC, ("compile",)),
                Need(("backend",), (None, "cpu"), (BY_KERNELS - NAC) | TENSOR, ("compile",)),
            ),
        ),
    )
    passes: tuple[str, ...] = field(
        default=(),
        metadata=row(
            "Run this pass over the graph, such as cse, dce or simplify; an unknown name lists all; repeatable.",
            on("lower", GRAPHS | NAC),
            "--pass NAME | lower | backend",
        ),
    )
    compare: bool = field(
        default=True,
        metadata=own(
            "Run both on random inputs and compare the numbers.",
            on("lower, unit", ANY),
            "--compare/--no-compare | lower | output",
            needs=(Need(("output",)),),
        ),
    )

    # --- writing NAC ----------------------------------------------------------------------------------------
    quantize: str | None = field(
        default=None,
        metadata=row(
            "NAC: store the weights by this method.",
            on("write nac", GRAPHS | NAC),
            "--quantize | convert | NAC",
            choices=METHODS,
        ),
    )
    axis: int = field(
        default=0,
        metadata=row(
            "NAC: the axis of int8_channel's scales.",
            on("write nac", GRAPHS | NAC),
            "--axis | convert | NAC",
            needs=(Need(("quantize",), ("int8_channel",)),),
            least=0,
        ),
    )
    optimize: str | None = field(
        default=None,
        metadata=row(
            "NAC: how far the graph is simplified before it is written.",
            on("write nac", GRAPHS | NAC),
            "--optimize | convert | NAC",
            choices=LEVELS,
        ),
    )
    external: bool | None = field(
        default=None,
        metadata=row(
            "NAC: weights beside the file, or in it.",
            on("write nac", GRAPHS | NAC),
            "--external/--internal | convert | NAC",
        ),
    )
    plain_signatures: bool = field(
        default=False,
        metadata=row(
            "NAC: signatures without roles, all tensors T.",
            on("write nac, lower", GRAPHS | NAC),
            "--plain-signatures | convert | NAC",
            needs=(Need(("to",), ("nac",), steps=("lower",)),),
        ),
    )
    tokenizer: Path | None = field(
        default=None,
        metadata=row(
            "NAC: put this tokenizer.json into it, as a manifest.",
            on("write nac", GRAPHS | NAC),
            "--tokenizer | convert | NAC",
        ),
    )
    plan: Path | None = field(
        default=None,
        metadata=row(
            "NAC: put the plan of this .nacs into it.",
            on("write nac", GRAPHS | NAC),
            "--plan | convert | NAC",
        ),
    )
    embed: Mapping[str, str] = field(
        default_factory=dict,
        metadata=row(
            "NAC: put a file into it under this name; repeatable.",
            on("write nac", GRAPHS | NAC),
            "--embed NAME=FILE | convert | NAC",
        ),
    )

    @property
    def draws(self) -> bool:
        """Whether inputs that a call does not give are drawn: where somebody asked for it, or gave a seed."""
        return self.random or self.seed is not None

    @property
    def start_seed(self) -> int:
        """The seed of all that is drawn."""
        return self.seed or 0


NAMES = tuple(item.name for item in fields(Options) if "option" in item.metadata)


@cache
def table() -> Mapping[str, Option]:
    """The rows by the names of the options."""
    return {item.name: item.metadata["option"] for item in fields(Options) if "option" in item.metadata}


@cache
def kind_of(name: str) -> str:
    """What the values of an option are, as its field is annotated; without the word that it may be missing."""
    return next(str(item.type) for item in fields(Options) if item.name == name).removesuffix(" | None")


@cache
def default_of(name: str) -> object:
    """The value of an option that nobody gives."""
    return getattr(Options(), name)


def drawing(options: Options) -> Options:
    """The options of a command that draws what nobody gives; it says so."""
    return replace(options, random=True)
