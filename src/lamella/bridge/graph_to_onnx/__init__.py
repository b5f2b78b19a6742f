"""Graphs as ONNX models: every operator directly, by its own decomposition, or by its formulas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from lamella.base.arrays import Array
from lamella.base.dim import symbols
from lamella.base.dtype import F4E2M1, F64, I2, U2
from lamella.base.errors import Found, Unsupported
from lamella.base.source import NOWHERE
from lamella.bridge.graph_to_onnx.direct.quantisation import LinearCode, find_code
from lamella.bridge.graph_to_onnx.emitter import (
    DATA_ELEMENTS,
    Emitter,
    Value,
    names_read,
    rename_values,
    used_nodes,
    value_info,
)
from lamella.bridge.graph_to_onnx.graphs import GraphTranslation
from lamella.bridge.graph_to_onnx.scope import Scope, dimensions
from lamella.bridge.onnx.arrays import tensor_of
from lamella.bridge.onnx.nodes import EXTENT, STATE, OpsetImport, TensorProto, ValueInfo
from lamella.bridge.onnx.nodes import Graph as OnnxGraph
from lamella.bridge.onnx.nodes import Model as OnnxModel
from lamella.bridge.onnx.rules import NOT_IN_ONNX
from lamella.graph.binding import quantizer_of
from lamella.graph.compose.scope import recursion_limit
from lamella.graph.model import Model
from lamella.graph.nodes import Pack, Tensor
from lamella.graph.rewrite import defined, extents, members, results_of

OPSET, IR_VERSION = 21, 10
"""The first versions with 4-bit integers and with metadata of nodes; runtimes read them since early 2024."""
NEWER = MappingProxyType({F4E2M1: (23, 11), I2: (25, 13), U2: (25, 13)})
"""The first versions with narrower types, for graphs that hold some."""
NEXT = ".next"
"""What the output that holds a state's next value is called after the state."""


def graph_to_onnx(model: Model) -> OnnxModel:
    """A graph with its weights as an ONNX model; Found says what ONNX has no way to say."""
    try:
        with recursion_limit(model.library.limits):
            return _Writing(model).model()
    except Unsupported as problem:
        raise Found(
            NOT_IN_ONNX.at(NOWHERE, what=f"graph '{model.graph.name}'", reason=str(problem))
        ) from None


class _Writing:
    """One model while it is written."""

    def __init__(self, model: Model) -> None:
        self.source = model
        self.graph = model.graph
        self.emitter = Emitter()
        self.scope = Scope(self.emitter)
        self.translation = GraphTranslation(model)
        changed = [item for item in model.graph.updates if item.value.name != item.variable.name]
        self.states = {item.variable.name: item.value for item in changed}
        for item in defined(model.graph):
            self.emitter.shared.names.take(item.name)

    def model(self) -> OnnxModel:
        """The model."""
        inputs = [*self._inputs(), *self._variables()]
        for constant in self.graph.constants:
            self.translation.constant(self.scope, constant)
        self.translation.nodes(self.scope, self.graph.nodes)
        outputs = [*self._outputs(), *self._next_states()]
        nodes = used_nodes(self.emitter.nodes, [item.name for item in outputs])
        named = rename_values(
            OnnxGraph(
                self.graph.name,
                tuple(nodes),
                tuple(inputs),
                tuple(outputs),
                values=tuple(self._inner(outputs)),
            ),
            self.emitter.shared.renamed,
        )
        read = set(names_read(named.nodes)) | {item.name for item in named.outputs}
        constants = [item for item in self.emitter.shared.constants.values() if item.name in read]
        wide = {item.name for item in self.graph.variables if item.element == F64}
        weights = [item for item in self._weights() if item.name in read or item.name not in wide]
        used = [NEWER[item.element] for item in defined(self.graph) if item.element in NEWER]
        opset, version = max([(OPSET, IR_VERSION), *used])
        states = ((f"{STATE}{name}", f"{name}{NEXT}") for name in self.states)
        return OnnxModel(
            replace(named, initializers=(*weights, *constants)),
            version,
            (OpsetImport("", opset),),
            producer="lamella",
            metadata=(*states, *self._ranges()),
        )

    def _ranges(self) -> Iterator[tuple[str, str]]:
        """Between which numbers the open extents of inputs stay."""
        found = {
            symbol.name: f"{symbol.low} {symbol.high}"
            for item in members(self.graph.inputs)
            for extent in extents(item)
            for symbol in symbols(extent)
        }
        yield from ((f"{EXTENT}{name}", words) for name, words in found.items())

    def _inputs(self) -> Iterator[ValueInfo]:
        for item in members(self.graph.inputs):
            yield self._given(item)

    def _given(self, item: Tensor | Pack) -> ValueInfo:
        self.emitter.stem = item.name
        value = Value(DATA_ELEMENTS.get(item.element, item.element), item.name)
        self.scope.put(item, value)
        if isinstance(item, Tensor):
            self.translation.quantise(self.scope, item)
        return value_info(value, shape=_dimensions(item))

    def _variables(self) -> Iterator[ValueInfo]:
        """Weights are values; states are inputs too, whose numbers in the file are what they begin with."""
        for item in self.graph.variables:
            code = self._code_of(item)
            if code is not None:
                self.emitter.stem = item.name
                self.scope.put(item, code.decode(self.emitter, Value(code.element, item.name)))
                continue
            info = self._given(item)
            if item.name in self.states or item.name not in (self.source.data or {}):
                yield info
            elif item.element == F64:
                # Scales are told in singles: whoever reads them knows their numbers.
                self.scope.put(item, Value(F64, item.name, (self.source.data or {})[item.name]))

    def _code_of(self, item: Tensor) -> LinearCode | None:
        """The code in which a quantised weight is written; states are numbers, since runs give them anew."""
        operation = quantizer_of(item)
        if operation is None or item.name in self.states or item.name not in (self.source.data or {}):
            return None
        return find_code(operation)

    def _inner(self, outputs: Sequence[ValueInfo]) -> Iterator[ValueInfo]:
        """The types of the tensors between inputs and outputs, for who shows the graph."""
        known = {item.name for item in outputs}
        for node in self.graph.nodes:
            for item in results_of(node):
                value = self.scope.find(item.name)
                if value is not None and value.name and value.name not in known:
                    known.add(value.name)
                    yield value_info(value, shape=_dimensions(item))

    def _weights(self) -> Iterator[TensorProto]:
        data = self.source.data or {}
        for item in self.graph.variables:
            if item.name in data:
                array: Array = data[item.name]
                code = self._code_of(item)
                yield tensor_of(item.name, array if code is None else code.encode(array))

    def _outputs(self) -> Iterator[ValueInfo]:
        done: set[str] = set()
        for item in members(self.graph.outputs):
            if item.name in done:
                continue
            done.add(item.name)
            value = self.scope.value(item)
            if not value.name:
                value = self.emitter.settle(value, item.name)
            yield value_info(value, shape=_dimensions(item))

    def _next_states(self) -> Iterator[ValueInfo]:
        for name, tensor in self.states.items():
            copy = self.emitter.add("Identity", (self.scope.value(tensor),), tensor.element)
            value = self.emitter.settle(copy, self.emitter.shared.names.take(f"{name}{NEXT}"))
            yield value_info(value, shape=_dimensions(tensor))


def _dimensions(item: Tensor | Pack) -> tuple[int | str | None, ...]:
    return dimensions((item.size, *item.shape) if isinstance(item, Pack) else item.shape)


__all__ = ["NEXT", "OPSET", "graph_to_onnx"]
