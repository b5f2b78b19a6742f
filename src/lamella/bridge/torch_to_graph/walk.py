"""The lines of an exported graph one by one, each as operations of a graph under construction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from lamella.base.dim import TooComplex
from lamella.base.errors import Found
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.sizes import compute_size
from lamella.bridge.aten.table import DROP, REFUSE, Row, rows
from lamella.bridge.torch_to_graph.elements import Numbers, element_of, is_tensor
from lamella.bridge.torch_to_graph.extents import Symbols, is_unbacked
from lamella.bridge.torch_to_graph.flow import Misshapen, translate_flow
from lamella.bridge.torch_to_graph.operands import LOST, Unsaid, Value, call_of, operand
from lamella.bridge.torch_to_graph.program import Body, Item, Node, is_node
from lamella.bridge.torch_to_graph.report import Report, operation_of
from lamella.bridge.torch_to_graph.stores import Stores
from lamella.graph.build import Builder
from lamella.graph.nodes import Tensor

TESTS = frozenset(("and_", "or_", "not_", "sym_not", "is_", "is_not"))
"""Questions about several sizes, which only the checks of an export ask."""
HIGHER = "higher_order."
SAME = re.compile(r"aten\.(?:clone|contiguous|alias|detach|lift_fresh|lift_fresh_copy)\.default")
"""Operations that give what they take: a graph has neither memory nor history to copy or to cut."""
CONVERSIONS = ("aten.to_copy", "aten.type_as")
DROPOUT = re.compile(r"aten\.(?:feature_)?(?:alpha_)?dropout\.default")


@dataclass(frozen=True, slots=True)
class Walk:
    """What the nodes of a program became so far."""

    builder: Builder
    symbols: Symbols
    report: Report
    stores: Stores
    values: dict[Node, Value | Body] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Tensors that operations give, and what the export calls them."""

    def run(self, body: Body) -> list[Value]:
        """Translate all lines, whose inputs are known; gives what the last one returns."""
        for node in body.graph.nodes:
            if node.op == "output":
                given = node.args[0]
                return [
                    self.value_of(item) for item in (given if isinstance(given, list | tuple) else [given])
                ]
            if node.op == "get_attr":
                self.values[node] = self._attribute(body, str(node.target))
            elif node.op == "call_function":
                self.values[node] = self._translated(node)
        return []

    def inline(self, body: Body, given: Sequence[Value]) -> list[Value]:
        """Translate a graph that another one calls, in its place."""
        nodes = [node for node in body.graph.nodes if node.op == "placeholder"]
        self.values.update(zip(nodes, given, strict=False))
        return self.run(body)

    def body(self, item: Item) -> Body | None:
        """The graph that an argument is."""
        found = self.values.get(cast("Node", item)) if is_node(item) else None
        return cast("Body", found) if hasattr(found, "graph") else None

    def value_of(self, item: Item) -> Value:
        """What an argument is: the result of a node, or a number."""
        if is_node(item):
            found = self.values.get(cast("Node", item), LOST)
            return LOST if hasattr(found, "graph") else found
        return item if item is None or isinstance(item, int | float | str) else LOST

    def _attribute(self, body: Body, name: str) -> Value | Body:
        """A graph or a tensor that a graph refers to by name."""
        found: object = body
        for word in name.split("."):
            found = getattr(found, word, None)
        if is_tensor(found):
            return self.stores.constant(name, cast("Numbers", found)) or LOST
        return cast("Body", found) if hasattr(found, "graph") else LOST

    def _translated(self, node: Node) -> Value:
        name = operation_of(node)
        row = rows().get(name)
        if (row is not None and row.how == DROP) or name in TESTS:
            return LOST
        if _is_data_dependent(node):
            if not any(map(_is_data_dependent, _nodes_in((*node.args, *node.kwargs.values())))):
                self.report.data_dependent(node)
            return LOST
        try:
            return self._called(node, name, row)
        except Misshapen as reason:
            self.report.refused_flow(node, str(reason))
        except Unsaid as unsaid:
            if unsaid.reason:
                self.report.refused_call(node, unsaid.reason)
        return LOST

    def _called(self, node: Node, name: str, row: Row | None) -> Value:
        if name.startswith(HIGHER):
            return translate_flow(self, node, name.removeprefix(HIGHER))
        if not hasattr(node.target, "_schema"):
            return self._size(node, name)
        if self._is_same(node, name, row):
            return self.value_of(node.args[0])
        if row is None:
            self.report.missing(node)
            return LOST
        call = call_of(row.schema, node, self.value_of)
        try:
            found = build_call(self.builder, call, self.report.places.origin(node))
        except Found as problem:
            if row.how == REFUSE:
                self.report.missing(node)
            else:
                self._refuse(node, problem)
            return LOST
        self._keep_name(node, found)
        return found

    def _is_same(self, node: Node, name: str, row: Row | None) -> bool:
        """Whether an operation gives what it takes."""
        if row is not None and row.schema.operator in CONVERSIONS:
            given = self.value_of(node.args[0])
            wanted = getattr(node.meta.get("val"), "dtype", None)
            return isinstance(given, Tensor) and given.element == element_of(wanted)
        return bool(SAME.fullmatch(name) or (DROPOUT.fullmatch(name) and node.args[2:] == (False,)))

    def _size(self, node: Node, name: str) -> Value:
        """Arithmetic of sizes, or an item of a tuple."""
        operands = [operand(item, self.value_of) for item in node.args]
        try:
            found = compute_size(name, operands)
        except (Found, TooComplex) as problem:
            known = self.symbols.extent(node.meta.get("val"))
            if known is not None:
                return known
            self._refuse(node, problem)
            return LOST
        return LOST if found is None else found

    def _refuse(self, node: Node, problem: Found | TooComplex) -> None:
        if isinstance(problem, Found):
            for item in problem.findings:
                self.report.refused_call(node, item.message, item.hint)
        else:
            self.report.refused_call(node, str(problem))

    def _keep_name(self, node: Node, found: Result) -> None:
        """Call a tensor after the line that gives it; an item of a pack has the name of the pack."""
        if isinstance(found, Tensor) and found.name not in self.names and ":" not in found.name:
            self.names[found.name] = node.name


def _nodes_in(items: Iterable[Item]) -> Iterator[Node]:
    for item in items:
        if is_node(item):
            yield cast("Node", item)
        elif isinstance(item, list | tuple):
            yield from _nodes_in(item)


def _is_data_dependent(node: Node) -> bool:
    """Whether a size in what a node gives, or a number that it is, depends on the numbers in a tensor."""
    value = node.meta.get("val")
    parts = value if isinstance(value, list | tuple) else (value,)
    return any(is_unbacked(size) for part in parts for size in getattr(part, "shape", None) or (part,))
