"""Mixed precision of a step: master weights of narrow parameters, and the scale of a loss whose gradients are fp16."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from lamella.base.dtype import F16, F32, ElementType
from lamella.graph.build import Builder
from lamella.graph.nodes import Node, Tensor
from lamella.graph.rewrite import results_of

WIDE = 32
"""Bits of the narrowest type in which losses are computed and parameters are changed."""
MASTER = "master"
"""The slot of a narrow parameter that holds it in a wide type: steps smaller than its rounding add up there."""
SCALE, CALM = "loss_scale", "loss_scale_calm"
UNFINITE = "unfinite"
"""The output of a step that counts gradients that are no numbers: where there are some nothing changes."""
FIRST_SCALE = 65536.0
STARTS: Mapping[str, float] = MappingProxyType({SCALE: FIRST_SCALE})
"""What variables begin with that do not begin with zeros."""

SumAll = Callable[[Builder, Mapping[str, Tensor]], Tensor]
"""The sum of one number for each parameter, over all ranks that have some of them."""


def wide(element: ElementType) -> ElementType:
    """The type in which numbers of a type are summed up."""
    return element if element.bits >= WIDE else F32


def widened(builder: Builder, tensor: Tensor) -> Tensor:
    """A tensor in the type in which its numbers are summed up."""
    return cast(builder, tensor, wide(tensor.element))


def cast(builder: Builder, tensor: Tensor, element: ElementType, *results: str) -> Tensor:
    """A tensor in a type, under a name where one is given; itself where it has the type already."""
    if tensor.element is element and not results:
        return tensor
    return builder.call("optim.cast", tensor, types={"R": element}, results=results)


def has_narrow_range(backward: Iterable[Node]) -> bool:
    """Whether gradients are held in a type in which small ones vanish: fp16."""
    made = (item for node in backward for item in results_of(node))
    return any(isinstance(item, Tensor) and item.element is F16 for item in made)


class LossScale:
    """The number that a loss is multiplied with before gradients are made of it, and what it does to a step.

    Where a gradient is not finite nothing changes but the scale, which is halved; it is doubled when no gradient was
    wrong for many steps.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self.scale, self._calm = (builder.variable(name, F32, ()) for name in (SCALE, CALM))
        self.unfinite: Tensor | None = None

    def unscaled(self, gradients: Mapping[str, Tensor], sum_all: SumAll) -> dict[str, Tensor]:
        """The gradients of the loss itself; counts those that are not finite, and finds the next scale."""
        builder = self._builder
        if gradients:
            counts = {name: builder.call("optim.count_unfinite", item) for name, item in gradients.items()}
            self.unfinite = sum_all(builder, counts)
            found = builder.call_all("optim.next_loss_scale", self.scale, self._calm, self.unfinite)
            for variable, value in zip((self.scale, self._calm), found, strict=True):
                if isinstance(value, Tensor):
                    builder.update(variable, value)
        return {name: builder.call("optim.unscale", item, self.scale) for name, item in gradients.items()}

    def guarded(self, variable: Tensor, value: Tensor) -> Tensor:
        """The next value of a variable: the one before where a gradient was not finite."""
        if self.unfinite is None:
            return value
        return self._builder.call("optim.unless", variable, value, self.unfinite)
