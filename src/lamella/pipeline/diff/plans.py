"""A model and a plan that was made of it, or two plans, compared on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lamella.backend.npu import PlanExecutable
from lamella.backend.npu.executable import random_inputs
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.graph.model import Model
from lamella.pipeline.api import make_executable
from lamella.pipeline.diff.gap import Gap, measure
from lamella.pipeline.diff.sides import load_side, make_sides
from lamella.pipeline.languages import NEM, STREAM, language_of
from lamella.pipeline.nem.lowering import tolerance
from lamella.pipeline.nem.numbers import PlanNumbers, read_numbers
from lamella.pipeline.nem.program import Program, plan_of, read_checked
from lamella.pipeline.nem.stages import executable
from lamella.pipeline.options import Options

STEPS = 3
"""Calls of a model that keeps states."""


@dataclass(frozen=True, slots=True)
class PlanComparison:
    """How far the outputs of a plan lie from those of its model; a plan of integers alone must not differ at all."""

    gaps: tuple[Gap, ...]
    tolerance: float
    """In parts of the largest number of an output."""
    apart: tuple[str, ...] = ()
    """Outputs that two plans do not have alike, and that are not compared."""

    @property
    def equal(self) -> bool:
        """Whether every output is as near as it must be."""
        return all(_apart(item) <= self.tolerance for item in self.gaps)

    def first(self) -> Gap | None:
        """The first output that is not."""
        return next((item for item in self.gaps if not _apart(item) <= self.tolerance), None)


def _apart(gap: Gap) -> float:
    return gap.largest / max(gap.scale, 1.0)


def is_plan(paths: Sequence[Path], options: Options) -> bool:
    """Whether one of two models is a plan, or both are bound streams."""
    kinds = [language_of(path, options.language) for path in paths]
    return len(paths) == 2 and (NEM in kinds or all(kind is STREAM for kind in kinds))


def compare_plan(paths: Sequence[Path], options: Options, given: Mapping[str, Array]) -> PlanComparison:
    """Run both on given inputs, or on those that the seed draws for the model; one with states several times."""
    plans = [path for path in paths if language_of(path, options.language) is NEM]
    others = [path for path in paths if language_of(path, options.language) not in (NEM, STREAM)]
    if not others:
        return _compare_plans(paths, options, given)
    program = read_checked(plans[0], options.device, options.limits, options.root)
    numbers = read_numbers(plans[0], options.limits)
    if numbers is None:
        hint = "`lamella lower` writes them; a plan without them has other inputs than the model"
        raise InputError(f"there are no numbers beside '{plans[0].name}'", path=plans[0], hint=hint)
    side, _ = make_sides([load_side(others[0], paths, options)] * 2, options)
    return _compare(side.model, program, numbers, options, given)


def _compare_plans(paths: Sequence[Path], options: Options, given: Mapping[str, Array]) -> PlanComparison:
    """Run two plans, bound or not, on the same inputs: what both write outside must be the same bits."""
    one, other = (make_executable(path, "npu", replace(options, random=True)) for path in paths)
    _require_ends(one.inputs, other.inputs, "inputs of the plans")
    drawn: Mapping[str, Array] = {}
    if isinstance(one, PlanExecutable):
        drawn = random_inputs(one.plan, options.start_seed, options.limits)
    wanted, found = (run(**{**drawn, **given}) for run in (one, other))
    alike = [name for name in wanted if name in found and wanted[name].shape == found[name].shape]
    if not alike:
        raise InputError("the plans have no output in common")
    names = dict.fromkeys((*wanted, *found))
    gaps = tuple(measure(name, wanted[name], found[name]) for name in alike)
    return PlanComparison(gaps, _allowed(options, 0.0), tuple(name for name in names if name not in alike))


def _compare(
    model: Model, program: Program, numbers: PlanNumbers, options: Options, given: Mapping[str, Array]
) -> PlanComparison:
    plan = executable(program, numbers, model.graph, options)
    reference = compile_model(model, seed=options.start_seed, limits=options.limits)
    _require_ends(reference.inputs, plan.inputs, "inputs of model and plan")
    _require_ends(reference.outputs, plan.outputs, "outputs of model and plan")
    gaps: list[Gap] = []
    steps = STEPS if model.graph.updates else 1
    for step in range(steps):
        inputs = {**_drawn(model, options, step), **given}
        wanted, found = reference(**inputs), plan(**inputs)
        mark = f" (call {step + 1})" if steps > 1 else ""
        gaps += [measure(f"{name}{mark}", wanted[name], found[name]) for name in wanted]
    return PlanComparison(tuple(gaps), _allowed(options, tolerance(plan_of(program))))


def _drawn(model: Model, options: Options, step: int) -> dict[str, Array]:
    """The inputs of one call; each call has others."""
    return compile_model(model, seed=options.start_seed + step, limits=options.limits).draw_inputs()


def _allowed(options: Options, usual: float) -> float:
    return options.tolerance if "tolerance" in options.given else usual


def _require_ends(one: Sequence[str], other: Sequence[str], what: str) -> None:
    """Both sides have the same names; InputError where one was made of something else."""
    if set(one) != set(other):
        names = " against ".join(", ".join(sorted(items)[:6]) for items in (one, other))
        raise InputError(f"the {what} differ: {names}")
