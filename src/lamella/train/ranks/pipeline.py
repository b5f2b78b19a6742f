"""A training step on one stage of a pipeline: parts of a batch go forward through all stages, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import members, results_of
from lamella.pipeline.module.watch import PREFIX
from lamella.pipeline.options import Options
from lamella.train.data.batches import count_targets
from lamella.train.mixed import SCALE
from lamella.train.ranks.divide import DividedModel
from lamella.train.ranks.stages import Links, cut_stage, plan_stages, recomputed
from lamella.train.ranks.trainer import FitMemory, RankTrainer, World
from lamella.train.settings import StepSettings
from lamella.train.sources import TrainableGraph
from lamella.train.step import AUXILIARY, FIRST, LOSS, WEIGHT, StepBuilder, StepGraph
from lamella.train.trainer import split_batch


class StageTrainer(RankTrainer):
    """A trainer that has the parameters of one stage."""

    def __init__(
        self,
        source: TrainableGraph,
        settings: StepSettings,
        backend: str,
        options: Options,
        world: World,
        fit_memory: FitMemory | None = None,
    ) -> None:
        if fit_memory is not None:
            raise InputError(
                "a memory budget is for steps that no stages share",
                hint="say --ranks without pp, or @memory(offload) and @checkpoint in the text",
            )
        self.stage = world.position("pp")
        self.parts = 1
        """In how many parts the last batch went through the stages."""
        self._copies: dict[str, Array] = {}
        """Parameters that this stage reads and another one updates."""
        super().__init__(source, settings, backend, options, world)
        self._share()

    def _prepared(self, division: DividedModel, settings: StepSettings) -> TrainableGraph:
        """The part of the model whose parameters this stage updates."""
        self._whole_model = recomputed(division.source, self.world.mesh.pp)
        self._cut(self._whole_model, settings)
        owned = self.plan.owned(self.stage)
        gradients = {name: item for name, item in division.source.gradients.items() if name in owned}
        return replace(self._whole_model, gradients=gradients, is_stage=True)

    def _cut(self, source: TrainableGraph, settings: StepSettings) -> None:
        self.collection = StepBuilder(source, settings).collection()
        self.plan = plan_stages(self.collection, source, self.world.mesh.pp)
        self.cut = cut_stage(self.collection, self.plan, self.stage)

    def _first_half(self, builder: StepBuilder) -> StepGraph:
        return self.collection

    def _models(self) -> Iterator[Model]:
        yield from (self.cut.forward, self.cut.backward, self.graphs[-1].model)

    def _watch(self) -> None:
        """Compile both halves anew, with what is watched now."""
        source = self._whole_model
        called, functions = self._watching.insert(source.model)
        kept = source.kept if source.kept is None else source.kept | set(self._watching.changed.values())
        self._cut(replace(source, model=called, kept=kept), self.settings)
        for number, model in enumerate((self.cut.forward, self.cut.backward)):
            fresh = self._compile(
                _seeing_own(self._watching.widen(model)) if number else self._watching.widen(model)
            )
            fresh.calls.update(functions)
            fresh.state.update(self._parts[number].state)
            self._parts[number] = fresh
        self._made_for = self._watching.changes

    # --- a step -------------------------------------------------------------------------------------------------

    def _collect_parts(self, batch: Mapping[str, Array], total: int | None = None) -> dict[str, float]:
        """Collect the gradients of a batch part by part, as many of them on their way as there are stages."""
        self.parts = self._part_count(batch)
        parts = list(split_batch(batch, self.parts))
        counts = [count_targets(part, self.source.targets) for part in parts]
        whole = max(sum(counts) if total is None else total, 1)
        if self._made_for != self._watching.changes:
            self._watch()
        held: dict[int, dict[str, Array]] = {}
        sums = dict.fromkeys((name for name in (LOSS, AUXILIARY) if name in self.collection.outputs), 0.0)
        for is_back, number in one_forward_one_backward(self.stage, self.plan.count, len(parts)):
            if is_back:
                self._backward(held.pop(number))
                continue
            numbers = {
                WEIGHT: counts[number] / whole,
                FIRST: float(number == 0),
                SCALE: self.loss_scale or 1.0,
            }
            given = self._scalars(self.collection, numbers)
            held[number] = self._forward({**parts[number], **given})
            for name in sums:
                found = held[number].get(self.collection.outputs[name])
                # The mean of no target at all is no number.
                sums[name] += float(found) if found is not None and (counts[number] or name != LOSS) else 0.0
        return self._over_stages(sums)

    def _forward(self, given: dict[str, Array]) -> dict[str, Array]:
        """The way forward of a part, with what comes from earlier stages, to later ones; gives all there is of it."""
        self._receive(self.plan.sent, given)
        given |= self._half(0, given)
        self._send(self.plan.sent, given)
        return given

    def _backward(self, given: dict[str, Array]) -> None:
        self._receive(self.plan.returned, given)
        given |= self._half(1, given)
        self._send(self.plan.returned, given)

    def _half(self, number: int, given: Mapping[str, Array]) -> dict[str, Array]:
        """Run one of the two graphs of the stage, and show what is watched to those who watch."""
        part = self._parts[number]
        known = {**self._copies, **self._weights(), **given}
        found = dict(part(**{name: known[name] for name in part.inputs}))
        self._watching.take(found)
        return found

    def _receive(self, links: Links, given: dict[str, Array]) -> None:
        for (sender, receiver), names in links.items():
            if receiver == self.stage:
                given |= {name: self.world.transport.receive(self._rank(sender)) for name in names}

    def _send(self, links: Links, given: Mapping[str, Array]) -> None:
        for (sender, receiver), names in links.items():
            for name in names if sender == self.stage else ():
                self.world.transport.send(given[name], self._rank(receiver))

    def _rank(self, stage: int) -> int:
        return self.world.group("pp")[stage]

    def _part_count(self, batch: Mapping[str, Array]) -> int:
        """How many parts a batch has: as many as are asked for, else as there are stages, where it can be cut."""
        if self.settings.accumulation > 1:
            return self.settings.accumulation
        is_whole = any(not item.is_split for item in self.source.stages.values())
        inputs = (item for item in members(self.collection.model.graph.inputs) if item.name in batch)
        fixed = any(isinstance(item, Tensor) and isinstance(item.shape[0], int) for item in inputs)
        size = len(next(iter(batch.values())))
        return 1 if is_whole or fixed or size % self.plan.count else self.plan.count

    def _over_stages(self, numbers: Mapping[str, float]) -> dict[str, float]:
        found = self.world.transport.all_reduce(np.array([*numbers.values()]), self.world.group("pp"))
        return dict(zip(numbers, map(float, found), strict=True))

    def apply(self, rate: float, gradients: Mapping[str, Array] | None = None) -> float | None:
        """Change the parameters of this stage, and let others have those that they read."""
        norm = super().apply(rate, gradients)
        self._share()
        return norm

    def _share(self) -> None:
        """Send parameters to the stages that only read them."""
        self._send(self.plan.copies, self._state)
        self._receive(self.plan.copies, self._copies)

    def evaluate(self, batch: Mapping[str, Array]) -> float:
        """The loss of a batch; nothing changes."""
        numbers = self._scalars(self.collection, {WEIGHT: 1.0, FIRST: 1.0, SCALE: 1.0})
        before = {name: self._parts[0].state[name] for name in self._states(0)}
        found = self._forward({**batch, **numbers}).get(self.collection.outputs[LOSS])
        self._parts[0].state.update(before)
        return self._over_stages({LOSS: 0.0 if found is None else float(found)})[LOSS]

    # --- what other stages have ---------------------------------------------------------------------------------

    @property
    def state(self) -> Mapping[str, Array]:
        """All that a training needs to go on, of all stages."""
        return self._of_all(super().state)

    def _lasting(self) -> Iterator[tuple[str, dict[str, Array]]]:
        yield from ((name, self._state) for name in self.graphs[-1].updated)
        for number in (0, 1):
            yield from ((name, self._parts[number].state) for name in self._states(number))

    def _states(self, number: int) -> list[str]:
        """What the model remembers from step to step in one of the two graphs of the stage."""
        graph = (self.cut.forward, self.cut.backward)[number].graph
        names = set(self._builder.states)
        return [item.variable.name for item in graph.updates if item.variable.name in names]

    def load_state(self, arrays: Mapping[str, Array]) -> None:
        """Go on from a whole state."""
        super().load_state(arrays)
        self._share()

    def _held(self) -> Mapping[str, Array]:
        return {**self._parts[1].state, **self._parts[0].state}

    def _whole_paths(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return self._of_all(super()._whole_paths(arrays))

    def _of_all(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """What all stages have: each sends its own to all others."""
        found = dict(arrays)
        for owner in range(self.plan.count):
            if owner != self.stage:
                names = self.world.transport.receive(self._rank(owner)).tobytes().decode().split("\n")
                found |= {name: self.world.transport.receive(self._rank(owner)) for name in names if name}
                continue
            for other in (item for item in range(self.plan.count) if item != owner):
                heading = np.frombuffer("\n".join(arrays).encode() or b"\n", np.uint8)
                for item in (heading, *arrays.values()):
                    self.world.transport.send(item, self._rank(other))
        return {name: found[name] for name in sorted(found)}


def _seeing_own(model: Model) -> Model:
    """The way back with what it made as further outputs: what it was given was seen on the way forward."""
    graph = model.graph
    given = {f"{PREFIX}{item.name}" for item in members(graph.inputs)}
    nodes = tuple(node for node in graph.nodes if not any(item.name in given for item in results_of(node)))
    outputs = tuple(item for item in graph.outputs if not any(one.name in given for one in members((item,))))
    return replace(model, graph=replace(graph, nodes=nodes, outputs=outputs))


def one_forward_one_backward(stage: int, stages: int, parts: int) -> Iterator[tuple[bool, int]]:
    """The order of work of a stage: pairs of whether a part goes back, and its number.

    A stage begins with as many parts as there are stages behind it, then takes one back for each that goes forward:
    so it never keeps more of them than there are stages from it on.
    """
    ahead = min(stages - 1 - stage, parts)
    yield from ((False, number) for number in range(ahead))
    for number in range(parts):
        if ahead + number < parts:
            yield False, ahead + number
        yield True, number


__all__ = ["StageTrainer", "one_forward_one_backward"]
