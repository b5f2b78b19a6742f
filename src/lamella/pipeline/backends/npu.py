"""Plans, bound streams and graphs by their plans on the simulated NPU, bit by bit."""

from __future__ import annotations

from lamella.backend.npu import PlanExecutable, compile_plan
from lamella.backend.npu.stream import compile_stream
from lamella.base.errors import InputError
from lamella.graph.model import Model
from lamella.pipeline.languages import SKRIPTND
from lamella.pipeline.nem.lowering import LoweredPlan
from lamella.pipeline.nem.numbers import PortedPlan, read_numbers
from lamella.pipeline.nem.program import Program, plan_of
from lamella.pipeline.nem.stages import executable as make_ported
from lamella.pipeline.options import Options
from lamella.plan.stcb import Stream


def missing(backend: str) -> str | None:
    """The simulator is always there."""
    return None


def compile(
    model: Program | Stream | LoweredPlan | Model, backend: str, options: Options
) -> PlanExecutable | PortedPlan:
    """Make a plan or a stream executable; a graph is lowered first, and a plan with its numbers is called like one."""
    if isinstance(model, Model):
        lowered = SKRIPTND.lower(model, "nem", options)
        if not isinstance(lowered, LoweredPlan):
            raise InputError("the graph has no plan")
        model = lowered
    if isinstance(model, LoweredPlan):
        program = model.final.program if model.stream is None else model.stream
        return make_ported(program, model.final.numbers, model.model.graph, options)
    if model.path is not None:
        numbers = read_numbers(model.path, options.limits)
        if numbers is not None:
            return make_ported(model, numbers, None, options)
    seed, order, limits = options.start_seed, options.order, options.limits
    executable = (
        compile_stream(model, seed=seed, order=order, limits=limits)
        if isinstance(model, Stream)
        else compile_plan(plan_of(model), seed=seed, order=order, limits=limits)
    )
    executable.draws = options.draws
    return executable
