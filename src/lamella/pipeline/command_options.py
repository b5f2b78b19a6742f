"""The rows of the table of options that only commands have: what they print, write and are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from lamella.base.records import dataclass
from lamella.pipeline.effects import (
    ANY,
    BY_KERNELS,
    BY_NAMES,
    COMMANDS,
    FOLDER,
    GRAPHS,
    MODULE,
    NAC,
    NEM,
    RUNNABLE,
    SOURCES,
    TENSOR,
    Need,
    kinds,
    on,
    own,
)
from lamella.pipeline.plan_options import PLAN_FORMS, PlanOptions

ALWAYS = {
    step: ANY
    for way in COMMANDS.values()
    for steps in way
    for step in (*steps, "compile", "load", "lower", "check")
}
MODELS = "check show run convert lower diff bench quantize view"


@dataclass(frozen=True, slots=True)
class CommandOptions(PlanOptions):
    """What plans are given, and what only commands take."""

    as_json: bool = field(
        default=False,
        metadata=own(
            "Print one JSON object on standard output.",
            ALWAYS,
            f"--json | {MODELS} generate train sim bind rules doctor demo | output",
        ),
    )
    as_sarif: bool = field(
        default=False,
        metadata=own(
            "Print the findings as SARIF 2.1.0, for code hosts and editors.",
            on("check", ANY),
            "--sarif | check | output",
        ),
    )
    timing: bool = field(
        default=False,
        metadata=own(
            "Say on standard error how long each pass took.",
            on("lower", BY_KERNELS | TENSOR),
            "--timing | lower | output",
            needs=(Need(("to",), ("tensor", "llvm", "asm", "ptx", *PLAN_FORMS)),),
        ),
    )
    print_all: bool = field(
        default=False,
        metadata=own(
            "Print every stage that -o would write into a folder, one below the other.",
            on("lower", BY_KERNELS | TENSOR),
            "--print-after-all | lower | output",
            needs=(Need(("to",), ("tensor", "llvm", "asm", "ptx", *PLAN_FORMS)), Need(("output",), (None,))),
        ),
    )
    strict: bool = field(
        default=False,
        metadata=own(
            "Warnings count as errors, and so do notes on the spelling of kernels.",
            on("check", ANY),
            "--strict | check | output",
        ),
    )
    verify_backward: bool = field(
        default=False,
        metadata=own(
            "Module DSL: run every gradient on small random inputs, and compare it with differences.",
            on("verify", MODULE),
            "--verify-backward | check | backend",
        ),
    )
    in_place: bool = field(
        default=False,
        metadata=own("Replace the file instead of printing.", on("fmt", ANY), "--write | fmt | output"),
    )
    only_check: bool = field(
        default=False,
        metadata=own("Only say whether the file is canonical.", on("fmt", ANY), "--check | fmt | output"),
    )
    listing: bool = field(
        default=False,
        metadata=own(
            "NAC: the instructions as pseudo-code, with memory commands.",
            on("show", NAC),
            "--listing | show | output",
        ),
    )
    gradient: bool = field(
        default=False,
        metadata=own(
            "SkriptND: the backward operators of an operator of the library, derived from its formulas.",
            on("show", kinds("library")),
            "--gradient | show | output",
        ),
    )
    memory: bool = field(
        default=False,
        metadata=own(
            "Module DSL: what a step of training keeps in memory, and when, before it runs.",
            on("memory", SOURCES),
            "--memory | show | output",
        ),
    )
    optimal: bool = field(
        default=False,
        metadata=own(
            "With --memory: search for the smallest arena, and say how far above it the one that is used lies. "
            "Plans: let a solver (lamella[plan]) decide what stays in L2 where not all does.",
            {**on("memory", SOURCES), **on("lower", GRAPHS | NAC)},
            "--optimal | show lower | output",
            needs=(
                Need(("memory",), steps=("memory",)),
                Need(("to",), PLAN_FORMS, steps=("lower",)),
                Need(("device",), steps=("lower",)),
            ),
        ),
    )
    picture: Path | None = field(
        default=None,
        metadata=own(
            "NAC: draw the bytes, coloured by section. With --memory: draw what is alive from launch to launch.",
            {**on("show", NAC), **on("memory", SOURCES)},
            "--picture OUT.svg | show | output",
        ),
    )
    extract: Path | None = field(
        default=None,
        metadata=own(
            "NAC: write the resources of the file into this folder.",
            on("show", NAC),
            "--extract FOLDER | show | output",
        ),
    )
    stats: bool = field(
        default=False,
        metadata=own(
            "Data: read all numbers, however many: range, mean, deviation, zeros, and those that are none.",
            on("show", kinds("data")),
            "--stats | show | output",
        ),
    )
    output: Path | None = field(
        default=None,
        metadata=own(
            "Write one .npy per output into this folder.",
            {**on("execute, train, lower, unit, diff, quantize, view", ANY), "bind": NEM},
            "-o --output | run lower diff quantize bind view | output",
            required="bind",
            needs=(Need(("serve",), (None, False), steps=("view",)),),
            helps={
                "lower": "The folder to write; without it, or with -, the text is printed.",
                "diff": "Write the first diverging operation and its inputs into this folder.",
                "quantize": "The file to write: .sknd, .nac, .nacs or .onnx; without it there is only the report.",
                "bind": "OUT.stcb or OUT.json.",
                "view": "The page to write; by default NAME.html in this folder.",
            },
        ),
    )
    inputs: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "An input array; repeatable.",
            {
                **on("execute", RUNNABLE),
                "generate by names": BY_NAMES,
                "train": NAC,
                "observe": SOURCES,
                "diff": GRAPHS | NAC | NEM | kinds("stream"),
            },
            "--input NAME=FILE.npy | run diff | inputs",
        ),
    )
    arguments: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "Tensor language: an argument of the kernel; repeatable.",
            on("execute", TENSOR),
            "--arg NAME=FILE.npy|NUMBER | run | inputs",
        ),
    )
    judge: Path | None = field(
        default=None,
        metadata=own(
            "Tensor language: run the kernel on every backend of this machine, and compare each with what this graph "
            "gives on the reference.",
            on("execute", TENSOR),
            "--compare FILE | run | output",
            needs=tuple(Need((name,), (None, False)) for name in ("output", "profile", "run_timeline")),
        ),
    )
    profile: bool = field(
        default=False,
        metadata=own(
            "Say where the time went.",
            {"execute": RUNNABLE, "train": NAC, "view": GRAPHS | NAC},
            "--profile | run view | output",
            helps={"view": "Run the model on random inputs, and show the time of each operation."},
        ),
    )
    run_timeline: Path | None = field(
        default=None,
        metadata=own(
            "Write where the time went as a Chrome trace that Perfetto opens, with the origin of each step.",
            {"execute": RUNNABLE, "train": NAC},
            "--timeline OUT.json | run | output",
        ),
    )
    observe: bool = field(
        default=False,
        metadata=own(
            "Module DSL: print what hooks and probes see, and test assertions.",
            {**on("observe", SOURCES), **on("fit", SOURCES)},
            "--observe | run train | output",
            helps={
                "train": "Module DSL: print what traces tell of every step; end where an assertion is false."
            },
        ),
    )
    prompt: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "Continue this text; NAC: the plan of the file answers it; repeatable.",
            {"generate": FOLDER, "answer": NAC},
            "--prompt TEXT | generate | generation",
        ),
    )
    tokens: str | None = field(
        default=None,
        metadata=own(
            "Continue these tokens, and print numbers.",
            {"generate": SOURCES, "generate by names": BY_NAMES},
            "--tokens ID,ID… | generate | generation",
        ),
    )
    ends: str | None = field(
        default=None,
        metadata=own(
            "NAC, ONNX, SkriptND: the input that takes tokens and the output that rates the next; else the only ones.",
            on("generate by names", BY_NAMES),
            "--ends INPUT=OUTPUT | generate | generation",
        ),
    )
    text: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "Hugging Face: do what the folder is made for with this text: labels, masked words, answers, vectors; "
            "repeatable.",
            on("task", FOLDER),
            "--text TEXT | run | tasks",
        ),
    )
    context: str | None = field(
        default=None,
        metadata=own(
            "Hugging Face: the text that a question of --text is about.",
            on("task", FOLDER),
            "--context TEXT | run | tasks",
            needs=(Need(("text",)),),
        ),
    )
    audio: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "Hugging Face: write what is said in this WAV file; repeatable.",
            on("task", FOLDER),
            "--audio FILE.wav | run | tasks",
        ),
    )
    image: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "Hugging Face: the labels, or the vectors, of this image (extra `image`); repeatable.",
            on("task", FOLDER),
            "--image FILE.png | run | tasks",
        ),
    )
    top: int = field(
        default=5,
        metadata=own(
            "Hugging Face: how many labels, words or answers a task gives at most; 5 by default.",
            on("task", FOLDER),
            "--top N | run | tasks",
            least=1,
            most=1_000_000,
        ),
    )
    max_tokens: int = field(
        default=16,
        metadata=own(
            "How many tokens are generated at most; 16 by default, for a task until the text ends.",
            {"generate": SOURCES, "generate by names": BY_NAMES, "task": FOLDER},
            "--max-tokens N | generate run | generation",
            least=0,
            most=1_000_000,
            elsewhere="a plan counts the tokens of its answers itself, often by --patch max_tokens=N",
        ),
    )
    temperature: float = field(
        default=0.0,
        metadata=own(
            "Choose tokens by chance, the more the higher; 0 takes the likeliest.",
            {"generate": SOURCES, "generate by names": BY_NAMES},
            "--temperature | generate | generation",
            least=0,
        ),
    )
    run_plan: bool = field(
        default=False,
        metadata=own(
            "NAC: run the plan of the file, not its model alone.", on("plan", NAC), "--plan | run | plans"
        ),
    )
    answers: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "NAC: run the plan, and answer its questions; repeatable.",
            on("plan", NAC),
            "--answer TEXT | run | plans",
        ),
    )
    allow: tuple[str, ...] = field(
        default=(),
        metadata=own(
            "NAC: what a plan may do: prompt, read=DIR, write=DIR, models=DIR; repeatable.",
            on("plan, answer", NAC),
            "--allow WHAT[=DIR] | run check show convert lower | plans",
            elsewhere="tensors of a checkpoint that may stay unused are named with --unused PATTERN",
            hidden=("check", "show", "convert", "lower"),
            needs=(Need(("prompt", "answers", "run_plan")),),
        ),
    )
    patch: Mapping[str, str] = field(
        default_factory=dict,
        metadata=own(
            "NAC: another value for a constant of the plan; repeatable.",
            on("plan, answer", NAC),
            "--patch KEY=VALUE | run | plans",
        ),
    )
    rewrite: bool = field(
        default=False,
        metadata=own(
            "NAC: write the patched constants into FILE.",
            on("plan", NAC),
            "--rewrite | run | plans",
            needs=(Need(("patch",)),),
        ),
    )
