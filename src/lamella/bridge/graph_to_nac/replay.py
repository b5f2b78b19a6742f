"""Canonicalization: the graph built again from its call encodings, in the order and with the names of a reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim, DimSymbol, Extent, TooComplex
from lamella.base.errors import Found, Unsupported
from lamella.base.origin import Origin, with_origin
from lamella.base.source import NOWHERE
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import AtenCall, Result
from lamella.bridge.graph_to_nac.calls import (
    CallEncoding,
    CallPlan,
    LibraryCall,
    PlannedBlock,
    PlannedCall,
    PlannedFork,
    PlannedStep,
    extent_finding,
    rebind_call,
    type_of,
)
from lamella.bridge.graph_to_nac.plan import plan_graph
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Branch, Constant, Graph, Node, Operation, Tensor, Update
from lamella.graph.rewrite import copy_of, members, rename, results_of
from lamella.lang.nac.rules import graphs as rules


@dataclass(frozen=True, slots=True)
class EncodedCall:
    """A call with the tensors of the new graph, and what it gives: a tensor or one flat tuple of them."""

    encoding: CallEncoding
    result: Tensor | tuple[Tensor | None, ...]
    origin: Origin | None

    @property
    def operator(self) -> str:
        """The operator of the library that is called."""
        return (
            self.encoding.operator
            if isinstance(self.encoding, LibraryCall)
            else self.encoding.schema.operator
        )


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """The calls of a block, and what it hands over."""

    calls: tuple[EncodedStep, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class EncodedFork:
    """A branch, which gives a tuple, or a convergence with its threshold, which gives a tensor."""

    given: Tensor
    blocks: tuple[EncodedBlock, ...]
    result: Tensor | tuple[Tensor, ...]
    threshold: int
    origin: Origin | None


EncodedStep: TypeAlias = EncodedCall | EncodedFork


def flat_calls(calls: Iterable[EncodedStep]) -> Iterator[EncodedCall]:
    """The calls, those in blocks too."""
    for item in calls:
        if isinstance(item, EncodedCall):
            yield item
        else:
            for block in item.blocks:
                yield from flat_calls(block.calls)


def forks(calls: Iterable[EncodedStep]) -> Iterator[EncodedFork]:
    """The branches and convergences, those in blocks too."""
    for item in calls:
        if isinstance(item, EncodedFork):
            yield item
            for block in item.blocks:
                yield from forks(block.calls)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A graph made again: what it takes and gives, under the names of its calls, and itself as a reader gets it."""

    inputs: tuple[Tensor, ...]
    variables: tuple[Tensor, ...]
    constants: tuple[Constant, ...]
    """Constants that are stored like weights."""
    calls: tuple[EncodedStep, ...]
    outputs: tuple[Tensor, ...]
    names: tuple[str, ...]
    """The names of the outputs in the graph that was given."""
    graph: Graph
    updates: tuple[Update, ...] = ()
    """What states become, under the names of the calls; states are no `variables` here."""


def replay_model(model: Model) -> Replayed:
    """The graph built again from its call plan; a Problem holds what has no encoding or comes out differently."""
    plan = plan_graph(model)
    player = _Replayer(model, plan)
    findings: list[Diagnostic] = []
    for step in plan.steps:
        try:
            player.take(step)
        except Found as problem:
            findings += (with_origin(item, step.origin) for item in problem.findings)
            break
    if findings:
        raise Found(*findings)
    return player.finish()


