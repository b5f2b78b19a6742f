"""What ranks do in a step before any of them runs: the work of each stage, and every exchange with its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from lamella.base.errors import InputError
from lamella.graph.insert_calls import CALLS, WAIT
from lamella.graph.nodes import Node, Operation, Shape, Tensor
from lamella.graph.rewrite import defined, members, operands_of
from lamella.pipeline.bench.work import Counting, Work
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents
from lamella.train.gradients import trainable
from lamella.train.ranks.divide import DividedModel, divide
from lamella.train.ranks.division import Exchange
from lamella.train.ranks.layout import Shard
from lamella.train.ranks.mesh import Mesh, read_mesh
from lamella.train.ranks.stages import StagePlan, plan_stages, recomputed
from lamella.train.ranks.trainer import gradient_buckets, summed_axes
from lamella.train.settings import StepSettings
from lamella.train.sources import TrainableGraph
from lamella.train.step import StepBuilder, StepGraph

FORWARD, BACKWARD, GRADIENTS = "forward", "backward", "gradients"


@dataclass(frozen=True, slots=True)
class Transfer:
    """One exchange of a rank with others."""

    kind: str
    axis: str
    ranks: int
    tensor: str
    phase: str
    size: int
    """Bytes of the whole that is exchanged: the sum, all slices together, the array that is sent."""
    number: int = 0
    is_later: bool = False
    stages: tuple[int, int] | None = None
    """Who sends to whom, where it is one that sends."""

    @property
    def sent(self) -> int:
        """Bytes that a rank sends where the ranks are a ring."""
        if self.kind == "send":
            return self.size
        rounds = 2 if self.kind == "all_reduce" else 1
        return rounds * self.size * (self.ranks - 1) // self.ranks


@dataclass(frozen=True, slots=True)
class Await:
    """That a rank needs what an exchange brings."""

    number: int


StepItem = Work | Transfer | Await


@dataclass(frozen=True, slots=True)
class RankParameter:
    """A parameter as one rank has it."""

    path: str
    whole: tuple[int, ...]
    local: tuple[int, ...]
    how: str
    """How it is divided; empty where the rank has the whole."""
    stage: int
    size: int
    """Bytes of what the rank has."""
    is_trained: bool


@dataclass(frozen=True, slots=True)
class StageLedger:
    """The step of one stage, on one of its ranks: all of them do the same with other numbers."""

    parameters: tuple[RankParameter, ...]
    forward: tuple[StepItem, ...]
    """What it does for each part of a batch on the way forward, in order."""
    backward: tuple[StepItem, ...]
    sent: tuple[Transfer, ...]
    """What goes to later stages behind each part's way forward."""
    returned: tuple[Transfer, ...]
    gradients: tuple[Transfer, ...]
    """What is summed behind the last part."""

    def transfers(self, parts: int) -> Iterator[tuple[Transfer, int]]:
        """Every exchange of a step, with how often it takes place."""
        for item in (*self.forward, *self.backward, *self.sent, *self.returned):
            if isinstance(item, Transfer):
                yield item, parts
        yield from ((item, 1) for item in self.gradients)


@dataclass(frozen=True, slots=True)
class StepLedger:
    """A step on a mesh."""

    name: str
    mesh: Mesh
    parts: int
    """Parts of a batch that go through the stages one after the other."""
    extents: Mapping[str, int]
    """Open extents of the batch of all ranks."""
    stages: tuple[StageLedger, ...]


# --- from a model -----------------------------------------------------------------------------------------------


