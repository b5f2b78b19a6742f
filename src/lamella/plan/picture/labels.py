"""The loops and regions that carry a @debug name or a @profile tag; tasks and buffers have tables of their own."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.lang.nem.resolved import Loop, Plan, Region, Task
from lamella.plan.picture.names import count, in_bytes, line_of, loop_name, name, region_name
from lamella.plan.picture.scene import Named

MOST_NAMED = 200


def find_named(plan: Plan) -> Iterator[Named]:
    """The first of them in the order of the text, each once."""
    for _, named in zip(range(MOST_NAMED), dict.fromkeys(_all(plan)), strict=False):
        yield named


def _all(plan: Plan) -> Iterator[Named]:
    yield from (_region(region, plan) for region in plan.declared if region.debug or region.profile)
    for item, _ in plan.walk():
        if isinstance(item, Loop) and (item.debug or item.profile):
            what = f"{item.variable}: {count(max(item.trips, 0))} iterations, {item.window} in flight"
            yield Named("loop", loop_name(item), line_of(item.span, plan), name(what))
        elif isinstance(item, Task):
            operands = (region for region in (*item.inputs, *item.outputs) if not region.name)
            yield from (_region(region, plan) for region in operands if region.debug or region.profile)


def _region(region: Region, plan: Plan) -> Named:
    what = f"{in_bytes(region.extent)} of {region.buffer.name}"
    return Named("region", region_name(region), line_of(region.span, plan), name(what))
