"""The NPU backend: runs a plan bit by bit as the numerics of NEM say, on this machine."""

from __future__ import annotations

from lamella.backend.npu.executable import PlanExecutable, compile_plan, random_inputs

__all__ = ["PlanExecutable", "compile_plan", "random_inputs"]
