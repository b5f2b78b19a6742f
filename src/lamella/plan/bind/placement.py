"""Placement: the engine and the unit of every task instance.

A task stays on the engine of its L1 operands or of `@seq_engine`; any other goes to the engine with the least work. A
`@resource` is taken as written, modulo the number of instances where there are fewer (a warning); a unit type that the
device lacks is replaced by VPU, or the program is refused. What is left open goes to the instance with the least work.
Work is the simulator's cycles; equal work goes to the lower number, so the same program is always bound alike. Where
token bits are short, `narrow` leaves one instance of each type, as every queue in use needs a bit of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.source import Span
from lamella.lang.nem.check.kernels import COMPUTE
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.registry import opcode
from lamella.lang.nem.resolved import Index, Plan, Region, Task
from lamella.lang.nem.rules import (
    DIVISION_BY_ZERO,
    ENGINE_CONFLICT,
    ENGINE_RANGE,
    FUTURE_REFUSED,
    NO_UNIT,
    NOT_DETERMINISTIC,
    OUT_OF_BOUNDS,
    RESOURCE_REMAP,
    UNSUPPORTED,
)
from lamella.lang.nem.words import MOVES
from lamella.plan.expand import TaskInstance
from lamella.plan.stcb.nodes import StreamUnit
from lamella.plan.timing.cost import Cost, MachineModel, cost_of

# --- places and unit indices in an iteration, where a checked plan has them; anything else is an ------------


def offset_of(region: Region, iteration: Mapping[int, int]) -> int:
    """Where a region begins in its buffer."""
    offset = value_of(region.offset, region.span, iteration)
    buffer, end = region.buffer, offset + region.extent
    if offset < 0 or end > buffer.size:
        place = {"first": offset, "end": end, "buffer": buffer.name, "size": buffer.size, "iteration": ""}
        raise LamellaError([OUT_OF_BOUNDS.at(region.span, hint=None, labels=(), **place)])
    return offset


def value_of(index: Index, span: Span, iteration: Mapping[int, int]) -> int:
    """An expression in loop variables."""
    try:
        return index.at(iteration)
    except ZeroDivisionError:
        raise LamellaError([DIVISION_BY_ZERO.at(span, text=span.text)]) from None


_SHARED = "sDMA"
MOST_CHOICES = 64
"""Instances of a type among which a free task chooses; no program keeps more of them busy."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a task instance runs."""

    engine: int
    unit: StreamUnit


class Placement:
    """Gives seats one after another and remembers how much work each unit has."""

    def __init__(self, plan: Plan, device: ResolvedDevice, narrow: bool = False) -> None:
        self.narrow = narrow
        self.kernels = plan.kernels
        self.machine = MachineModel(device)
        self.costs: Mapping[int, Cost] = {task.number: cost_of(task, self.machine) for task in plan.tasks()}
        self.engine_work: Counter[int] = Counter()
        self.unit_work: Counter[tuple[int, str, int]] = Counter()
        self.remapped: dict[tuple[int, int], Diagnostic] = {}

    def seat(self, node: TaskInstance) -> Seat:
        """The seat of one task instance."""
        return self.seat_chain([node])[0]

    def seat_chain(self, nodes: list[TaskInstance]) -> list[Seat]:
        """The seats of instances that run as one: the same engine, and both halves of the same CSTL."""
        tasks = [node.task for node in nodes if node.task is not None]
        engine = self._engine(tasks)
        chosen: dict[str, int] = {}
        for node, task in zip(nodes, tasks, strict=True):
            wanted = self._wanted(task, node)
            if wanted is not None:
                chosen[self.costs[task.number].unit] = wanted
        seats = []
        for task in tasks:
            cost = self.costs[task.number]
            kind = queue_type(task, cost.unit)
            index = chosen.setdefault(cost.unit, self._least(engine, kind, cost))
            self.unit_work[self._owner(engine, kind), kind, index] += cost.cycles
            self.engine_work[engine] += cost.cycles
            seats.append(Seat(engine, StreamUnit(kind, index)))
        return seats

    def wanted_unit(self, node: TaskInstance) -> int | None:
        """The instance that `@resource` leaves an instance, or None where it is free."""
        return None if node.task is None else self._wanted(node.task, node)

    def _engine(self, tasks: list[Task]) -> int:
        given = next((task.engine for task in tasks if task.engine is not None), None)
        if given is not None:
            return given
        return min(range(self.machine.engines), key=lambda engine: (self.engine_work[engine], engine))

    def _owner(self, engine: int, kind: str) -> int:
        """Units of the whole device are balanced over all engines."""
        return -1 if kind == _SHARED.upper() else engine

    def _least(self, engine: int, kind: str, cost: Cost) -> int:
        owner = self._owner(engine, kind)
        instances = 1 if self.narrow else min(cost.instances, MOST_CHOICES)
        return min(range(instances), key=lambda index: (self.unit_work[owner, kind, index], index))

    def _wanted(self, task: Task, node: TaskInstance) -> int | None:
        """The instance that `@resource` names; beyond those of the device, one of the same type."""
        if task.resource is None or self.costs[task.number].unit != task.resource.unit:
            return None
        index = max(0, value_of(task.resource.index, task.resource.span, node.iteration))
        count = self.costs[task.number].instances
        if index >= count and (task.number, index) not in self.remapped:
            self.remapped[task.number, index] = RESOURCE_REMAP.at(
                task.resource.span,
                unit=task.resource.unit,
                index=index,
                device=self.machine.name,
                count=count,
            )
        return index % count


