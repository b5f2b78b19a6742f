"""A training graph in the tables of its file, wherever it stood, and the step that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamella.base.source import Span
from lamella.bridge.nac_to_graph.nodes import InputType
from lamella.bridge.nac_to_graph.notes import Notes
from lamella.lang.nac.nodes import File, Instruction


@dataclass(frozen=True, slots=True)
class Change:
    """A parameter that a step changes, by places in the training graph: its gradient, times a rate."""

    parameter: int
    gradient: int
    span: Span
    rate: float | None = None
    """The learning rate, where it is a constant."""
    source: int | None = None
    """The instruction that gives the learning rate, where one does."""


@dataclass(frozen=True, slots=True)
class Backward:
    """The instructions of a training graph, in the ids of `file`; their inputs are of the variants of TRNG."""

    file: File
    instructions: tuple[Instruction, ...]
    changes: tuple[Change, ...]
    loss: int | None
    """The instruction whose result the graph ends with."""
    targets: Mapping[int, InputType] = field(default_factory=dict)
    """By their numbers what targets are, where somebody says it."""
    notes: Notes = field(default_factory=Notes)
    """What is noted of these instructions: ranges of extents, origins, results of branches, names of constants."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A parameter that a step changes, with its type in words.

    The others are instructions of the step: the gradient, the rate where it is computed, the old value and the new.
    """

    name: str
    type: str
    gradient: int
    rate: int | None
    old: int
    new: int
    change: Change


@dataclass(frozen=True, slots=True)
class Step:
    """A step of training as a program: parameters are states, and their new values are what the step makes of them."""

    file: File
    trained: tuple[Trained, ...]
    targets: tuple[str, ...]
    """The inputs of the program that are targets, by their numbers."""
    loss: str
    """The output that is the loss; empty where the graph does not end with one."""
    first: int
    """Where the training graph begins in the program."""
