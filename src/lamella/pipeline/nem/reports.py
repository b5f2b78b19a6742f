"""What a plan does with a model and what it takes: how each operation is computed, and whether it fits a device."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from lamella.base.diagnostic import LamellaError, printable
from lamella.base.errors import InputError
from lamella.base.liveness import live_ranges
from lamella.bridge.graph_to_plan.rules import NOT_TILED
from lamella.graph.model import Model
from lamella.lang.nem.device import ResolvedTopology
from lamella.lang.nem.resolved import Buffer, Plan
from lamella.pipeline.nem.lowering import SELECT, LoweredPlan, from_graph
from lamella.pipeline.nem.program import plan_of
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.execution import require_extents, with_numbers


def explain_selection(model: Model, options: Options) -> list[str]:
    """How each operation of a graph is computed on the device, why, and what it takes: a line for each."""
    found = from_graph(_whole(model, options), Path(), replace(options, after=SELECT))
    rows = [
        (
            item.operation,
            item.operator,
            " ".join(item.opcodes) or item.how,
            f"{item.work:,}" if item.work else "",
            item.reason,
        )
        for item in found.selection.report
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in rows
    ]
    return [*lines, *found.lines]


def _whole(model: Model, options: Options) -> Model:
    """The model with its extents known and numbers for all its variables."""
    require_extents(model, "nem")
    return with_numbers(model, options, all_or_none=False)


# --- whether it fits -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """One memory: the bytes that the plan needs of it, those that there are (None: no limit), and the largest user."""

    level: str
    needed: int
    available: int | None
    reason: str

    @property
    def short(self) -> int:
        """Bytes that are missing."""
        return 0 if self.available is None else max(self.needed - self.available, 0)

    def line(self) -> str:
        """The same for people."""
        has = "no limit" if self.available is None else f"{self.available:,}"
        lacks = f"  {self.short:,} too many" if self.short else ""
        return f"{self.level:6} {self.needed:>14,} of {has:>14}{lacks}  {printable(self.reason)}"


@dataclass(frozen=True, slots=True)
class FitReport:
    """The needs of all memories; `problem` says why there is no plan."""

    device: str
    memories: tuple[MemoryNeed, ...]
    problem: str = ""

    @property
    def fits(self) -> bool:
        """Whether there is a plan."""
        return not self.problem

    def to_json(self) -> dict[str, object]:
        """The same as data."""
        rows = [
            {
                "level": item.level,
                "needed": item.needed,
                "available": item.available,
                "short": item.short,
                "reason": item.reason,
            }
            for item in self.memories
        ]
        return {"fits": self.fits, "device": self.device, "memories": rows, "problem": self.problem}


def fit(model: Model, options: Options) -> FitReport:
    """What a model needs of the memories of the device that the options name."""
    if options.device is None:
        raise InputError("--fit needs a device", hint="choose one with --device, such as npm_lite")
    model = _whole(model, options)
    chosen = from_graph(model, Path(), replace(options, after=SELECT))
    plan = plan_of(chosen.final.program)
    device = plan.device
    if device is None or device.topology is None:
        raise InputError(f"'{options.device[:80]}' is no device that can be a target")
    try:
        found = from_graph(model, Path(), replace(options, after=None))
    except LamellaError as problem:
        reasons = [item.message for item in problem.findings if item.code == NOT_TILED.code]
        if not reasons:
            raise
        return FitReport(device.name, tuple(_short(plan, device.topology, reasons[0])), reasons[0])
    return FitReport(device.name, tuple(_needs(found, plan, device.topology)))


def _needs(found: LoweredPlan, selected: Plan, topology: ResolvedTopology) -> Iterator[MemoryNeed]:
    """The needs of a plan that exists."""
    totals: Counter[str] = Counter()
    buffers = plan_of(found.final.program).buffers
    for buffer in buffers:
        totals[buffer.level] += buffer.size
    far = {item.name for item in buffers if item.level == "DDR"}
    there = [item for item in selected.buffers if item.imported or item.name in far]
    yield MemoryNeed("DDR", totals["DDR"], None, _largest(there))
    yield MemoryNeed("L2", totals["L2"], topology.l2_size_bytes, _crowded(selected))
    stages = () if found.tiled is None else found.tiled.stages
    tiles = max(stages, key=lambda item: item.l1_bytes, default=None)
    layer = "" if tiles is None else f"{_layer(selected, tiles.name)} takes {tiles.l1_bytes:,}"
    # Stages that follow each other lie at both ends of L1: the weights of one come while the other computes.
    declared = max((totals[name] for name in totals if "L1" in name), default=0)
    sizes = [0, *(item.l1_bytes for item in stages)]
    together = max((sum(pair) for pair in pairwise(sizes)), default=0)
    yield MemoryNeed("L1", min(declared, together), topology.l1_size_bytes, layer)


def _short(selected: Plan, topology: ResolvedTopology, problem: str) -> Iterator[MemoryNeed]:
    """The needs of a plan that there is not: what the smallest tile of a layer takes is in the sentence."""
    yield MemoryNeed("DDR", sum(item.size for item in selected.buffers), None, _largest(selected.buffers))
    told = TOLD.search(problem)
    if told is not None:
        level, layer = told["level"], _layer(selected, told["layer"] or "")
        size = topology.l1_size_bytes if level == "L1" else topology.l2_size_bytes
        reason = f"the smallest tile of {layer}" if level == "L1" else _crowded(selected)
        yield MemoryNeed(level, int(told["bytes"]), size, reason)


TOLD = re.compile(r"(?:(?P<layer>\w+) |the plan )needs (?P<bytes>\d+) bytes of (?P<level>L[12])")
"""How tiling says what does not fit."""


def _largest(buffers: Iterable[Buffer]) -> str:
    found = max(buffers, key=lambda item: item.size)
    return f"the largest is {found.name} with {found.size:,}"


def _crowded(plan: Plan) -> str:
    """Where most bytes of activations are alive at once, and which of them is the largest."""
    sizes = {item.name: item.size for item in plan.buffers if not item.imported}
    tasks = list(plan.tasks())
    steps = [
        ({item.buffer.name for item in task.inputs}, {item.buffer.name for item in task.outputs})
        for task in tasks
    ]
    ranges = {name: item for name, item in live_ranges(steps, ()).items() if name in sizes}
    alive = [
        sum(sizes[name] for name, item in ranges.items() if item.first <= step <= item.last)
        for step in range(len(steps))
    ]
    step = max(range(len(steps)), key=lambda number: alive[number])
    here = [name for name, item in ranges.items() if item.first <= step <= item.last]
    largest = max(here, key=lambda name: sizes[name], default="")
    return f"most is alive at {_layer(plan, tasks[step].token)}: {largest} with {sizes.get(largest, 0):,}"


def _layer(plan: Plan, token: str) -> str:
    """A task as the model calls it: the comment above it, or above the first task of its operation."""
    note = token
    for task in plan.tasks():
        note = task.node.notes.above[0].removeprefix("# ") if task.node.notes.above else note
        if token in (task.token, f"{task.opcode}{task.number}"):
            return note
    return token
