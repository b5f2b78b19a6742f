"""A compiled step of training with its state: parameters, slots of the optimiser, the number of steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np

from lamella.base.arrays import Array, uniform
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.gc import gc_paused
from lamella.graph.model import Model, Place
from lamella.pipeline import backends
from lamella.pipeline.backends import make_executable
from lamella.pipeline.module.observe import GRADIENT
from lamella.pipeline.module.watch import (
    PROBE,
    Hook,
    HookFunction,
    ProbeData,
    WatchableExecutable,
    Watching,
)
from lamella.pipeline.options import Options
from lamella.pipeline.profile import Profile
from lamella.train.data.batches import count_targets
from lamella.train.gradients import trainable
from lamella.train.mixed import MASTER, SCALE, STARTS, UNFINITE
from lamella.train.optimizers import RATE
from lamella.train.settings import StepSettings, require_settings
from lamella.train.sources import TrainableGraph
from lamella.train.step import (
    AUXILIARY,
    FIRST,
    LOSS,
    NORM,
    WEIGHT,
    StepBuilder,
    StepGraph,
    collected,
    slot_name,
)

STEP = "step"
"""The name of the number of steps in a state."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave: the loss before the update, and the norm of all gradients where they are clipped."""

    loss: float
    gradient_norm: float | None = None
    auxiliary: float | None = None
    """The auxiliary losses of the model, where it has some."""
    is_skipped: bool = False
    """Whether nothing changed but the scale of the loss: a gradient was not finite."""


