"""The walk over an ONNX graph: every node becomes operations of a graph under construction, or a known content."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import TooComplex
from lamella.base.dtype import BOOL, I64
from lamella.base.errors import Found, Malformed
from lamella.base.origin import Origin, with_origin
from lamella.base.source import NOWHERE
from lamella.bridge.onnx import rules
from lamella.bridge.onnx.arrays import ExternalData, read_array, read_sparse
from lamella.bridge.onnx.nodes import (
    MAIN_DOMAIN,
    Attribute,
    AttributeValue,
    Function,
    Graph,
    Node,
    OpsetImport,
    TensorProto,
    plain_domain,
    version_in,
)
from lamella.bridge.onnx_to_graph.adapters import ADAPTERS
from lamella.bridge.onnx_to_graph.fold import fold
from lamella.bridge.onnx_to_graph.site import (
    MOST_CONSTANT,
    NodeSite,
    Result,
    Results,
    ValueNeeded,
    constant_tensor,
)
from lamella.bridge.onnx_to_graph.values import Value, known_value
from lamella.graph.build import Builder
from lamella.graph.nodes import Tensor

Scope = dict[str, Value]
FunctionKey = tuple[str, str, str]
MOST_INLINED = 200_000
"""Nodes that calls of functions and bodies of loops may unfold to, all together."""


_IMPOSSIBLE = (ArithmeticError, LookupError, TypeError, ValueError)
"""What arithmetic with numbers of a file may raise; every operation that is built is bound and checked by itself."""


class Stop(Exception):
    """A node could not be translated; the findings are collected already."""


class Translator:
    """Translates graphs into one builder; what is wrong is collected, and the first values that are needed."""

    def __init__(
        self,
        builder: Builder,
        opsets: tuple[OpsetImport, ...],
        functions: Mapping[FunctionKey, Function],
        external: ExternalData,
    ) -> None:
        self.builder = builder
        self.findings: list[Diagnostic] = []
        self.needed: list[str] = []
        """Values whose content an operation asks for and only the run tells."""
        self.data: dict[str, Array] = {}
        """The arrays of variables."""
        self.names: dict[str, str] = {}
        """What the file calls the tensors that the builder made."""
        self._opsets = opsets
        self._functions = functions
        self._external = external
        self._unfolded = 0
        self._weights: dict[int, Value] = {}
        """The initializers of all graphs by identity, which the model keeps alive."""

    # --- values ---------------------------------------------------------------------------------------------

    def read(self, tensor: TensorProto) -> Array:
        """The array of a tensor; Found says what is wrong with it."""
        try:
            return read_array(tensor, self._external)
        except Malformed as problem:
            raise Found(rules.BAD_TENSOR.at(NOWHERE, name=tensor.name, reason=str(problem))) from None

    def enter_initializers(self, graph: Graph, scope: Scope) -> None:
        """The initializers of a graph as known contents."""
        for tensor in graph.initializers:
            # The body of a loop that is written out comes here again and again.
            if id(tensor) not in self._weights:
                read = known_value(self.read(tensor), tensor.name)
                self._weights[id(tensor)] = replace(read, is_weight=True)
            scope[tensor.name] = self._weights[id(tensor)]
        for sparse in graph.sparse_initializers:
            name = sparse.values.name
            try:
                content = read_sparse(sparse, self._external)
            except Malformed as problem:
                raise Found(rules.BAD_SPARSE.at(NOWHERE, name=name, reason=str(problem))) from None
            scope[name] = replace(known_value(content, name), is_weight=True)

    def materialise(self, value: Value) -> Tensor:
        """The tensor that a value is; a known content becomes a constant, or a variable where it is large."""
        if value.tensor is None:
            assert value.known is not None  # a value is one of the two
            value.tensor = self._store(value, value.known)
        return value.tensor

    def _store(self, value: Value, content: Array) -> Tensor:
        counts = value.element.is_integer or not value.is_weight
        if content.dtype == object or content.size <= 1 or (counts and content.size <= MOST_CONSTANT):
            return constant_tensor(self.builder, content, value.element)
        tensor = self.builder.variable(value.name or "weight", value.element, content.shape)
        self.data[tensor.name] = content
        return tensor

    # --- graphs ---------------------------------------------------------------------------------------------

    def run(self, nodes: Sequence[Node], scope: Scope, opsets: tuple[OpsetImport, ...] | None = None) -> None:
        """Translate nodes in order; Stop when some could not be."""
        for node in nodes:
            self._visit(node, scope, self._opsets if opsets is None else opsets)

    def _attempt(self, translate: Callable[[], Results]) -> Results:
        """What a translation gives; None where something in it cannot be translated, which is forgotten."""
        findings, needed = len(self.findings), len(self.needed)
        try:
            found = translate()
        except (Found, ValueNeeded, Stop):
            found = None
        if len(self.findings) == findings and found is not None:
            return found
        del self.findings[findings:]
        del self.needed[needed:]
        return None

    def inner(
        self, graph: Graph, scope: Scope, given: Sequence[Value], opsets: tuple[OpsetImport, ...]
    ) -> list[Value]:
        """What an inner graph gives for values of its inputs; it sees the values around it."""
        self._count(len(graph.nodes), graph.name)
        inside = dict(scope)
        self.enter_initializers(graph, inside)
        for port, value in zip(graph.inputs, given, strict=False):
            inside[port.name] = value
        self.run(graph.nodes, inside, opsets)
        missing = [item.name for item in graph.outputs if item.name not in inside]
        if missing:
            raise Stop
        return [inside[item.name] for item in graph.outputs]

    def _visit(self, node: Node, scope: Scope, opsets: tuple[OpsetImport, ...]) -> None:
        domain = plain_domain(node.domain)
        function = self._functions.get((domain, node.op_type, node.overload))
        names = [name for name in node.inputs if name]
        if any(name not in scope for name in names):
            return  # what makes them is reported already
        origin = self.builder.origin
        self.builder.origin = Origin(f"{node.title}: {node.op_type}", above=origin)
        try:
            values = [scope[name] if name else None for name in node.inputs]
            results: Sequence[Result]
            if function is not None:
                results = self._call(function, node, values)
            else:
                results = self._operation(node, values, scope, opsets)
            self._keep(node, results, scope)
        except Found as problem:
            self.findings += [with_origin(item, self.builder.origin) for item in problem.findings]
        except ValueNeeded as problem:
            self.needed.append(problem.name)
            self.findings.append(with_origin(problem.finding, self.builder.origin))
        except TooComplex as problem:
            reason = f"the extents of its results are {problem}"
            self.findings.append(rules.REFUSED.at(NOWHERE, node=node.title, reason=reason))
        except Stop:
            pass
        except _IMPOSSIBLE as problem:
            # Adapters take lists of attributes at their word; those of a hostile file do not fit each other.
            reason = f"its attributes or inputs do not fit each other ({type(problem).__name__}: {problem})"
            self.findings.append(rules.REFUSED.at(NOWHERE, node=node.title, reason=reason))
        finally:
            self.builder.origin = origin

    def _operation(
        self, node: Node, values: list[Value | None], scope: Scope, opsets: tuple[OpsetImport, ...]
    ) -> Sequence[Result]:
        domain = plain_domain(node.domain)
        version = version_in(opsets, domain) or 1
        attributes: dict[str, AttributeValue] = {item.name: item.value for item in node.attributes}
        known = self._folded(node, domain, values, attributes, version)
        if known is not None:
            return known
        adapter = ADAPTERS.get((domain, node.op_type))
        site = NodeSite(
            self.builder,
            node,
            version,
            values,
            attributes,
            self.materialise,
            lambda graph, given: self.inner(graph, scope, given, opsets),
            self._attempt,
            self.read,
        )
        if adapter is None:
            site.refuse("has no translation here" if domain == MAIN_DOMAIN else f"is of domain '{domain}'")
        found = adapter(site)
        return found if isinstance(found, Sequence) else [found]

    def _folded(
        self,
        node: Node,
        domain: str,
        values: list[Value | None],
        attributes: dict[str, AttributeValue],
        version: int,
    ) -> list[Result] | None:
        contents = [None if item is None else item.known for item in values]
        if domain != MAIN_DOMAIN or not values:
            return None
        if any(item is not None and item.known is None for item in values):
            return None
        if all(item is None or item.is_weight for item in values) and not _is_small(contents):
            return None
        found = fold(node.op_type, contents, attributes, version)
        if found is None:
            return None
        # Symbolic integers are of the type of the first operand that holds integers, behind the condition of a Where.
        whole = next((item.element for item in values if item is not None and item.element != BOOL), I64)
        return [known_value(item, element=whole if item.dtype == object else None) for item in found]

    def _keep(self, node: Node, results: Sequence[Result], scope: Scope) -> None:
        for name, result in zip(node.outputs, results, strict=False):
            if not name or result is None:
                continue
            value = result if isinstance(result, Value) else Value(result, None, result.element)
            # A value that has a name already is what another name stands for, and is stored once.
            scope[name] = value if value.name else replace(value, name=name)
            if value.tensor is not None:
                self.names.setdefault(value.tensor.name, name)

    # --- functions ------------------------------------------------------------------------------------------

    def _count(self, nodes: int, title: str) -> None:
        """Count nodes of functions and inner graphs; loops in loops are tried and written out again and again."""
        self._unfolded += nodes
        if self._unfolded > MOST_INLINED:
            reason = f"functions and loops unfold to more than {MOST_INLINED} nodes"
            raise Found(rules.REFUSED.at(NOWHERE, node=title, reason=reason))

    def _call(self, function: Function, node: Node, values: list[Value | None]) -> list[Result]:
        """A call of a function of the model, unfolded in place."""
        self._count(len(function.nodes), node.title)
        given = {item.name: item for item in function.defaults}
        given.update({item.name: item for item in node.attributes})
        inside: Scope = {
            name: value for name, value in zip(function.inputs, values, strict=False) if value is not None
        }
        absent = {name for name in function.inputs if name not in inside}
        nodes = [_without(_bound(item, given), absent) for item in function.nodes]
        self.run(nodes, inside, function.opsets or self._opsets)
        missing = [name for name in function.outputs if name and name not in inside]
        if missing and self.findings:
            raise Stop
        return [inside.get(name) for name in function.outputs]


def _is_small(contents: Sequence[Array | None]) -> bool:
    return all(item is None or item.size <= MOST_CONSTANT for item in contents)


def _bound(node: Node, given: Mapping[str, Attribute]) -> Node:
    """A node of a function with the attributes of a call; those that the call leaves out are left out."""
    found: list[Attribute] = []
    for item in node.attributes:
        if item.reference:
            source = given.get(item.reference)
            if source is not None:
                found.append(replace(source, name=item.name, reference=""))
        elif isinstance(item.value, Graph):
            inner = replace(item.value, nodes=tuple(_bound(part, given) for part in item.value.nodes))
            found.append(replace(item, value=inner))
        else:
            found.append(item)
    return replace(node, attributes=tuple(found))


def _without(node: Node, absent: set[str]) -> Node:
    """A node of a function without the inputs that a call leaves out."""
    if not absent.intersection(node.inputs):
        return node
    return replace(node, inputs=tuple("" if name in absent else name for name in node.inputs))
