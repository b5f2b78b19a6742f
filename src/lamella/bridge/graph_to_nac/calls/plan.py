"""What of a graph becomes instructions, what is refused, and which constants are stored like weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim
from lamella.base.dtype import ElementType
from lamella.base.errors import Found
from lamella.base.origin import tell_origin
from lamella.base.source import NOWHERE
from lamella.bridge.aten.describe import describe
from lamella.bridge.graph_to_nac.calls.public import say_publicly
from lamella.bridge.graph_to_nac.calls.restate import is_pass, restate_call
from lamella.bridge.graph_to_nac.calls.said import (
    Fork,
    Input,
    Move,
    OwnCall,
    Part,
    Plan,
    Saying,
    Step,
    tensors_of,
    type_of,
)
from lamella.bridge.graph_to_nac.values import stored_constant
from lamella.bridge.nac_to_graph.operators import shadows
from lamella.graph.build import bind
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
    Single,
    Tensor,
    Value,
    tensors,
    walk,
)
from lamella.graph.rewrite import copy_of, defined, members, operands_of, results_of
from lamella.lang.nac.regions import MOST_NESTED
from lamella.lang.nac.rules import roads as rules
from lamella.lang.nac.rules.reading import OPERATOR_SHADOWS
from lamella.ops.instance import Fill, Instance
from lamella.ops.library import Library

# --- convergences with their blocks: what only one of the merged tensors needs stands in the block ----------


CONVERGE = "nac.converge"
DEEPEST = 16
"""Blocks of convergences that stand inside each other; what is deeper stands before them."""
Place: TypeAlias = tuple[int, int]
"""A block: the node that merges, and the number of the tensor that it makes."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A convergence, what each of its blocks holds, and a tensor from outside that the blocks may share."""

    node: Operation
    blocks: tuple[tuple[Arranged, ...], ...]
    shared: Tensor

    @property
    def merged(self) -> tuple[Tensor, ...]:
        """The tensors that the blocks hand over."""
        return merged(self.node)


Arranged: TypeAlias = "Node | Merge"


def merged(node: Node) -> tuple[Tensor, ...]:
    """The tensors that a node merges, none where it is no convergence."""
    if isinstance(node, Operation) and node.operator == CONVERGE:
        return tuple(item for argument in node.inputs for item in tensors(argument))
    return ()


def arrange(nodes: Sequence[Node], kept: Collection[str], constants: Collection[str]) -> tuple[Arranged, ...]:
    """Nodes in an order in which they can run, those of blocks inside their convergences.

    `kept` are the tensors that are used elsewhere, `constants` those that no instruction gives.
    """
    if not any(map(merged, nodes)):
        return tuple(nodes)
    plain: set[int] = set()
    while True:
        found = _Arranger(nodes, kept, constants, plain)
        lonely = {place for place, node in enumerate(nodes) if merged(node) and found.shared(place) is None}
        if lonely <= plain:
            return found.build(found.rows[()])
        plain |= lonely


class _Arranger:
    """Finds for each node the innermost block that holds all that use it."""

    def __init__(
        self, nodes: Sequence[Node], kept: Collection[str], constants: Collection[str], plain: Collection[int]
    ) -> None:
        self.nodes, self.constants, self.plain = nodes, constants, plain
        self.paths: list[tuple[Place, ...]] = [()] * len(nodes)
        users: dict[str, list[tuple[Place, ...]]] = {name: [()] for name in kept}
        for place in reversed(range(len(nodes))):
            ways = [way for item in results_of(nodes[place]) for way in users.get(item.name, ())]
            self.paths[place] = _common(ways)
            for name, way in self._uses(place):
                users.setdefault(name, []).append(way)
        self.rows: defaultdict[tuple[Place, ...], list[int]] = defaultdict(list)
        for place, path in enumerate(self.paths):
            self.rows[path].append(place)

    def _uses(self, place: int) -> Iterator[tuple[str, tuple[Place, ...]]]:
        """What a node reads, and the block that this is for."""
        path, node = self.paths[place], self.nodes[place]
        opens = place not in self.plain and len(path) < DEEPEST
        found = merged(node)
        for number, item in enumerate(found):
            yield item.name, (*path, (place, number)) if opens else path
        yield from ((item.name, path) for item in operands_of(node) if not found)

    def shared(self, place: int) -> Tensor | None:
        """The first tensor from outside that the blocks of a convergence read, or merge."""
        depth = len(self.paths[place])
        inside = [number for number in range(place) if self._is_in(self.paths[number], depth, place)]
        own = {item.name for number in inside for item in results_of(self.nodes[number])}
        read = [item for number in inside for item in operands_of(self.nodes[number])]
        for item in (*read, *merged(self.nodes[place])):
            if isinstance(item, Tensor) and item.name not in own and item.name not in self.constants:
                return item
        return None

    @staticmethod
    def _is_in(path: tuple[Place, ...], depth: int, place: int) -> bool:
        return len(path) > depth and path[depth][0] == place

    def build(self, row: Sequence[int]) -> tuple[Arranged, ...]:
        """The nodes of a block, convergences with what stands in theirs."""
        return tuple(self._one(place) for place in row)

    def _one(self, place: int) -> Arranged:
        node = self.nodes[place]
        if not isinstance(node, Operation) or not merged(node):
            return node
        shared = self.shared(place) or merged(node)[0]
        paths = [(*self.paths[place], (place, number)) for number in range(len(merged(node)))]
        return Merge(node, tuple(self.build(self.rows[path]) for path in paths), shared)


