"""The NPU backend: runs a plan bit by bit as the numerics of NEM say, on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.backend.npu.executable import PlanExecutable, compile_plan, random_inputs
from lamella.backend.npu.opcodes import OPCODES
from lamella.lang.nem.resolved import Plan

__all__ = ["BACKEND", "NpuBackend", "PlanExecutable", "compile_plan", "random_inputs"]


@dataclass(frozen=True, slots=True)
class NpuBackend:
    """Takes a plan and gives an executable."""

    name: str = "npu"
    takes: type[Plan] = Plan

    def keep(self, operator: str) -> bool:
        """Whether an operator is taken whole: those that are opcodes are."""
        return operator in OPCODES

    def missing(self) -> str | None:
        """Why it cannot run here; it needs nothing but NumPy."""
        return None

    def compile(self, program: Plan) -> PlanExecutable:
        """Make a checked plan callable."""
        return compile_plan(program)


BACKEND = NpuBackend()
