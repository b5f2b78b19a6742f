"""The interpreter of plans: runs the orchestrator's bytecode, and touches nothing that is not granted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lamella.backend.mep.actions import ACTIONS, RUNNING, run_models, train_models
from lamella.backend.mep.state import (
    CAPABILITIES,
    Host,
    PlanBudget,
    PlanContext,
    PlanModel,
    PlanState,
    PlanTokenizer,
    Value,
    as_integer,
    as_truth,
    exceeded,
)
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable
from lamella.base.errors import InputError, Malformed
from lamella.base.limits import LARGEST, SMALLEST
from lamella.lang.nac.check.bytecode import BRANCH, BREAK, HALT, LOOP_END, LOOP_START, RETURN, PlanStep
from lamella.lang.nac.check.plan import DecodedPlan, check_plan, read_graph, read_plan
from lamella.lang.nac.nodes import Constant, ConstantType, ConstantValue, File
from lamella.lang.nac.notes import find_notes
from lamella.lang.nac.rules import sections
from lamella.ops.fault import Fault

# --- the interpreter loop, within a budget of steps ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What a plan returned, with what it took: steps, and the most bytes that slots held at once."""

    values: tuple[Value, ...]
    steps: int
    peak_bytes: int
    findings: tuple[Diagnostic, ...]
    """Warnings and notes of the verifier."""


def run_plan(
    file: File,
    host: Host,
    *,
    answers: Iterable[str] = (),
    grants: Collection[str] = (),
    budget: PlanBudget | None = None,
    seed: int = 0,
) -> PlanResult:
    """Run the plan of a file; LamellaError holds what is wrong with it, before or while it runs.

    `answers` are given to SRC_USER_PROMPT in order before the host is asked; `grants` are names of CAPABILITIES, and
    without them a plan touches nothing. The seed decides what ANALYSIS_SAMPLE draws.
    """
    unknown = sorted(set(grants).difference(CAPABILITIES))
    if unknown or seed < 0:
        what = f"'{unknown[0]}' is no capability" if unknown else f"the seed is {seed}; seeds start at 0"
        raise InputError(what, hint=f"capabilities are {', '.join(CAPABILITIES)}" if unknown else "")
    found = list(check_plan(file))
    if errors(found):
        raise LamellaError(errors(found))
    plan = read_plan(file)
    around = PlanContext(
        file,
        host,
        frozenset(grants),
        budget or PlanBudget(),
        plan.values,
        iter(answers),
        np.random.default_rng(seed),
    )
    machine = _PlanMachine(plan, PlanState(around))
    with np.errstate(all="ignore"):
        values = machine.run()
    return PlanResult(values, machine.steps, machine.state.peak, tuple(found))


class _PlanMachine:
    """One run of one plan."""

    def __init__(self, plan: DecodedPlan, state: PlanState) -> None:
        self.state = state
        self.steps = 0
        self._plan = plan
        self._numbers = {step.offset: number for number, step in enumerate(plan.steps)}
        self._skips = read_graph(plan.steps, {}).skips
        self._operands = [tuple(value for _, value in step.operands) for step in plan.steps]
        self._flow: dict[int, Callable[[int], int]] = {
            LOOP_START: self._start_loop,
            LOOP_END: self._end_loop,
            BRANCH: self._branch,
            BREAK: self._break_loop,
        }

    def run(self) -> tuple[Value, ...]:
        """Go through the plan until it returns, halts or ends."""
        steps, number = self._plan.steps, 0
        try:
            while number < len(steps):
                step = steps[number]
                self._count()
                if step.code == RETURN:
                    return tuple(self.state.read_all(self._operands[number]))
                if step.code == HALT:
                    break
                number = self._take(number, step)
        except Fault as problem:
            raise LamellaError([self._plan.report(problem.rule, number, **problem.values)]) from None
        except LamellaError as problem:
            origin = f"{steps[number].opcode.name} at byte {steps[number].offset} of the plan"
            findings = [item.from_origin(*item.origins, origin) for item in problem.findings]
            raise LamellaError(findings) from problem
        return ()

    def _count(self) -> None:
        most = self.state.around.budget.steps
        if self.steps >= most:
            raise exceeded(f"would be step {self.steps + 1}; {most} are allowed", "max_steps")
        self.steps += 1

    def _take(self, number: int, step: PlanStep) -> int:
        """Do what a step says; the number of the next one."""
        if step.code in self._flow:
            return self._flow[step.code](number)
        if step.code in ACTIONS:
            ACTIONS[step.code](self.state, self._operands[number])
        elif step.code in RUNNING:
            run_models(self.state, step)
        else:
            train_models(self.state, step)
        return number + 1

    # --- jumps ----------------------------------------------------------------------------------------------

    def _operand(self, number: int) -> Value:
        return self.state.read(self._operands[number][0])

    def _target(self, number: int) -> int:
        target = self._plan.steps[number].target
        return len(self._plan.steps) if target is None else self._numbers.get(target, len(self._plan.steps))

    def _start_loop(self, number: int) -> int:
        count = as_integer(self._operand(number))
        if count <= 0:
            return self._skips[number]
        self.state.loops.append(count)
        return number + 1

    def _end_loop(self, number: int) -> int:
        self.state.loops[-1] -= 1
        if self.state.loops[-1] > 0:
            return self._target(number)
        self.state.loops.pop()
        return number + 1

    def _branch(self, number: int) -> int:
        return self._target(number) if as_truth(self._operand(number)) else number + 1

    def _break_loop(self, number: int) -> int:
        if not as_truth(self._operand(number)):
            return number + 1
        self.state.loops.pop()
        return self._target(number)