def queue_type(task: Task, unit: str) -> str:
    """The kind of queue on a unit: a CSTL stores with its B half and computes with its A half."""
    if unit == "CSTL":
        return "CSTLB" if task.opcode == "store" else "CSTLA"
    return unit.upper()


def check_tasks(plan: Plan, placement: Placement, allow_future: bool) -> Iterator[Diagnostic]:
    """What cannot be bound at all, task by task."""
    engines = placement.machine.engines
    for buffer in plan.buffers:
        if buffer.memory == "L1" and buffer.engine >= engines:
            yield ENGINE_RANGE.at(
                buffer.span,
                name=buffer.name,
                engine=buffer.engine,
                device=placement.machine.name,
                count=engines,
            )
    in_range = {buffer.engine for buffer in plan.buffers if buffer.memory == "L1"} | set(range(engines))
    for task in plan.tasks():
        if task.engine is not None and task.engine not in in_range:
            problem = f"names an engine that {placement.machine.name} does not have; it has {engines}"
            yield ENGINE_CONFLICT.at(task.span, engine=task.engine, problem=problem)
        yield from _check_task(task, placement, allow_future)


def _check_task(task: Task, placement: Placement, allow_future: bool) -> Iterator[Diagnostic]:
    known = opcode(task.opcode)
    name = task.attributes.get("op", task.opcode)
    if known is None or (task.opcode == COMPUTE and name not in placement.kernels):
        yield UNSUPPORTED.at(task.span, task=task.title, name=name)
    elif known.hardware == "future" and not allow_future:
        yield FUTURE_REFUSED.at(task.span, opcode=task.opcode)
    else:
        yield from _check_unit(task, placement)


def _check_unit(task: Task, placement: Placement) -> Iterator[Diagnostic]:
    """The unit exists; a task that must keep its bits is not moved to a unit of another type."""
    machine, unit = placement.machine, placement.costs[task.number].unit
    if machine.count(unit) == 0:
        yield NO_UNIT.at(task.span, device=machine.name, unit=unit, opcode=task.opcode)
        return
    meant = intended_unit(task)
    if unit != meant and task.deterministic and task.opcode not in MOVES:
        cause = f"{machine.name} has no {meant}, and {unit} does not promise the same bits"
        yield NOT_DETERMINISTIC.at(task.span, task=task.title, cause=cause)


def intended_unit(task: Task) -> str:
    """The unit type that a task asks for or gets by default."""
    if task.resource is not None:
        return task.resource.unit
    known = opcode(task.opcode)
    if task.opcode == "transfer" and any(r.buffer.memory == "DDR" for r in (*task.inputs, *task.outputs)):
        return _SHARED
    return known.units[0] if known is not None and known.units else "VPU"
