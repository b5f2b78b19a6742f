"""The body of an operator while it is composed: what its names mean, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lamella.base.dtype import ElementType, find_in
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph.compose.scope.names import Scope
from lamella.graph.compose.scope.session import Named, Session
from lamella.graph.compose.scope.wanted import UNNAMED, Listed, Simple, Wanted
from lamella.lang.skriptnd.nodes import Expr, ListPattern, Pattern, Result
from lamella.ops.evaluate import Compiler
from lamella.ops.problem import Fault
from lamella.ops.scalars.values import expect_known


class Meanings(dict[str, object]):
    """What names mean in a body; those it does not declare mean what they mean around it."""

    __slots__ = ("around",)

    def __init__(self, around: Mapping[str, object]) -> None:
        super().__init__()
        self.around = around

    def __missing__(self, name: str) -> object:
        return self.around[name]

    def find(self, name: str) -> object:
        """The meaning of a name; None where it has none."""
        try:
            return self[name]
        except KeyError:
            return None


class Place(NamedTuple):
    """Where the results of a callee go: their names, the label of a call that has none, the component's span."""

    wanted: Sequence[Wanted] | None
    label: str | None
    span: Span

    def names(self, count: int) -> Sequence[Wanted]:
        """One name for each of so many results; what is too much is told by whoever assigns them."""
        given = self.wanted or ()
        return (*given[:count], *(UNNAMED,) * (count - len(given)))


@dataclass(slots=True)
class Frame:
    """One body: an operator's, a graph's, or that of a block inside it."""

    session: Session
    module: str
    compiler: Compiler
    types: Mapping[str, ElementType]
    real: ElementType
    """What `real` means here: the width that the reals of the call share."""
    env: Meanings
    scope: Scope
    origin: Origin | None
    exposed: bool
    outputs: Mapping[str, Wanted]
    promised: set[str] = field(default_factory=set)
    """The names of the text that were promised for tensors of this very body."""

    def value(self, expr: Expr) -> object:
        """The value of an expression."""
        found = self.session.codes.get(id(expr))
        if found is None:
            found = self.session.codes[id(expr)] = (expr, self.compiler.compile(expr))
        return found[1](self.env)

    def known(self, expr: Expr) -> int:
        """The value of an integer expression that must be known before the run."""
        try:
            return expect_known(self.value(expr), "a length")
        except Fault as fault:
            raise fault.at(expr.span) from None

    def element(self, name: str) -> ElementType | None:
        """The element type that a type's name stands for in this body."""
        return self.real if name == "real" else self.types.get(name) or find_in("skriptnd", name)

    def inside(self, scope: Scope, outputs: Mapping[str, Wanted]) -> Frame:
        """The body of a block in this one, in which names may be given a new meaning."""
        return replace(self, scope=scope, env=Meanings(self.env), outputs=outputs, promised=set())

    def behind(self, label: str | None) -> Scope:
        """The scope behind a label; this one where there is none."""
        return self.scope.behind(label) if label else self.scope

    def name(self, text: str) -> Wanted:
        """What a name of the text is called in the graph: an output goes by the caller's name."""
        given = self.outputs.get(text)
        if given is not None:
            return given
        return Simple(Named(self.scope.name(text), self.exposed, text in self.promised))

    def wanted(self, pattern: Pattern) -> Wanted:
        """What a result is called in the graph."""
        if isinstance(pattern, Result):
            return self.name(pattern.name)
        return Listed(pattern, self.name, self.known) if isinstance(pattern, ListPattern) else UNNAMED
