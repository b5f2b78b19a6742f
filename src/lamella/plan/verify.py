"""The verifier of plans: what must hold of a program beyond the rules of its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lamella.base.arena import aligned
from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.dim import TooComplex
from lamella.base.limits import DEFAULT, Limits, hint_for
from lamella.base.source import NOWHERE, Span
from lamella.lang.nem.codecs import BLOCK, whole_blocks
from lamella.lang.nem.device import ResolvedDevice, ResolvedTopology
from lamella.lang.nem.resolved import Buffer, Index, Item, Loop, Plan, Region, Resource, Task
from lamella.lang.nem.rules import (
    CAPACITY,
    CODEC_USE,
    DIVISION_BY_ZERO,
    LIMIT,
    LIVE_TOKENS,
    NEVER_WRITTEN,
    NOT_PROVED,
    OUT_OF_BOUNDS,
    PADDING,
    RESOURCE_INDEX,
    RESOURCE_REMAP,
)
from lamella.plan.diophantine import StepBudget
from lamella.plan.hazards import budget_of, check_hazards
from lamella.plan.hazards.accesses import Accesses
from lamella.plan.order import Order
from lamella.plan.ranges import Assignment, bounds, extremes

# --- buffers fit into the memories of the device ------------------------------------------------------------


def check_capacity(plan: Plan) -> Iterator[Diagnostic]:
    """The declared sizes of each memory fit; alignment that alone breaks the limit is a warning. DDR has no limit."""
    topology = plan.device.topology if plan.device else None
    if plan.device is None or topology is None:
        return
    levels: dict[str, list[Buffer]] = {}
    for buffer in plan.buffers:
        if buffer.memory == "L2" or (buffer.memory == "L1" and buffer.engine < topology.num_engines):
            levels.setdefault(buffer.level, []).append(buffer)
    for level, buffers in levels.items():
        available = _size(topology, buffers[0].memory)
        yield from _check_level(level, buffers, available, plan.device.name)


def _size(topology: ResolvedTopology, memory: str) -> int:
    return topology.l1_size_bytes if memory == "L1" else topology.l2_size_bytes


def _check_level(level: str, buffers: Sequence[Buffer], available: int, device: str) -> Iterator[Diagnostic]:
    needed = sum(buffer.size for buffer in buffers)
    if needed > available:
        yield CAPACITY.at(
            _first_beyond(buffers, available, padded=False).span,
            level=level,
            needed=needed,
            device=device,
            available=available,
            excess=needed - available,
            hint=f"the largest are {_largest(buffers)}",
        )
        return
    # A binder may place buffers in any order: only when the best simple one overflows too is it worth a word.
    orders = [buffers, sorted(buffers, key=lambda buffer: -buffer.align)]
    best = min(orders, key=_padded)
    if _padded(best) > available:
        span = _first_beyond(best, available, padded=True).span
        yield PADDING.at(span, level=level, needed=_padded(best), available=available)


def _largest(buffers: Sequence[Buffer]) -> str:
    first = sorted(buffers, key=lambda buffer: -buffer.size)[:3]
    return ", ".join(f"'{buffer.name}' with {buffer.size}" for buffer in first)


def _padded(buffers: Sequence[Buffer]) -> int:
    """The end of the last buffer when each starts at the next multiple of its alignment."""
    end = 0
    for buffer in buffers:
        end = aligned(end, buffer.align) + buffer.size
    return end


def _first_beyond(buffers: Sequence[Buffer], available: int, padded: bool) -> Buffer:
    """The buffer that does not fit behind those before it."""
    end = 0
    for buffer in buffers:
        end = (aligned(end, buffer.align) if padded else end) + buffer.size
        if end > available:
            return buffer
    return buffers[-1]


# --- regions stay inside their buffers and unit indices inside the device, in every iteration ---------------


Ends = tuple[tuple[int, Assignment], tuple[int, Assignment]]


def check_bounds(plan: Plan, suspects: Sequence[Region], budget: StepBudget) -> Iterator[Diagnostic]:
    """Regions do not leave their buffers: those the program names, and suspects among the operands."""
    loops = {item.number: item for item, _ in plan.walk() if isinstance(item, Loop)}
    seen: set[Span | int] = set()
    for region in (*suspects, *plan.declared):
        key = id(region) if region.span.source is NOWHERE.source else region.span
        if key not in seen:
            seen.add(key)
            yield from _check_region(region, loops, budget)


def _check_region(region: Region, loops: Mapping[int, Loop], budget: StepBudget) -> Iterator[Diagnostic]:
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


def check_resources(order: Order, device: ResolvedDevice | None, budget: StepBudget) -> Iterator[Diagnostic]:
    """Unit indices are not negative; those beyond the device are remapped, which is worth a warning."""
    for site in order.sites:
        if site.task.resource is not None:
            box = {loop.number: (loop.first, loop.last) for loop in site.loops}
            yield from _check_resource(site.task.resource, box, device, budget)


def _check_resource(
    resource: Resource, box: Mapping[int, tuple[int, int]], device: ResolvedDevice | None, budget: StepBudget
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
    index: Index, box: Mapping[int, tuple[int, int]], span: Span, what: str, budget: StepBudget
) -> tuple[Ends | None, list[Diagnostic]]:
    """Exact ends with where they are taken, or what stands in the way of knowing them."""
    try:
        return extremes(index, box, budget), []
    except ZeroDivisionError:
        return None, [DIVISION_BY_ZERO.at(span, text=span.text)]
    except TooComplex:
        low, high = bounds(index, box)
        cause = f"the values between {low} and {high} are too irregular to be described exactly"
        return None, [NOT_PROVED.at(span, hint=hint_for("max_pairs"), what=what, cause=cause)]


# --- how many tokens are live at once, against `SEQ.max_active_tokens` --------------------------------------


@dataclass(frozen=True, slots=True)
class TokenPeak:
    """The largest number of live tokens and the statement where it is reached."""

    count: int
    span: Span


def check_tokens(plan: Plan) -> Iterator[Diagnostic]:
    """The device can keep all tokens that may be live; the binder serialises otherwise."""
    if plan.device is None:
        return
    limit = plan.device.characteristic("SEQ", "max_active_tokens", -1)
    peak = count_tokens(plan)
    if 0 <= limit < peak.count:
        yield LIVE_TOKENS.at(peak.span, count=peak.count, device=plan.device.name, limit=limit)


def count_tokens(plan: Plan) -> TokenPeak:
    """The largest static count of live tokens of one engine: each sequencer counts those of its own tasks."""
    engines = {task.engine or 0 for task in plan.tasks()} or {0}
    return max((_count(plan.body, engine)[0] for engine in sorted(engines)), key=lambda peak: peak.count)


def _count(body: tuple[Item, ...], engine: int) -> tuple[TokenPeak, set[int]]:
    """The peak of a list on an engine, and the tasks that the list waits for."""
    made: dict[int, int] = {}
    last: dict[int, int] = {}
    inner: list[TokenPeak] = []
    waited: set[int] = set()
    for place, item in enumerate(body):
        deps: set[int] = set()
        peak = TokenPeak(0, item.span)
        if isinstance(item, Loop):
            inside, deps = _count(item.body, engine)
            factor = max(0, min(item.window, item.trips))
            peak = TokenPeak(factor * inside.count, inside.span)
        else:
            deps = set(item.deps)
            if isinstance(item, Task):
                if (item.engine or 0) == engine:
                    made[item.number] = place
                deps = deps | {item.number} if item.sync else deps
        inner.append(peak)
        waited |= deps
        last.update((dep, place) for dep in deps)
    return _highest(made, last, inner), waited - made.keys()


def _highest(made: dict[int, int], last: dict[int, int], inner: list[TokenPeak]) -> TokenPeak:
    changes = [0] * (len(inner) + 1)
    for number, place in made.items():
        if number in last:
            changes[place] += 1
            changes[last[number] + 1] -= 1
    best, live = TokenPeak(0, NOWHERE), 0
    for place, peak in enumerate(inner):
        live += changes[place]
        if live + peak.count > best.count:
            best = TokenPeak(live + peak.count, peak.span)
    return best


# --- reads of local memory that nothing ever fills ----------------------------------------------------------


def check_unwritten(plan: Plan) -> Iterator[Diagnostic]:
    """An L1 is filled by tasks alone: a buffer there that is read and never written holds nothing of meaning."""
    written = {region.buffer.name for task in plan.tasks() for region in task.outputs}
    reported: set[str] = set()
    for task in plan.tasks():
        for number, region in enumerate(task.inputs):
            buffer = region.buffer
            if buffer.memory != "L1" or buffer.imported or buffer.name in written or buffer.name in reported:
                continue
            reported.add(buffer.name)
            operands = task.node.inputs
            span = operands[number].span if number < len(operands) else task.span
            yield NEVER_WRITTEN.at(span, task=task.title, buffer=buffer.name)


# --- buffers that are stored by a codec ---------------------------------------------------------------------


def check_codecs(plan: Plan) -> Iterator[Diagnostic]:
    """What is stored by a codec is read by transfers of whole blocks, and by nothing else."""
    if not any(buffer.codec for buffer in plan.buffers):
        return
    for task in plan.tasks():
        for number, region in enumerate((*task.inputs, *task.outputs)):
            if not region.buffer.codec:
                continue
            name = region.buffer.name
            if task.opcode != "transfer" or number:
                problem = f"uses '{name}', which is stored by a codec; only a transfer reads it"
                yield CODEC_USE.at(task.span, task=task.title, problem=problem)
            elif not whole_blocks(region.offset, region.extent, region.buffer.size):
                problem = f"takes parts of the blocks of '{name}', which have {BLOCK} bytes"
                yield CODEC_USE.at(task.span, task=task.title, problem=problem)


# Sets of tasks are compared word by word: so many pairs of tasks cost about as much as one pair of accesses.
PAIRS_PER_STEP = 1 << 14


def verify(plan: Plan, limits: Limits = DEFAULT) -> list[Diagnostic]:
    """Capacity, live tokens, bounds, unit indices and hazards; only a plan that was read whole can be judged."""
    findings = [*check_capacity(plan), *check_tokens(plan), *check_unwritten(plan), *check_codecs(plan)]
    tasks = sum(1 for _ in plan.tasks())
    if tasks * tasks > limits.max_pairs * PAIRS_PER_STEP:
        span = next((task.span for task in plan.tasks()), NOWHERE)
        findings.append(
            LIMIT.at(span, what=f"comparing {tasks} tasks", limit=limits.max_pairs, option="max_pairs")
        )
        return sort_findings(findings)
    budget, order = budget_of(limits), Order(plan)
    accesses = Accesses(order, budget)
    findings += check_bounds(plan, accesses.suspects, budget)
    findings += check_resources(order, plan.device, budget)
    findings += check_hazards(plan, order, accesses, limits)
    return sort_findings(findings)
