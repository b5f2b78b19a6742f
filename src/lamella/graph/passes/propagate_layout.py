"""Layout propagation: move transpositions behind the operations that read them, where they meet others and cancel.

    f(xᵖ) = f(x)ᵖ                          elementwise
    f(xᵖ, yᵖ) = f(x, y)ᵖ                   aligned
    f{axes=a}(xᵖ) = f{axes=p[a]}(x)ᵖ       along_axes
    f{NCX}(xᵖ) = f{NXC}(x)ᵖ                formats, and likewise for filters

A transposition that something else reads stays where it is, so their number never grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamella.base.errors import Found
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor, Value
from lamella.graph.passes.cancel_transposes import TRANSPOSE, Order, join_transposes, order_of, transposed
from lamella.graph.rewrite import Replacement, RewriteWalk, members, rewrite, uses
from lamella.ops.library import Library


def propagate_layout(model: Model) -> Model:
    """The model with transpositions as far behind as they can go."""
    return replace(model, graph=rewrite(model.graph, _LayoutPropagation(model).visit))


class _LayoutPropagation:
    def __init__(self, model: Model) -> None:
        self.library: Library = model.library
        self.reads = uses(model.graph)

    def visit(self, node: Node, walk: RewriteWalk) -> Replacement | None:
        """Take the transpositions away from the inputs of a node and put one behind it."""
        if not isinstance(node, Operation) or len(node.outputs) != 1:
            return None
        if node.operator == TRANSPOSE:
            return self._joined(node, walk)
        if "formats" in self.library.traits(node.operator):
            node = self._take_filter(node, walk)
        moved = self._moved(node, walk)
        if moved is None:
            return Replacement((node,))
        order, inputs, attributes = moved
        return self._behind(node, order, inputs, attributes, walk) or Replacement((node,))

    def _joined(self, node: Operation, walk: RewriteWalk) -> Replacement | None:
        """Join transpositions, and count who reads the source once the first of them is read no more."""
        change = join_transposes(self.library, node, walk)
        freed = int(any(self.reads.get(item.name) == 1 for item in members(node.inputs)))
        for old, new in (change.results if change else {}).items():
            self.reads[new.name] = self.reads.get(new.name, 0) + self.reads.get(old, 0) - freed
        return change

    def _moved(
        self, node: Operation, walk: RewriteWalk
    ) -> tuple[Order, tuple[Argument, ...], Mapping[str, Value]] | None:
        """The order behind a node, and the inputs and attributes with which it works on what was not transposed."""
        attributes, traits = dict(node.attributes), self.library.traits(node.operator)
        if "formats" in traits:
            return self._convolution(node, attributes, walk)
        if "aligned" in traits:
            common = self._common(node, walk) if not any(attributes.values()) else None
            return None if common is None else (*common, attributes)
        first = self._single(node.inputs[0] if len(node.inputs) == 1 else None, walk)
        if first is None:
            return None
        order = order_of(first)
        if "along_axes" in traits and not attributes.get("squeeze"):
            axes = _mapped(attributes["axes"], order)
            return None if axes is None else (order, first.inputs, {**attributes, "axes": axes})
        return (order, first.inputs, attributes) if "elementwise" in traits else None

    def _single(self, tensor: Argument, walk: RewriteWalk) -> Operation | None:
        """The transposition behind an input that nothing else reads."""
        found = transposed(self.library, walk, tensor)
        ours = found is not None and found.operator == TRANSPOSE
        return found if ours and isinstance(tensor, Tensor) and self.reads.get(tensor.name) == 1 else None

    def _common(self, node: Operation, walk: RewriteWalk) -> tuple[Order, tuple[Argument, ...]] | None:
        """The one order of all inputs but scalars, and what is behind them."""
        orders: set[Order] = set()
        sources: list[Argument] = []
        for item in node.inputs:
            if isinstance(item, Tensor) and not item.shape:
                sources.append(item)
                continue
            first = self._single(item, walk)
            if first is None:
                return None
            orders.add(order_of(first))
            sources.append(first.inputs[0])
        return (orders.pop(), tuple(sources)) if len(orders) == 1 else None

    def _convolution(
        self, node: Operation, attributes: dict[str, Value], walk: RewriteWalk
    ) -> tuple[Order, tuple[Argument, ...], Mapping[str, Value]] | None:
        first = self._single(node.inputs[0], walk)
        if first is None:
            return None
        order = order_of(first)
        wanted = _format_before(attributes["data_format"], order, ("NCX", "NXC", "XCN"))
        if wanted is None:
            return None
        return order, (first.inputs[0], *node.inputs[1:]), {**attributes, "data_format": wanted}

    def _take_filter(self, node: Operation, walk: RewriteWalk) -> Operation:
        """Read a transposed filter as it was, in the format that it then has."""
        first = transposed(self.library, walk, node.inputs[1])
        attributes = dict(node.attributes)
        formats = ("NCX", "NXC", "XCN", "CXN")
        wanted = (
            None if first is None else _format_before(attributes["filter_format"], order_of(first), formats)
        )
        if first is None or wanted is None:
            return node
        attributes["filter_format"] = wanted
        inputs = (node.inputs[0], first.inputs[0], *node.inputs[2:])
        return replace(node, inputs=inputs, attributes=tuple(attributes.items()))

    def _behind(
        self,
        node: Operation,
        order: Order,
        inputs: tuple[Argument, ...],
        attributes: Mapping[str, Value],
        walk: RewriteWalk,
    ) -> Replacement | None:
        (output,) = node.outputs
        if not isinstance(output, Tensor):
            return None
        try:
            inner = call(self.library, node.operator, inputs, attributes, [walk.fresh(output.name)])
            last = call(self.library, TRANSPOSE, inner.outputs, {"axis": 0, "perm": order}, [output.name])
        except Found:  # the definition refuses what should be equal; the node stays as it was
            return None
        (result,) = last.outputs
        if not isinstance(result, Tensor) or (result.element, result.shape) != (output.element, output.shape):
            return None
        # The new result has one reader, the transposition behind it; the output keeps its own.
        self.reads[inner.outputs[0].name if isinstance(inner.outputs[0], Tensor) else ""] = 1
        return Replacement(
            (replace(inner, origin=node.origin), replace(last, outputs=(output,), origin=node.origin))
        )


def _mapped(axes: Value, order: Order) -> Value:
    """Axes of a transposed tensor as axes of what it was."""
    if not isinstance(axes, tuple):
        return None
    return tuple(order[axis] for axis in axes if isinstance(axis, int))


def _format_before(name: Value, order: Order, formats: tuple[str, ...]) -> str | None:
    """The format that a tensor had before a transposition gave it the named one."""
    if not isinstance(name, str):
        return None
    before = [""] * len(order)
    for axis, dimension in enumerate(_dimensions(name, len(order))):
        before[order[axis]] = dimension
    return next((item for item in formats if _dimensions(item, len(order)) == before), None)


def _dimensions(name: str, rank: int) -> list[str]:
    """A format dimension by dimension: N, X0, X1, C for NXC."""
    spatial = [f"X{number}" for number in range(rank - 2)]
    return [item for letter in name for item in (spatial if letter == "X" else [letter])]
