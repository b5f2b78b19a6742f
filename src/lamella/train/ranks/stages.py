"""A step of training cut into the stages of a pipeline: for each a graph of the way forward and one of the way back.

Every operation of the step gets a stage, by `@partition` or by layers; tensors that an operation of another stage reads
are sent. Forward they go to later stages, back to earlier ones, so that stages can work on several parts of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lamella.base.errors import InputError
from lamella.bridge.module_to_ir.graph import layer_of
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Node, Operation, Tensor
from lamella.graph.passes.recompute import AFTER, AGAIN
from lamella.graph.rewrite import Substitution, defined, members, operands_of, results_of
from lamella.train.sources import TrainableGraph
from lamella.train.step import StepGraph, collected

Links = Mapping[tuple[int, int], tuple[str, ...]]
"""The tensors that one stage sends to another, by the two."""


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Where the operations of a step are done."""

    count: int
    forward: tuple[tuple[Node, ...], ...]
    """The operations of the way forward, by stage."""
    backward: tuple[tuple[Node, ...], ...]
    owners: Mapping[str, int]
    """The stage that updates a parameter."""
    copies: Links
    """Parameters that other stages read than the one that updates them."""
    sent: Links
    """What goes to later stages."""
    returned: Links
    """What goes to earlier stages."""

    def owned(self, stage: int) -> frozenset[str]:
        """The parameters that a stage updates."""
        return frozenset(name for name, owner in self.owners.items() if owner == stage)


@dataclass(frozen=True, slots=True)
class StageGraphs:
    """The two graphs of a stage, and the tensors that the second takes from the first."""

    forward: Model
    backward: Model
    outputs: frozenset[str]
    """The losses that the stage gives."""


# --- which operation belongs to which stage ---------------------------------------------------------------------


class _Assignment:
    """Goes through a step in order and gives each operation a stage."""

    def __init__(self, graph: Graph, source: TrainableGraph, count: int) -> None:
        self.graph, self.source, self.count = graph, source, count
        self.wanted = wanted_stages(source, count)
        self.seeds = set(source.seeds.values())
        if source.auxiliary is not None:
            self.seeds.add(source.auxiliary.seed)
        names = {collected(name): name for name in source.gradients}
        updates = (item for item in graph.updates if item.variable.name in names)
        self.updates = {item.value.name: names[item.variable.name] for item in updates}
        """Parameters by the tensors that are their collected gradients."""
        self.stages: dict[str, int] = {}
        self.late: set[str] = set(self.seeds)
        self.readers: dict[str, set[int]] = {}
        self.owners: dict[str, int] = {}
        self.nodes: list[tuple[Node, int, bool]] = []
        self.waited: dict[str, Tensor] = {}
        """What waits for the way back, by what it is called there: that the two ways are two graphs is wait enough."""

    def run(self) -> None:
        """Assign all operations."""
        reading = Substitution(lambda item: self.waited.get(item.name, item))
        for whole in self.graph.nodes:
            made = [item.name for item in results_of(whole)]
            is_late = any(item.name in self.late for item in operands_of(whole)) or bool(
                self.late & set(made)
            )
            node = reading.node(whole)
            read = [item.name for item in operands_of(node)]
            if isinstance(node, Operation) and node.operator == AFTER:
                (given, *_) = (item for item in operands_of(node) if isinstance(item, Tensor))
                self.waited[made[0]] = given
                self.late.add(made[0])
                continue
            stage = self._back(made, read) if is_late else self._ahead(made, read)
            if is_late:
                self.late |= set(made)
            self.stages |= dict.fromkeys(made, stage)
            for name in read:
                self.readers.setdefault(name, set()).add(stage)
            self.nodes.append((node, stage, is_late))

    def _ahead(self, made: Sequence[str], read: Sequence[str]) -> int:
        """As the text says, and not before what it reads."""
        least = max((self.stages[name] for name in read if name in self.stages), default=0)
        said = next((self.wanted[name] for name in made if name in self.wanted), None)
        if said is not None and said < least and self.source.stages:
            behind = next(name for name in read if self.stages.get(name) == least)
            raise InputError(
                f"'{made[0][:80]}' of stage {said} reads '{behind[:80]}' of stage {least}",
                hint="a pipeline goes one way: give it the later stage, or the other an earlier one",
            )
        return max(least, said or 0)

    def _back(self, made: Sequence[str], read: Sequence[str]) -> int:
        """Where the tensors of the way forward are that it reads, and not behind the gradients that it reads."""
        late = (self.stages[name] for name in read if name in self.late and name in self.stages)
        most = min(late, default=self.count - 1)
        parameter = next((self.updates[name] for name in made if name in self.updates), None)
        if parameter is not None:
            self.owners[parameter] = min(most, *self.readers.get(parameter, ()), self.count - 1)
            return self.owners[parameter]
        first = self.stages.get(made[0].removesuffix(AGAIN))
        if made[0].endswith(AGAIN) and first is not None:
            return min(most, first)
        near = [self.stages[name] for name in read if name in self.stages and name not in self.late]
        # A parameter of several stages says nothing of where its gradients are made.
        stored = (self.readers.get(name, set()) for name in read if name not in self.stages)
        near += [stage for stages in stored if len(stages) == 1 for stage in stages]
        return min(most, max(near, default=most))


