"""Passes: pure functions from a model to a model, one file each.

`fold_constants`, `specialise_shapes` and `optimise` need more than the model, and are imported from their files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Node, Operation, Tensor, Value
from lamella.graph.passes.cancel_transposes import cancel_transposes, join
from lamella.graph.passes.laws.transposes import TRANSPOSE, Order, order_of, transposed
from lamella.graph.passes.merge_equal import merge_equal
from lamella.graph.passes.relax import relax
from lamella.graph.passes.remove_dead import remove_dead
from lamella.graph.passes.remove_unused_variables import remove_unused_variables
from lamella.graph.passes.simplify import simplify
from lamella.graph.rewrite import Change, Walk, members, rewrite, uses
from lamella.lang.skriptnd import nodes as n
from lamella.ops.evaluate.walk import walk
from lamella.ops.library import Library
from lamella.ops.problem import Problem

# --- which operators work element by element: read off their formulas ---------------------------------------


def is_elementwise(operator: n.Operator) -> bool:
    """Whether each element of the output depends on the same element of the one input and on nothing else.

    The formula must be of the form `y[i..] = f(x[i..]), i < s` with `x` and `y` of shape `[s..]`.
    """
    inputs, outputs = list(operator.parameters("input")), list(operator.parameters("output"))
    lowerings = [item for item in operator.items("lower") if isinstance(item, n.Lowering)]
    if len(inputs) != 1 or len(outputs) != 1 or len(lowerings) != 1:
        return False
    symbol = _packed_name(inputs[0].type)
    if symbol is None or symbol != _packed_name(outputs[0].type) or inputs[0].type.pack is not None:
        return False
    return _is_plain(lowerings[0], inputs[0].name, symbol)


def _packed_name(spec: n.TypeSpec) -> str | None:
    """`s` of a shape `[s..]`."""
    if spec.shape is None or len(spec.shape) != 1:
        return None
    extent = spec.shape[0]
    packed = extent.pack is not None and not extent.spread and extent.bound is None
    return extent.value.id if packed and isinstance(extent.value, n.Name) else None


def _is_plain(lowering: n.Lowering, source: str, symbol: str) -> bool:
    if len(lowering.bounds) != 1 or lowering.sign != "=" or lowering.unroll is not None:
        return False
    (bound,) = lowering.bounds
    place = (n.Expand(n.Name(bound.index)),)
    found = list(_parts(lowering))
    accesses = [item for item in found if isinstance(item, n.Access)]
    fits = all(item.tensor == source and item.indices == place for item in accesses)
    loose = sum(1 for item in found if isinstance(item, n.Name) and item.id in (bound.index, symbol))
    members = any(isinstance(item, n.Member) for item in found)
    same = lowering.target.indices == place and bound.limit == n.Name(symbol)
    return fits and same and not members and loose == len(accesses)


def _parts(lowering: n.Lowering) -> Iterator[object]:
    """Everything on the right of a formula, its local values included."""
    for expr in (lowering.value, lowering.condition, *(item.value for item in lowering.locals)):
        if expr is not None:
            yield from walk(expr)


# --- move transpositions behind the operations that read them, where they meet others and cancel ------------


_ALIGNED = frozenset(
    f"math.{name}"
    for name in (
        *("add", "sub", "mul", "div", "mod", "pow", "min", "max", "lt", "gt", "le", "ge", "eq", "ne"),
        *("and", "or", "xor", "select", "axpb", "axpby", "clamp"),
    )
)
_ALONG_AXES = frozenset(
    (
        *(f"nn.{name}" for name in ("max_pool", "sum_pool", "avg_pool", "rms_pool", "lp_pool")),
        *(f"nn.{name}" for name in ("softmax", "l1_norm", "l2_norm")),
        *(f"math.{name}_reduce" for name in ("min", "max", "sum", "prod", "mean", "lp", "any", "all")),
    )
)
_CONVOLUTIONS = ("nn.conv", "nn.deconv")


def propagate_layout(model: Model) -> Model:
    """The model with transpositions as far behind as they can go."""
    return replace(model, graph=rewrite(model.graph, _Propagation(model).visit))


class _Propagation:
    def __init__(self, model: Model) -> None:
        self.library: Library = model.library
        self.reads = uses(model.graph)
        self.elementwise: dict[str, bool] = {}

    def visit(self, node: Node, walk: Walk) -> Change | None:
        """Take the transpositions away from the inputs of a node and put one behind it."""
        if not isinstance(node, Operation) or len(node.outputs) != 1:
            return None
        if node.operator == TRANSPOSE:
            return self._joined(node, walk)
        if node.operator in _CONVOLUTIONS:
            node = self._take_filter(node, walk)
        moved = self._moved(node, walk)
        if moved is None:
            return Change((node,))
        order, inputs, attributes = moved
        return self._behind(node, order, inputs, attributes, walk) or Change((node,))

    def _joined(self, node: Operation, walk: Walk) -> Change | None:
        """Join transpositions, and count who reads the source once the first of them is read no more."""
        change = join(node, walk)
        freed = int(any(self.reads.get(item.name) == 1 for item in members(node.inputs)))
        for old, new in (change.results if change else {}).items():
            self.reads[new.name] = self.reads.get(new.name, 0) + self.reads.get(old, 0) - freed
        return change

    def _moved(
        self, node: Operation, walk: Walk
    ) -> tuple[Order, tuple[Argument, ...], Mapping[str, Value]] | None:
        """The order behind a node, and the inputs and attributes with which it works on what was not transposed."""
        attributes = dict(node.attributes)
        if node.operator in _CONVOLUTIONS:
            return self._convolution(node, attributes, walk)
        if node.operator in _ALIGNED:
            common = self._common(node, walk) if not any(attributes.values()) else None
            return None if common is None else (*common, attributes)
        first = self._single(node.inputs[0] if len(node.inputs) == 1 else None, walk)
        if first is None:
            return None
        order = order_of(first)
        if node.operator in _ALONG_AXES and not attributes.get("squeeze"):
            axes = _mapped(attributes["axes"], order)
            return None if axes is None else (order, first.inputs, {**attributes, "axes": axes})
        return (order, first.inputs, attributes) if self._is_elementwise(node.operator) else None

    def _single(self, tensor: Argument, walk: Walk) -> Operation | None:
        """The transposition behind an input that nothing else reads."""
        found = transposed(walk, tensor)
        ours = found is not None and found.operator == TRANSPOSE
        return found if ours and isinstance(tensor, Tensor) and self.reads.get(tensor.name) == 1 else None

    def _is_elementwise(self, operator: str) -> bool:
        if operator not in self.elementwise:
            definition = self.library.find(operator)
            self.elementwise[operator] = definition is not None and is_elementwise(definition.operator)
        return self.elementwise[operator]

    def _common(self, node: Operation, walk: Walk) -> tuple[Order, tuple[Argument, ...]] | None:
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
        self, node: Operation, attributes: dict[str, Value], walk: Walk
    ) -> tuple[Order, tuple[Argument, ...], Mapping[str, Value]] | None:
        first = self._single(node.inputs[0], walk)
        if first is None:
            return None
        order = order_of(first)
        wanted = _format_before(attributes["data_format"], order, ("NCX", "NXC", "XCN"))
        if wanted is None:
            return None
        return order, (first.inputs[0], *node.inputs[1:]), {**attributes, "data_format": wanted}

    def _take_filter(self, node: Operation, walk: Walk) -> Operation:
        """Read a transposed filter as it was, in the format that it then has."""
        first = transposed(walk, node.inputs[1])
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
        walk: Walk,
    ) -> Change | None:
        (output,) = node.outputs
        if not isinstance(output, Tensor):
            return None
        try:
            inner = call(self.library, node.operator, inputs, attributes, [walk.fresh(output.name)])
            last = call(self.library, TRANSPOSE, inner.outputs, {"axis": 0, "perm": order}, [output.name])
        except Problem:  # the definition refuses what should be equal; the node stays as it was
            return None
        (made,) = last.outputs
        if not isinstance(made, Tensor) or (made.element, made.shape) != (output.element, output.shape):
            return None
        self.reads[inner.outputs[0].name if isinstance(inner.outputs[0], Tensor) else ""] = 1
        return Change(
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


Pass: TypeAlias = Callable[[Model], Model]

PASSES: Mapping[str, Pass] = MappingProxyType(
    {
        "simplify": simplify,
        "propagate_layout": propagate_layout,
        "cancel_transposes": cancel_transposes,
        "merge_equal": merge_equal,
        "remove_dead": remove_dead,
        "remove_unused_variables": remove_unused_variables,
        "relax": relax,
    }
)
"""The passes that need nothing but the model, in the order in which they help each other; the last changes numbers."""
