"""The reference backend: runs a graph with NumPy straight from the formulas of its operators."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.backend.reference.execute import Executable, compile_model
from lamella.graph.model import Model

__all__ = ["BACKEND", "Executable", "ReferenceBackend", "compile_model"]


@dataclass(frozen=True, slots=True)
class ReferenceBackend:
    """Takes a model and gives an executable."""

    name: str = "reference"
    takes: type[Model] = Model

    def keep(self, operator: str) -> bool:
        """Whether an operator is taken whole: any is, because a run decomposes what is composed."""
        return bool(operator)

    def missing(self) -> str | None:
        """Why it cannot run here; it needs nothing but NumPy."""
        return None

    def compile(self, program: Model) -> Executable:
        """Make a composed model callable."""
        return compile_model(program)


BACKEND = ReferenceBackend()
