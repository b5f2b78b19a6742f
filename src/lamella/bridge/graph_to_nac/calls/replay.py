"""The graph as NAC says it: every call made again, in the order and with the names that a reader uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim, Extent, Symbol, TooComplex
from lamella.base.origin import Origin, tell_origin
from lamella.base.source import NOWHERE
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import Call, Result
from lamella.bridge.graph_to_nac.calls.restate import Inexpressible
from lamella.bridge.graph_to_nac.calls.said import OwnCall, Plan, Saying, Step, renew
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Graph, Node, Tensor
from lamella.graph.rewrite import copy_of, made, members, rename
from lamella.lang.nac.rules import roads as rules
from lamella.ops.problem import Problem


@dataclass(frozen=True, slots=True)
class Said:
    """A call with the tensors of the new graph, and what it gives: a tensor or one flat tuple of them."""

    saying: Saying
    result: Tensor | tuple[Tensor | None, ...]
    origin: Origin | None

    @property
    def operator(self) -> str:
        """The operator of the library that is called."""
        return self.saying.operator if isinstance(self.saying, OwnCall) else self.saying.schema.operator


@dataclass(frozen=True, slots=True)
class Replayed:
    """A graph made again: what it takes and gives, under the names of its calls, and itself as a reader gets it."""

    inputs: tuple[Tensor, ...]
    variables: tuple[Tensor, ...]
    constants: tuple[Constant, ...]
    """Constants that are stored like weights."""
    calls: tuple[Said, ...]
    outputs: tuple[Tensor, ...]
    names: tuple[str, ...]
    """The names of the outputs in the graph that was given."""
    graph: Graph


def replay(model: Model, plan: Plan) -> Replayed:
    """Make the graph of a plan again; a Problem holds everything that comes out differently."""
    player = _Player(model, plan)
    findings: list[Diagnostic] = []
    for step in plan.steps:
        try:
            player.call(step)
        except Problem as problem:
            findings += (tell_origin(item, step.operation.origin) for item in problem.findings)
            break
    if findings:
        raise Problem(*findings)
    return player.finish()


class _Player:
    """Makes calls with a builder; `tensors` and `extents` lead from the old graph to the new one."""

    def __init__(self, model: Model, plan: Plan) -> None:
        graph = model.graph
        self.plan = plan
        self.builder = Builder(model.library, graph.name)
        self.tensors: dict[str, Tensor] = {}
        self.extents: dict[str, Extent] = {}
        self.calls: list[Said] = []
        self.inputs = [self._input(item) for item in members(graph.inputs) if isinstance(item, Tensor)]
        self.variables = [self._variable(item) for item in graph.variables]
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

    def call(self, step: Step) -> None:
        """Make one call, and learn which tensors it made."""
        saying, operation = self._renewed(step), step.operation
        self.builder.origin = operation.origin
        if isinstance(saying, Call):
            made_now = build_call(self.builder, saying, operation.origin)
            result = made_now if isinstance(made_now, Tensor) else _items(made_now)
        else:
            result = self._call_own(saying)
        found = (result,) if isinstance(result, Tensor) else tuple(item for item in result if item)
        old = [item for item in made(operation) if isinstance(item, Tensor)]
        if len(found) != len(old):
            raise self._differs(step, f"{len(old)} tensors", f"{len(found)}")
        for before, after in zip(old, found, strict=True):
            self._learn(step, before, after)
        self.calls.append(Said(saying, result, operation.origin))

    def _renewed(self, step: Step) -> Saying:
        try:
            return renew(step.saying, self.extents, self.tensors)
        except Inexpressible as problem:
            raise Problem(problem.finding(step.operation.operator)) from None
        except TooComplex as problem:
            refused = Inexpressible("a size", f"is {problem}")
            raise Problem(refused.finding(step.operation.operator)) from None

    def _call_own(self, call: OwnCall) -> Tensor | tuple[Tensor | None, ...]:
        attributes = {name: value for name, value in call.attributes if value is not None}
        found = self.builder.call_all(call.operator, *call.inputs, types=call.types, results=(), **attributes)
        return found[0] if len(found) == 1 and isinstance(found[0], Tensor) else _items(found)

    def _learn(self, step: Step, old: Tensor, new: Tensor) -> None:
        """What a tensor is now; extents that only it tells have its new name."""
        alike = old.element == new.element and len(old.shape) == len(new.shape)
        for before, after in zip(old.shape, new.shape, strict=False):
            symbol = _lone(before)
            if symbol is not None and symbol.name not in self.extents:
                self.extents[symbol.name] = after
            alike = alike and not (isinstance(before, int) and isinstance(after, int) and before != after)
        if not alike:
            raise self._differs(step, _type(old), _type(new))
        self.tensors[old.name] = new

    def _differs(self, step: Step, wanted: str, found: str) -> Problem:
        names = ", ".join(item.name for item in made(step.operation))
        operator = step.operation.operator
        told = rules.OTHERWISE.at(NOWHERE, operator=operator, tensor=names, wanted=wanted, found=found)
        return Problem(told)

    # --- the end --------------------------------------------------------------------------------------------

    def finish(self) -> Replayed:
        """The new graph, its outputs under the names they had."""
        graph = self.builder.finish()
        outputs = [self.tensors[item.name] for item in self.plan.outputs]
        return Replayed(
            tuple(self.inputs),
            tuple(self.variables),
            tuple(self.constants.values()),
            tuple(self.calls),
            tuple(outputs),
            tuple(self.names),
            with_outputs(graph, outputs, self.reserved),
        )


def with_outputs(graph: Graph, outputs: Sequence[Tensor], names: Sequence[str]) -> Graph:
    """The graph with these outputs: what it makes takes the name of its first use as one, the rest is copied."""
    inner = {item.name for node in graph.nodes for item in made(node)}
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


def _lone(extent: Extent) -> Symbol | None:
    """The symbol that an extent is."""
    if isinstance(extent, Dim) and len(extent.terms) == 1:
        ((monomial, factor),) = extent.terms
        if factor == 1 and len(monomial) == 1 and isinstance(monomial[0], Symbol):
            return monomial[0]
    return None


def _type(tensor: Tensor) -> str:
    return f"{tensor.element}[{', '.join(map(str, tensor.shape))}]"
