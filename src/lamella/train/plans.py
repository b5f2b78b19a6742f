"""Plans that train: the models of NAC applications with steps of training, for plans that are allowed to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lamella.backend.mep.state import PlanTraining
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.bridge.nac_to_graph.convert_weights import with_internal
from lamella.bridge.nac_to_graph.weights import read_weight
from lamella.graph.data.safetensors import encode_safetensors
from lamella.pipeline.nac.graphs import weights_of
from lamella.pipeline.nac.model import Model
from lamella.pipeline.nac.plans import FileHost, LoadedModel
from lamella.pipeline.nac.running import compile_file
from lamella.train.gradients import trainable_file
from lamella.train.settings import StepSettings
from lamella.train.sources import TrainableGraph
from lamella.train.trainer import Trainer

LOSSES = ("cross_entropy", "squared_error")
"""By the numbers that instructions name them by."""


@dataclass(slots=True)
class TrainingHost(FileHost):
    """The outside of a plan whose models can be trained."""

    def load_model(self, path: str, /) -> TrainedModel:
        """A model by its path below the folder that was allowed."""
        return TrainedModel(self._model(path), self.options)


@dataclass(slots=True)
class TrainedModel(LoadedModel):
    """A model as a plan trains it: by gradient descent, at the rate that each step brings."""

    _trainers: dict[tuple[int, tuple[str, ...]], Trainer] = field(default_factory=dict)
    _last: Trainer | None = None
    _is_stale: bool = False
    """Whether the file has other weights than what was trained last."""

    def __call__(self, *inputs: Array) -> Sequence[Array]:
        """Run once, with the weights as they are now."""
        if self._is_stale:
            self.run = compile_file(self._trained(), self.options)
            self._is_stale = False
        return LoadedModel.__call__(self, *inputs)

    def train_step(self, step: PlanTraining, /) -> float:
        """Take a step; gives the loss before it."""
        trainer = self._trainer(step.loss, tuple(step.only))
        given = [*step.inputs, *step.targets]
        if len(given) != len(trainer.inputs):
            names = ", ".join(trainer.inputs)
            reason = f"a step takes {len(trainer.inputs)} arrays ({names}), and {len(given)} are given"
            raise InputError(reason, hint="give a slot for each input of the model, then for each target")
        found = trainer.step(dict(zip(trainer.inputs, given, strict=True)), step.rate)
        self._last, self._is_stale = trainer, True
        return found.loss

    def zero_grad(self) -> None:
        """Nothing is left of gradients between two steps: each begins anew."""

    def weights(self) -> bytes:
        """All weights as they are now, as a file of safetensors."""
        stored = weights_of(self._trained(), replace(self.options, weights=None))
        arrays = {name: np.asarray(read_weight(item)) for name, item in stored.tensors.items()}
        return encode_safetensors(arrays, "weights")

    def _trained(self) -> Model:
        """The file with the weights that were trained last."""
        if self._last is None:
            return self.model
        stored = weights_of(self.model, self.options)
        whole, _ = with_internal(self.model.file, dict(stored.tensors))
        file, _ = with_internal(whole, dict(self._last.parameters))
        return replace(self.model, file=file)

    def _trainer(self, loss: int, only: tuple[str, ...]) -> Trainer:
        """What takes the steps of one kind; it begins with the weights that another one left."""
        key = loss, only
        if key not in self._trainers:
            settings = StepSettings(optimizer="sgd", weight_decay=0.0, loss=LOSSES[loss])
            source = _restricted(trainable_file(self._trained(), self.options), only)
            self._trainers[key] = Trainer(source, settings, None, self.options)
        elif self._trainers[key] is not self._last:
            raise InputError("a plan trains a model in one way", hint="load it a second time for another")
        return self._trainers[key]


def _restricted(source: TrainableGraph, only: Sequence[str]) -> TrainableGraph:
    """The graph in which only the parameters of these names are trained; all where none are named."""
    if not only:
        return source
    known = {source.policy(name).path: name for name in source.gradients}
    missing = [name for name in only if name not in known]
    if missing:
        raise InputError(
            f"the model has no parameter '{missing[0][:80]}' that could be trained",
            hint=f"there are: {', '.join(known)[:200]}",
        )
    return replace(source, gradients={known[name]: source.gradients[known[name]] for name in only})
