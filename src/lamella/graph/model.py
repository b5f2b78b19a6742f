"""A model: a composed graph, the operators it calls, and the data of its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lamella.base.diagnostic import Diagnostic
from lamella.graph.nodes import Graph
from lamella.ops.library import Library

if TYPE_CHECKING:
    from lamella.base.arrays import Array


@dataclass(frozen=True, slots=True)
class Model:
    """A graph with what is needed to run it; two models are equal when their graphs are.

    Variables that `data` does not hold have no value yet.
    """

    graph: Graph
    library: Library = field(compare=False, repr=False)
    data: Mapping[str, Array] | None = field(default=None, compare=False, repr=False)
    findings: tuple[Diagnostic, ...] = field(default=(), compare=False, repr=False)
    """Warnings about the data."""

    @property
    def language(self) -> str:
        """The language that the model is written in."""
        return "skriptnd"
