"""Give open extents their numbers.

With `n = 4` a tensor `x: real[n, 3]` becomes `x: real[4, 3]`, and what follows from it is computed again by the
operators' own definitions: an extent that is 1 by now broadcasts, which an open one does not. Packs whose length
becomes known become packs of that many tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import DimSymbol, Logic, Test, substitute_truth, symbols
from lamella.base.errors import Found
from lamella.base.source import NOWHERE
from lamella.graph.build import base_name, bind, result
from lamella.graph.model import Model
from lamella.graph.nodes import Branch, Graph, Loop, Node, Operation, Region, Shape, Tensor, tensors
from lamella.graph.rewrite import Substitution, extent_substitution, extents, members
from lamella.lang.skriptnd.rules.data import EXTENT_OUT_OF_BOUND, NO_SUCH_EXTENT
from lamella.ops.instance import Check
from lamella.ops.library import Library


def specialise_shapes(model: Model, values: Mapping[str, int]) -> Model:
    """The model for these extents of its inputs; Found says where they do not fit."""
    findings = list(_check(model.graph, values))
    if findings:
        raise Found(*findings)
    specialiser = _Specialiser(model.library, values)
    nodes = tuple(map(specialiser.node, model.graph.nodes))
    around = specialiser.renewal.graph(replace(model.graph, nodes=()))
    checks = settled(model.graph.checks, values)
    failed = next((item for item in checks if item.condition is False), None)
    if failed is not None:
        details = ", ".join(f"'{name}' is {value}" for name, value in values.items())
        raise Found(failed.rule.at(failed.span, message=failed.message, values=details))
    return replace(model, graph=replace(around, nodes=nodes, checks=checks))


def settled(checks: Iterable[Check], values: Mapping[str, int]) -> tuple[Check, ...]:
    """The assertions that are left to test once some extents are known; those that hold are not."""
    found = [
        replace(item, condition=substitute_truth(item.condition, values))
        if isinstance(item.condition, Test | Logic)
        else item
        for item in checks
    ]
    return tuple(item for item in found if item.condition is not True)


def _check(graph: Graph, values: Mapping[str, int]) -> Iterator[Diagnostic]:
    found: dict[str, DimSymbol] = {
        symbol.name: symbol
        for item in members(graph.inputs)
        for extent in extents(item)
        for symbol in symbols(extent)
    }
    for name, value in values.items():
        if name not in found:
            yield NO_SUCH_EXTENT.at(NOWHERE, graph=graph.name, name=name, known=", ".join(found) or "none")
        elif not found[name].low <= value <= found[name].high:
            low, high = found[name].low, found[name].high
            yield EXTENT_OUT_OF_BOUND.at(NOWHERE, name=name, value=value, low=low, high=high)


class _Specialiser:
    """Goes through a graph in order and remembers what each tensor has become."""

    def __init__(self, library: Library, values: Mapping[str, int]) -> None:
        self.library = library
        self._values = values
        self._extent = extent_substitution(values)
        self.renewal = Substitution(self._tensor, self._extent)
        self._changed: dict[str, Tensor] = {}

    def _tensor(self, tensor: Tensor) -> Tensor:
        found = self._changed.get(tensor.name)
        if found is not None:
            return found
        is_known = all(extent.__class__ is int for extent in tensor.shape)
        return tensor if is_known else replace(tensor, shape=tuple(map(self._extent, tensor.shape)))

    def _become(self, tensor: Tensor, shape: Shape) -> None:
        self._changed[tensor.name] = replace(tensor, shape=shape)

    def node(self, node: Node) -> Node:
        """A node with the shapes that its inputs have by now."""
        if isinstance(node, Operation):
            return self._operation(node)
        return self._branch(node) if isinstance(node, Branch) else self._loop(node)

    def _operation(self, node: Operation) -> Operation:
        found = self.renewal.node(node)
        if not isinstance(found, Operation) or found == node:
            return node
        names = [base_name(item) for item in found.outputs]
        instance = bind(
            self.library, found.operator, found.inputs, dict(found.attributes), dict(found.types), names
        )
        for old, new in zip(found.outputs, instance.outputs, strict=True):
            for tensor, made in zip(tensors(old), tensors(result(new, "")), strict=False):
                self._become(tensor, made.shape)
        return replace(found, outputs=tuple(map(self.renewal.argument, node.outputs)))

    def _region(self, region: Region) -> Region:
        inputs = tuple(map(self._tensor, region.inputs))
        nodes = tuple(map(self.node, region.nodes))
        outputs = tuple(map(self._tensor, region.outputs))
        checks = settled(region.checks, self._values)
        return replace(region, inputs=inputs, nodes=nodes, outputs=outputs, checks=checks)

    def _branch(self, node: Branch) -> Branch:
        conditions = tuple(map(self._region, node.conditions))
        branches = tuple(map(self._region, node.branches))
        for index, output in enumerate(node.outputs):
            shapes = {branch.outputs[index].shape for branch in branches}
            if len(shapes) == 1:
                self._become(output, shapes.pop())
        outputs = tuple(map(self._tensor, node.outputs))
        return replace(node, conditions=conditions, branches=branches, outputs=outputs)

    def _loop(self, node: Loop) -> Loop:
        inputs = node.condition.inputs if node.condition is not None else ()
        # The body and the condition see the carried tensors under names of their own, so these change shape with them.
        for start, *seen in zip_longest(node.carried, node.body.inputs[: len(node.carried)], inputs):
            for item in (item for item in seen if item is not None and start is not None):
                self._become(item, self._tensor(start).shape)
        body = self._region(node.body)
        condition = None if node.condition is None else self._region(node.condition)
        around = self.renewal.node(replace(node, body=Region((), (), ()), condition=None))
        return replace(around, body=body, condition=condition) if isinstance(around, Loop) else node
