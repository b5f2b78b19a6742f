"""Builds instances from the outside in, without recursion; memoised, so that each distinct one is built once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from lamella.base.diagnostic import Diagnostic, Label, errors, sort_findings
from lamella.base.errors import Found
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Span
from lamella.lang.module.instantiate.bind import Findings
from lamella.lang.module.instantiate.construct import InstanceRequest, Steps, construct
from lamella.lang.module.instantiate.inherit import Merged
from lamella.lang.module.instantiate.nodes import DictValue, Instance, Instantiated, Known, Value
from lamella.lang.module.resolve.nodes import Declared, Scope
from lamella.lang.module.rules import graphs, syntax

DECISIVE = frozenset(("E007", "E011", "E027", "E101"))
"""Codes of mistakes behind which nothing else is worth looking for: other values, or another declaration, are meant."""


def instantiate(
    declared: Declared, config: Mapping[str, Known], scope: Scope, limits: Limits = DEFAULT
) -> Instantiated:
    """A declaration with the values of a config, and all that it holds; findings instead where it cannot be built."""
    builder = _Builder(limits)
    span = declared.declaration.span
    instance = builder.build(InstanceRequest(declared, scope, config, span))
    found = tuple(sort_findings(builder.findings.items))
    wrong = errors(found)
    partial = None if any(item.code in DECISIVE for item in wrong) else builder.partial
    return Instantiated(None if wrong else instance, found, partial if wrong else None)


@dataclass(slots=True, eq=False)
class _Construction:
    """A construction under way."""

    wanted: InstanceRequest
    steps: Steps
    findings: Findings
    key: Hashable


class _Builder:
    """All instances of one program so far, and those under way."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.findings = Findings()
        self._built: dict[Hashable, Instance | None] = {}
        self._merged: dict[int, Merged] = {}
        self._frames: list[_Construction] = []
        self.partial: Instance | None = None
        """What was built last, whether or not there are mistakes in it: at the end the whole."""

    def build(self, wanted: InstanceRequest) -> Instance | None:
        """The instance that is wanted, or None with findings."""
        value: Instance | None = None
        self._open(wanted)
        while self._frames:
            frame = self._frames[-1]
            try:
                asked = frame.steps.send(value)
            except StopIteration as done:
                value = self._close(frame, done.value)
            except Found as problem:
                frame.findings.add(problem.finding)
                value = self._close(frame, None)
            else:
                value = self._answer(asked)
        return value

    def _open(self, wanted: InstanceRequest) -> None:
        findings = Findings()
        steps = construct(wanted, findings, self.limits, self._merged)
        self._frames.append(_Construction(wanted, steps, findings, _key(wanted)))

    def _close(self, frame: _Construction, result: Instance | None) -> Instance | None:
        self._frames.pop()
        found: list[Diagnostic] = frame.findings.items
        if self._frames:
            found = _with_label(found, frame.wanted.span, f"'{frame.wanted.name}' is made here")
        self.findings.add(*found)
        self._built[frame.key] = None if errors(found) else result
        self.partial = result
        return self._built[frame.key]

    def _answer(self, wanted: InstanceRequest) -> Instance | None:
        """An instance that was built before; otherwise its construction begins, and None starts it."""
        key = _key(wanted)
        if key in self._built:
            return self._built[key]
        problem = self._refuse(wanted)
        if problem is None:
            self._open(wanted)
        else:
            self.findings.add(problem)
            self._built[key] = None
        return None

    def _refuse(self, wanted: InstanceRequest) -> Diagnostic | None:
        """Why a construction may not begin: it would never end."""
        above = [frame.wanted.declared for frame in self._frames]
        for index, declared in enumerate(above):
            if declared.is_same(wanted.declared):
                cycle = " -> ".join([*(item.name for item in above[index:]), declared.name])
                return graphs.CONTAINS_ITSELF.at(wanted.span, name=declared.name, cycle=cycle)
        if len(above) >= self.limits.max_depth:
            what = f"the depth of instances at '{wanted.name}'"
            return syntax.LIMIT.at(wanted.span, what=what, limit=self.limits.max_depth, option="max_depth")
        return None


def _key(wanted: InstanceRequest) -> Hashable:
    """What makes two instances one: the declaration, and the values with their sources."""
    # Messages name the sources of values, so instances that differ only in these stay apart.
    given = tuple((name, _exact(known.value), known.source) for name, known in sorted(wanted.given.items()))
    return id(wanted.declared.declaration), given


def _exact(value: Value) -> Hashable:
    """A value such that 1, 1.0 and true are three."""
    if isinstance(value, tuple):
        return tuple(_exact(item) for item in value)
    if isinstance(value, DictValue):
        return tuple((key, _exact(item)) for key, item in value.entries)
    return type(value).__name__, value


def _with_label(findings: Iterable[Diagnostic], span: Span, text: str) -> list[Diagnostic]:
    """Findings that also say which place asked for what is wrong."""
    if not span.source.text:
        return list(findings)
    label = Label(span, text)
    return [item if item.labels else replace(item, labels=(label,)) for item in findings]
