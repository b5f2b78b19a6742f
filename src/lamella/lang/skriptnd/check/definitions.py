"""The operators a check can see: those of the document, and those of other modules by their qualified names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.base.suggest import MOST_GUESSES, did_you_mean, nearest
from lamella.lang.skriptnd.check.context import Find, OperatorContext
from lamella.lang.skriptnd.check.declare import declare
from lamella.lang.skriptnd.check.expressions import infer
from lamella.lang.skriptnd.check.kinds import ValueKind
from lamella.lang.skriptnd.nodes import Component, Dtype, Invocation, Operator, Parameter
from lamella.lang.skriptnd.rules import names as rules

Listed: TypeAlias = Callable[[str], Collection[str]]
"""The names of the operators of a module."""
Qualify: TypeAlias = Callable[[str, str], str]
"""The qualified name of an operator that the text of a module names."""


def qualified_name(name: str, module: str) -> str:
    """A name with its module; one without is of the module where it stands."""
    return name if "." in name else f"{module}.{name}"


@dataclass(frozen=True, slots=True)
class OperatorSignature:
    """What a call sees of an operator."""

    operator: Operator
    generics: Mapping[str, Dtype]
    attributes: Mapping[str, tuple[Parameter, ValueKind]]
    inputs: tuple[tuple[Parameter, ValueKind], ...]
    outputs: tuple[tuple[Parameter, ValueKind], ...]


class Definitions:
    """Finds operators and reads their signatures, each once."""

    def __init__(
        self,
        module: str,
        operators: Mapping[str, Operator],
        find: Find | None = None,
        imports: Collection[str] | None = None,
        listed: Listed | None = None,
        qualify: Qualify = qualified_name,
    ) -> None:
        self.module = module
        self.operators = operators
        self._find = find
        self._imports = imports
        self._listed = listed
        self._qualify = qualify
        self.lost: Collection[str] = ()
        """Modules that could not be read: nothing is known about what they define."""
        self.partial = False
        """Whether the document could be read in parts only: what is not found may stand in the others."""
        self._guesses = 0
        self._signatures: dict[str, OperatorSignature] = {}
        self._stateful: dict[str, bool] = {}

    def resolve(self, name: str, span: Span) -> Operator | Diagnostic | None:
        """The operator that an invocation names, a finding, or None where nothing can be known about it."""
        module, _, short = name.rpartition(".")
        qualified = self._qualify(name, self.module)
        if qualified == f"{self.module}.{short}":
            found = self.operators.get(short)
            if found is None and not self.partial:
                found = (self._find and self._find(qualified)) or None
                return found or self._unknown(name, span)
            return found
        if self._imports is not None and module not in self._imports:
            return None if self.partial else self._not_imported(module, span)
        if short.startswith("_"):
            return rules.PRIVATE_OPERATOR.at(span, name=short, module=module)
        if self._find is None or qualified.rpartition(".")[0] in self.lost:
            return None
        return self._find(qualified) or self._unknown(name, span)

    def _unknown(self, name: str, span: Span) -> Diagnostic:
        """The finding that there is no such operator, with one that may have been meant."""
        self._guesses += 1
        hint = self._guess(name) if self._guesses <= MOST_GUESSES else ""
        return rules.UNKNOWN_OPERATOR.at(span, name=name, hint=hint or None)

    def _guess(self, name: str) -> str:
        """The operator that may have been meant: of this name in another module, or of one like it."""
        module, dot, short = name.rpartition(".")
        place = self._qualify(name, self.module).rpartition(".")[0]
        known = self.operators if place == self.module else self._listed(place) if self._listed else ()
        near = did_you_mean(short, known, f"{module}{dot}")
        if near or self._find is None:
            return near
        for other in sorted(self._imports or ()):
            found = f"{other}.{short}"
            if found != name and self._find(self._qualify(found, self.module)) is not None:
                return f"did you mean '{found}'?"
        return "" if module else self._guess_imported(short)

    def _guess_imported(self, short: str) -> str:
        """An operator of an imported module with a name like this one."""
        listed = self._listed
        if listed is None:
            return ""
        known = {
            item: f"{module}.{item}"
            for module in sorted(self._imports or ())
            for item in listed(self._qualify(f"{module}.x", self.module).rpartition(".")[0])
        }
        near = nearest(short, known)
        return f"did you mean '{known[near[0]]}'?" if near else ""

    def _not_imported(self, module: str, span: Span) -> Diagnostic:
        """The finding that a module was not imported, with the imported one that may have been meant."""
        self._guesses += 1
        hint = did_you_mean(module, sorted(self._imports or ())) if self._guesses <= MOST_GUESSES else ""
        return rules.NOT_IMPORTED.at(span, module=module, hint=hint or None)

    def signature(self, name: str, operator: Operator) -> OperatorSignature:
        """What a call sees of an operator; what is wrong with the operator itself is not said here."""
        if name not in self._signatures:
            context = OperatorContext(infer, [])
            declare(context, operator)
            self._signatures[name] = _signature(context, operator)
        return self._signatures[name]

    def holds_variables(self, name: str, operator: Operator) -> bool:
        """Whether an operator or one that it invokes has variables."""
        if name not in self._stateful:
            self._find_variables(name, operator)
        return self._stateful[name]

    def _find_variables(self, name: str, operator: Operator) -> None:
        """Decide for all that can be reached: a worklist over the call graph, then one over its reverse."""
        # All begin without variables; those that have some pass it on to their callers, so that cycles need no care.
        pending, callers = [(name, operator)], dict[str, list[str]]()
        stateful: list[str] = []
        while pending:
            key, item = pending.pop()
            if key in self._stateful:
                continue
            self._stateful[key] = False
            if next(item.parameters("variable"), None) is not None:
                stateful.append(key)
            for called in dict.fromkeys(invoked(item)):
                qualified, found = self._called(key, called)
                callers.setdefault(qualified, []).append(key)
                if self._stateful.get(qualified):
                    stateful.append(key)
                elif found is not None:
                    pending.append((qualified, found))
        while stateful:
            key = stateful.pop()
            if not self._stateful.get(key):
                self._stateful[key] = True
                stateful += callers.get(key, ())

    def _called(self, caller: str, name: str) -> tuple[str, Operator | None]:
        """An operator that another one invokes; names without a module are of the caller's module."""
        module = caller.rpartition(".")[0]
        if "." not in name and not module and name in self.operators:
            return name, self.operators[name]
        qualified = self._qualify(name, module or self.module)
        return qualified, self._find(qualified) if self._find is not None else None


def invoked(operator: Operator) -> list[str]:
    """The names of the operators that a composition invokes."""
    found: list[str] = []
    stack: list[object] = [item for item in operator.items("compose") if isinstance(item, Component)]
    while stack:
        item = stack.pop()
        if isinstance(item, Invocation):
            found.append(item.operator)
        elif type(item) is tuple:
            stack.extend(item)
        elif hasattr(item, "__dataclass_fields__"):
            stack.extend(getattr(item, field) for field in item.__dataclass_fields__)
    return found


def _signature(context: OperatorContext, operator: Operator) -> OperatorSignature:
    def kinds(section: str) -> list[tuple[Parameter, ValueKind]]:
        return [(item, context.scope.names[item.name].kind) for item in operator.parameters(section)]

    generics = {item.name: item for item in operator.items("dtype") if isinstance(item, Dtype)}
    attributes = {item.name: (item, kind) for item, kind in kinds("attrib")}
    return OperatorSignature(operator, generics, attributes, tuple(kinds("input")), tuple(kinds("output")))
