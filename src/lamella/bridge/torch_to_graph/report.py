"""What is wrong with an export, told once for each operation, with how often and where first."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.origin import tell_origin
from lamella.bridge.torch_to_graph.places import Places, module_of, operation_of
from lamella.bridge.torch_to_graph.program import Node
from lamella.lang.skriptnd.rules import exports


@dataclass(frozen=True, slots=True)
class _Case:
    """One kind of fault and the first node that has it."""

    rule: Rule
    node: Node
    reason: str
    hint: str | None


class Report:
    """Collects faults of nodes; equal ones are counted."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.refused: list[Node] = []
        """The nodes whose calls our operators did not take; simpler operations may say them."""
        self._plain: list[Diagnostic] = []
        self._cases: dict[tuple[str, str, str], tuple[_Case, int]] = {}

    def tell(self, finding: Diagnostic) -> None:
        """A finding that belongs to no node."""
        self._plain.append(finding)

    def missing(self, node: Node) -> None:
        """An operation that we lack."""
        self._count(_Case(exports.NO_OPERATION, node, "", None))

    def data_dependent(self, node: Node) -> None:
        """An operation whose result only the numbers tell."""
        self._count(_Case(exports.DATA_DEPENDENT, node, "", None))

    def refused_flow(self, node: Node, reason: str) -> None:
        """Control flow that a graph cannot say."""
        self._count(_Case(exports.REFUSED_FLOW, node, reason, None))

    def refused_call(self, node: Node, reason: str, hint: str | None = None) -> None:
        """A call that the operator does not take."""
        self.refused.append(node)
        self._count(_Case(exports.REFUSED_CALL, node, reason, hint))

    def _count(self, case: _Case) -> None:
        key = (case.rule.code, operation_of(case.node), case.reason)
        first, number = self._cases.get(key, (case, 0))
        self._cases[key] = (first, number + 1)

    def findings(self) -> list[Diagnostic]:
        """Everything, in the order in which it was met."""
        return [*self._plain, *(self._finding(case, number) for case, number in self._cases.values())]

    def _finding(self, case: _Case, number: int) -> Diagnostic:
        found = case.rule.at(
            self.places.span(case.node),
            hint=case.hint,
            operation=operation_of(case.node),
            reason=case.reason,
            count="1 call" if number == 1 else f"{number} calls",
            module=module_of(case.node),
        )
        return tell_origin(found, self.places.origin(case.node))
