"""What of a graph becomes instructions, what is refused, and which constants are stored like weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim
from lamella.base.origin import tell_origin
from lamella.base.source import NOWHERE
from lamella.bridge.aten.describe import describe
from lamella.bridge.graph_to_nac.calls.own import say_own
from lamella.bridge.graph_to_nac.calls.restate import is_pass, restate_call
from lamella.bridge.graph_to_nac.calls.said import Plan, Saying, Step, tensors_of
from lamella.bridge.graph_to_nac.values import stored_constant
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Branch, Constant, Graph, Node, Operation, Pack, Tensor, tensors
from lamella.graph.rewrite import copy_of, defined, made, members
from lamella.lang.nac.rules import roads as rules
from lamella.ops.library import Library
from lamella.ops.problem import Problem

COPY = "math.iden"
ATEN = "aten."
OUTPUT_KEY = "\0output "


def find_refused(model: Model) -> Iterator[Diagnostic]:
    """What of a graph NAC has no words for, once for each thing."""
    graph = model.graph
    for update in graph.updates:
        if update.value != update.variable:
            yield rules.UPDATED.at(NOWHERE, name=update.variable.name)
    for item in defined(graph):
        if isinstance(item, Pack):
            told = rules.OPEN_PACK.at(NOWHERE, name=item.name, size=item.size)
            yield tell_origin(told, item.origin)
        elif item.quantization is not None:
            told = rules.QUANTIZED.at(NOWHERE, name=item.name, operator=item.quantization.operator)
            yield tell_origin(told, item.origin)
    for node in graph.nodes:
        yield from _find_in_node(node, model.library)


def _find_in_node(node: Node, library: Library) -> Iterator[Diagnostic]:
    name = _first_name(node)
    if not isinstance(node, Operation):
        what = "'if'" if isinstance(node, Branch) else "'do'"
        yield tell_origin(rules.CONTROL_FLOW.at(NOWHERE, tensor=name, what=what), node.origin)
        return
    definition = library.find(node.operator)
    if definition is None or not definition.standard:
        yield tell_origin(rules.NOT_SHIPPED.at(NOWHERE, operator=node.operator, tensor=name), node.origin)


def _first_name(node: Node) -> str:
    first = next(made(node), None)
    return "" if first is None else first.name


def plan_graph(model: Model) -> Plan:
    """All operations of a graph that has nothing refused; a Problem where one of them cannot be said."""
    planner = _Planner(model)
    findings: list[Diagnostic] = []
    for node in model.graph.nodes:
        if isinstance(node, Operation):
            try:
                planner.take(node)
            except Problem as problem:
                findings += (tell_origin(item, node.origin) for item in problem.findings)
    if findings:
        raise Problem(*findings)
    planner.take_outputs()
    return planner.plan


def _united(constant: Constant) -> Constant:
    """A constant whose elements are all the same as one that says so."""
    if not isinstance(constant.value, tuple) or any(isinstance(item, Dim) for item in constant.tensor.shape):
        return constant
    try:
        found = stored_constant(constant)
    except Problem:
        return constant
    return constant if isinstance(found.value, tuple) else found


class _Planner:
    """Goes through the operations in order."""

    def __init__(self, model: Model) -> None:
        self.library = model.library
        self.graph: Graph = model.graph
        self.constants = {item.tensor.name: _united(item) for item in model.graph.constants}
        self.outputs = {item.name for item in members(model.graph.outputs)}
        self.made: set[str] = set()
        self.claimed: set[str] = set()
        self.plan = Plan()
        self._equal: dict[tuple[str, object, object], str] = {}

    def take(self, node: Operation) -> None:
        """One operation: an alias of what it reads, or a step."""
        node = replace(node, inputs=tuple(map(self._renewed, node.inputs)))
        source = node.inputs[0] if node.inputs else None
        if node.operator == COPY and isinstance(source, Tensor) and self._takes_name(node, source):
            self._alias(node, source)
            return
        saying = self._say(node)
        if not isinstance(saying, Tensor):
            self._store(saying)
            self.plan.steps.append(Step(node, saying))
            self.made.update(item.name for item in made(node))
        else:
            self._alias(node, saying)

    def take_outputs(self) -> None:
        """The outputs; a constant is none by itself, and is copied."""
        for number, item in enumerate(members(self.graph.outputs)):
            if not isinstance(item, Tensor):
                continue
            root = self.plan.root(item)
            if root.name in self.constants:
                copy = copy_of(root, replace(root, name=f"{OUTPUT_KEY}{number}"))
                self.take(copy)
                root = next(found for found in made(copy) if isinstance(found, Tensor))
            self.plan.outputs.append(root)

    def _renewed(self, argument: Argument) -> Argument:
        if isinstance(argument, Tensor):
            return self.plan.root(argument)
        return tuple(map(self.plan.root, argument)) if isinstance(argument, tuple) else argument

    def _takes_name(self, node: Operation, source: Tensor) -> bool:
        """Whether a copy is nothing but the name of an output."""
        (result,) = tensors(node.outputs[0])
        free = source.name in self.made and not {source.name} & (self.outputs | self.claimed)
        return free and result.name in self.outputs

    def _alias(self, node: Operation, source: Tensor) -> None:
        for item in made(node):
            self.plan.aliases[item.name] = source
            if item.name in self.outputs:
                self.claimed.add(source.name)

    def _say(self, node: Operation) -> Saying | Tensor:
        if not node.operator.startswith(ATEN):
            return say_own(self.library, node, self.constants)
        call = describe(node, self.constants)
        if call is None:
            finding = rules.NOT_SHIPPED.at(NOWHERE, operator=node.operator, tensor=_first_name(node))
            raise Problem(finding)
        if is_pass(call):
            source = next(iter(call.operands.values()))
            if isinstance(source, Tensor):
                return source
        return restate_call(call, node)

    # --- constants ------------------------------------------------------------------------------------------

    def _store(self, saying: Saying) -> None:
        for tensor in tensors_of(saying):
            self._store_tensor(tensor)

    def _store_tensor(self, tensor: Tensor) -> None:
        """Store a constant, where the tensor is one, under the name of the first that is equal to it."""
        constant = self.constants.get(tensor.name)
        if constant is None or tensor.name in self.plan.stored:
            return
        if any(isinstance(extent, Dim) for extent in tensor.shape):
            extent = next(item for item in tensor.shape if isinstance(item, Dim))
            problem = "is an extent of a constant, and only numbers are stored"
            raise Problem(rules.EXTENT.at(NOWHERE, operator=tensor.name, extent=extent, problem=problem))
        found = stored_constant(constant)
        key = (repr(found.value), tensor.element, tensor.shape)
        self.plan.stored[tensor.name] = self.plan.stored.get(self._equal.setdefault(key, tensor.name), found)
