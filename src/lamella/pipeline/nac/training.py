"""Steps of training from NAC files: each call computes the gradients, changes the parameters and keeps them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

import numpy.typing as npt

from lamella.backend.drawing import Drawn
from lamella.backend.watch import Watch
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.placement import OperationPlacement, placement_of
from lamella.bridge.nac_to_graph import InputType, Translation
from lamella.bridge.nac_to_graph.training import Step, has_training, no_training, step_of, translate_step
from lamella.bridge.nac_to_graph.weights import Weights, with_external, with_internal
from lamella.lang.nac import plan_memory
from lamella.lang.nac.nodes import File
from lamella.pipeline.languages import ENDINGS, Executable, execution_of, part_of
from lamella.pipeline.nac.execution import GRAPHS, MACHINE, save
from lamella.pipeline.nac.model import Model
from lamella.pipeline.nac.running import compile_file
from lamella.pipeline.nac.translating import weights_of
from lamella.pipeline.nac.types import read_types
from lamella.pipeline.options import Options

STORE = ".safetensors"


class Keeping(Executable, Protocol):
    """An executable that keeps states from call to call."""

    @property
    def state(self) -> Mapping[str, Array]:
        """What is kept, by name."""

    def reset(self) -> None:
        """Give the states the values that they started with."""


def compile_training(model: Model, backend: str | None, options: Options) -> Training:
    """Make the training graph of a file callable; LamellaError tells what is wrong with it."""
    if options.lr is not None and not math.isfinite(options.lr):
        raise InputError(f"the learning rate is {options.lr}", hint="give a finite number")
    if not has_training(model.file):
        raise no_training()
    weights = weights_of(model, options)
    return Training(model, step_of(model.file, weights, options.lr), weights, backend, options)


class Training:
    """A step of training: call it with inputs and targets by name, get the loss and the outputs before the step.

    `state` are the parameters that are trained, as they are now.
    """

    def __init__(
        self, model: Model, step: Step, weights: Weights, backend: str | None, options: Options
    ) -> None:
        self._model, self._step, self._weights, self._options = model, step, weights, options
        self._variables = {item.name: item.name for item in step.trained}
        """By the names of parameters those of their variables."""
        on_machine = backend in (None, MACHINE) and options.dtype != "f64"
        self._run = self._on_machine() if on_machine else self._on_graph(backend)

    def _on_machine(self) -> Keeping:
        file = replace(self._step.file, schedule=plan_memory(self._step.file))
        return compile_file(replace(self._model, file=file), self._options, self._translate)

    def _on_graph(self, backend: str | None) -> Keeping:
        known = read_types(self._options.types, self._step.file)
        found = self._translate(self._step.file, self._weights, known, self._options.limits)
        graph = part_of(GRAPHS, "shaping").with_extents(found.model, self._options)
        return cast(Keeping, execution_of(GRAPHS).compile(graph, backend, self._options))

    def _translate(
        self, file: File, weights: Weights, inputs: Mapping[str, InputType], limits: Limits
    ) -> Translation:
        found = translate_step(replace(self._step, file=file), weights, inputs, limits)
        self._variables |= {state.name: variable.name for state, variable in found.states}
        return found

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, those of targets among them."""
        return self._run.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self._run.outputs

    @property
    def targets(self) -> tuple[str, ...]:
        """The inputs that are targets, by their numbers."""
        return self._step.targets

    @property
    def loss(self) -> str:
        """The output that is the loss; empty where the training graph gives none."""
        return self._step.loss

    @property
    def findings(self) -> list[Diagnostic]:
        """What the last call found."""
        return self._run.findings

    @findings.setter
    def findings(self, value: list[Diagnostic]) -> None:
        self._run.findings = value

    @property
    def placement(self) -> list[OperationPlacement]:
        """Where each operation ran in the last step, on a backend that runs kernels."""
        return placement_of(self._run)

    @property
    def watch(self) -> Watch:
        """Wraps the steps of a call, for a progress bar."""
        return self._run.watch

    @watch.setter
    def watch(self, value: Watch) -> None:
        self._run.watch = value

    @property
    def draws(self) -> bool:
        """Whether inputs that a call does not give are random; where not, they are missing."""
        return self._run.draws

    @draws.setter
    def draws(self, value: bool) -> None:
        self._run.draws = value

    @property
    def drawn(self) -> Drawn:
        """What the last call drew."""
        return self._run.drawn

    @property
    def state(self) -> Mapping[str, Array]:
        """The parameters that are trained, by name, as they are now; nothing before a call that tells the inputs."""
        held = self._run.state
        pairs = ((item.name, self._variables[item.name]) for item in self._step.trained)
        return {name: held[variable] for name, variable in pairs if variable in held}

    def reset(self) -> None:
        """Give the parameters the values that they started with."""
        self._run.reset()

    def __call__(self, /, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Do one step; one that fails changes nothing."""
        return self._run(**inputs)

    def save(self, path: str | Path) -> None:
        """Write all weights as they are now (.safetensors), or a copy of the file with them (.nac, .nacs).

        They are stored as they were: in their element types, quantised where they were quantised.
        """
        path = Path(path)
        ending = path.suffix.lower()
        if ending != STORE and ENDINGS.get(ending) != "nac":
            hint = f"weights are written as {STORE}, files as .nac or .nacs"
            raise InputError(f"'{path.name}' is no ending for trained weights", hint=hint)
        whole, _ = with_internal(self._model.file, dict(self._weights.tensors))
        file, _ = with_internal(whole, dict(self.state))
        if ending == STORE:
            with_external(file, path)
        else:
            save(replace(self._model, file=file), path, self._options)
