"""A compiled step of training with its state: parameters, slots of the optimiser, the number of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.graph.model import Model
from lamella.pipeline.backends import make_executable
from lamella.pipeline.languages import Executable
from lamella.pipeline.options import Options
from lamella.train.data.batches import count_targets
from lamella.train.gradients import trainable
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
)

STEP = "step"
"""The name of the number of steps in a state."""


class GraphState(Executable, Protocol):
    """A graph that runs and keeps variables."""

    state: dict[str, Array]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step gave: the loss before the update, and the norm of all gradients where they are clipped."""

    loss: float
    gradient_norm: float | None = None
    auxiliary: float | None = None
    """The auxiliary losses of the model, where it has some."""


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
        self._options = replace(options or Options(), dtype=self.settings.dtype)
        self.source = model if isinstance(model, TrainableGraph) else trainable(Path(model), self._options)
        self._backend = backend
        self._builder = StepBuilder(self.source, self.settings)
        self.steps = 0
        """How many steps were taken."""
        self._real = np.dtype(np.float64 if self.settings.dtype == "f64" else np.float32)
        if self.settings.accumulation == 1 and not self.settings.is_split:
            self.graphs: tuple[StepGraph, ...] = (self._builder.step(),)
        else:
            self.graphs = (self._builder.collection(), self._builder.application())
        self._parts = [self._compile(item.model) for item in self.graphs]
        self._state = self._parts[-1].state

    @property
    def findings(self) -> list[Diagnostic]:
        """What the last run found."""
        return self._parts[-1].findings

    @property
    def inputs(self) -> tuple[str, ...]:
        """What a batch holds."""
        numbers = {*self.graphs[0].scalars, *self.source.gradients}
        return tuple(name for name in self._parts[0].inputs if name not in numbers)

    @property
    def parameters(self) -> Mapping[str, Array]:
        """The trained parameters by path."""
        return {self.source.policy(name).path: self._state[name] for name in self.source.gradients}

    @property
    def fixed(self) -> Mapping[str, Array]:
        """The variables that no step changes: frozen parameters by path, tables."""
        own = {item.name for item in self.source.model.graph.variables} - set(self.graphs[-1].updated)
        held = self._parts[0].state
        return {self.source.policy(name).path: held[name] for name in own if name in held}

    @property
    def state(self) -> Mapping[str, Array]:
        """All that a training needs to go on: parameters, slots of the optimiser, the number of steps."""
        own = {name: self._state[name] for name in self.graphs[-1].updated}
        return {**own, STEP: np.asarray(self.steps, np.int64)}

    def load_state(self, arrays: Mapping[str, Array]) -> None:
        """Go on from a state."""
        missing = [name for name in (*self.graphs[-1].updated, STEP) if name not in arrays]
        if missing:
            raise InputError(f"the state has nothing for '{missing[0][:80]}'", hint="is it of another model?")
        for name in self.graphs[-1].updated:
            held, given = self._state[name], np.asarray(arrays[name])
            if held.shape != given.shape or held.dtype != given.dtype:
                kinds = f"{given.dtype}{list(given.shape)}, not {held.dtype}{list(held.shape)}"
                raise InputError(f"'{name[:80]}' of the state is {kinds}")
        for name in self.graphs[-1].updated:
            self._state[name] = np.array(arrays[name])
        self.steps = int(arrays[STEP])

    def step(self, batch: Mapping[str, Array], rate: float) -> StepResult:
        """Change all parameters by the gradients of a batch."""
        if self._is_split:
            losses = self._collect_parts(batch)
            norm = self.apply(rate)
        else:
            found = self._parts[0](**batch, **self._numbers(rate))
            losses, norm = self._losses(found), self._norm(found)
            self.steps += 1
        return StepResult(losses[LOSS], norm, losses.get(AUXILIARY))

    # --- the two halves of a step -------------------------------------------------------------------------------

    def collect(self, batch: Mapping[str, Array], weight: float = 1.0, first: bool = True) -> StepResult:
        """Add the gradients of a batch, times its weight, to those that are collected; the first begins anew."""
        self._require_split()
        given = {WEIGHT: np.asarray(weight, self._real), FIRST: np.asarray(float(first), self._real)}
        losses = self._losses(self._parts[0](**batch, **given, **self._weights()))
        return StepResult(losses[LOSS], None, losses.get(AUXILIARY))

    @property
    def gradients(self) -> dict[str, Array]:
        """The gradients that are collected, by the paths of their parameters."""
        self._require_split()
        held = self._parts[0].state
        return {self.source.policy(name).path: held[collected(name)] for name in self.source.gradients}

    def apply(self, rate: float, gradients: Mapping[str, Array] | None = None) -> float | None:
        """Change all parameters by the gradients that are collected, or by others; gives their norm where known."""
        self._require_split()
        chosen = self.gradients if gradients is None else gradients
        held = {collected(name): chosen[self.source.policy(name).path] for name in self.source.gradients}
        norm = self._norm(self._parts[1](**held, **self._numbers(rate)))
        self.steps += 1
        return norm

    @property
    def _is_split(self) -> bool:
        return len(self.graphs) > 1

    def _require_split(self) -> None:
        if not self._is_split:
            raise InputError("a step in one does not collect gradients", hint="StepSettings(is_split=True)")

    def _collect_parts(self, batch: Mapping[str, Array]) -> dict[str, float]:
        """Collect the gradients of a batch part by part; gives the losses of all."""
        parts = list(split_batch(batch, self.settings.accumulation))
        counts = [count_targets(part, self.source.targets) for part in parts]
        losses = {LOSS: 0.0}
        # The mean loss of a part in which nothing counts is no number, which no weight of 0 takes away.
        counted = [item for item in zip(parts, counts, strict=True) if item[1]] or [(parts[0], 0)]
        for number, (part, count) in enumerate(counted):
            found = self.collect(part, count / max(sum(counts), 1), number == 0)
            losses[LOSS] += found.loss
            if found.auxiliary is not None:
                losses[AUXILIARY] = losses.get(AUXILIARY, 0.0) + found.auxiliary
        return losses

    def _numbers(self, rate: float) -> dict[str, Array]:
        """What a step is told beside its batch."""
        scalars = {RATE: rate, **self._builder.optimizer.scalars(self.settings, self.steps + 1)}
        return {name: np.asarray(value, self._real) for name, value in scalars.items()}

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
        return float(run(**batch, **self._weights())[graph.outputs[LOSS]])

    @cached_property
    def _evaluation(self) -> tuple[StepGraph, GraphState]:
        graph = self._builder.evaluation()
        return graph, self._compile(graph.model)

    def _weights(self) -> dict[str, Array]:
        return {name: self._state[name] for name in self.source.gradients}

    def _compile(self, model: Model) -> GraphState:
        data = _StartData(model.data or {}, frozenset(_zeros(model, self.source)), model, self._real)
        found = cast(GraphState, make_executable(replace(model, data=data), self._backend, self._options))
        found.draws = False
        return found


def _zeros(model: Model, source: TrainableGraph) -> Iterator[str]:
    """The variables that begin with zeros: slots, and collected gradients."""
    own = {item.name for item in source.model.graph.variables}
    return (item.name for item in model.graph.variables if item.name not in own)


@dataclass(frozen=True, slots=True)
class _StartData(Mapping[str, Array]):
    """The numbers that variables begin with: those of the model, zeros for slots, each made when it is asked for."""

    data: Mapping[str, Array]
    zeros: frozenset[str]
    model: Model
    real: np.dtype[np.generic]

    def __getitem__(self, name: str) -> Array:
        if name not in self.zeros:
            return self.data[name]
        tensor = next(item for item in self.model.graph.variables if item.name == name)
        shape = tuple(item for item in tensor.shape if isinstance(item, int))
        return np.zeros(shape, np.int8 if tensor.element.is_integer else self.real)

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
