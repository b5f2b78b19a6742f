"""Graphs that a program calls: branches, loops, and those that only set a mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from lamella.base.dtype import BOOL
from lamella.bridge.torch_to_graph.operands import Lost, Unsaid, Value
from lamella.bridge.torch_to_graph.program import Body, Item, Node
from lamella.graph.nodes import Tensor

if TYPE_CHECKING:
    from lamella.bridge.torch_to_graph.walk import Walk

INLINED = frozenset(("wrap_with_set_grad_enabled", "wrap_with_autocast"))
"""Graphs that run where they stand; what a mode changes is said by the operations in them."""


class Misshapen(Exception):
    """Control flow that a graph cannot say; its text says why."""


def translate_flow(walk: Walk, node: Node, name: str) -> Value:
    """What an operator of higher order gives; Misshapen where a graph cannot say it."""
    if name in INLINED:
        place = next(index for index, item in enumerate(node.args) if walk.body(item) is not None)
        return _tuple(walk.inline(_body(walk, node.args[place]), _given(walk, node.args[place + 1 :])))
    if name == "cond":
        return _branch(walk, *node.args)
    if name == "while_loop":
        return _loop(walk, *node.args)
    raise Misshapen("there is nothing like it here")


def _given(walk: Walk, items: Sequence[Item]) -> list[Value]:
    return [walk.value_of(item) for item in items]


def _tuple(values: Sequence[Value]) -> Value:
    return cast("Value", tuple(values))


def _body(walk: Walk, item: Item) -> Body:
    found = walk.body(item)
    if found is None:
        raise Misshapen("one of its graphs is missing")
    return found


def _tensors(values: Sequence[Value]) -> tuple[Tensor, ...]:
    if any(isinstance(item, Lost) for item in values):
        raise Unsaid
    found = tuple(item for item in values if isinstance(item, Tensor))
    if len(found) != len(values):
        raise Misshapen("it takes or gives something that is no tensor")
    return found


def _branch(walk: Walk, condition: Item, then: Item, otherwise: Item, items: Item = ()) -> Value:
    bodies = _body(walk, then), _body(walk, otherwise)
    given = _given(walk, cast("Sequence[Item]", items))
    asked = walk.value_of(condition)
    if isinstance(asked, bool):
        return _tuple(walk.inline(bodies[0 if asked else 1], given))
    (tensor,) = _tensors([asked])
    results: list[tuple[Tensor, ...]] = []

    def run(body: Body) -> Sequence[Tensor]:
        results.append(_tensors(walk.inline(body, given)))
        if [_type(item) for item in results[0]] != [_type(item) for item in results[-1]]:
            raise Misshapen("its branches give tensors of different types or shapes")
        return results[-1]

    return walk.builder.branch(_single(walk, tensor), lambda: run(bodies[0]), lambda: run(bodies[1]))


def _type(tensor: Tensor) -> tuple[object, object]:
    return tensor.element, tensor.shape


def _single(walk: Walk, condition: Tensor) -> Tensor:
    """A condition of one element as a tensor without dimensions."""
    if condition.element != BOOL:
        raise Misshapen(f"its condition is of type {condition.element}")
    return condition if not condition.shape else walk.builder.call("aten.view", condition, size=())


def _loop(walk: Walk, condition: Item, body: Item, carried: Item, others: Item = ()) -> Value:
    start = _tensors(_given(walk, cast("Sequence[Item]", carried)))
    outer = _given(walk, cast("Sequence[Item]", others))
    test, step = _body(walk, condition), _body(walk, body)

    def run(*state: Tensor) -> Sequence[Tensor]:
        found = _tensors(walk.inline(step, [*state, *outer]))
        if [_type(item) for item in found] != [_type(item) for item in start]:
            raise Misshapen("what it carries changes its type or shape")
        return found

    def ask(*state: Tensor) -> Tensor:
        (found,) = _tensors(walk.inline(test, [*state, *outer]))
        return _single(walk, found)

    # Carried tensors lose their origins: the loop is the origin of what leaves it.
    plain = [replace(item, origin=None) for item in start]
    return cast("Value", walk.builder.fold(plain, run, condition=ask))
