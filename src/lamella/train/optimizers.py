"""Optimisers: the operators that change parameters, their slots, and what a step has to tell them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.dtype import ElementType
from lamella.base.errors import InputError
from lamella.graph.build import Builder
from lamella.graph.nodes import Shape, Tensor
from lamella.train.settings import StepSettings
from lamella.train.sources import ParameterPolicy

RATE, UNBIAS_MEAN, UNBIAS_ROOT = "rate", "unbias_mean", "unbias_root"
"""Scalars that a step is given beside its batch."""


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
    policy: ParameterPolicy
    parameter: Tensor
    gradient: Tensor
    slots: Mapping[str, Tensor]
    scalars: Mapping[str, Tensor]

    @property
    def decay(self) -> float:
        """The weight decay of this parameter."""
        return self.settings.weight_decay * self.policy.decay_scale


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A rule that changes parameters by their gradients."""

    name: str
    slots: Callable[[Tensor, StepSettings], tuple[Slot, ...]]
    """What it remembers of a parameter."""
    update: Callable[[Updating], tuple[Tensor, ...]]
    """The next value of a parameter, then those of its slots."""
    scalars: Callable[[StepSettings, int], Mapping[str, float]]
    """What depends on the number of the step, from 1; the rate comes from the caller."""


def _alike(*names: str) -> Callable[[Tensor, StepSettings], tuple[Slot, ...]]:
    """Slots of the type and the shape of their parameter."""
    return lambda tensor, settings: tuple(Slot(name, tensor.element, tensor.shape) for name in names)


def _call(given: Updating, operator: str, *inputs: Tensor, **attributes: float | bool) -> tuple[Tensor, ...]:
    """The results of an operator, named after the parameter."""
    builder = given.builder
    found = builder.call_all(
        operator,
        given.parameter,
        given.gradient,
        *inputs,
        types=None,
        results=(),
        rate_scale=given.policy.rate_scale,
        decay=given.decay,
        **attributes,
    )
    return tuple(item for item in found if isinstance(item, Tensor))


def _no_scalars(settings: StepSettings, step: int) -> Mapping[str, float]:
    return {}


def _sgd_slots(tensor: Tensor, settings: StepSettings) -> tuple[Slot, ...]:
    return _alike("velocity")(tensor, settings) if settings.momentum else ()


def _sgd(given: Updating) -> tuple[Tensor, ...]:
    rate, settings = given.scalars[RATE], given.settings
    if not settings.momentum:
        return _call(given, "optim.sgd_plain", rate)
    velocity = given.slots["velocity"]
    return _call(given, "optim.sgd", velocity, rate, momentum=settings.momentum, nesterov=settings.nesterov)


def _adamw(given: Updating) -> tuple[Tensor, ...]:
    scalars, settings = given.scalars, given.settings
    return _call(
        given,
        "optim.adamw",
        given.slots["mean"],
        given.slots["square"],
        scalars[RATE],
        scalars[UNBIAS_MEAN],
        scalars[UNBIAS_ROOT],
        beta1=settings.betas[0],
        beta2=settings.betas[1],
        epsilon=settings.eps,
    )


def _unbias(settings: StepSettings, step: int) -> Mapping[str, float]:
    first, second = settings.betas
    return {UNBIAS_MEAN: 1.0 - first**step, UNBIAS_ROOT: math.sqrt(1.0 - second**step)}


OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        item.name: item
        for item in (
            Optimizer("adamw", _alike("mean", "square"), _adamw, _unbias),
            Optimizer("sgd", _sgd_slots, _sgd, _no_scalars),
        )
    }
)
"""All optimisers by name."""


def find_optimizer(name: str) -> Optimizer:
    """The optimiser of that name; InputError where there is none."""
    found = OPTIMIZERS.get(name)
    if found is None:
        raise InputError(f"there is no optimiser '{name[:40]}'", hint=f"there are: {', '.join(OPTIMIZERS)}")
    return found
