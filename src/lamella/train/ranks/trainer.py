"""A training step on one of several ranks: gradients of a part of the batch, summed over all, then the update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.graph.model import Model
from lamella.graph.nodes import Operation
from lamella.graph.rewrite import operands_of, producers
from lamella.pipeline.module.watch import WatchableExecutable
from lamella.pipeline.options import Options
from lamella.train.data.batches import count_targets
from lamella.train.ranks.divide import NUMBERS, DividedModel, Slices, divide
from lamella.train.ranks.experts import EIGHTHS, capacity
from lamella.train.ranks.mesh import SHARED, Mesh
from lamella.train.ranks.transport import Transport
from lamella.train.settings import StepSettings
from lamella.train.sources import TensorMark, TrainableGraph
from lamella.train.step import AUXILIARY, LOSS, StepBuilder
from lamella.train.trainer import StepResult, Trainer, split_batch

Result = TypeVar("Result")
BUCKET = 25 << 20
"""Bytes of gradients that are summed at once: small arrays travel together."""
WHOLE = ("muon", "adamw8bit")
"""Optimisers whose numbers depend on more than one element."""


@dataclass(frozen=True, slots=True)
class World:
    """A mesh, and what this rank of it exchanges with."""

    mesh: Mesh
    transport: Transport

    def group(self, *axes: str) -> tuple[int, ...]:
        """The ranks that this one exchanges with along some axes."""
        return self.mesh.group(self.transport.rank, *axes)

    def position(self, axis: str) -> int:
        """Where this rank is along an axis."""
        return self.mesh.position(self.transport.rank)[axis]


FitMemory = Callable[[TrainableGraph, StepSettings], TrainableGraph]
"""Offloads of what a rank keeps as much as its budget asks for."""


class RankTrainer(Trainer):
    """A trainer that takes its part of every batch; all ranks have the same parameters behind each step."""

    def __init__(
        self,
        source: TrainableGraph,
        settings: StepSettings,
        backend: str,
        options: Options,
        world: World,
        fit_memory: FitMemory | None = None,
    ) -> None:
        self.world, self._whole_source, self._fit_memory = world, source, fit_memory
        # Where the ranks of a group are not all of those that exchange something, one cannot take a step again alone.
        is_alone = world.mesh.pp == 1 and not any(item.is_streamed for item in source.policies.values())
        self._eighths = EIGHTHS if is_alone else 8 * world.mesh.ep
        self.division = divide(source, world.mesh, world.transport.rank, self._eighths)
        """What this rank has of the model."""
        _require_optimizer(settings, self.division)
        self._gathered: dict[str, Array] | None = None
        settings = replace(settings, is_split=True)
        super().__init__(self._prepared(self.division, settings), settings, backend, options)

    def _prepared(self, division: DividedModel, settings: StepSettings) -> TrainableGraph:
        """What this rank trains, within the memory that it has."""
        return division.source if self._fit_memory is None else self._fit_memory(division.source, settings)

    def step(self, batch: Mapping[str, Array], rate: float) -> StepResult:
        """Change all parameters by the gradients of a batch, of which this rank takes its part."""
        mesh, transport = self.world.mesh, self.world.transport
        parts = list(split_batch(batch, mesh.shares))
        total = sum(count_targets(item, self.source.targets) for item in parts)
        own = self._with_room(partial(self._collect_parts, parts[mesh.share(transport.rank)], total))
        names = [name for name in (LOSS, AUXILIARY) if name in own]
        sums = transport.all_reduce(np.array([own[name] for name in names]), self.world.group(*SHARED))
        losses = dict(zip(names, map(float, sums), strict=True))
        before = self.steps
        norm = self.apply(rate, self._summed_gradients())
        self._gathered = None
        return StepResult(losses[LOSS], norm, losses.get(AUXILIARY), self.steps == before)

    def evaluate(self, batch: Mapping[str, Array]) -> float:
        """The loss of a batch; nothing changes."""
        return self._with_room(partial(super().evaluate, batch))

    def _with_room(self, work: Callable[[], Result]) -> Result:
        """What work gives, done again with more slots as long as ranks have more rows for the experts of one."""
        while True:
            try:
                return work()
            except CapacityError as problem:
                self._eighths = problem.eighths
                self.division = divide(
                    self._whole_source, self.world.mesh, self.world.transport.rank, self._eighths
                )
                self.source = self._prepared(self.division, self.settings)
                self._builder = StepBuilder(self.source, self.settings)
                self.__dict__.pop("_evaluation", None)
                self._watch()

    def _summed_gradients(self) -> dict[str, Array]:
        """All gradients, over the ranks that have other tokens, as far as the graph has not summed them."""
        found = self.gradients
        paths = {self.source.policy(name).path: name for name in self.source.gradients}
        kinds: dict[tuple[str, ...], dict[str, Array]] = {}
        for path, item in found.items():
            kinds.setdefault(summed_axes(self.division, paths[path]), {})[path] = item
        sums: dict[str, Array] = {}
        for axes, items in kinds.items():
            sums |= self.summed(items, self.world.group(*axes)) if axes else items
        return {path: sums[path] for path in found}

    def summed(self, gradients: Mapping[str, Array], group: Sequence[int]) -> dict[str, Array]:
        """The sums of gradients over a group, a bucket at a time: the next is filled while one is on its way."""
        pending: list[tuple[list[str], Callable[[], Array]]] = []
        for bucket in self.buckets({name: item.nbytes for name, item in gradients.items()}):
            flat = np.concatenate([gradients[name].reshape(-1) for name in bucket.names])
            found = self.world.transport.begin_all_reduce(flat, group)
            pending.append((bucket.names, found if bucket.is_later else partial(np.asarray, found())))
        sums: dict[str, Array] = {}
        for names, wait in pending:
            whole, start = wait(), 0
            for name in names:
                shape, size = gradients[name].shape, gradients[name].size
                sums[name] = whole[start : start + size].reshape(shape)
                start += size
        return sums

    def buckets(self, sizes: Mapping[str, int]) -> Iterator[Bucket]:
        """Gradients by path that travel together, as `@comm` of gradients says, else so many bytes at once."""
        return gradient_buckets(self.source, sizes)

    # --- slices -------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> Mapping[str, Array]:
        """The trained parameters by path, whole: all ranks ask for them together, once behind a step."""
        if self._gathered is None:
            self._gathered = self._whole_paths(super().parameters)
        return self._gathered

    def gather(self) -> None:
        """Let every rank have the whole of all parameters, so that one alone may ask for them until the next step."""
        self._gathered = dict(self.parameters)

    @property
    def fixed(self) -> Mapping[str, Array]:
        """The variables that no step changes, whole: all ranks ask for them together."""
        return self._whole_paths(super().fixed)

    def _whole_paths(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Arrays by path, whole; every rank takes them in the order of their paths."""
        names = {self.source.policy(item.name).path: item.name for item in self.source.model.graph.variables}
        return {path: self._whole(names[path], arrays[path]) for path in sorted(arrays)}

    @property
    def state(self) -> Mapping[str, Array]:
        """All that a training needs to go on, whole, so that other meshes may: all ranks ask for it together."""
        return {name: self._whole(name, item) for name, item in super().state.items()}

    def load_state(self, arrays: Mapping[str, Array]) -> None:
        """Go on from a whole state, of which this rank takes its slices."""
        super().load_state({name: self._own(name, np.asarray(item)) for name, item in arrays.items()})
        self._gathered = None

    def _slices(self, name: str) -> Slices | None:
        """How a variable is divided: a parameter, or a slot of its shape."""
        # What adapters train is called after the weight beside it, and is no slot of that.
        is_variable = any(item.name == name for item in self.source.model.graph.variables)
        return self.division.slices.get(name if is_variable else name.rpartition(".")[0])

    def _whole(self, name: str, array: Array) -> Array:
        slices = self._slices(name)
        if slices is None or not array.ndim:
            return array
        placed = slices.layout.place(array, slices.place.rank, slices.place.ranks)
        return self.world.transport.all_reduce(placed, self.world.group(slices.place.axis))

    def _own(self, name: str, array: Array) -> Array:
        slices = self._slices(name)
        if slices is None or not array.ndim:
            return array
        return slices.layout.cut(array, slices.place.rank, slices.place.ranks)

    def _compile(self, model: Model) -> WatchableExecutable:
        found = super()._compile(model)
        found.calls.update(self._functions())
        return found

    def _functions(self) -> Iterator[tuple[int, Callable[[Array], Array]]]:
        """What does the exchanges of graphs, by their numbers."""
        for axis, number in NUMBERS.items():
            yield number, partial(self.world.transport.all_reduce, group=self.world.group(axis))
        transport = self.world.transport
        for item in self.division.exchanges:
            group = self.world.group(item.axis)
            if item.is_later:
                pending = PendingSum(transport, group)
                yield item.number, pending.begin
                yield item.number + 1, pending.end
            elif item.kind == "all_reduce":
                yield item.number, partial(transport.all_reduce, group=group)
            elif item.eighths:
                yield item.number, partial(gather_offsets, transport, group, item.eighths)
            elif item.kind == "all_to_all":
                yield item.number, partial(transport.all_to_all, group=group, dim=item.dim, to=item.to)
            else:
                moved = transport.all_gather if item.kind == "all_gather" else transport.reduce_scatter
                yield item.number, partial(moved, group=group, dim=item.dim)


