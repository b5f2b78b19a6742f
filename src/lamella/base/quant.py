"""How quantised integers stand for real numbers: real = scale * (integer - zero point)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from lamella.base.dtype import ElementType
from lamella.base.limits import ceil_divide
from lamella.base.records import dataclass


@dataclass(frozen=True, slots=True)
class PerTensor:
    """One scale and zero point for the whole tensor."""

    scale: float
    zero_point: int = 0


@dataclass(frozen=True, slots=True)
class PerChannel:
    """One scale and zero point for each index along an axis."""

    axis: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PerGroup:
    """One scale and zero point for each run of neighbours along an axis; the last run may be short."""

    axis: int
    group_size: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]


Quant = PerTensor | PerChannel | PerGroup


def scales_of(quant: Quant) -> tuple[float, ...]:
    """All scales, in order."""
    return (quant.scale,) if isinstance(quant, PerTensor) else quant.scales


def zero_points_of(quant: Quant) -> tuple[int, ...]:
    """All zero points, in order."""
    return (quant.zero_point,) if isinstance(quant, PerTensor) else quant.zero_points


def axis_of(quant: PerChannel | PerGroup, rank: int) -> int | None:
    """The axis counted from the front (negative ones count from the back), or None where there is none."""
    axis = quant.axis + rank if quant.axis < 0 else quant.axis
    return axis if 0 <= axis < rank else None


def expected_count(quant: Quant, shape: Sequence[int]) -> int | None:
    """How many scales a shape asks for, or None where axis or group size make no sense for it."""
    if isinstance(quant, PerTensor):
        return 1
    axis = axis_of(quant, len(shape))
    if axis is None:
        return None
    if isinstance(quant, PerChannel):
        return shape[axis]
    return ceil_divide(shape[axis], quant.group_size) if quant.group_size > 0 else None


def quant_problems(quant: Quant, shape: Sequence[int], element: ElementType) -> Iterator[str]:
    """Sentences that say why a descriptor does not fit a tensor; none where it does."""
    if not element.is_integer:
        yield f"element type {element.name} is not an integer type; only integers are quantised"
        return
    yield from _count_problems(quant, shape)
    yield from _scale_problems(quant)
    for index, value in enumerate(zero_points_of(quant)):
        if not element.minimum <= value <= element.maximum:
            yield (
                f"zero point {value} (number {index}) is outside {element.name}"
                f" ({element.minimum} .. {element.maximum})"
            )
            return


def _count_problems(quant: Quant, shape: Sequence[int]) -> Iterator[str]:
    if isinstance(quant, PerGroup) and quant.group_size <= 0:
        yield f"group size {quant.group_size} is not positive"
    elif not isinstance(quant, PerTensor) and axis_of(quant, len(shape)) is None:
        yield f"axis {quant.axis} does not exist in a tensor of rank {len(shape)}"
    expected = expected_count(quant, shape)
    for what, values in (("scales", scales_of(quant)), ("zero points", zero_points_of(quant))):
        if expected is not None and len(values) != expected:
            yield f"{len(values)} {what} are given; the shape {list(shape)} needs {expected}"


def _scale_problems(quant: Quant) -> Iterator[str]:
    """The first scale that is not a positive finite number."""
    for index, scale in enumerate(scales_of(quant)):
        if not (math.isfinite(scale) and scale > 0):
            yield f"scale {scale} (number {index}) is not a positive finite number"
            return
