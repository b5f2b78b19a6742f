"""Findings of a run: each task and rule once, with the first iteration and how often it happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamella.base.diagnostic import ERROR, Diagnostic, Rule
from lamella.lang.nem.resolved import Loop, Plan, Task


@dataclass(slots=True)
class _CountedFinding:
    """The first time, and how many times."""

    rule: Rule
    task: Task
    iteration: Mapping[int, int]
    values: Mapping[str, object]
    count: int = 0


class RunFindings:
    """Collects what the instances of a plan report; `failed` says whether an error is among it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._found: dict[tuple[int, str], _CountedFinding] = {}
        self.failed = False

    def add(self, task: Task, iteration: Mapping[int, int], rule: Rule, values: Mapping[str, object]) -> None:
        """Count a finding of a task."""
        key = task.number, rule.code
        self._found.setdefault(key, _CountedFinding(rule, task, iteration, values)).count += 1
        self.failed = self.failed or rule.severity == ERROR

    def diagnostics(self) -> list[Diagnostic]:
        """All findings in the order in which they were first made."""
        names = {item.number: item.variable for item, _ in self._plan.walk() if isinstance(item, Loop)}
        return [_tell(item, names) for item in self._found.values()]


def _tell(item: _CountedFinding, names: Mapping[int, str]) -> Diagnostic:
    more = f" ({item.count} times)" if item.count > 1 else ""
    place = iteration_text(item.iteration, names) + more
    values = {"task": item.task.title, "iteration": place, **item.values}
    return item.rule.at(item.task.span, hint=None, labels=(), **values)


def iteration_text(iteration: Mapping[int, int], names: Mapping[int, str]) -> str:
    """How findings name an iteration: ` in iteration i=3, j=0`, or nothing outside loops."""
    parts = [f"{names[number]}={value}" for number, value in iteration.items()]
    return f" in iteration {', '.join(parts)}" if parts else ""