class CapacityError(Exception):
    """Ranks have more rows for the experts of one than slots."""

    def __init__(self, eighths: int) -> None:
        super().__init__(f"{eighths} eighths of an even share are needed")
        self.eighths = eighths


def gather_offsets(transport: Transport, group: Sequence[int], eighths: int, own: Array) -> Array:
    """The offsets of all ranks; CapacityError, on each of them, where one has too many rows for another."""
    found = transport.all_gather(own, group, 0)
    ranks, rows = len(group), int(own[-1])
    firsts = found.reshape(ranks, -1)[:, :: (len(own) - 1) // ranks]
    most = int(np.diff(firsts, axis=1).max())
    room = capacity(rows, ranks, eighths)
    if isinstance(room, int) and most > room:
        needed = -(-8 * ranks * most // rows)
        raise CapacityError(needed + needed // 4)
    return found


def summed_axes(division: DividedModel, name: str) -> tuple[str, ...]:
    """The axes over which the gradient of a parameter is still to be summed behind the graph."""
    done = {"dp"} if name in division.stored else set()
    slices = division.slices.get(name)
    done |= {"ep"} if slices is not None and slices.place.axis == "ep" else set()
    return tuple(axis for axis in SHARED if axis not in done)


class PendingSum:
    """A sum over ranks that goes on while this rank computes."""

    def __init__(self, transport: Transport, group: Sequence[int]) -> None:
        self._transport, self._group = transport, group
        self._found: Callable[[], Array] | None = None

    def begin(self, array: Array) -> Array:
        """Send what this rank has; what is given is read by nobody but the wait."""
        self._found = self._transport.begin_all_reduce(array, self._group)
        return array

    def end(self, array: Array) -> Array:
        """The sum."""
        found, self._found = self._found, None
        return array if found is None else found()


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are summed at once."""

    names: list[str]
    is_later: bool


def gradient_buckets(source: TrainableGraph, sizes: Mapping[str, int]) -> Iterator[Bucket]:
    """Gradients by path, as `@comm` of gradients says, else so many bytes at once."""
    kinds: dict[tuple[int, bool], dict[str, int]] = {}
    marks = {source.policy(name).path: mark for name, mark in gradient_marks(source)}
    for name, size in sizes.items():
        mark = marks.get(name, TensorMark())
        kinds.setdefault((mark.bucket or BUCKET, mark.is_later), {})[name] = size
    for (most, is_later), items in kinds.items():
        yield from (Bucket(names, is_later) for names in buckets(items, most))


def gradient_marks(source: TrainableGraph) -> Iterator[tuple[str, TensorMark]]:
    """What `@comm` says of the gradients of parameters, by the variables that those are."""
    makers = producers(source.model.graph)
    for name, gradient in source.gradients.items():
        while gradient not in source.marks:
            node = makers.get(gradient)
            if not isinstance(node, Operation) or node.operator != "math.iden":
                break
            (gradient,) = (item.name for item in operands_of(node))
        mark = source.marks.get(gradient)
        if mark is not None and mark.exchange and mark.group in ("default", "dp"):
            yield name, mark


def buckets(sizes: Mapping[str, int], most: int = BUCKET) -> Iterator[list[str]]:
    """Names in their order, as many at once as are no larger than so many bytes together; at least one."""
    names: list[str] = []
    held = 0
    for name, size in sizes.items():
        if names and held + size > most:
            yield names
            names, held = [], 0
        names.append(name)
        held += size
    if names:
        yield names


def _require_optimizer(settings: StepSettings, division: DividedModel) -> None:
    """InputError for a rule that needs whole matrices where ranks have slices."""
    if division.slices and settings.optimizer in WHOLE:
        raise InputError(
            f"{settings.optimizer} takes whole matrices, and ranks have slices of '{next(iter(division.slices))}'",
            hint="adamw, sgd and lion take slices",
        )
