"""The execution model: regions, loops and conditions; work-items with barriers and subgroups.

A worker is a generator. It stops at what it cannot do alone: at a region for all work-items where the work-group
acts as one, at a barrier, at an instruction of its subgroup. What it waits for is sent back into it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from lamella.backend.interpreter.arithmetic import make_integer, wrap_integer
from lamella.backend.interpreter.evaluate import prepare
from lamella.backend.interpreter.memory import MemrefReference
from lamella.backend.interpreter.state import (
    ExecutedStatement,
    KernelLaunch,
    PreparedStatement,
    RunValue,
    Worker,
    WorkGroup,
)
from lamella.backend.interpreter.subgroup import TOGETHER, execute_together, name_of, refuse_different
from lamella.base.errors import Found
from lamella.base.records import dataclass, replace
from lamella.base.source import Span
from lamella.kernels.rewrite import split_yield
from lamella.lang.tensor import nodes
from lamella.lang.tensor.layout import component_count, component_places
from lamella.lang.tensor.rules import running as rules
from lamella.ops.fault import Fault

Values: TypeAlias = tuple[RunValue, ...]
MEETINGS = (*TOGETHER, nodes.CoopApply)
WAITS = (nodes.Barrier, nodes.Foreach, nodes.ForeachTile, nodes.Parallel, *MEETINGS)


@dataclass(frozen=True, slots=True)
class BarrierWait:
    """Where a worker waits: a statement, in one trip of each loop around it."""

    statement: nodes.Statement
    trips: tuple[int, ...]

    def meets(self, other: BarrierWait | None) -> bool:
        """Whether another worker waits at the same place."""
        return other is not None and self.statement is other.statement and self.trips == other.trips


_Tile: TypeAlias = tuple[tuple[int, int], ...]
Work: TypeAlias = Generator[BarrierWait, Values, None]


# --- regions ------------------------------------------------------------------------------------------------


def _prepare(launch: KernelLaunch, region: nodes.Region) -> list[PreparedStatement]:
    """The statements of a region, each made ready once."""
    found = launch.prepared.get(id(region))
    if found is None:
        found = launch.prepared[id(region)] = [_ready(statement) for statement in region.statements]
    return found


def _ready(statement: nodes.Statement) -> PreparedStatement:
    name = statement.results[0].name if statement.results else None
    return statement, prepare(statement.instruction, name), name


@dataclass(slots=True)
class _RunningLoop:
    """A `for` that is being executed: the condition is tested before each trip, the step is added modulo the type."""

    statement: nodes.Statement
    loop: nodes.For
    index: int
    end: int
    step: int
    carried: Values

    def enter(self, worker: Worker) -> bool:
        """Begin the next trip, if there is one."""
        if self.index >= self.end:
            worker.trips.pop()
            return False
        _count(worker, self.statement)
        worker.trips[-1] += 1
        worker.values[self.loop.variable.name] = make_integer(self.index, self.loop.type.name)
        for (value, _), carried in zip(self.loop.carried, self.carried, strict=True):
            worker.values[value.name] = carried
        return True

    def advance(self, worker: Worker, yielded: Values) -> bool:
        """End a trip with what it yields, and begin the next one."""
        self.carried = yielded
        self.index = wrap_integer(self.index + self.step, self.loop.type.name)
        return self.enter(worker)


@dataclass(slots=True)
class _RegionFrame:
    """A region that is being executed, and the `for` or `if` that it belongs to."""

    statements: list[PreparedStatement]
    owner: nodes.Statement | None
    loop: _RunningLoop | None
    held: int
    """Local memory that the work-group held before."""
    rest: Iterator[PreparedStatement]
    """What is still to be executed."""
    yielded: Values = ()


def run_region(worker: Worker, region: nodes.Region) -> Work:
    """Execute the statements of a region and of those inside it, without recursion: nesting costs no stack."""
    frames: list[_RegionFrame] = []
    values, is_traced = worker.values, worker.group.launch.options.trace is not None
    _begin(worker, frames, region)
    while frames:
        frame = frames[-1]
        for statement, execute, name in frame.rest:
            if execute is not None:
                try:
                    result = execute(worker)
                except Fault as fault:
                    raise stop(fault, statement.span, worker.place) from None
                if name is not None and result is not None:
                    values[name] = result
                if is_traced:
                    _trace(worker, statement, () if result is None else (result,))
                continue
            instruction = statement.instruction
            if isinstance(instruction, WAITS):
                _bind(worker, statement, (yield BarrierWait(statement, tuple(worker.trips))))
            elif isinstance(instruction, nodes.Yield):
                frame.yielded = tuple(values[value.name] for value in instruction.values)
                _trace(worker, statement, frame.yielded)
            elif _enter(worker, frames, statement):
                break
        else:
            _leave(worker, frames)


def _begin(
    worker: Worker,
    frames: list[_RegionFrame],
    region: nodes.Region,
    owner: nodes.Statement | None = None,
    loop: _RunningLoop | None = None,
) -> None:
    statements = _prepare(worker.group.launch, region)
    frames.append(_RegionFrame(statements, owner, loop, worker.group.local_bytes, iter(statements)))


def _enter(worker: Worker, frames: list[_RegionFrame], statement: nodes.Statement) -> bool:
    """Begin a `for` or an `if`; one that executes nothing has its results at once."""
    instruction = statement.instruction
    if isinstance(instruction, nodes.For):
        loop = _start_loop(worker, statement, instruction)
        if loop.enter(worker):
            _begin(worker, frames, instruction.body, statement, loop)
            return True
        _bind(worker, statement, loop.carried)
    elif isinstance(instruction, nodes.If):
        region = instruction.then if bool(worker.number(instruction.condition)) else instruction.otherwise
        if region is not None:
            _begin(worker, frames, region, statement)
            return True
        _bind(worker, statement, ())
    return False


def _start_loop(worker: Worker, statement: nodes.Statement, loop: nodes.For) -> _RunningLoop:
    step = 1 if loop.step is None else worker.integer(loop.step)
    carried: Values = tuple(worker.values[start.name] for _, start in loop.carried)
    worker.trips.append(0)
    return _RunningLoop(statement, loop, worker.integer(loop.begin), worker.integer(loop.end), step, carried)


def _leave(worker: Worker, frames: list[_RegionFrame]) -> None:
    """End a region: its local memory is free, a loop goes on with its next trip."""
    frame = frames[-1]
    worker.group.local_bytes = frame.held
    if frame.loop is not None and frame.loop.advance(worker, frame.yielded):
        frame.rest, frame.yielded = iter(frame.statements), ()
        return
    frames.pop()
    if frame.owner is not None:
        _bind(worker, frame.owner, frame.yielded)


def _bind(worker: Worker, statement: nodes.Statement, results: Values) -> None:
    """Name the results; a memref is known by its newest name."""
    for value, result in zip(statement.results, results, strict=False):
        if isinstance(result, MemrefReference):
            worker.values[value.name] = replace(result, name=value.name)
        else:
            worker.values[value.name] = result
    if worker.group.launch.options.trace is not None:
        _trace(worker, statement, results)


def _trace(worker: Worker, statement: nodes.Statement, results: Values) -> None:
    launch = worker.group.launch
    if launch.options.trace is not None:
        step = ExecutedStatement(launch.function.name, worker.group.number, worker.item, statement, results)
        launch.options.trace(step)


def _count(worker: Worker, statement: nodes.Statement, steps: int = 1) -> None:
    try:
        worker.group.launch.count(steps)
    except Fault as fault:
        raise stop(fault, statement.span, worker.place) from None


# --- the work-group acting as one ---------------------------------------------------------------------------


def run_work_group(launch: KernelLaunch, number: int, arguments: dict[str, RunValue]) -> None:
    """Execute the kernel for one work-group."""
    group = WorkGroup(launch, number)
    worker = Worker(group, dict(arguments))
    work = run_region(worker, launch.function.body)
    wait = next(work, None)
    while wait is not None:
        _run_all(worker, wait)
        wait = _resume(work, ())


def _resume(work: Work, answer: Values) -> BarrierWait | None:
    try:
        return work.send(answer)
    except StopIteration:
        return None


def _run_all(worker: Worker, wait: BarrierWait) -> None:
    """Let all work-items run a region to its end; between collective instructions all of them have met anyway."""
    instruction = wait.statement.instruction
    if isinstance(instruction, nodes.Parallel):
        _count(worker, wait.statement, worker.group.launch.items)
        _run_items(worker, lambda item: run_region(item, instruction.body))
    elif isinstance(instruction, nodes.ForeachTile):
        tiles = _tiles(worker, wait.statement, instruction)
        subgroups = worker.group.launch.items // worker.group.launch.subgroup_size
        _run_items(worker, lambda item: _run_tiles(item, instruction, tiles[item.subgroup :: subgroups]))
    elif isinstance(instruction, nodes.Foreach):
        tuples = _tuples(worker, wait.statement, instruction)
        share = worker.group.launch.items
        _run_items(worker, lambda item: _run_share(item, instruction, tuples[item.item or 0 :: share]))


def _tuples(worker: Worker, statement: nodes.Statement, loop: nodes.Foreach) -> list[tuple[int, ...]]:
    """All index tuples of a foreach, in an order of no meaning."""
    pairs = zip(loop.begins, loop.ends, strict=True)
    ranges = [range(worker.integer(begin), worker.integer(end)) for begin, end in pairs]
    count = 1
    for item in ranges:
        count *= max(0, item.stop - item.start)
    _count(worker, statement, max(count, worker.group.launch.items))
    found = list(product(*ranges))
    if worker.group.launch.order is not None:
        worker.group.launch.order.shuffle(found)
    return found


def _tiles(worker: Worker, statement: nodes.Statement, loop: nodes.ForeachTile) -> list[_Tile]:
    """All tiles of a foreach_tile, in an order of no meaning: the first index and the size along each variable."""
    bounds = zip(loop.begins, loop.ends, loop.tile, strict=True)
    ranges = [range(worker.integer(begin), worker.integer(end), size) for begin, end, size in bounds]
    count = worker.group.launch.items
    for item in ranges:
        count *= len(item)
    _count(worker, statement, max(count, worker.group.launch.items))
    found = [
        tuple(
            (first, min(size, item.stop - first))
            for first, item, size in zip(tile, ranges, loop.tile, strict=True)
        )
        for tile in product(*ranges)
    ]
    if worker.group.launch.order is not None:
        worker.group.launch.order.shuffle(found)
    return found


def _run_tiles(worker: Worker, loop: nodes.ForeachTile, tiles: Sequence[_Tile]) -> Work:
    """What the work-items of one subgroup do of a foreach_tile."""
    for trip, tile in enumerate(tiles):
        worker.trips[:] = [trip]
        for variable, size, (first, count) in zip(loop.variables, loop.sizes, tile, strict=True):
            worker.values[variable.name] = make_integer(first, loop.type.name)
            worker.values[size.name] = make_integer(count, loop.type.name)
        yield from run_region(worker, loop.body)


def _run_share(worker: Worker, loop: nodes.Foreach, tuples: Sequence[tuple[int, ...]]) -> Work:
    """What one work-item does of a foreach."""
    for trip, indices in enumerate(tuples):
        worker.trips[:] = [trip]
        for value, index in zip(loop.variables, indices, strict=True):
            worker.values[value.name] = make_integer(index, loop.type.name)
        yield from run_region(worker, loop.body)


# --- work-items ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _WorkItem:
    """A work-item: where it waits, and what is sent to it when it goes on."""

    worker: Worker
    work: Work
    wait: BarrierWait | None = None
    answer: Values | None = None
    done: bool = False

    def advance(self) -> None:
        """Run to the next place where it has to wait, or to the end."""
        answer, self.answer = self.answer, None
        self.wait = next(self.work, None) if answer is None else _resume(self.work, answer)
        self.done = self.wait is None


def _run_items(worker: Worker, start: Callable[[Worker], Work]) -> None:
    """Run all work-items of a work-group until they are done."""
    launch = worker.group.launch
    workers = [Worker(worker.group, dict(worker.values), number) for number in range(launch.items)]
    items = [_WorkItem(item, start(item)) for item in workers]
    ready = items
    while ready:
        for item in _mix(launch, ready):
            item.advance()
        ready = list(_release(launch, items))
    stuck = next((item for item in items if not item.done), None)
    if stuck is not None and stuck.wait is not None:
        raise _diverged(stuck, stuck.wait, items)


def _mix(launch: KernelLaunch, items: Sequence[_WorkItem]) -> Sequence[_WorkItem]:
    """Work-items in the order in which they go on: any, where a seed is given."""
    return items if launch.order is None else launch.order.sample(items, len(items))


def _release(launch: KernelLaunch, items: Sequence[_WorkItem]) -> Iterator[_WorkItem]:
    """The work-items that can go on, each with its answer."""
    first = items[0].wait
    if first is not None and isinstance(first.statement.instruction, nodes.Barrier) and _met(items):
        yield from _answer(items, [()] * len(items))
        return
    for begin in range(0, len(items), launch.subgroup_size):
        lanes = items[begin : begin + launch.subgroup_size]
        wait = lanes[0].wait
        if wait is not None and isinstance(wait.statement.instruction, MEETINGS) and _met(lanes):
            yield from _answer(lanes, _execute(wait, lanes))


def _met(items: Sequence[_WorkItem]) -> bool:
    first = items[0].wait
    return first is not None and all(first.meets(item.wait) for item in items)


def _answer(items: Sequence[_WorkItem], answers: Sequence[Values]) -> Iterator[_WorkItem]:
    for item, answer in zip(items, answers, strict=True):
        item.answer = answer
        yield item


def _execute(wait: BarrierWait, lanes: Sequence[_WorkItem]) -> list[Values]:
    workers, instruction = [lane.worker for lane in lanes], wait.statement.instruction
    try:
        if isinstance(instruction, nodes.CoopApply):
            return _apply(instruction, workers)
        return execute_together(instruction, workers)
    except Fault as fault:
        raise stop(fault, wait.statement.span, workers[0].place) from None


def _apply(apply: nodes.CoopApply, workers: Sequence[Worker]) -> list[Values]:
    """The body for each component, by the work-item that holds it; it waits for nobody."""
    refuse_different(apply, apply.operand, workers)
    matrix = np.asarray(workers[0].number(apply.operand))
    found = matrix.copy()
    _, result = split_yield(apply.body)
    count = component_count(apply.type, len(workers))
    places = [component_places(apply.type, len(workers), component) for component in range(count)]
    for worker in workers:
        trips = worker.trips
        for component in range(count):
            place = places[component][worker.lane]
            if place is not None:
                worker.group.launch.count()
                worker.trips = [*trips, component]
                worker.values[apply.row.name] = make_integer(place[0], "i32")
                worker.values[apply.column.name] = make_integer(place[1], "i32")
                worker.values[apply.value.name] = matrix[place]
                list(run_region(worker, apply.body))
                found[place] = worker.number(result[0])
        worker.trips = trips
    return [(found,)] * len(workers)


def _diverged(stuck: _WorkItem, wait: BarrierWait, items: Sequence[_WorkItem]) -> Found:
    """What to say of work-items that wait for others in vain."""
    instruction, place = wait.statement.instruction, stuck.worker.place
    if isinstance(instruction, nodes.Barrier):
        reached = sum(wait.meets(item.wait) for item in items)
        fault = Fault(rules.DIVERGED_BARRIER, reached=reached, items=len(items))
        return stop(fault, wait.statement.span, place)
    lanes = [item for item in items if item.worker.subgroup == stuck.worker.subgroup]
    reached = sum(wait.meets(item.wait) for item in lanes)
    values = {"reached": reached, "items": len(lanes), "instruction": name_of(instruction)}
    return stop(Fault(rules.DIVERGED_SUBGROUP, **values), wait.statement.span, place)


def stop(fault: Fault, span: Span, place: str = "") -> Found:
    """The end of a run: the rule that an instruction broke, at a place of the program."""
    return Found(fault.rule.at(span, hint=None, labels=(), place=place, **fault.values))
