"""The arguments of a node as operands of a call, by the names of ATen's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from lamella.bridge.aten.nodes import AtenCall, AtenSchema, Operand, Result
from lamella.bridge.torch_to_graph.elements import element_of, is_type
from lamella.bridge.torch_to_graph.program import Item, Node, is_node


@dataclass(frozen=True, slots=True)
class Lost:
    """A value that could not be computed, because of something that is told already."""


LOST = Lost()
Value: TypeAlias = "Result | float | bool | str | Lost"
"""What a node gives on this road."""
_KINDS = ("Device", "Layout", "MemoryFormat", "Generator")
"""Parameters that say where and how a tensor lies, which a graph does not."""


class Unsaid(Exception):
    """An argument that a call cannot hold; LOST ones are told already."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def call_of(schema: AtenSchema, node: Node, value: Callable[[Node], Value]) -> AtenCall:
    """The call that a node is; Unsaid where an argument cannot be one of a graph."""
    names = [item.name for item in schema.parameters if not item.keyword]
    given: dict[str, Item] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    kept = {name: item if _is_wanted(schema, name) else None for name, item in given.items()}
    return AtenCall(schema, {name: operand(item, value) for name, item in kept.items()})


def _is_wanted(schema: AtenSchema, name: str) -> bool:
    parameter = schema.find(name)
    return parameter is None or not (parameter.type.startswith(_KINDS) or name == "pin_memory")


def operand(item: Item, value: Callable[[Node], Value]) -> Operand:
    """One argument; lists are taken item by item."""
    if item is None or isinstance(item, int | float | str):
        return item
    if is_node(item):
        found = value(cast("Node", item))
        if isinstance(found, Lost):
            raise Unsaid
        return found
    if isinstance(item, list | tuple):
        return tuple(operand(part, value) for part in item)
    if is_type(item):
        element = element_of(item)
        if element is None:
            raise Unsaid(f"there is no element type {item}")
        return element
    if isinstance(item, Mapping):
        raise Unsaid("an argument is a dictionary")
    raise Unsaid(f"an argument is of type {type(item).__name__}")