class _Replayer:
    """Makes calls with a builder; `tensors` and `extents` lead from the old graph to the new one."""

    def __init__(self, model: Model, plan: CallPlan) -> None:
        graph = model.graph
        self.plan = plan
        self.builder = Builder(model.library, graph.name)
        self.tensors: dict[str, Tensor] = {}
        self.extents: dict[str, Extent] = {}
        self.calls: list[EncodedStep] = []
        self.inputs = [self._input(item) for item in members(graph.inputs) if isinstance(item, Tensor)]
        plain = (item for item in graph.variables if item.name not in plan.updates)
        self.variables = [self._variable(item) for item in plain]
        kept = (item for item in graph.variables if item.name in plan.updates)
        self.states = {item.name: self._variable(item) for item in kept}
        self.constants = dict(self._constant(name, item) for name, item in plan.stored.items())
        self.names = [item.name for item in members(graph.outputs)]
        self.reserved = [self.builder.fresh(name) for name in self.names]

    def _input(self, item: Tensor) -> Tensor:
        found = self.builder.input(item.name, item.element, item.shape)
        self.tensors[item.name] = found
        return found

    def _variable(self, item: Tensor) -> Tensor:
        found = self.builder.variable(item.name, item.element, item.shape)
        self.tensors[item.name] = found
        return found

    def _constant(self, name: str, item: Constant) -> tuple[str, Constant]:
        tensor = self.builder.constant(item.value, item.tensor.element, item.tensor.shape)
        self.tensors[name] = tensor
        return tensor.name, Constant(tensor, item.value)

    # --- calls ----------------------------------------------------------------------------------------------

    def take(self, move: PlannedStep) -> None:
        """A call, or a branch or a convergence with its blocks."""
        if isinstance(move, PlannedCall):
            self.call(move)
        elif isinstance(move.node, Branch):
            self._branch(move, move.node)
        else:
            self._converge(move, move.node)

    def _branch(self, fork: PlannedFork, node: Branch) -> None:
        blocks: list[EncodedBlock] = []

        def play(part: PlannedBlock) -> tuple[Tensor, ...]:
            blocks.append(self._block(part))
            return blocks[-1].outputs

        given, (first, second) = self.tensors[fork.given.name], fork.parts
        self.builder.origin = node.origin
        results = self.builder.branch(given, lambda: play(first), lambda: play(second))
        pairs = zip(node.outputs, results, blocks[1].outputs, strict=True)
        for before, after, other in pairs:
            self._learn(fork, before, after)
            if (after.element, after.shape) != (other.element, other.shape):
                raise self._differs(fork, type_of(after), type_of(other))
        self.calls.append(EncodedFork(given, tuple(blocks), results, 0, node.origin))

    def _converge(self, fork: PlannedFork, node: Operation) -> None:
        blocks = tuple(map(self._block, fork.parts))
        threshold = dict(node.attributes).get("threshold")
        known = threshold if isinstance(threshold, int) else 0
        self.builder.origin = node.origin
        merged = tuple(block.outputs[0] for block in blocks)
        result = self.builder.call(node.operator, merged, threshold=known)
        for before in results_of(node):
            if isinstance(before, Tensor):
                self._learn(fork, before, result)
        given = self.tensors[fork.given.name]
        self.calls.append(EncodedFork(given, blocks, result, known, node.origin))

    def _block(self, part: PlannedBlock) -> EncodedBlock:
        """What a block calls, in the region that the builder is in."""
        outer, self.calls = self.calls, []
        for move in part.steps:
            self.take(move)
        found, self.calls = tuple(self.calls), outer
        return EncodedBlock(found, tuple(self.tensors[item.name] for item in part.outputs))

    def call(self, step: PlannedCall) -> None:
        """Make one call, and learn which tensors it made."""
        encoding, operation = self._renewed(step), step.operation
        self.builder.origin = operation.origin
        if isinstance(encoding, AtenCall):
            made_now = build_call(self.builder, encoding, operation.origin)
            result = made_now if isinstance(made_now, Tensor) else _items(made_now)
        else:
            result = self._call_own(encoding)
        found = (result,) if isinstance(result, Tensor) else tuple(item for item in result if item)
        old = [item for item in results_of(operation) if isinstance(item, Tensor)]
        if len(found) != len(old):
            raise self._differs(step, f"{len(old)} tensors", f"{len(found)}")
        for before, after in zip(old, found, strict=True):
            self._learn(step, before, after)
        self.calls.append(EncodedCall(encoding, result, operation.origin))

    def _renewed(self, step: PlannedCall) -> CallEncoding:
        try:
            return rebind_call(step.encoding, self.extents, self.tensors)
        except Unsupported as refused:
            raise Found(extent_finding(step.operation.operator, refused)) from None
        except TooComplex as problem:
            complex_ = Unsupported("a size", f"is {problem}")
            raise Found(extent_finding(step.operation.operator, complex_)) from None

    def _call_own(self, call: LibraryCall) -> Tensor | tuple[Tensor | None, ...]:
        attributes = {name: value for name, value in call.attributes if value is not None}
        found = self.builder.call_all(call.operator, *call.inputs, types=call.types, results=(), **attributes)
        return found[0] if len(found) == 1 and isinstance(found[0], Tensor) else _items(found)

    def _learn(self, step: PlannedStep, old: Tensor, new: Tensor) -> None:
        """What a tensor is now; extents that only it defines get its new name."""
        alike = old.element == new.element and len(old.shape) == len(new.shape)
        for before, after in zip(old.shape, new.shape, strict=False):
            symbol = _lone(before)
            if symbol is not None and symbol.name not in self.extents:
                self.extents[symbol.name] = after
            alike = alike and not (isinstance(before, int) and isinstance(after, int) and before != after)
        if not alike:
            raise self._differs(step, type_of(old), type_of(new))
        self.tensors[old.name] = new

    def _differs(self, step: PlannedStep, wanted: str, found: str) -> Found:
        node = step.operation if isinstance(step, PlannedCall) else step.node
        names = ", ".join(item.name for item in results_of(node))
        operator = node.operator if isinstance(node, Operation) else "if"
        finding = rules.OTHERWISE.at(NOWHERE, operator=operator, tensor=names, wanted=wanted, found=found)
        return Found(finding)

    # --- the end --------------------------------------------------------------------------------------------

    def finish(self) -> Replayed:
        """The new graph, its outputs under the names they had."""
        updates = tuple(
            Update(item, self.tensors[self.plan.updates[name].name]) for name, item in self.states.items()
        )
        graph = replace(self.builder.finish(), updates=updates)
        outputs = [self.tensors[item.name] for item in self.plan.outputs]
        return Replayed(
            tuple(self.inputs),
            tuple(self.variables),
            tuple(self.constants.values()),
            tuple(self.calls),
            tuple(outputs),
            tuple(self.names),
            with_outputs(graph, outputs, self.reserved),
            updates,
        )