# --- constants of a plan that are patched before it runs ----------------------------------------------------


_INTEGERS = (-(1 << 31), (1 << 31) - 1)


def constant_names(file: File) -> dict[str, int]:
    """The names of constants that `lamella.json` gives; what is malformed there names nothing."""
    content = find_notes(file) or {}
    plan = content.get("plan")
    named = plan.get("constants") if isinstance(plan, dict) else None
    pairs = named.items() if isinstance(named, dict) else ()
    return {name: id_ for name, id_ in pairs if isinstance(id_, int) and not isinstance(id_, bool)}


def patch_constants(file: File, values: Mapping[str, object]) -> File:
    """The file with constants of its plan replaced, by id or by name; each keeps its type.

    A value may be a text as a command line gives it: `3`, `0.5`, `true`, `1,2,3`. LamellaError holds what does not fit.
    """
    names = constant_names(file)
    pool = {item.id: item for item in file.orchestrator.constants}
    wrong: list[Diagnostic] = []
    for key, value in values.items():
        try:
            constant = _find(key, names, pool)
            pool[constant.id] = replace(constant, value=_convert(constant, value))
        except Malformed as unfit:
            shown, (problem, repair) = printable(repr(value), 80), unfit.args
            span = file.orchestrator.span
            wrong.append(sections.PATCH.at(span, key=key, value=shown, problem=problem, repair=repair))
    if wrong:
        raise LamellaError(wrong)
    constants = tuple(pool[item.id] for item in file.orchestrator.constants)
    return replace(file, orchestrator=replace(file.orchestrator, constants=constants))


def _find(key: str, names: Mapping[str, int], pool: Mapping[int, Constant]) -> Constant:
    id_ = names.get(key)
    if id_ is None and key.isascii() and key.isdigit() and len(key) < 6:
        id_ = int(key)
    if id_ is None or id_ not in pool:
        known = ", ".join([*sorted(names), *map(str, sorted(pool))][:12])
        raise Malformed(
            "there is no such constant", f"constants are {known}" if known else "the plan has none"
        )
    return pool[id_]


def _convert(constant: Constant, value: object) -> ConstantValue:
    kind = constant.type
    if kind in (ConstantType.INT32_LIST, ConstantType.FLOAT32_LIST):
        return _list(kind, value)
    if kind is ConstantType.NULL:
        raise Malformed("it is null, which has one value", "patch another constant")
    if kind is ConstantType.STRING:
        if not isinstance(value, str):
            raise Malformed("it is a text", "give a text")
        return value
    return _truth(value) if kind is ConstantType.BOOL else _number(kind, value)


def _truth(value: object) -> bool:
    word = value.strip().lower() if isinstance(value, str) else value
    if word in (True, "true", "1"):
        return True
    if word in (False, "false", "0"):
        return False
    raise Malformed("it is true or false", "give true or false")


def _number(kind: ConstantType, value: object) -> int | float:
    integer = kind is ConstantType.INT64
    found: int | float | None = None
    try:
        if integer and isinstance(value, str | int):
            found = int(value)
        elif not integer and isinstance(value, str | int | float):
            found = float(value)
    except (ValueError, OverflowError):
        found = None
    if found is None or (integer and not SMALLEST <= found <= LARGEST):
        what = "an integer" if integer else "a number"
        raise Malformed(f"it is {what}", f"give {what} of 64 bits")
    return found


def _list(kind: ConstantType, value: object) -> tuple[int, ...] | tuple[float, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise Malformed("it is a list", "give numbers with commas between them")
    if kind is ConstantType.FLOAT32_LIST:
        return tuple(float(np.float32(_number(ConstantType.FLOAT64, item))) for item in items)
    found = tuple(int(_number(ConstantType.INT64, item)) for item in items)
    if any(not _INTEGERS[0] <= item <= _INTEGERS[1] for item in found):
        raise Malformed("its items have 32 bits", "give smaller numbers")
    return found


__all__ = [
    "CAPABILITIES",
    "Host",
    "PlanBudget",
    "PlanModel",
    "PlanResult",
    "PlanTokenizer",
    "Value",
    "constant_names",
    "patch_constants",
    "run_plan",
]