class Trainer:
    """A compiled training step with its state.

    The model is a path, or a graph with its gradients. A batch holds the inputs of the model and `targets` by name;
    a target of -100 takes no part in the loss.
    """

    def __init__(
        self,
        model: TrainableGraph | Path | str,
        settings: StepSettings | None = None,
        backend: str | None = "cpu",
        options: Options | None = None,
    ) -> None:
        self.settings = settings or StepSettings()
        require_settings(self.settings)
        backends.start(backend)
        self._options = replace(options or Options(), dtype=self.settings.dtype)
        self.source = model if isinstance(model, TrainableGraph) else trainable(Path(model), self._options)
        self._backend = backend
        self._builder = StepBuilder(self.source, self.settings)
        self.steps = 0
        """How many steps changed parameters."""
        self._real = np.dtype(np.float64 if self.settings.dtype == "f64" else np.float32)
        self._watching = Watching(watched_places(self.source))
        self._made_for = self._watching.changes
        with gc_paused():
            self.graphs: tuple[StepGraph, ...] = (self._first_half(self._builder),)
        if self.settings.accumulation > 1 or self.settings.is_split:
            self.graphs = (*self.graphs, self._builder.application())
        self._parts = [self._compile(item) for item in self._models()]
        self._start_masters()

    def _first_half(self, builder: StepBuilder) -> StepGraph:
        """The graph that goes through the model: the whole step, or what collects gradients."""
        is_whole = self.settings.accumulation == 1 and not self.settings.is_split
        return builder.step() if is_whole else builder.collection()

    def _models(self) -> Iterator[Model]:
        """What is compiled: the graph that updates parameters last, the one that collects gradients before it."""
        return (item.model for item in self.graphs)

    def _start_masters(self) -> None:
        """Let wide copies of narrow parameters begin with the numbers of the model, which may be wider too."""
        data = self.source.model.data or {}
        own = {item.name for item in self.graphs[-1].model.graph.variables}
        for name in self.source.gradients:
            master = slot_name(name, MASTER)
            if master in own:
                given = data[name] if name in data else self._state[name]
                self._state[master] = np.asarray(given).astype(self._real)

    @property
    def _state(self) -> dict[str, Array]:
        """The parameters and what belongs to them, as the last step left them: asked for anew, they come home."""
        return self._parts[-1].state

    @property
    def findings(self) -> list[Diagnostic]:
        """What the last run found."""
        return self._parts[-1].findings

    @property
    def executables(self) -> tuple[WatchableExecutable, ...]:
        """The compiled graphs, in the order of `graphs`."""
        return tuple(self._parts)

    @property
    def inputs(self) -> tuple[str, ...]:
        """What a batch holds."""
        numbers = {*self.graphs[0].scalars.values(), *self.source.gradients}
        return tuple(name for name in self._parts[0].inputs if name not in numbers)

    @property
    def parameters(self) -> Mapping[str, Array]:
        """The trained parameters by path."""
        return {self.source.policy(name).path: self._state[name] for name in self.source.gradients}

    @property
    def fixed(self) -> Mapping[str, Array]:
        """The variables that no step changes: frozen parameters by path, tables."""
        own = {item.name for item in self.source.model.graph.variables} - set(self.graphs[-1].updated)
        held = self._held() if own else {}
        return {self.source.policy(name).path: held[name] for name in own if name in held}

    def _held(self) -> Mapping[str, Array]:
        """The variables of the way forward and back."""
        return self._parts[0].state

    @property
    def loss_scale(self) -> float | None:
        """What the loss is multiplied with before gradients are made of it; None where that is not needed."""
        return float(self._state[SCALE]) if self._builder.is_scaled else None

    @property
    def state(self) -> Mapping[str, Array]:
        """All that a training needs to go on: parameters, slots of the optimiser, the number of steps."""
        own = {name: held[name] for name, held in self._lasting()}
        return {**own, STEP: np.asarray(self.steps, np.int64)}

    def _lasting(self) -> Iterator[tuple[str, dict[str, Array]]]:
        """The variables that the next step needs, and where each is held; what is collected begins anew."""
        begun = {collected(name) for name in self.source.gradients}
        for graph, part in zip(self.graphs, self._parts, strict=True):
            yield from ((name, part.state) for name in graph.updated if name not in begun)

    def load_state(self, arrays: Mapping[str, Array]) -> None:
        """Go on from a state."""
        lasting = dict(self._lasting())
        missing = [name for name in (*lasting, STEP) if name not in arrays]
        if missing:
            raise InputError(f"the state has nothing for '{missing[0][:80]}'", hint="is it of another model?")
        for name, state in lasting.items():
            held, given = state[name], np.asarray(arrays[name])
            if held.shape != given.shape or held.dtype != given.dtype:
                kinds = f"{given.dtype}{list(given.shape)}, not {held.dtype}{list(held.shape)}"
                raise InputError(f"'{name[:80]}' of the state is {kinds}")
        for name, state in lasting.items():
            state[name] = np.array(arrays[name])
        self.steps = int(arrays[STEP])

    def step(self, batch: Mapping[str, Array], rate: float) -> StepResult:
        """Change all parameters by the gradients of a batch."""
        before = self.steps
        if self._is_split:
            losses = self._collect_parts(batch)
            norm = self.apply(rate)
        else:
            found = self._run(**batch, **self._numbers(rate))
            losses, norm = self._losses(found), self._norm(found)
            self._count(found)
        return StepResult(losses[LOSS], norm, losses.get(AUXILIARY), self.steps == before)

    # --- hooks and probes ---------------------------------------------------------------------------------------

    def register_hook(self, point: str, function: HookFunction, mode: str | None = None) -> Hook:
        """Let `function(tensor, layer, stream)` see, modify or replace the tensors at a point in each step.

        Gradients go back through what a hook changed as if it had not.
        """
        return self._watching.register_hook(point, function, mode)

    def enable_probes(self) -> None:
        """Let probes look at the steps from now on, those of gradients too."""
        self._watching.enable_probes()

    def disable_probes(self) -> None:
        """Let probes look at no step any more."""
        self._watching.enable_probes(False)

    def enable_asserts(self, on: bool = True) -> None:
        """Let steps end with a LamellaError where an `@assert` of the model is false, or not any more."""
        self._watching.enable_asserts(on)

    def enable_traces(self, tell: Callable[[str], None] | None = print) -> None:
        """Let `tell` have a line for each tensor with a `@trace`, in every step; None takes it away."""
        self._watching.enable_traces(tell)

    def get_probe(self, name: str, layer: int | None = None) -> ProbeData:
        """What a probe kept last; where several layers have it, `layer` says which."""
        return self._watching.get_probe(name, layer)

    def profile(self, batch: Mapping[str, Array], rate: float) -> Profile:
        """Take a step, and tell where its time went: by operator, and by the regions that `@profile` names."""
        found = Profile(regions=self.source.model.regions)
        if self._made_for != self._watching.changes:
            self._watch()
        part = self._parts[0]
        before, part.progress = part.progress, found
        start = time.perf_counter()
        try:
            self.step(batch, rate)
        finally:
            part.progress = before
        found.run_seconds = time.perf_counter() - start
        return found

    def _run(self, **given: Array) -> dict[str, Array]:
        """Go through the model once, and show what is watched to those who watch."""
        if self._made_for != self._watching.changes:
            self._watch()
        found = self._parts[0](**given)
        self._watching.take(found)
        return found

    def _watch(self) -> None:
        """Compile the step anew, with what is watched now; it goes on with the numbers that it has."""
        called, functions = self._watching.insert(self.source.model)
        kept = self.source.kept
        if kept is not None:  # a hook is not called a second time, and what it gave is what was
            kept |= set(self._watching.changed.values())
        graph = self._first_half(StepBuilder(replace(self.source, model=called, kept=kept), self.settings))
        graph = replace(graph, model=self._watching.widen(graph.model))
        fresh = self._compile(graph.model)
        fresh.calls.update(functions)
        fresh.state.update(self._parts[0].state)
        self.graphs, self._parts = (graph, *self.graphs[1:]), [fresh, *self._parts[1:]]
        self._made_for = self._watching.changes

    # --- the two halves of a step -------------------------------------------------------------------------------

    def collect(self, batch: Mapping[str, Array], weight: float = 1.0, first: bool = True) -> StepResult:
        """Add the gradients of a batch, times its weight, to those that are collected; the first begins anew."""
        self._require_split()
        numbers = {WEIGHT: weight, FIRST: float(first), SCALE: self.loss_scale or 1.0}
        given = self._scalars(self.graphs[0], numbers)
        losses = self._losses(self._run(**batch, **given, **self._weights()))
        return StepResult(losses[LOSS], None, losses.get(AUXILIARY))

    @property
    def gradients(self) -> dict[str, Array]:
        """The gradients that are collected, by the paths of their parameters; times the scale of the loss."""
        self._require_split()
        held = self._parts[-2].state
        return {self.source.policy(name).path: held[collected(name)] for name in self.source.gradients}

    def apply(self, rate: float, gradients: Mapping[str, Array] | None = None) -> float | None:
        """Change all parameters by the gradients that are collected, or by others; gives their norm where known."""
        self._require_split()
        chosen = self.gradients if gradients is None else gradients
        held = {collected(name): chosen[self.source.policy(name).path] for name in self.source.gradients}
        found = self._parts[-1](**held, **self._numbers(rate))
        self._count(found)
        return self._norm(found)

    def _count(self, found: Mapping[str, Array]) -> None:
        """Count a step, but for one that changed nothing: corrections of optimisers count what was taken in."""
        name = self.graphs[-1].outputs.get(UNFINITE)
        self.steps += name is None or not float(found[name]) > 0

    @property
    def _is_split(self) -> bool:
        return len(self.graphs) > 1

    def _require_split(self) -> None:
        if not self._is_split:
            raise InputError("a step in one does not collect gradients", hint="StepSettings(is_split=True)")

    def _collect_parts(self, batch: Mapping[str, Array], total: int | None = None) -> dict[str, float]:
        """Collect the gradients of a batch part by part; gives the losses of all.

        Where the batch is itself a part, `total` says how many targets the whole has.
        """
        parts = list(split_batch(batch, self.settings.accumulation))
        counts = [count_targets(part, self.source.targets) for part in parts]
        whole = sum(counts) if total is None else total
        losses = {LOSS: 0.0}
        # The mean loss of a part in which nothing counts is no number, which no weight of 0 takes away. Ranks take
        # such parts too: others wait for what they exchange in them.
        taken = list(zip(parts, counts, strict=True))
        if total is None:
            taken = [item for item in taken if item[1]] or [(parts[0], 0)]
        for number, (part, count) in enumerate(taken):
            found = self.collect(part, count / max(whole, 1), number == 0)
            losses[LOSS] += found.loss if count or not whole else 0.0
            if found.auxiliary is not None:
                losses[AUXILIARY] = losses.get(AUXILIARY, 0.0) + found.auxiliary
        return losses

    def _numbers(self, rate: float) -> dict[str, Array]:
        """What a step is told beside its batch."""
        scalars = {RATE: rate, **self._builder.optimizer.scalars(self.settings, self.steps + 1)}
        return self._scalars(self.graphs[-1], scalars)

    def _scalars(self, graph: StepGraph, numbers: Mapping[str, float]) -> dict[str, Array]:
        """Numbers under the names that they have in a graph, where parameters may be called so already."""
        return {name: np.asarray(numbers[word], self._real) for word, name in graph.scalars.items()}

    def _losses(self, found: Mapping[str, Array]) -> dict[str, float]:
        """The loss of a run, and the auxiliary ones in it."""
        names = self.graphs[0].outputs
        return {name: float(found[names[name]]) for name in (LOSS, AUXILIARY) if name in names}

    def _norm(self, found: Mapping[str, Array]) -> float | None:
        name = self.graphs[-1].outputs.get(NORM)
        return None if name is None else float(found[name])

    def evaluate(self, batch: Mapping[str, Array]) -> float:
        """The loss of a batch; nothing changes."""
        graph, run = self._evaluation
        states = {name: self._parts[0].state[name] for name in self._builder.states if name in run.inputs}
        return float(run(**batch, **self._weights(), **states)[graph.outputs[LOSS]])

    @cached_property
    def _evaluation(self) -> tuple[StepGraph, WatchableExecutable]:
        graph = self._builder.evaluation()
        return graph, self._compile(graph.model)

    def _weights(self) -> dict[str, Array]:
        return {name: self._state[name] for name in self.source.gradients}

    def _compile(self, model: Model) -> WatchableExecutable:
        data = _StartData(model.data or {}, frozenset(_zeros(model, self.source)), model, self._real)
        found = cast(
            WatchableExecutable, make_executable(replace(model, data=data), self._backend, self._options)
        )
        found.draws = False
        return found


