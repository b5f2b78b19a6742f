"""The checker of ONNX models: versions, names, operators, attributes and tensors, before anything is translated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.errors import Malformed
from lamella.base.paths import read_shipped
from lamella.base.source import NOWHERE, Binary, Span
from lamella.bridge.onnx import rules
from lamella.bridge.onnx.arrays import ExternalData, check_data, read_sparse
from lamella.bridge.onnx.nodes import (
    MAIN_DOMAIN,
    Attribute,
    AttributeKind,
    DataType,
    Function,
    Graph,
    Model,
    Node,
    OpsetImport,
    TensorProto,
    TensorType,
    plain_domain,
    subgraphs,
    version_in,
)

TABLE = "ops/tables/onnx_schemas.csv"
ANY = 1 << 31
"""As many as one likes."""
OLDEST, NEWEST = 7, 28
"""The versions of the main domain that are read."""
KNOWN_DOMAINS = (MAIN_DOMAIN, "com.microsoft")


@dataclass(frozen=True, slots=True)
class OperatorSchema:
    """An operator as it is from one version on: how many inputs and outputs, and its attributes by name."""

    domain: str
    name: str
    since: int
    is_deprecated: bool
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    options: str
    """One letter for each input: single, optional or variadic."""
    attributes: Mapping[str, AttributeKind]
    required: frozenset[str]


@cache
def _table() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """The lines of each operator, oldest first; they are read when they are asked for."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in read_shipped(TABLE).splitlines()[1:]:
        domain, name, _ = line.split(",", 2)
        found.setdefault((domain, name), []).append(line)
    return MappingProxyType({key: tuple(lines) for key, lines in found.items()})


@cache
def schemas_of(domain: str, name: str) -> tuple[OperatorSchema, ...]:
    """All versions of an operator, oldest first; none where there is no such operator."""
    return tuple(_schema(line) for line in _table().get((domain, name), ()))


def find_schema(domain: str, name: str, version: int) -> OperatorSchema | None:
    """An operator as it is in a version of its domain."""
    return next((item for item in reversed(schemas_of(domain, name)) if item.since <= version), None)


def operator_names(domain: str) -> tuple[str, ...]:
    """Every operator of a domain."""
    return tuple(name for own, name in _table() if own == domain)


def _schema(line: str) -> OperatorSchema:
    domain, name, since, deprecated, *counts, options, attributes = line.split(",")
    least_in, most_in, least_out, most_out = (int(item) if item else ANY for item in counts)
    parts = [item.rstrip("!").split(":") for item in attributes.split()]
    return OperatorSchema(
        domain,
        name,
        int(since),
        deprecated == "1",
        (least_in, most_in),
        (least_out, most_out),
        options,
        MappingProxyType({key: AttributeKind[kind] for key, kind in parts}),
        frozenset(item.split(":")[0] for item in attributes.split() if item.endswith("!")),
    )


NEWEST_IR = 14
MOST_FINDINGS = 100
"""Findings of one model; what follows is not looked for."""


def check_model(model: Model, external: ExternalData, name: str = "") -> list[Diagnostic]:
    """What is wrong with a model; numbers are not read, only whether they are there."""
    place = Span(Binary(name), 0, 0) if name else NOWHERE
    checker = _Checker(model, external, place)
    checker.run()
    return checker.findings


@dataclass(slots=True)
class _Names:
    """The values that nodes can read, each with what defines it; inner graphs see those around them."""

    own: dict[str, str] = field(default_factory=dict)
    around: _Names | None = None

    def find(self, name: str) -> str | None:
        """What defines a value."""
        scope: _Names | None = self
        while scope is not None:
            if name in scope.own:
                return scope.own[name]
            scope = scope.around
        return None