def with_outputs(graph: Graph, outputs: Sequence[Tensor], names: Sequence[str]) -> Graph:
    """The graph with these outputs: what it makes takes the name of its first use as one, the rest is copied."""
    inner = {item.name for node in graph.nodes for item in results_of(node)}
    renamed: dict[str, str] = {}
    copies: list[Node] = []
    found: list[Tensor] = []
    for tensor, name in zip(outputs, names, strict=True):
        if tensor.name in inner and tensor.name not in renamed:
            renamed[tensor.name] = name
            found.append(tensor)
        else:
            copies.append(copy_of(tensor, replace(tensor, name=name, origin=None)))
            found += [item for item in members(copies[-1].outputs) if isinstance(item, Tensor)]
    whole = replace(graph, nodes=(*graph.nodes, *copies), outputs=tuple(found))
    return rename(whole, renamed)


def _items(result: Result | Argument | tuple[Argument, ...]) -> tuple[Tensor | None, ...]:
    """All tensors of a result in one tuple."""
    if not isinstance(result, tuple):
        return (result,) if isinstance(result, Tensor) else (None,)
    return tuple(item for part in result for item in _items(part))


def _lone(extent: Extent) -> DimSymbol | None:
    """The symbol that an extent is."""
    if isinstance(extent, Dim) and len(extent.terms) == 1:
        ((monomial, factor),) = extent.terms
        if factor == 1 and len(monomial) == 1 and isinstance(monomial[0], DimSymbol):
            return monomial[0]
    return None
