"""What options can have an effect on: kinds of input, the steps of commands, and the row of one option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias, TypedDict, Unpack

from lamella.base.records import dataclass

Steps: TypeAlias = "tuple[str, ...]"
"""The way that a command or a function of the API goes with an input."""
Effects: TypeAlias = "Mapping[str, frozenset[str]]"
"""By step kinds of input."""

# --- kinds of input -------------------------------------------------------

SUBJECTS = MappingProxyType(
    {
        "module": "a .module file",
        "folder": "a Hugging Face folder",
        "unit": "a compiled unit",
        "sknd": "a SkriptND model",
        "torch": "a .pt2 file",
        "onnx": "an ONNX file",
        "nac": "a NAC file",
        "tensor": "a .tensor file",
        "nem": "a NEM program",
        "stream": "a bound stream",
        "data": "a file of numbers",
        "library": "a part of the operator library",
        "device": "a shipped device",
        "standard": "a part of the library of architectures",
        "target": "a target of kernels",
        "graph": "a loaded graph",
        "kernels": "a graph with kernels",
        "plans": "a graph with its plan",
    }
)
"""Kinds of input, as a message names them; the last three are only handed around by the API."""


def kinds(words: str) -> frozenset[str]:
    """Kinds of input as words."""
    return frozenset(words.split())


ANY = frozenset(SUBJECTS)
MODULE, FOLDER, SKND, NAC, TENSOR, NEM = map(kinds, ("module", "folder", "sknd", "nac", "tensor", "nem"))
SOURCES = MODULE | FOLDER
GRAPHS = kinds("sknd module folder unit torch onnx graph")
BY_KERNELS = GRAPHS | NAC | kinds("kernels")
"""What the backends for kernels run when they are asked for."""
RUNNABLE = BY_KERNELS | TENSOR | NEM | kinds("stream plans")
BY_NAMES = NAC | kinds("sknd onnx")
"""What generates tokens by the names of an input and an output."""

# --- where it has it: the steps of commands ----------------------------------------------------------------------

STEPS = MappingProxyType(
    {
        "generate": "that generates tokens",
        "generate by names": "that generates tokens",
        "answer": "whose plan answers",
        "observe": "that is observed",
        "plan": "whose plan runs",
        "train": "that is trained by its own graph",
        "fit": "that learns from data",
        "execute": "that is run once",
        "task": "that does its task",
        "write nac": "that becomes NAC",
        "write graph": "that is written as it is",
        "export": "that becomes a Hugging Face folder",
        "merge": "that takes an adapter into its weights",
        "unit": "that becomes a compiled unit",
        "lower": "that is lowered",
    }
)
"""Steps that exclude each other within a command, with the words that tell them apart in a message."""
TASK_INPUTS = ("text", "audio", "image")
"""Options that give a task its input."""
COMMANDS = MappingProxyType(
    {
        "check": (("check",), ("check", "verify")),
        "fmt": (("fmt",),),
        "show": (("show",), ("load", "memory"), ("load", "ranks")),
        "run": (
            ("load", "compile", "execute"),
            ("load", "compile", "task"),
            *(("load", step) for step in ("observe", "plan")),
        ),
        "generate": (
            ("load", "compile", "generate"),
            ("load", "compile", "generate by names"),
            ("load", "answer"),
        ),
        "train": (("load", "compile", "train"), ("load", "fit")),
        "convert": tuple(("load", step) for step in ("write nac", "write graph", "export", "merge")),
        "lower": (("load", "lower"), ("load", "unit")),
        "diff": (("load", "diff"),),
        "bench": (("load", "bench"),),
        "quantize": (("load", "quantize"),),
        "sim": (("sim",), ("load", "ranks")),
        "bind": (("bind",),),
        "view": (("load", "view"),),
    }
)
"""Each command with the ways it may go."""
TRAINABLE = kinds("sknd module folder unit torch onnx graph nac")
"""What learns from data."""
TAKES = MappingProxyType({"generate": SOURCES | BY_NAMES, "train": TRAINABLE})
"""The kinds of input of commands that run a model in a way of their own: they have the options of `run` that apply."""
OWN_WAYS = MappingProxyType({"train": NAC})
"""Steps that not all kinds of input of their command can take."""


def steps_of(command: str, subject: str, given: Mapping[str, object], target: Path | None = None) -> Steps:
    """The steps that a command takes with an input, by the options that decide between its ways."""
    if command == "check":
        return ("check", "verify") if "verify_backward" in given else ("check",)
    if command == "show":
        words = [name for name in ("memory", "ranks") if name in given]
        return ("load", words[0]) if words else ("show",)
    if command == "sim" and "ranks" in given:
        return ("load", "ranks")
    if command == "lower":
        return ("load", "unit" if given.get("to") == "ir" else "lower")
    if command == "convert" and ("adapters" in given or "unmerge" in given):
        return ("load", "merge")
    if command == "convert":
        is_nac = target is not None and target.suffix.lower() in (".nac", ".nacs")
        is_export = subject in SOURCES and target is not None and not target.suffix
        return ("load", "write nac" if is_nac else "export" if is_export else "write graph")
    if command == "generate" and subject in BY_NAMES:
        is_answer = "prompt" in given and subject in NAC
        return ("load", "answer") if is_answer else ("load", "compile", "generate by names")
    if command == "train" and (subject not in NAC or "data" in given):
        return ("load", "fit")
    if command != "run":
        return COMMANDS[command][0]
    if "observe" in given:
        return ("load", "observe")
    if any(name in given for name in TASK_INPUTS):
        return ("load", "compile", "task")
    if any(name in given for name in ("answers", "run_plan", "patch", "rewrite")):
        return ("load", "plan")
    return ("load", "compile", "execute")


@dataclass(frozen=True, slots=True)
class Need:
    """That an option has an effect only beside one of others; `values` are those that they may have."""

    options: tuple[str, ...]
    values: tuple[object, ...] = ()
    """None stands for an option that is not given; empty where any value does."""
    on: frozenset[str] = ANY
    steps: tuple[str, ...] = ()
    """The steps it is asked for; empty for all."""
    unless: object = None
    """A value with which the option itself is enough."""
    instead: Need | None = None
    """What will do in its place."""

    def holds(self, value: object, given: Mapping[str, object]) -> bool:
        """Whether an option with a value has what it needs."""
        if self.unless is not None and value == self.unless:
            return True
        if self.instead is not None and self.instead.holds(value, given):
            return True
        if not self.values:
            return any(given.get(name) is not None for name in self.options)
        return any(given.get(name) in self.values for name in self.options)


@dataclass(frozen=True, slots=True)
class Option:
    """One row: a sentence, where the option has an effect, and how commands spell it."""

    help: str
    effects: Effects
    """By step the kinds of input that it can change something for."""
    flags: tuple[str, ...] = ()
    """How commands spell it; the API uses the name of the field."""
    metavar: str | None = None
    commands: tuple[str, ...] = ()
    """Commands that offer it; none for the API alone."""
    group: str = "model"
    in_api: bool = True
    never: tuple[str, ...] = ()
    """Steps that take its effect away."""
    needs: tuple[Need, ...] = ()
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    required: str = ""
    """The command that cannot do without it."""
    helps: Mapping[str, str] = field(default_factory=dict)
    """Other sentences for some commands."""
    elsewhere: str = ""
    """What is said where it has no effect, of an option that is often meant for another."""
    hidden: tuple[str, ...] = ()
    """Commands that know it only to say that."""

    def is_offered(self, command: str) -> bool:
        """Whether a command has it: by its own row, or as a command that runs models and can be changed by it."""
        if command in self.commands or command not in TAKES:
            return command in self.commands
        ways = COMMANDS[command]
        return "run" in self.commands and any(
            self.has_effect(way, kind)
            for way in ways
            for kind in TAKES[command] & OWN_WAYS.get(way[-1], TAKES[command])
        )

    def has_effect(self, steps: Steps, subject: str) -> bool:
        """Whether it can change something for a kind of input on the way that a command goes."""
        if any(step in self.never for step in steps):
            return False
        return any(subject in self.effects.get(step, ()) for step in steps)


class More(TypedDict, total=False):
    """What few rows say."""

    never: tuple[str, ...]
    needs: tuple[Need, ...]
    choices: tuple[str, ...]
    least: float
    most: float
    required: str
    helps: Mapping[str, str]
    elsewhere: str
    hidden: tuple[str, ...]


def row(help: str, effects: Effects, spelling: str = "", **more: Unpack[More]) -> Mapping[str, Option]:
    """An option of the API, and of the commands that `--flag METAVAR | command command | group` names."""
    words, commands, group = (*spelling.split(" | "), "", "")[:3]
    flags = tuple(word for word in words.split() if word.startswith("-"))
    metavar = next((word for word in words.split() if not word.startswith("-")), None)
    return {
        "option": Option(
            help, effects, flags, metavar, tuple(commands.split()), group.strip() or "model", **more
        )
    }


def own(help: str, effects: Effects, spelling: str, **more: Unpack[More]) -> Mapping[str, Option]:
    """An option of commands alone."""
    found = row(help, effects, spelling, **more)["option"]
    return {"option": replace(found, in_api=False)}


def on(steps: str, subjects: frozenset[str]) -> dict[str, frozenset[str]]:
    """The same kinds of input in several steps, which are separated by commas."""
    return {step.strip(): subjects for step in steps.split(",")}