class _Checker:
    def __init__(self, model: Model, external: ExternalData, place: Span) -> None:
        self._model = model
        self._external = external
        self._place = place
        self._functions = {_key(item.domain, item.name, item.overload): item for item in model.functions}
        self.findings: list[Diagnostic] = []

    def _say(self, rule: Rule, **values: object) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(rule.at(self._place, hint=None, labels=(), **values))

    def run(self) -> None:
        """Check everything."""
        model = self._model
        if not 3 <= model.ir_version <= NEWEST_IR:
            self._say(rules.IR_VERSION, version=model.ir_version, newest=NEWEST_IR)
        if model.has_training:
            self._say(rules.TRAINING)
        self._opsets(model.opsets)
        self._check_functions()
        self._graph(model.graph, None, model.opsets, frozenset())

    # --- versions -------------------------------------------------------------------------------------------

    def _opsets(self, opsets: Sequence[OpsetImport]) -> None:
        seen: dict[str, int] = {}
        for item in opsets:
            domain = plain_domain(item.domain)
            if domain in seen and seen[domain] != item.version:
                self._say(rules.OPSET_TWICE, domain=item.domain, first=seen[domain], second=item.version)
            seen[domain] = item.version
            if domain == MAIN_DOMAIN and not OLDEST <= item.version <= NEWEST:
                self._say(
                    rules.OPSET_RANGE,
                    version=item.version,
                    domain=item.domain or "ai.onnx",
                    oldest=OLDEST,
                    newest=NEWEST,
                )

    def _check_functions(self) -> None:
        seen: set[tuple[str, str, str]] = set()
        for item in self._model.functions:
            key = _key(item.domain, item.name, item.overload)
            if key in seen:
                self._say(rules.FUNCTION_TWICE, name=item.name, domain=item.domain)
            seen.add(key)
            names = _Names(dict.fromkeys(item.inputs, "an input"))
            given = frozenset((*item.attributes, *(part.name for part in item.defaults)))
            self._nodes(item.nodes, names, item.opsets or self._model.opsets, given)
            for output in item.outputs:
                if output not in names.own:
                    self._say(rules.OUTPUT_NOT_DEFINED, name=output)
        self._refuse_recursion()

    def _refuse_recursion(self) -> None:
        """Functions that reach themselves, found without recursion of our own."""
        calls = {key: tuple(self._called(item)) for key, item in self._functions.items()}
        done: set[tuple[str, str, str]] = set()
        for root in calls:
            path: list[tuple[str, str, str]] = []
            waiting: list[tuple[tuple[str, str, str], bool]] = [(root, False)]
            while waiting:
                key, is_left = waiting.pop()
                if is_left:
                    done.add(path.pop())
                elif key in path:
                    self._say(rules.RECURSIVE_FUNCTION, name=key[1])
                    return
                elif key not in done:
                    path.append(key)
                    waiting.append((key, True))
                    waiting += [(item, False) for item in calls[key]]

    def _called(self, function: Function) -> Iterator[tuple[str, str, str]]:
        for node in _all_nodes(function.nodes):
            key = _key(node.domain, node.op_type, node.overload)
            if key in self._functions:
                yield key

    # --- graphs ---------------------------------------------------------------------------------------------

    def _graph(
        self, graph: Graph, around: _Names | None, opsets: Sequence[OpsetImport], given: frozenset[str]
    ) -> None:
        if not graph.name and around is None:
            self._say(rules.NO_NAME, what="the graph")
        names = _Names({}, around)
        for port in graph.inputs:
            self._define(names, port.name, "an input")
            if port.type is None and around is None:
                self._say(rules.NO_TYPE, name=port.name)
            self._check_type(port.name, port.type)
        inputs = set(names.own)
        for tensor in graph.initializers:
            # An initializer that is also an input is the default of it.
            if tensor.name not in inputs:
                self._define(names, tensor.name, "an initializer")
            self._tensor(tensor, tensor.name)
        for sparse in graph.sparse_initializers:
            if sparse.values.name not in inputs:
                self._define(names, sparse.values.name, "a sparse initializer")
            try:
                read_sparse(sparse, self._external)
            except Malformed as problem:
                self._say(rules.BAD_SPARSE, name=sparse.values.name, reason=str(problem))
        self._nodes(graph.nodes, names, opsets, given)
        for output in graph.outputs:
            if names.find(output.name) is None:
                self._say(rules.OUTPUT_NOT_DEFINED, name=output.name)

    def _define(self, names: _Names, name: str, what: str) -> None:
        if not name:
            self._say(rules.NO_NAME, what=what)
            return
        before = names.find(name)
        if before is not None:
            self._say(rules.TWICE, name=name, first=before, second=what)
        names.own[name] = what

    def _check_type(self, name: str, kind: object) -> None:
        if isinstance(kind, TensorType) and kind.data_type not in set(DataType):
            self._say(rules.UNKNOWN_TYPE, name=name, number=kind.data_type)

    def _nodes(
        self,
        nodes: Sequence[Node],
        names: _Names,
        opsets: Sequence[OpsetImport],
        given: frozenset[str],
    ) -> None:
        for node in nodes:
            if len(self.findings) >= MOST_FINDINGS:
                return
            title = f"node '{node.title}'"
            for name in node.inputs:
                if name and names.find(name) is None:
                    self._say(rules.NOT_DEFINED, node=title, name=name)
            self._node(node, title, opsets, given)
            for _, graph in subgraphs(node):
                self._graph(graph, names, opsets, given)
            for name in node.outputs:
                if name:
                    self._define(names, name, title)

    # --- nodes ----------------------------------------------------------------------------------------------

    def _node(self, node: Node, title: str, opsets: Sequence[OpsetImport], given: frozenset[str]) -> None:
        domain = plain_domain(node.domain)
        for item in node.attributes:
            self._values(item)
            if item.reference and item.reference not in given:
                self._say(rules.REFERENCE_OUTSIDE, node=title, attribute=item.name, reference=item.reference)
        if _key(domain, node.op_type, node.overload) in self._functions:
            return
        version = version_in(tuple(opsets), domain)
        if version is None:
            self._say(rules.NO_OPSET, domain=node.domain or "ai.onnx", user=title)
            return
        if domain not in KNOWN_DOMAINS:
            return  # an operator of somebody else, which only its translation could know
        schema = find_schema(domain, node.op_type, version)
        if schema is None:
            if domain == MAIN_DOMAIN or schemas_of(domain, node.op_type):
                self._say(
                    rules.UNKNOWN_OPERATOR,
                    node=title,
                    domain=node.domain or "ai.onnx",
                    operator=node.op_type,
                    version=version,
                )
            return
        if schema.is_deprecated:
            self._say(rules.EXPERIMENTAL, node=title, operator=node.op_type, version=schema.since)
            return
        self._counts(node, title, schema)
        self._attributes(node, title, schema)

    def _counts(self, node: Node, title: str, schema: OperatorSchema) -> None:
        for rule, given, (least, most) in (
            (rules.INPUT_COUNT, len(node.inputs), schema.inputs),
            (rules.OUTPUT_COUNT, len(node.outputs), schema.outputs),
        ):
            if not least <= given <= most:
                self._say(
                    rule, node=title, given=given, operator=schema.name, least=least, most=min(most, 1 << 20)
                )
        for index, (name, option) in enumerate(zip(node.inputs, schema.options, strict=False)):
            if not name and option == "s":
                self._say(rules.MISSING_INPUT, node=title, index=index, operator=schema.name)

    def _attributes(self, node: Node, title: str, schema: OperatorSchema) -> None:
        seen: set[str] = set()
        for item in node.attributes:
            if item.name in seen:
                self._say(rules.ATTRIBUTE_TWICE, node=title, attribute=item.name)
            seen.add(item.name)
            wanted = schema.attributes.get(item.name)
            if wanted is None:
                if schema.domain == MAIN_DOMAIN:
                    self._say(rules.UNKNOWN_ATTRIBUTE, node=title, operator=schema.name, attribute=item.name)
            elif item.kind != wanted:
                self._say(
                    rules.ATTRIBUTE_KIND,
                    node=title,
                    attribute=item.name,
                    given=AttributeKind(item.kind).name,
                    operator=schema.name,
                    wanted=wanted.name,
                )
        for name in sorted(schema.required - seen):
            self._say(rules.MISSING_ATTRIBUTE, node=title, attribute=name)

    # --- tensors --------------------------------------------------------------------------------------------

    def _values(self, item: Attribute) -> None:
        values = item.value if isinstance(item.value, tuple) else (item.value,)
        for value in values:
            if isinstance(value, TensorProto):
                self._tensor(value, value.name or item.name)

    def _tensor(self, tensor: TensorProto, name: str) -> None:
        if tensor.data_type == DataType.STRING:
            return
        if tensor.data_type not in set(DataType) or tensor.data_type == DataType.UNDEFINED:
            self._say(rules.UNKNOWN_TYPE, name=name, number=tensor.data_type)
            return
        try:
            if tensor.element is not None:
                check_data(tensor, self._external)
        except Malformed as problem:
            self._say(rules.BAD_TENSOR, name=name, reason=str(problem))


def _key(domain: str, name: str, overload: str) -> tuple[str, str, str]:
    return plain_domain(domain), name, overload


def _all_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for _, graph in subgraphs(node):
            yield from _all_nodes(graph.nodes)