def plan_stages(step: StepGraph, source: TrainableGraph, count: int) -> StagePlan:
    """The stages of the first half of a step; InputError where the text asks for what no pipeline is."""
    if source.loss and count > 1:
        raise InputError("a graph with a loss of its own has no stages", hint="say dp=…, tp=…")
    found = _Assignment(step.model.graph, source, count)
    found.run()
    empty = next((stage for stage in range(count) if stage not in found.owners.values()), None)
    if empty is not None:
        hint = "say @partition(stage) of statements that read parameters, or take fewer stages"
        raise InputError(f"stage {empty} of {count} has no parameter that is trained", hint=hint)
    halves = [
        tuple(
            tuple(node for node, stage, is_late in found.nodes if stage == number and is_late == half)
            for number in range(count)
        )
        for half in (False, True)
    ]
    links = list(_links(found))
    return StagePlan(
        count,
        halves[0],
        halves[1],
        found.owners,
        _grouped((found.owners[name], stage, name) for name, stage in _copied(found)),
        _grouped(item for item in links if item[0] < item[1]),
        _grouped(item for item in links if item[0] > item[1]),
    )


def _links(found: _Assignment) -> Iterator[tuple[int, int, str]]:
    """What a stage reads that another one makes, in the order of the graph."""
    for node, stage, _ in found.nodes:
        for item in operands_of(node):
            maker = found.stages.get(item.name, stage)
            if maker != stage:
                yield maker, stage, item.name


def _copied(found: _Assignment) -> Iterator[tuple[str, int]]:
    for name, owner in found.owners.items():
        yield from ((name, stage) for stage in sorted(found.readers.get(name, ())) if stage != owner)


def _grouped(items: Iterable[tuple[int, int, str]]) -> dict[tuple[int, int], tuple[str, ...]]:
    found: dict[tuple[int, int], dict[str, None]] = {}
    for sender, receiver, name in items:
        found.setdefault((sender, receiver), {})[name] = None
    return {key: tuple(names) for key, names in sorted(found.items())}


