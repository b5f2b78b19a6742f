"""Regions stay inside their buffers and unit indices inside the device, in every iteration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import hint_for
from lamella.base.source import NOWHERE, Span
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.resolved import Index, Loop, Plan, Region, Resource
from lamella.lang.nem.rules import (
    DIVISION_BY_ZERO,
    NOT_PROVED,
    OUT_OF_BOUNDS,
    RESOURCE_INDEX,
    RESOURCE_REMAP,
)
from lamella.plan.feasible import Budget, Exhausted
from lamella.plan.order import Order
from lamella.plan.ranges import Assignment, ZeroDivisor, bounds, extremes

Ends = tuple[tuple[int, Assignment], tuple[int, Assignment]]


def check_bounds(plan: Plan, suspects: Sequence[Region], budget: Budget) -> Iterator[Diagnostic]:
    """Regions do not leave their buffers: those the program names, and suspects among the operands."""
    loops = {item.number: item for item, _ in plan.walk() if isinstance(item, Loop)}
    seen: set[Span | int] = set()
    for region in (*suspects, *plan.declared):
        key = id(region) if region.span.source is NOWHERE.source else region.span
        if key not in seen:
            seen.add(key)
            yield from _check_region(region, loops, budget)


def _check_region(region: Region, loops: Mapping[int, Loop], budget: Budget) -> Iterator[Diagnostic]:
    numbers = sorted(region.offset.loops())
    if any(number not in loops or loops[number].trips <= 0 for number in numbers):
        return
    box = {number: (loops[number].first, loops[number].last) for number in numbers}
    what = f"that {_name(region)} stays inside '{region.buffer.name}'"
    ends, problems = _ends(region.offset, box, region.span, what, budget)
    yield from problems
    if ends is None:
        return
    (low, first), (high, last) = ends
    if low >= 0 and high + region.extent <= region.buffer.size:
        return
    offset, where = (high, last) if high + region.extent > region.buffer.size else (low, first)
    shown = ", ".join(f"{loops[number].variable}={where[number]}" for number in numbers if number in where)
    yield OUT_OF_BOUNDS.at(
        region.span,
        first=offset,
        end=offset + region.extent,
        buffer=region.buffer.name,
        size=region.buffer.size,
        iteration=f" in iteration {shown}" if shown else "",
    )


def _name(region: Region) -> str:
    return f"region '{region.name}'" if region.name else "the region"


def check_resources(order: Order, device: ResolvedDevice | None, budget: Budget) -> Iterator[Diagnostic]:
    """Unit indices are not negative; those beyond the device are remapped, which is worth a warning."""
    for site in order.sites:
        if site.task.resource is not None:
            box = {loop.number: (loop.first, loop.last) for loop in site.loops}
            yield from _check_resource(site.task.resource, box, device, budget)


def _check_resource(
    resource: Resource, box: Mapping[int, tuple[int, int]], device: ResolvedDevice | None, budget: Budget
) -> Iterator[Diagnostic]:
    what = f"that the index of {resource.unit} is a unit of the device"
    ends, problems = _ends(resource.index, box, resource.span, what, budget)
    yield from problems
    if ends is None:
        return
    low, high = ends[0][0], ends[1][0]
    count = 0 if device is None else device.units(resource.unit)
    if low < 0:
        yield RESOURCE_INDEX.at(resource.span, index=low, unit=resource.unit)
    elif device is not None and 0 < count <= high:
        yield RESOURCE_REMAP.at(
            resource.span, unit=resource.unit, index=high, device=device.name, count=count
        )


def _ends(
    index: Index, box: Mapping[int, tuple[int, int]], span: Span, what: str, budget: Budget
) -> tuple[Ends | None, list[Diagnostic]]:
    """Exact ends with where they are taken, or what stands in the way of knowing them."""
    try:
        return extremes(index, box, budget), []
    except ZeroDivisor:
        return None, [DIVISION_BY_ZERO.at(span, text=span.text)]
    except Exhausted:
        low, high = bounds(index, box)
        cause = f"the values between {low} and {high} are too irregular to be told exactly"
        return None, [NOT_PROVED.at(span, hint=hint_for("max_pairs"), what=what, cause=cause)]