def watched_places(source: TrainableGraph) -> Iterator[Place]:
    """The hooks and probes of a model; those of gradients look at the gradient of what they stand on."""
    for place in source.model.places:
        if place.kind == PROBE and place.capture.startswith(GRADIENT):
            if place.tensor in source.adjoints:
                yield replace(place, tensor=source.adjoints[place.tensor])
        else:
            yield place


def _zeros(model: Model, source: TrainableGraph) -> Iterator[str]:
    """The variables that begin with zeros: slots, and collected gradients."""
    own = {item.name for item in source.model.graph.variables}
    return (item.name for item in model.graph.variables if item.name not in own)


@dataclass(frozen=True, slots=True)
class _StartData(Mapping[str, Array]):
    """The numbers that variables begin with: those of the model, and slots; each is made when it is asked for."""

    data: Mapping[str, Array]
    zeros: frozenset[str]
    model: Model
    real: np.dtype[np.generic]

    def __getitem__(self, name: str) -> Array:
        if name not in self.zeros:
            return self.data[name]
        tensor = next(item for item in self.model.graph.variables if item.name == name)
        shape = tuple(item for item in tensor.shape if isinstance(item, int))
        kind = np.dtype(np.int8) if tensor.element.is_integer else self.real
        return uniform(shape, STARTS.get(name, 0), kind)

    def __contains__(self, name: object) -> bool:
        return name in self.zeros or name in self.data

    def __iter__(self) -> Iterator[str]:
        yield from self.zeros
        yield from self.data

    def __len__(self) -> int:
        return len(self.zeros) + len(self.data)


def split_batch(batch: Mapping[str, Array], parts: int) -> Iterator[dict[str, Array]]:
    """A batch in equal parts, by the first dimension of its arrays."""
    sizes = {len(item) for item in batch.values()}
    if len(sizes) != 1 or min(sizes) % parts:
        raise InputError(
            f"a batch of {', '.join(map(str, sorted(sizes)))} cannot be cut into {parts} equal parts",
            hint="the batch is a multiple of the accumulation",
        )
    size = min(sizes) // parts
    for number in range(parts):
        yield {name: item[number * size : (number + 1) * size] for name, item in batch.items()}
