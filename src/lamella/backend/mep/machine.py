"""The machine: runs a plan that was verified, step by step, within its budget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from lamella.backend.mep.actions import ACTIONS, RUNNING, TRAINING, refuse_training, run_models
from lamella.backend.mep.faults import Fault, exceeded
from lamella.backend.mep.host import CAPABILITIES, Host
from lamella.backend.mep.state import Budget, State, Surroundings
from lamella.backend.mep.values import Value, as_integer, as_truth
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.errors import InputError
from lamella.lang.nac.check.sections.decode import Step
from lamella.lang.nac.check.sections.flow import read_graph
from lamella.lang.nac.check.sections.opcodes import BRANCH, BREAK, HALT, LOOP_END, LOOP_START, RETURN
from lamella.lang.nac.check.sections.plan import Plan, check_plan, read_plan
from lamella.lang.nac.nodes import File


@dataclass(frozen=True, slots=True)
class Outcome:
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
    budget: Budget | None = None,
    seed: int = 0,
) -> Outcome:
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
    around = Surroundings(
        file,
        host,
        frozenset(grants),
        budget or Budget(),
        plan.values,
        iter(answers),
        np.random.default_rng(seed),
    )
    machine = _Machine(plan, State(around))
    with np.errstate(all="ignore"):
        values = machine.run()
    return Outcome(values, machine.steps, machine.state.peak, tuple(found))


class _Machine:
    """One run of one plan."""

    def __init__(self, plan: Plan, state: State) -> None:
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
            raise LamellaError([self._plan.tell(problem.rule, number, **problem.values)]) from None
        except LamellaError as problem:
            origin = f"{steps[number].opcode.name} at byte {steps[number].offset} of the plan"
            told = [item.from_origin(*item.origins, origin) for item in problem.findings]
            raise LamellaError(told) from problem
        return ()

    def _count(self) -> None:
        most = self.state.around.budget.steps
        if self.steps >= most:
            raise exceeded(f"would be step {self.steps + 1}; {most} are allowed", "max_steps")
        self.steps += 1

    def _take(self, number: int, step: Step) -> int:
        """Do what a step says; the number of the next one."""
        if step.code in self._flow:
            return self._flow[step.code](number)
        if step.code in ACTIONS:
            ACTIONS[step.code](self.state, self._operands[number])
        elif step.code in RUNNING:
            run_models(self.state, step)
        else:
            raise refuse_training(TRAINING[step.code])
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
