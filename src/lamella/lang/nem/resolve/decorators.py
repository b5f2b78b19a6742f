"""Decorators: which are known, where each may stand, and what its arguments are."""

from __future__ import annotations

from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.lang.nem import nodes
from lamella.lang.nem.resolve.expressions import Expressions, Failed
from lamella.lang.nem.resolved import Resource
from lamella.lang.nem.rules import (
    BAD_WINDOW,
    DECORATOR_ARGUMENTS,
    DUPLICATE_DECORATOR,
    MISPLACED_DECORATOR,
    RESOURCE_TARGET,
    UNKNOWN_DECORATOR,
)

TASK, MOVE, REGION, LOOP, BUFFER = "a task", "a move", "a region", "a loop", "a buffer"
TARGETS = {
    "materialized": (REGION,),
    "readonly": (REGION,),
    "writeonly": (REGION,),
    "deterministic": (TASK, MOVE),
    "memmove": (MOVE,),
    "resource": (TASK, MOVE),
    "seq_engine": (TASK, MOVE),
    "max_in_flight": (LOOP,),
    "debug": (TASK, MOVE, REGION, LOOP, BUFFER),
    "profile": (TASK, MOVE, REGION, LOOP, BUFFER),
}
ARGUMENTS = {
    "resource": "one unit instance, like CSTL[0]",
    "seq_engine": "one engine index",
    "max_in_flight": "one integer",
    "debug": "one name",
    "profile": "one tag",
}
RESOURCE_UNITS = ("NMU", "CSTL", "DMA", "VPU")
ALL_UNITS = (*RESOURCE_UNITS, "SEQ", "sDMA", "WDM")


class Decorators:
    """The decorators of one object, validated; those in error are left out."""

    def __init__(self, values: Expressions, target: str, found: tuple[nodes.Decorator, ...]) -> None:
        self._values = values
        self._by_name: dict[str, nodes.Decorator] = {}
        for decorator in found:
            self._admit(decorator, target)

    def _admit(self, decorator: nodes.Decorator, target: str) -> None:
        name, findings = decorator.name, self._values.findings
        if name not in TARGETS:
            close = nearest(name, TARGETS)
            hint = f"did you mean @{close[0]}?" if close else f"decorators are: {', '.join(TARGETS)}"
            findings.append(UNKNOWN_DECORATOR.at(decorator.span, name=name, hint=hint))
        elif target not in TARGETS[name]:
            wanted = " or ".join(TARGETS[name])
            findings.append(MISPLACED_DECORATOR.at(decorator.span, name=name, wanted=wanted, found=target))
        elif name in self._by_name:
            findings.append(DUPLICATE_DECORATOR.at(decorator.span, name=name))
        elif len(decorator.arguments) != (name in ARGUMENTS):
            self._bad_arguments(decorator)
        else:
            self._by_name[name] = decorator

    def _bad_arguments(self, decorator: nodes.Decorator) -> Failed:
        wanted = ARGUMENTS.get(decorator.name, "no argument")
        finding = DECORATOR_ARGUMENTS.at(decorator.span, name=decorator.name, wanted=wanted)
        return self._values.fail(finding)

    def has(self, name: str) -> bool:
        """Whether the object carries this decorator."""
        return name in self._by_name

    def word(self, name: str) -> str:
        """The name or tag of @debug and @profile; empty where absent."""
        decorator = self._by_name.get(name)
        if decorator is None:
            return ""
        argument = decorator.arguments[0]
        if isinstance(argument, nodes.Name):
            return argument.id
        if isinstance(argument, nodes.Text):
            return argument.value
        self._bad_arguments(decorator)
        return ""

    def integer(self, name: str) -> int | None:
        """The integer argument of @seq_engine and @max_in_flight; None where absent or in error."""
        decorator = self._by_name.get(name)
        if decorator is None:
            return None
        argument = decorator.arguments[0]
        if isinstance(argument, nodes.Text | nodes.Items | nodes.UnitRef):
            self._bad_arguments(decorator)
            return None
        try:
            return self._values.integer(argument, f"@{name}")
        except Failed:
            return None

    def window(self) -> int:
        """The @max_in_flight of a loop; 1 where absent."""
        count = self.integer("max_in_flight")
        if count is not None and count < 1:
            span = self._by_name["max_in_flight"].span
            self._values.findings.append(BAD_WINDOW.at(span, count=count))
        return max(1, count or 1)

    def resource(self) -> Resource | None:
        """The @resource of a task; None where absent or in error."""
        decorator = self._by_name.get("resource")
        if decorator is None:
            return None
        unit = decorator.arguments[0]
        if not isinstance(unit, nodes.UnitRef) or unit.unit not in ALL_UNITS:
            self._bad_arguments(decorator)
            return None
        if unit.unit not in RESOURCE_UNITS:
            self._values.findings.append(RESOURCE_TARGET.at(unit.span, unit=unit.unit))
            return None
        try:
            return Resource(unit.unit, self._values.index(unit.index, "a unit index"), decorator.span)
        except Failed:
            return None

    def span(self, name: str) -> Span:
        """Where a decorator stands."""
        return self._by_name[name].span