def wanted_stages(source: TrainableGraph, count: int) -> dict[str, int]:
    """The stages of tensors as `@partition` says; where it says nothing layers are shared out evenly."""
    if source.stages:
        stages = max(item.stage for item in source.stages.values()) + 1
        if stages % count:
            raise InputError(
                f"the model has {stages} stages, which {count} ranks cannot share",
                hint="choose pp so that it divides them",
            )
        return {name: item.stage * count // stages for name, item in source.stages.items()}
    if count == 1:
        return {}
    layers: dict[str, int] = {}
    for node in source.model.graph.nodes:
        layer = None if node.origin is None else layer_of(node.origin.what)
        if layer is not None:
            layers |= {item.name: layer for item in results_of(node)}
    number = max(layers.values(), default=-1) + 1
    if number < count:
        raise InputError(
            f"the model has {number} layers, which {count} stages cannot share",
            hint="say @partition(stage) behind statements of its graph",
        )
    return {name: layer * count // number for name, layer in layers.items()}


def recomputed(source: TrainableGraph, count: int) -> TrainableGraph:
    """The model whose way back computes again what stages with `@partition(recompute=true)` make inside."""
    if not any(item.is_recomputed for item in source.stages.values()):
        return source
    found = _Assignment(source.model.graph, source, count)
    found.run()
    ahead = {name: stage for name, stage in found.stages.items() if name not in found.late}
    stages = {ahead[name] for name, item in source.stages.items() if item.is_recomputed and name in ahead}
    ends = {name for _, _, name in _links(found)} | {
        item.name for item in members(source.model.graph.outputs)
    }
    dropped = {name for name, stage in ahead.items() if stage in stages and name not in ends}
    return replace(source, kept=frozenset(ahead if source.kept is None else source.kept) - dropped)


# --- the graphs of a stage --------------------------------------------------------------------------------------


def cut_stage(step: StepGraph, plan: StagePlan, stage: int) -> StageGraphs:
    """The graphs of a stage: inputs of the step are inputs of both, as is what other stages send."""
    graph = step.model.graph
    ahead, back = plan.forward[stage], plan.backward[stage]
    made = _made(ahead)
    given = {name for (_, to), names in plan.sent.items() if to == stage for name in names}
    read = {item.name for node in back for item in operands_of(node)}
    losses = frozenset(step.outputs.values()) & made
    left = {name for links in (plan.sent, plan.returned) for name in _from(links, stage)} & made
    forward = _part(step.model, ahead, given, losses | left | (read & made))
    returned = {name for (_, to), names in plan.returned.items() if to == stage for name in names}
    ends = set(_from(plan.returned, stage)) & _made(back)
    backward = _part(step.model, back, (made | given) & read | returned, ends)
    return StageGraphs(_updating(forward, graph), _updating(backward, graph), losses)


def _updating(part: Model, whole: Graph) -> Model:
    """A part that changes the variables whose next values it makes."""
    made = _made(part.graph.nodes)
    updates = tuple(item for item in whole.updates if item.value.name in made)
    return replace(part, graph=replace(part.graph, updates=updates))


def _from(links: Links, stage: int) -> Iterator[str]:
    return (name for (sender, _), names in links.items() if sender == stage for name in names)


def _made(nodes: Iterable[Node]) -> set[str]:
    return {item.name for node in nodes for item in results_of(node)}


def _part(model: Model, nodes: tuple[Node, ...], given: Iterable[str], outputs: Iterable[str]) -> Model:
    """Some operations of a graph as one of its own; its inputs stay, which bind the extents, all but unread weights."""
    graph = model.graph
    tensors = {item.name: item for item in defined(graph) if isinstance(item, Tensor)}
    read = {item.name for node in nodes for item in operands_of(node)}
    weights = {item.variable.name.removesuffix(collected("")) for item in graph.updates}
    kept = [item for item in members(graph.inputs) if item.name in read or item.name not in weights]
    own = {item.name for item in kept}
    part = replace(
        graph,
        inputs=(*kept, *(tensors[name] for name in sorted(set(given) - own))),
        outputs=tuple(tensors[name] for name in sorted(outputs)),
        nodes=nodes,
        variables=tuple(item for item in graph.variables if item.name in read),
        constants=tuple(item for item in graph.constants if item.tensor.name in read),
        updates=(),
    )
    return replace(model, graph=part)
