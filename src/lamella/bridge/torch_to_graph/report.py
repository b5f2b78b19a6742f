"""Findings about an export, one for each kind of call, and the origins of nodes: modules and lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.origin import Origin, with_origin
from lamella.base.source import NOWHERE, Source, Span
from lamella.bridge.torch_to_graph.program import FxNode
from lamella.lang.skriptnd.rules import exports

_FRAME = re.compile(r'File "([^"\n]*)", line (\d{1,6}), in [^\n]*(?:\n[ \t]+([^\n]*))?')
_INSTALLED = re.compile(r".*(?:site|dist)-packages/")
_OWN = re.compile(r"-packages/torch/|^torch/|^<")
"""Frames of PyTorch itself where it is installed, and of code that it made."""
_HOOK = "_empty_nn_module_stack_from_metadata_hook"


class NodeOrigins:
    """The spans and origins of nodes; operations of one line share its span."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, int], Span] = {}

    def span(self, node: FxNode) -> Span:
        """The innermost line that is not PyTorch's own."""
        frames = _FRAME.findall(str(node.meta.get("stack_trace") or ""))
        chosen = next((item for item in reversed(frames) if not _OWN.search(item[0])), None)
        if chosen is None:
            return NOWHERE
        path, number, code = chosen
        key = (_INSTALLED.sub("", path), int(number))
        if key not in self._spans:
            self._spans[key] = line_of(*key, code)
        return self._spans[key]

    def origin(self, node: FxNode) -> Origin:
        """The line of an operation, then the modules around it, innermost first."""
        above: Origin | None = None
        for path, kind in modules_of(node):
            above = Origin(f"{path} ({kind})" if path else kind, above=above)
        span = self.span(node)
        return Origin(operation_of(node), span if span is not NOWHERE else None, above)


def line_of(name: str, number: int, code: str) -> Span:
    """A place in a file of which one line is known."""
    start = number - 1
    return Span(Source(name, "\n" * start + code), start, start + len(code))


def modules_of(node: FxNode) -> list[tuple[str, str]]:
    """The modules that a node was called in, outermost first: the path of each and its class."""
    stack = node.meta.get("nn_module_stack")
    found = list(stack.values()) if isinstance(stack, Mapping) else []
    names = [(str(item[0]), _class_name(item[1])) for item in found if isinstance(item, tuple | list)]
    return [(path, kind) for path, kind in names if path != _HOOK]


def _class_name(kind: object) -> str:
    return (kind.__name__ if isinstance(kind, type) else str(kind)).rpartition(".")[2]


def module_of(node: FxNode) -> str:
    """The path of the module that calls a node."""
    found = modules_of(node)
    if not found:
        return "the module"
    path, kind = found[-1]
    return f"'{path}' ({kind})" if path else f"the module itself ({kind})"


def operation_of(node: FxNode) -> str:
    """What a node calls, in PyTorch's words: `aten.add.Tensor`, `higher_order.cond`, `floordiv`."""
    if hasattr(node.target, "_schema"):
        return str(node.target)
    name = getattr(node.target, "__name__", None) or str(node.target)
    return f"higher_order.{name}" if getattr(node.target, "namespace", "") == "higher_order" else str(name)


# --- findings -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Case:
    """One kind of fault and the first node that has it."""

    rule: Rule
    node: FxNode
    reason: str
    hint: str | None


class ExportReport:
    """Collects faults of nodes; equal ones are counted."""

    def __init__(self, places: NodeOrigins) -> None:
        self.places = places
        self.refused: list[FxNode] = []
        """The nodes whose calls our operators did not take; simpler operations may say them."""
        self._plain: list[Diagnostic] = []
        self._cases: dict[tuple[str, str, str], tuple[_Case, int]] = {}

    def add(self, finding: Diagnostic) -> None:
        """A finding that belongs to no node."""
        self._plain.append(finding)

    def missing(self, node: FxNode) -> None:
        """An operation that we lack."""
        self._count(_Case(exports.NO_OPERATION, node, "", None))

    def data_dependent(self, node: FxNode) -> None:
        """A call that needs a number before the run and gets one that only the run tells."""
        self.refused.append(node)
        self._count(_Case(exports.DATA_DEPENDENT, node, "", None))

    def refused_flow(self, node: FxNode, reason: str) -> None:
        """Control flow that a graph cannot say."""
        self._count(_Case(exports.REFUSED_FLOW, node, reason, None))

    def refused_call(self, node: FxNode, reason: str, hint: str | None = None) -> None:
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
        return with_origin(found, self.places.origin(case.node))