def _common(ways: Sequence[tuple[Place, ...]]) -> tuple[Place, ...]:
    """What all ways begin with."""
    if not ways:
        return ()
    first, last = min(ways), max(ways)
    count = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[: min(len(first), len(last)) if count is None else count]


# --- operators of the library under their own names: which constants are numbers, which types must ----------


def say_own(library: Library, operation: Operation, constants: dict[str, Constant]) -> OwnCall:
    """The call of an operation; a constant is passed as a number where that makes the same constant again."""
    numbers = {
        place: constants[item.name]
        for place, item in enumerate(operation.inputs)
        if isinstance(item, Tensor) and item.name in constants and _is_uniform(constants[item.name])
    }
    while numbers:
        call = _call(library, operation, numbers)
        wrong = _differing(library, call, operation, numbers)
        if not wrong:
            return call
        numbers = {place: item for place, item in numbers.items() if place not in wrong}
    return _call(library, operation, numbers)


def _is_uniform(constant: Constant) -> bool:
    return not isinstance(constant.value, tuple)


def _call(library: Library, operation: Operation, numbers: dict[int, Constant]) -> OwnCall:
    definition = library.find(operation.operator)
    names = () if definition is None else tuple(i.name for i in definition.operator.parameters("input"))
    given = (*operation.inputs, *[None] * (len(names) - len(operation.inputs)))
    inputs = tuple(
        _single(numbers[place]) if place in numbers else _given(item) for place, item in enumerate(given)
    )
    attributes, types = _attributes(library, operation), _open_types(library, operation, inputs)
    return OwnCall(operation.operator, inputs, attributes, types, names)


def _single(constant: Constant) -> Single | None:
    return None if isinstance(constant.value, tuple) else constant.value


def _given(argument: Argument) -> Input:
    return None if isinstance(argument, Pack) else argument


def _attributes(library: Library, operation: Operation) -> tuple[tuple[str, Value], ...]:
    definition = library.find(operation.operator)
    given = dict(operation.attributes)
    names = [] if definition is None else [item.name for item in definition.operator.parameters("attrib")]
    return tuple((name, given.get(name)) for name in names)


def _open_types(library: Library, operation: Operation, inputs: Sequence[Input]) -> dict[str, ElementType]:
    """The generic types that no tensor tells, in the order of the definition."""
    definition = library.find(operation.operator)
    if definition is None:
        return {}
    plan, found = library.plan(definition), dict(operation.types)
    told = {
        item.type.name
        for item, value in zip(plan.inputs, inputs, strict=False)
        if isinstance(value, Tensor) or (isinstance(value, tuple) and value)
    }
    return {name: found[name] for name in plan.dtypes if name not in told and name in found}


def _differing(
    library: Library, call: OwnCall, operation: Operation, numbers: dict[int, Constant]
) -> set[int]:
    """The places at which a number would become another constant."""
    names = [f"result {place}" for place in range(len(operation.outputs))]
    try:
        instance = bind(library, call.operator, call.inputs, dict(call.attributes), call.types, names)
    except Found:
        return set(numbers)
    return {place for place, item in numbers.items() if not _is_same(instance, place, item)}


def _is_same(instance: Instance, place: int, constant: Constant) -> bool:
    filled = instance.symbols.get(instance.inputs[place][0])
    wanted = constant.tensor
    return (
        isinstance(filled, Fill)
        and (filled.element, filled.shape) == (wanted.element, wanted.shape)
        and repr(filled.value) == repr(constant.value)
    )


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
    first = next(results_of(node), None)
    return "" if first is None else first.name


def plan_graph(model: Model) -> Plan:
    """All operations of a graph that has nothing refused; a Found where one of them cannot be said."""
    planner = _Planner(model)
    findings: list[Diagnostic] = []
    graph = model.graph
    kept = (*members(graph.outputs), *(update.value for update in graph.updates))
    for node in arrange(graph.nodes, {item.name for item in kept}, planner.constants):
        try:
            planner.take_node(node)
        except Found as problem:
            origin = node.node.origin if isinstance(node, Merge) else node.origin
            findings += (tell_origin(item, origin) for item in problem.findings)
    if findings:
        raise Found(*findings)
    planner.take_outputs()
    planner.take_updates()
    return planner.plan


def _united(constant: Constant) -> Constant:
    """A constant whose elements are all the same as one that says so."""
    if not isinstance(constant.value, tuple) or any(isinstance(item, Dim) for item in constant.tensor.shape):
        return constant
    try:
        found = stored_constant(constant)
    except Found:
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
        self.made.update(item.name for item in results_of(fork.node))

    def _part(self, region: Region, nodes: Sequence[Arranged] | None = None) -> Part:
        """The block that a region becomes; of a convergence its nodes are given."""
        outer, self.steps = self.steps, []
        self.depth += 1
        if self.depth > MOST_NESTED:
            what = "blocks inside each other"
            raise Found(rules.TOO_MANY.at(NOWHERE, count=self.depth, what=what, limit=MOST_NESTED))
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
            self.made.update(item.name for item in results_of(node))
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
        return next(found for found in results_of(copy) if isinstance(found, Tensor))

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
        for item in results_of(node):
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
            raise Found(finding)
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
            raise Found(rules.EXTENT.at(NOWHERE, operator=tensor.name, extent=extent, problem=problem))
        found = stored_constant(constant)
        key = (repr(found.value), tensor.element, tensor.shape)
        self.plan.stored[tensor.name] = self.plan.stored.get(self._equal.setdefault(key, tensor.name), found)
