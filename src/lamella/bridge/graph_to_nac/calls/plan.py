"""What of a graph becomes instructions, what is refused, and which constants are stored like weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim
from lamella.base.origin import tell_origin
from lamella.base.source import NOWHERE
from lamella.bridge.aten.describe import describe
from lamella.bridge.graph_to_nac.calls.arrange import Arranged, Merge, arrange
from lamella.bridge.graph_to_nac.calls.own import say_own
from lamella.bridge.graph_to_nac.calls.public import say_publicly
from lamella.bridge.graph_to_nac.calls.restate import is_pass, restate_call
from lamella.bridge.graph_to_nac.calls.said import Fork, Move, Part, Plan, Saying, Step, tensors_of, type_of
from lamella.bridge.graph_to_nac.values import stored_constant
from lamella.bridge.nac_to_graph.operators import shadows
from lamella.graph.model import Model
from lamella.graph.nodes import (
    Argument,
    Branch,
    Constant,
    Graph,
    Loop,
    Node,
    Operation,
    Pack,
    Region,
    Tensor,
    tensors,
    walk,
)
from lamella.graph.rewrite import copy_of, defined, made, members
from lamella.lang.nac.regions import MOST_NESTED
from lamella.lang.nac.rules import roads as rules
from lamella.lang.nac.rules.reading import OPERATOR_SHADOWS
from lamella.ops.library import Library
from lamella.ops.problem import Problem

COPY = "math.iden"
ATEN = "aten."
OUTPUT_KEY = "\0output "


def find_refused(model: Model) -> Iterator[Diagnostic]:
    """What of a graph NAC has no words for, once for each thing."""
    graph = model.graph
    for update in graph.updates:
        before, after = update.variable, update.value
        if (before.element, before.shape) != (after.element, after.shape):
            yield rules.UPDATED.at(NOWHERE, name=before.name, type=type_of(before), found=type_of(after))
    for item in defined(graph):
        if isinstance(item, Pack):
            told = rules.OPEN_PACK.at(NOWHERE, name=item.name, size=item.size)
            yield tell_origin(told, item.origin)
        elif item.quantization is not None:
            told = rules.QUANTIZED.at(NOWHERE, name=item.name, operator=item.quantization.operator)
            yield tell_origin(told, item.origin)
    for node in walk(graph.nodes):
        yield from _find_in_node(node, model.library)


def _find_in_node(node: Node, library: Library) -> Iterator[Diagnostic]:
    name = _first_name(node)
    if isinstance(node, Loop):
        yield tell_origin(rules.CONTROL_FLOW.at(NOWHERE, tensor=name, what="'do'"), node.origin)
    if not isinstance(node, Operation):
        return
    definition = library.find(node.operator)
    if definition is None:
        yield tell_origin(rules.NOT_SHIPPED.at(NOWHERE, operator=node.operator, tensor=name), node.origin)
    elif shadows(definition, library):
        yield tell_origin(OPERATOR_SHADOWS.at(NOWHERE, operator=node.operator), node.origin)


def _first_name(node: Node) -> str:
    first = next(made(node), None)
    return "" if first is None else first.name


def plan_graph(model: Model) -> Plan:
    """All operations of a graph that has nothing refused; a Problem where one of them cannot be said."""
    planner = _Planner(model)
    findings: list[Diagnostic] = []
    graph = model.graph
    kept = (*members(graph.outputs), *(update.value for update in graph.updates))
    for node in arrange(graph.nodes, {item.name for item in kept}, planner.constants):
        try:
            planner.take_node(node)
        except Problem as problem:
            origin = node.node.origin if isinstance(node, Merge) else node.origin
            findings += (tell_origin(item, origin) for item in problem.findings)
    if findings:
        raise Problem(*findings)
    planner.take_outputs()
    planner.take_updates()
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
        self.steps: list[Move] = self.plan.steps
        """Where steps go: those of the graph, or of the block that is being planned."""
        self.depth = 0
        self._equal: dict[tuple[str, object, object], str] = {}

    def take_node(self, node: Arranged) -> None:
        """An operation, or a branch or a convergence with its blocks."""
        if isinstance(node, Merge):
            self._take_merge(node)
        elif isinstance(node, Branch):
            self._take_branch(node)
        elif isinstance(node, Operation):
            self.take(node)

    def _take_branch(self, node: Branch) -> None:
        """A branch of one condition; further ones are tested in the block of those that fail."""
        if not node.outputs:
            return
        test, *tests = node.conditions
        self._take_all(test)
        condition, first = self._handed(test.outputs[0]), self._part(node.branches[0])
        second = node.branches[1]
        if tests:
            outputs = tuple(replace(item, name=f"{item.name}\0") for item in node.outputs)
            rest = Branch(tuple(tests), node.branches[1:], outputs, origin=node.origin)
            second = Region((), (rest,), outputs)
        self._add(Fork(node, condition, (first, self._part(second))))

    def _take_merge(self, node: Merge) -> None:
        parts = [
            self._part(Region((), (), (tensor,)), block)
            for tensor, block in zip(node.merged, node.blocks, strict=True)
        ]
        self._add(Fork(node.node, self._handed(node.shared), tuple(parts)))

    def _add(self, fork: Fork) -> None:
        self.steps.append(fork)
        self.made.update(item.name for item in made(fork.node))

    def _part(self, region: Region, nodes: Sequence[Arranged] | None = None) -> Part:
        """The block that a region becomes; of a convergence its nodes are given."""
        outer, self.steps = self.steps, []
        self.depth += 1
        if self.depth > MOST_NESTED:
            what = "blocks inside each other"
            raise Problem(rules.TOO_MANY.at(NOWHERE, count=self.depth, what=what, limit=MOST_NESTED))
        try:
            if nodes is None:
                self._take_all(region)
            for node in nodes or ():
                self.take_node(node)
            return Part(tuple(self.steps), tuple(map(self._handed, region.outputs)))
        finally:
            self.steps = outer
            self.depth -= 1

    def _take_all(self, region: Region) -> None:
        kept = {item.name for item in region.outputs}
        for node in arrange(region.nodes, kept, self.constants):
            self.take_node(node)

    def _handed(self, tensor: Tensor) -> Tensor:
        """A tensor that an instruction gives: a constant is stored."""
        root = self.plan.root(tensor)
        self._store_tensor(root)
        return root

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
            self.steps.append(Step(node, saying))
            self.made.update(item.name for item in made(node))
        else:
            self._alias(node, saying)

    def take_outputs(self) -> None:
        """The outputs; a constant is none by itself."""
        for item in members(self.graph.outputs):
            if isinstance(item, Tensor):
                self.plan.outputs.append(self._given(item))

    def take_updates(self) -> None:
        """What states become; a variable that becomes itself is none. The last update of a variable counts."""
        for update in self.graph.updates:
            self.plan.updates.pop(update.variable.name, None)
            if self.plan.root(update.value).name != update.variable.name:
                self.plan.updates[update.variable.name] = self._given(update.value)

    def _given(self, tensor: Tensor) -> Tensor:
        """The tensor that an output is; a constant is copied."""
        root = self.plan.root(tensor)
        if root.name not in self.constants:
            return root
        copy = copy_of(root, replace(root, name=f"{OUTPUT_KEY}{len(self.plan.steps)}"))
        self.take(copy)
        return next(found for found in made(copy) if isinstance(found, Tensor))

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
            public = say_publicly(self.library, node, self.constants)
            return public or say_own(self.library, node, self.constants)
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
