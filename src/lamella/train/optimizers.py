"""Optimisers: the operators that change parameters, their slots, and what a step has to tell them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.dtype import I8, ElementType
from lamella.base.errors import InputError
from lamella.base.suggest import list_known
from lamella.graph.build import Builder
from lamella.graph.nodes import Shape, Tensor
from lamella.train.settings import StepSettings
from lamella.train.sources import ParameterPolicy

RATE, UNBIAS_MEAN, UNBIAS_ROOT = "rate", "unbias_mean", "unbias_root"
"""Scalars that a step is given beside its batch."""
BLOCK = 256
"""The elements that share one scale where slots are codes; `optim.adamw_8bit` has the same number."""


@dataclass(frozen=True, slots=True)
class TrainedParameter:
    """A parameter as an optimiser sees it."""

    tensor: Tensor
    policy: ParameterPolicy
    is_hidden: bool = True
    """Whether it is neither a table that indices pick rows of nor what makes the scores."""

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return math.prod(item for item in self.tensor.shape if isinstance(item, int))


@dataclass(frozen=True, slots=True)
class Slot:
    """What an optimiser remembers of one parameter, beginning with zeros."""

    name: str
    element: ElementType
    shape: Shape


@dataclass(frozen=True, slots=True)
class Updating:
    """One parameter at the end of a step: its gradient, its slots, and the scalars of the step."""

    builder: Builder
    settings: StepSettings
    parameter: TrainedParameter
    gradient: Tensor
    slots: Mapping[str, Tensor]
    scalars: Mapping[str, Tensor]

    @property
    def rate(self) -> Tensor:
        """The rate of the step."""
        return self.scalars[RATE]

    def call(
        self, operator: str, *inputs: Tensor, flat: bool = False, **attributes: float | bool
    ) -> tuple[Tensor, ...]:
        """The results of an operator on the parameter, its gradient and more; `flat` as one row of numbers."""
        tensor, policy = self.parameter.tensor, self.parameter.policy
        given = [tensor, self.gradient]
        if flat:
            given = [self._reshaped(item, (self.parameter.count,)) for item in given]
        found = self.builder.call_all(
            operator,
            *given,
            *inputs,
            types=None,
            results=(),
            rate_scale=policy.rate_scale,
            decay=self.settings.weight_decay * policy.decay_scale,
            **attributes,
        )
        results = [item for item in found if isinstance(item, Tensor)]
        if flat:
            results[0] = self._reshaped(results[0], tensor.shape)
        return tuple(results)

    def _reshaped(self, tensor: Tensor, shape: Shape) -> Tensor:
        return tensor if tensor.shape == shape else self.builder.call("layout.reshape", tensor, shape=shape)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A rule that changes parameters by their gradients."""

    name: str
    title: str
    slots: Callable[[TrainedParameter, StepSettings], tuple[Slot, ...]]
    """What it remembers of a parameter."""
    update: Callable[[Updating], tuple[Tensor, ...]]
    """The next value of a parameter, then those of its slots."""
    scalars: Callable[[StepSettings, int], Mapping[str, float]]
    """What depends on the number of the step, from 1; the rate comes from the caller."""


def _alike(*names: str) -> Callable[[TrainedParameter, StepSettings], tuple[Slot, ...]]:
    """Slots of the type and the shape of their parameter."""

    def find(parameter: TrainedParameter, settings: StepSettings) -> tuple[Slot, ...]:
        tensor = parameter.tensor
        return tuple(Slot(name, tensor.element, tensor.shape) for name in names)

    return find


def _no_scalars(settings: StepSettings, step: int) -> Mapping[str, float]:
    return {}


def _unbias(settings: StepSettings, step: int) -> Mapping[str, float]:
    first, second = settings.betas
    return {UNBIAS_MEAN: 1.0 - first**step, UNBIAS_ROOT: math.sqrt(1.0 - second**step)}


# --- the rules ----------------------------------------------------------------------------------------------


def _sgd_slots(parameter: TrainedParameter, settings: StepSettings) -> tuple[Slot, ...]:
    return _alike("velocity")(parameter, settings) if settings.momentum else ()


def _sgd(given: Updating) -> tuple[Tensor, ...]:
    settings = given.settings
    if not settings.momentum:
        return given.call("optim.sgd_plain", given.rate)
    return given.call(
        "optim.sgd",
        given.slots["velocity"],
        given.rate,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
    )


ADAM_SLOTS = _alike("mean", "square")


def _adamw(given: Updating) -> tuple[Tensor, ...]:
    settings, slots, scalars = given.settings, given.slots, given.scalars
    return given.call(
        "optim.adamw",
        *slots.values(),
        given.rate,
        scalars[UNBIAS_MEAN],
        scalars[UNBIAS_ROOT],
        beta1=settings.betas[0],
        beta2=settings.betas[1],
        epsilon=settings.eps,
    )


def _code_slots(parameter: TrainedParameter, settings: StepSettings) -> tuple[Slot, ...]:
    codes, blocks = (parameter.count,), (-(-parameter.count // BLOCK),)
    real = parameter.tensor.element
    return (
        Slot("mean", I8, codes),
        Slot("square", I8, codes),
        Slot("mean_scale", real, blocks),
        Slot("square_scale", real, blocks),
    )


def _adamw_8bit(given: Updating) -> tuple[Tensor, ...]:
    settings, scalars = given.settings, given.scalars
    return given.call(
        "optim.adamw_8bit",
        *given.slots.values(),
        given.rate,
        scalars[UNBIAS_MEAN],
        scalars[UNBIAS_ROOT],
        flat=True,
        beta1=settings.betas[0],
        beta2=settings.betas[1],
        epsilon=settings.eps,
    )


def _lion(given: Updating) -> tuple[Tensor, ...]:
    first, second = given.settings.betas
    return given.call("optim.lion", given.slots["mean"], given.rate, beta1=first, beta2=second)


def _is_matrix(parameter: TrainedParameter) -> bool:
    """Whether Muon changes a parameter: a matrix between layers, or one matrix for each expert."""
    return parameter.is_hidden and len(parameter.tensor.shape) in (2, 3)


def _muon_slots(parameter: TrainedParameter, settings: StepSettings) -> tuple[Slot, ...]:
    return (_alike("velocity") if _is_matrix(parameter) else ADAM_SLOTS)(parameter, settings)


def _muon(given: Updating) -> tuple[Tensor, ...]:
    if not _is_matrix(given.parameter):
        return _adamw(given)
    momentum = given.settings.momentum or MUON_MOMENTUM
    return given.call("optim.muon", given.slots["velocity"], given.rate, momentum=momentum, nesterov=True)


MUON_MOMENTUM = 0.95
OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        item.name: item
        for item in (
            Optimizer("adamw", "Adam with decoupled weight decay", ADAM_SLOTS, _adamw, _unbias),
            Optimizer("sgd", "gradient descent, with momentum on request", _sgd_slots, _sgd, _no_scalars),
            Optimizer("lion", "steps along signs", _alike("mean"), _lion, _no_scalars),
            Optimizer(
                "muon", "orthogonal steps for matrices, AdamW for the rest", _muon_slots, _muon, _unbias
            ),
            Optimizer("adamw8bit", "AdamW with slots of 8 bits", _code_slots, _adamw_8bit, _unbias),
        )
    }
)
"""All optimisers by name."""


def find_optimizer(name: str) -> Optimizer:
    """The optimiser of that name; InputError where there is none."""
    found = OPTIMIZERS.get(name)
    if found is None:
        raise InputError(f"there is no optimiser '{name[:40]}'", hint=list_known(name, OPTIMIZERS))
    return found
