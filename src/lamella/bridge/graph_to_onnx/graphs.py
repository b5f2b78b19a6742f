"""Graphs as ONNX graphs: every operation directly, by its own decomposition, or by its formulas."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.errors import Found, Unsupported
from lamella.base.origin import Origin, with_origin
from lamella.base.source import NOWHERE
from lamella.bridge.graph_to_onnx.direct import DIRECT, Call
from lamella.bridge.graph_to_onnx.emitter import DATA_ELEMENTS, Value
from lamella.bridge.graph_to_onnx.flow import emit_branch, emit_loop
from lamella.bridge.graph_to_onnx.formulas import by_formulas
from lamella.bridge.graph_to_onnx.scope import Held, Scope
from lamella.bridge.onnx.nodes import Properties
from lamella.bridge.onnx.rules import NOT_IN_ONNX
from lamella.graph.binding import bind_operation, quantizer_of
from lamella.graph.compose.decompose import compose_call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Branch, Constant, Loop, Node, Operation, Pack, Tensor
from lamella.graph.rewrite import results_of
from lamella.ops.library import Library

STACK, UNSTACK = "layout.stack", "layout.unstack"

ALIKE = frozenset({"layout.nonzero"})
"""Operators that both dialects write as the same operator of ONNX."""


class GraphTranslation:
    """One graph while its nodes are translated."""

    def __init__(self, model: Model) -> None:
        self.library: Library = model.library
        self._depth = 0
        """How many operators are being decomposed: what they are made of has names of its own."""
        self.rows: dict[tuple[str, ...], Value] = {}
        self.makers: dict[str, Node] = {}

    def nodes(self, scope: Scope, nodes: Sequence[Node]) -> None:
        """Translate nodes in their order."""
        for node in nodes:
            self._node(scope, node)

    def _node(self, scope: Scope, node: Node) -> None:
        emitter = scope.emitter
        before = emitter.stem, emitter.about
        emitter.stem = _stem(node) or emitter.stem
        if not self._depth:
            emitter.about = _about(node)
        if isinstance(node, Branch):
            results = emit_branch(self, scope, node)
        elif isinstance(node, Loop):
            results = emit_loop(self, scope, node)
        else:
            results = self._whole(scope, node)
        for argument, held in zip(node.outputs, results, strict=True):
            self.put(scope, argument, held)
        self.makers |= {item.name: node for item in results_of(node)}
        emitter.stem, emitter.about = before

    def _whole(self, scope: Scope, operation: Operation) -> list[Held]:
        """The results of an operation; Found names the innermost operator that ONNX has no way to say."""
        whole = self._by_rows(scope, operation)
        if whole is not None:
            return [whole]
        try:
            return self._operation(scope, operation)
        except Unsupported as problem:
            finding = NOT_IN_ONNX.at(NOWHERE, what=f"operator '{operation.operator}'", reason=str(problem))
            raise Found(with_origin(finding, operation.origin)) from None

    def _by_rows(self, scope: Scope, operation: Operation) -> Value | None:
        """The value whose rows an operation puts together again; those that it takes apart are kept in mind."""
        attributes = dict(operation.attributes)
        if attributes.get("axis") != 0 or operation.operator not in (STACK, UNSTACK):
            return None
        sides = operation.inputs[0], operation.outputs[0]
        whole, parts = sides[::-1] if operation.operator == STACK else sides
        if not isinstance(whole, Tensor) or not isinstance(parts, tuple) or not parts:
            return None
        # Joined end to end, without an axis of their own, they would be no rows.
        if len(whole.shape) != len(parts[0].shape) + 1 or any(item.quantization for item in parts):
            return None
        names = tuple(item.name for item in parts)
        if operation.operator == STACK:
            return self.rows.get(names)
        self.rows[names] = scope.value(whole)
        return None

    def _operation(self, scope: Scope, operation: Operation) -> list[Held]:
        """The results of an operation, by the first way that can say it."""
        instance = bind_operation(self.library, operation)
        call = Call(scope, operation, instance)
        means_other = self.library.is_newer(operation.operator) and operation.operator not in ALIKE
        direct = None if means_other else DIRECT.get(operation.operator)
        found = None if direct is None else direct(call)
        if found is not None:
            return found
        if instance.definition.operator.kind == "compose":
            return self._composed(scope, operation)
        return by_formulas(scope, operation, instance)

    def _composed(self, scope: Scope, operation: Operation) -> list[Held]:
        """The results of an operation by its own body, whose operations are translated in turn."""
        body = compose_call(self.library, operation, lambda name: name != operation.operator)
        inner = Scope(scope.emitter, scope)
        for constant in body.constants:
            self.constant(inner, constant)
        self._depth += 1
        self.nodes(inner, body.nodes)
        self._depth -= 1
        return [inner.held(item) for item in operation.outputs]

    def put(self, scope: Scope, argument: Argument, held: Held) -> None:
        """Say which values an argument is, each under the name of its tensor."""
        if argument is None or held is None:
            return
        if isinstance(argument, tuple):
            values = held if isinstance(held, tuple) else (held,)
            for item, value in zip(argument, values, strict=True):
                self._put(scope, item, value)
        elif isinstance(held, Value):
            self._put(scope, argument, held)

    def _put(self, scope: Scope, item: Tensor | Pack, value: Value) -> None:
        scope.put(item, value)
        if isinstance(item, Tensor):
            self.quantise(scope, item)
        if not self._depth:
            scope.put(item, scope.emitter.settle(scope.value(item), item.name))

    def quantise(self, scope: Scope, tensor: Tensor) -> None:
        """What a quantised tensor becomes as it is produced."""
        operation = quantizer_of(tensor)
        if operation is not None:
            (found,) = self._whole(scope, operation)
            if isinstance(found, Value):
                scope.put(tensor, found)

    def constant(self, scope: Scope, constant: Constant) -> None:
        """A constant: its numbers, or nodes where only the run tells its extents."""
        tensor = constant.tensor
        element = DATA_ELEMENTS.get(tensor.element, tensor.element)
        scope.put(tensor, scope.constant(element, tensor.shape, constant.value))
        self.quantise(scope, tensor)


def _stem(node: Node) -> str:
    """What the values of a node are called after: its first result."""
    for output in node.outputs:
        if isinstance(output, Tensor | Pack):
            return output.name
        if output:
            return output[0].name
    return ""


def _about(node: Node) -> Properties:
    """What is written beside the nodes that an operation becomes."""
    found = [("lamella.operator", node.operator)] if isinstance(node, Operation) else []
    origin: Origin | None = node.origin
    if origin is not None:
        found.append(("lamella.origin", "\n".join(origin.words())))
    return tuple(found)
