"""What an annotation may say and where it may stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.lang.module.instantiate.nodes import Value
from lamella.lang.module.nodes import Expr

ArgumentValue: TypeAlias = "Value | Expr"
"""The value of an argument; a condition stays an expression."""

OPERATION, IDENTITY, PORT = "an operation", "an identity", "an input or output"
PARAMETER, INSTANCE = "a tensor parameter", "an instance"
DECLARATION, GRAPH = "a declaration", "a graph"
TENSORS = (OPERATION, IDENTITY)
REGIONS = (OPERATION, INSTANCE, DECLARATION, GRAPH)

NUMBERS, BESIDE, RUNS, TRAINING, DISTRIBUTION = "numbers", "beside", "runs", "training", "distribution"
"""Where the effect of an annotation shows: in the numbers of the graph, in what is kept beside the graph, when it runs
with observers, in training, on several devices."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument that an annotation takes; `choices` are the words of an enumeration."""

    name: str
    kind: str
    default: Value = None
    choices: tuple[str, ...] = ()
    required: bool = False
    least: float | None = None
    """The smallest number that makes sense."""

    @property
    def optional(self) -> bool:
        """Whether None may be given."""
        return self.default is None and not self.required


@dataclass(frozen=True, slots=True)
class Kind:
    """One annotation of the language: its arguments, its places, and what it cannot stand beside."""

    name: str
    section: str
    places: tuple[str, ...]
    effect: str
    parameters: tuple[Parameter, ...] = ()
    excludes: tuple[str, ...] = ()
    repeated: bool = False
    """Whether it may stand several times in one place."""

    def find(self, name: str) -> Parameter | None:
        """The parameter of that name."""
        return next((item for item in self.parameters if item.name == name), None)


@dataclass(frozen=True, slots=True)
class Reading:
    """The arguments of an annotation, those that are left out with their defaults, and what is wrong with them.

    An argument that depends on values which are not known yet is missing.
    """

    arguments: Mapping[str, ArgumentValue]
    findings: tuple[Diagnostic, ...] = ()
