"""Plans and bound streams on the simulated NPU, bit by bit."""

from __future__ import annotations

from lamella.backend.npu import PlanExecutable, compile_plan
from lamella.backend.npu.stream import compile_stream
from lamella.pipeline.nem.program import Program, plan_of
from lamella.pipeline.options import Options
from lamella.plan.stcb import Stream


def missing(backend: str) -> str | None:
    """The simulator is always there."""
    return None


def compile(model: Program | Stream, backend: str, options: Options) -> PlanExecutable:
    """Make a plan or a stream executable."""
    seed, order, limits = options.start_seed, options.order, options.limits
    executable = (
        compile_stream(model, seed=seed, order=order, limits=limits)
        if isinstance(model, Stream)
        else compile_plan(plan_of(model), seed=seed, order=order, limits=limits)
    )
    executable.draws = options.draws
    return executable