def read_ledger(path: Path, options: Options) -> StepLedger:
    """The step of the model of a file on the mesh that options name, for the extents that they give."""
    mesh = read_mesh(options.ranks or "")
    source = trainable(path, options)
    batch = _batch_symbol(source)
    extents = {name: options.shape[name] for name in options.shape}
    _require_closed(source, extents)
    rest = {name: size for name, size in extents.items() if name != batch}
    source = replace(source, model=with_extents(source.model, replace(options, shape=rest)))
    whole = extents.get(batch, mesh.shares)
    if whole % mesh.shares:
        raise InputError(
            f"a batch of {whole} cannot be cut for {mesh.shares} ranks", hint=f"say --shape {batch}=N"
        )
    own = whole // mesh.shares
    is_split = batch in extents and all(item.is_split for item in source.stages.values())
    parts = mesh.pp if is_split and own % mesh.pp == 0 else 1
    local = {batch: own // parts}
    stages = tuple(_stage(source, mesh, stage, local) for stage in range(mesh.pp))
    return StepLedger(source.model.graph.name, mesh, parts, extents, stages)


def _batch_symbol(source: TrainableGraph) -> str:
    """What the number of examples is called; empty where it is fixed."""
    shapes = [item.shape for item in _inputs(source) if item.shape]
    return next((str(shape[0]) for shape in shapes if not isinstance(shape[0], int)), "")


def _inputs(source: TrainableGraph) -> list[Tensor]:
    seeds = set(source.seeds.values())
    found = members(source.model.graph.inputs)
    return [item for item in found if isinstance(item, Tensor) and item.name not in seeds]


def _require_closed(source: TrainableGraph, extents: Mapping[str, int]) -> None:
    open_ = {str(size) for item in _inputs(source) for size in item.shape if not isinstance(size, int)}
    left = sorted(open_ - set(extents))
    if left:
        said = ",".join(f"{name}=…" for name in left)
        raise InputError(f"what ranks exchange depends on {', '.join(left)}", hint=f"say --shape {said}")


def _stage(source: TrainableGraph, mesh: Mesh, stage: int, extents: Mapping[str, int]) -> StageLedger:
    position = {"dp": 0, "pp": stage, "ep": 0, "tp": 0}
    division = divide(source, mesh, mesh.rank(position))
    held = recomputed(division.source, mesh.pp)
    step = StepBuilder(held, StepSettings()).collection()
    plan = plan_stages(step, held, mesh.pp)
    counting = Counting(step.model.library, extents)
    items = _Items(mesh, division, step, counting)
    parameters = tuple(_parameters(source, division, plan, stage, step))
    names = {source.policy(name).path: name for name in source.gradients}
    trained = [item for item in parameters if item.is_trained]
    sizes: dict[tuple[str, ...], dict[str, int]] = {}
    for item in trained:
        axes = tuple(axis for axis in summed_axes(division, names[item.path]) if mesh.extents[axis] > 1)
        sizes.setdefault(axes, {})[item.path] = item.size
    return StageLedger(
        parameters,
        tuple(items.of(plan.forward[stage], FORWARD)),
        tuple(items.of(plan.backward[stage], BACKWARD)),
        tuple(items.links(plan.sent, stage, FORWARD)),
        tuple(items.links(plan.returned, stage, BACKWARD)),
        tuple(one for axes, items in sizes.items() if axes for one in _sums(held, mesh, axes, items)),
    )


class _Items:
    """Operations of a graph as work and exchanges."""

    def __init__(self, mesh: Mesh, division: DividedModel, step: StepGraph, counting: Counting) -> None:
        self._mesh, self._counting = mesh, counting
        self._exchanges: dict[int, Exchange] = {item.number: item for item in division.exchanges}
        self._tensors = {item.name: item for item in defined(step.model.graph) if isinstance(item, Tensor)}

    def of(self, nodes: Iterable[Node], phase: str) -> Iterator[StepItem]:
        """What a rank does for some operations: the work between two exchanges is one piece."""
        work = Work()
        for node in nodes:
            if not isinstance(node, Operation) or node.operator not in CALLS:
                work += self._counting.operation(node) if isinstance(node, Operation) else Work()
                continue
            if work != Work():
                yield work
            work = Work()
            number = dict(node.attributes).get("number")
            if isinstance(number, int):
                yield Await(number - 1) if node.operator == WAIT else self._transfer(number, phase)
        if work != Work():
            yield work

    def _transfer(self, number: int, phase: str) -> Transfer:
        item = self._exchanges[number]
        ranks = self._mesh.extents[item.axis]
        size = self._size(item.shape, item.element.bits)
        # What a rank has behind a scatter, or between two cuts, is a slice of what is exchanged.
        size *= ranks if item.kind == "reduce_scatter" else 1
        return Transfer(item.kind, item.axis, ranks, item.tensor, phase, size, number, item.is_later)

    def links(
        self, links: Mapping[tuple[int, int], Sequence[str]], stage: int, phase: str
    ) -> Iterator[Transfer]:
        """What a stage sends to others."""
        for (sender, receiver), names in links.items():
            for name in names if sender == stage else ():
                item = self._tensors[name]
                size = self._size(item.shape, item.element.bits)
                ends = (sender, receiver)
                yield Transfer("send", "pp", self._mesh.pp, name, phase, size, is_later=True, stages=ends)

    def _size(self, shape: Shape, bits: int) -> int:
        return prod(map(self._counting.size, shape)) * bits // 8


def _sums(
    source: TrainableGraph, mesh: Mesh, axes: tuple[str, ...], sizes: Mapping[str, int]
) -> Iterator[Transfer]:
    ranks = prod(mesh.extents[axis] for axis in axes)
    for bucket in gradient_buckets(source, sizes):
        size = sum(sizes[name] for name in bucket.names)
        first, count = bucket.names[0], len(bucket.names)
        name = first if count == 1 else f"{first} and {count - 1} more"
        axis = "×".join(axes)
        yield Transfer("all_reduce", axis, ranks, name, GRADIENTS, size, is_later=bucket.is_later)


def _parameters(
    source: TrainableGraph, division: DividedModel, plan: StagePlan, stage: int, step: StepGraph
) -> Iterator[RankParameter]:
    """The parameters that a rank of a stage has."""
    local = {item.name: item for item in division.source.model.graph.variables}
    read = {item.name for node in (*plan.forward[stage], *plan.backward[stage]) for item in operands_of(node)}
    for item in source.model.graph.variables:
        if item.name not in source.policies or item.name not in read:
            continue
        own = local[item.name]
        owner = plan.owners.get(item.name, stage)
        how = _how(division, item.name) or (f"a copy of stage {owner}'s" if owner != stage else "")
        shape = _ints(own)
        size = prod(shape) * own.element.bits // 8
        is_trained = item.name in source.gradients and owner == stage
        yield RankParameter(source.policy(item.name).path, _ints(item), shape, how, stage, size, is_trained)


def _ints(tensor: Tensor) -> tuple[int, ...]:
    return tuple(item for item in tensor.shape if isinstance(item, int))


def _how(division: DividedModel, name: str) -> str:
    slices = division.slices.get(name)
    if slices is None:
        return ""
    if name in division.stored:
        return "streamed along dp"
    layout: Shard = slices.layout
    parts = f" in {len(layout.parts)} parts" if len(layout.parts) > 1 else ""
    return f"axis {layout.axis}{parts} along {slices.place.axis}"
