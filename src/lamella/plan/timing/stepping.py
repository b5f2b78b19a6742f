"""Plans without a steady state are stepped through, instance by instance, in machine code.

A prepared program is laid out as words of memory for `event_loop`, whose `run` is compiled once in a process; 10⁷
instances take seconds. What it counted is read back as an `Simulation`, which is that of `Schedule`, to the cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import accumulate
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from lamella.base.compiled import Memory, compile_functions
from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NOWHERE
from lamella.lang.nem.resolved import Index, Loop, Operation, Variable
from lamella.lang.nem.rules import TOO_LONG
from lamella.plan.timing import event_loop as machine
from lamella.plan.timing.cost import Cost, MachineModel
from lamella.plan.timing.pairing_heap import NODE_WIDTH
from lamella.plan.timing.program import ProgramStep, ProgramSteps
from lamella.plan.timing.queues import Queues
from lamella.plan.timing.schedule import (
    BANDWIDTH,
    DEPENDENCY,
    NOBODY,
    TOKEN,
    UNIT,
    WINDOW,
    Schedule,
    Simulation,
    UnitStart,
    UnitWait,
)

PATIENCE = 25_000
"""Instances among which a steady state is looked for, before a program is stepped through whole."""
GAIN = 400
"""How many instances machine code steps through while one is searched: the search is not to take longer than that."""
IMPATIENCE = 5
"""A plan that cannot be stepped through is given up after this part of the limit, in seconds, not minutes."""
TABLE_SIZE = 65_537
"""Places of the table of what is counted; a prime, since keys are spread by their remainders."""
SLICE = 1 << 20
"""Instances after which the machine code returns, so that a run can be interrupted."""
WORD_BYTES = 8
REGIONS = 4
"""Two stacks, what is alive at most, and as much again for tasks that changed lanes."""
LaneKey: TypeAlias = tuple[tuple[int, str], int, int, tuple[tuple[str, int], ...]]
"""Units, pinned instance (or -1), engine whose token is needed (or -1), links."""
_SIGNS = MappingProxyType({"*": machine.MULTIPLY, "/": machine.DIVIDE, "mod": machine.MODULO})
_REASONS = MappingProxyType(
    {
        machine.DEPENDENCY: DEPENDENCY,
        machine.WINDOW: WINDOW,
        machine.UNIT: UNIT,
        machine.TOKEN: TOKEN,
        machine.BANDWIDTH: BANDWIDTH,
    }
)


def find_schedule(
    steps: ProgramSteps, device: MachineModel | None, limits: Limits = DEFAULT, detail: int = 0
) -> Simulation:
    """The schedule of a program: by its steady state where it has one, else stepped through; no device has no limits.

    Raises LamellaError where there are more instances than `limits.max_stepped` and no steady state is near.
    """
    instances, needed = _count(steps), REGIONS * _demand(steps, 1) * WORD_BYTES
    steppable = instances <= limits.max_stepped and needed <= limits.max_total_bytes
    patience = max(PATIENCE, detail, instances // GAIN)
    if not steppable:
        whole = instances <= limits.max_expansion
        patience = limits.max_expansion if whole else limits.max_expansion // IMPATIENCE
    search = Schedule(steps, _queues(steps, device), detail, patience=patience)
    found = search.run()
    if found is not None:
        return found
    if not steppable:
        raise _too_long(steps, instances, limits)
    found = step_through(steps, _queues(steps, device))
    return replace(found, timeline=tuple(search.timeline), covered=search.covered)


def step_through(steps: ProgramSteps, queues: Queues | None) -> Simulation:
    """Simulate a program instance by instance; without queues every task starts as soon as it is ready."""
    return _Run(_Image(steps, queues)).outcome()


def _queues(steps: ProgramSteps, device: MachineModel | None) -> Queues | None:
    return None if device is None else Queues(device, steps)


def _too_long(steps: ProgramSteps, instances: int, limits: Limits) -> LamellaError:
    """The simulation found no steady state, and there is too much to step through."""
    spans = (step.task.span for step in _tasks(steps) if step.task is not None)
    if instances > limits.max_stepped:
        limit, hint = (
            limits.max_stepped,
            "no steady state was found; raise the limit with --limit max_stepped=N",
        )
    else:
        limit = limits.max_expansion
        hint = "too many iterations are in flight at once: lower @max_in_flight of an outer loop"
    return LamellaError([TOO_LONG.at(next(spans, NOWHERE), needed=instances, limit=limit, hint=hint)])


def _tasks(steps: ProgramSteps) -> Iterator[ProgramStep]:
    for step in steps.steps:
        if step.task is not None:
            yield step
        elif step.body is not None:
            yield from _tasks(step.body)


def _trips(step: ProgramStep) -> int:
    return 1 if step.loop is None else step.loop.trips


def _flight(step: ProgramStep) -> int:
    """How many iterations of a loop may be open at once."""
    return 1 if step.loop is None else min(step.loop.trips, max(1, step.loop.window))


def _count(steps: ProgramSteps) -> int:
    """How many task instances a list has."""
    return sum(
        1 if step.body is None else _trips(step) * _count(step.body)
        for step in steps.steps
        if step.task is not None or step.body is not None
    )


def _demand(steps: ProgramSteps, frames: int) -> int:
    """Words that so many runs of a list take at most, all at once, with what is ready or runs in them."""
    tasks = sum(step.task is not None for step in steps.steps)
    own = machine.FRAME_SLOTS + (machine.SLOT_WIDTH + 3) * len(steps.steps) + 1
    own += len(steps.listens) * machine.LISTENER_WIDTH
    own += tasks * (machine.ENTRY_WIDTH + 2 * NODE_WIDTH)
    inside = (_demand(step.body, frames * _flight(step)) for step in steps.steps if step.body is not None)
    return frames * own + sum(inside)


# --- a program in memory ------------------------------------------------------------------------------------


class _Image:
    """Lays out a program and its device; `tasks` has the steps with tasks by their number there."""

    def __init__(self, steps: ProgramSteps, queues: Queues | None) -> None:
        self.words = [0] * machine.GLOBALS
        self.queues = queues
        self.tasks: list[ProgramStep] = []
        self.places: list[int] = []
        """The addresses of the steps with tasks."""
        self.lanes: dict[LaneKey, int] = {}
        self.units: dict[tuple[int, str], int] = {}
        self.live: dict[int, int] = {}
        self.links: dict[str, int] = {}
        self.deepest = 1
        self.demand = _demand(steps, 1)
        root = self._list(steps, ())
        self._tie_lanes()
        frame = self.put([root, *[0] * (self.words[root + machine.LIST_WIDTH] - 1)])
        self._set_machine(frame)

    def put(self, values: Iterable[int]) -> int:
        """Append words; their address."""
        address = len(self.words)
        self.words += values
        return address

    def counted(self, values: list[int], width: int = 1) -> int:
        """Append a number of items and the items."""
        return self.put([len(values) // width, *values])

    def set(self, record: int, fields: dict[int, int]) -> None:
        """Set fields of a record."""
        for name, value in fields.items():
            self.words[record + name] = value

    def _set_machine(self, frame: int) -> None:
        lanes = self.put(self.lanes.values())
        limit = None if self.queues is None else self.queues.token_limit
        fields = {
            machine.CAUSE: NOBODY,
            machine.ROOT_FRAME: frame,
            machine.LIMITED: int(self.queues is not None and self.queues.limited),
            machine.TOKENS: -1 if limit is None else limit,
            machine.LANES: lanes,
            machine.LANE_COUNT: len(self.lanes),
            machine.CANDIDATES: self.put([0] * len(self.lanes)),
            machine.TABLE: self.put([0] * 2 * TABLE_SIZE),
            machine.TABLE_SIZE: TABLE_SIZE,
            machine.INSTANCES: max((_cost(step).instances for step in self.tasks), default=1),
            machine.BLOCKERS: len(self.tasks) + 1,
            machine.PAUSE: SLICE,
            machine.STACK: self.put([0] * self.deepest),
        }
        stacks = len(self.words)
        fields |= {
            machine.COMPLETE: stacks,
            machine.COMPLETE_BASE: stacks,
            machine.ENTERED: stacks + self.demand,
            machine.ENTERED_BASE: stacks + self.demand,
            machine.ARENA: stacks + 2 * self.demand,
            machine.ARENA_END: stacks + 3 * self.demand,
        }
        self.set(0, fields)

    # --- lists and steps ------------------------------------------------------------------------------------

    def _list(self, steps: ProgramSteps, around: tuple[Loop, ...]) -> int:
        first = self.put([0] * machine.STEP_WIDTH * len(steps.steps))
        sizes = [self._step(step, first + machine.STEP_WIDTH * step.index, around) for step in steps.steps]
        for step, before in zip(steps.steps, accumulate(sizes, initial=0), strict=False):
            self.words[first + machine.STEP_WIDTH * step.index + machine.STEP_OFFSET] = before
        listens = [number for item in steps.listens for number in item]
        fields = {
            machine.LIST_STEPS: first,
            machine.LIST_COUNT: len(steps.steps),
            machine.LIST_NEEDS: self.put(steps.needs),
            machine.LIST_STARTS: self.counted(steps.starts),
            machine.LIST_LISTENS: self.counted(listens, 3),
            machine.LIST_SIZE: max(1, sum(sizes)),
            machine.LIST_WIDTH: machine.FRAME_SLOTS + machine.SLOT_WIDTH * len(steps.steps),
        }
        record = self.put([0] * machine.LIST_WORDS)
        self.set(record, fields)
        return record

    def _step(self, step: ProgramStep, record: int, around: tuple[Loop, ...]) -> int:
        """Lay out a step; how many positions of the program it takes."""
        fields = {
            machine.STEP_KIND: machine.GATE,
            machine.STEP_INDEX: step.index,
            machine.STEP_WAITERS: step.waiters,
            machine.STEP_FEEDS: self.counted(step.feeds),
            machine.STEP_TOKENS: self.counted([number for pair in step.tokens for number in pair], 2),
            machine.STEP_BEGIN: -1,
            machine.STEP_END: -1,
        }
        size = 1
        if step.task is not None:
            fields |= self._task(step, around)
            self.places.append(record)
        elif step.body is not None and step.loop is not None:
            body = self._list(step.body, (*around, step.loop))
            size = step.loop.trips * self.words[body + machine.LIST_SIZE]
            fields |= {
                machine.STEP_KIND: machine.LOOP,
                machine.STEP_BODY: body,
                machine.STEP_TRIPS: step.loop.trips,
                machine.STEP_WINDOW: _flight(step),
                machine.STEP_FIRST: step.loop.first,
            }
        self.set(record, fields)
        return size

    def _task(self, step: ProgramStep, around: tuple[Loop, ...]) -> dict[int, int]:
        cost = _cost(step)
        fields = {
            machine.STEP_KIND: machine.TASK,
            machine.STEP_CYCLES: cost.cycles,
            machine.STEP_TASK: len(self.tasks),
            machine.STEP_COUNT: cost.instances,
            machine.STEP_LIVE: self._live(_engine(step)),
        }
        self.tasks.append(step)
        if self.queues is None:
            return fields
        resource = None if step.task is None else step.task.resource
        if resource is None or resource.index.is_constant:
            pin = -1 if resource is None else resource.index.constant % cost.instances
            return fields | {machine.STEP_LANE: self._lane_of(step, pin)}
        pins = [self._lane_of(step, pin) for pin in range(-1, cost.instances)]
        code = [*self._code(resource.index, around), (machine.HALT, 0)]
        self.deepest = max(self.deepest, len(code))
        words = [word for instruction in code for word in instruction]
        return fields | {machine.STEP_PINS: self.put(pins), machine.STEP_CODE: self.put(words)}

    def _code(self, index: Index, around: tuple[Loop, ...]) -> Iterator[tuple[int, int]]:
        """A unit index as instructions of a stack machine."""
        yield machine.NUMBER, index.constant
        for atom, factor in index.terms:
            yield machine.NUMBER, factor
            if isinstance(atom, Variable):
                depth = next(place for place, item in enumerate(around) if item.number == atom.loop)
                yield machine.VARIABLE, len(around) - 1 - depth
            else:
                yield from self._operation(atom, around)
            yield machine.MULTIPLY, 0
            yield machine.ADD, 0

    def _operation(self, atom: Operation, around: tuple[Loop, ...]) -> Iterator[tuple[int, int]]:
        yield from self._code(atom.left, around)
        yield from self._code(atom.right, around)
        yield _SIGNS[atom.sign], 0

    # --- lanes, units, tokens, links ------------------------------------------------------------------------

    def _live(self, engine: int) -> int:
        """The word that counts the live tokens of an engine."""
        if engine not in self.live:
            self.live[engine] = self.put([0])
        return self.live[engine]

    def _lane_of(self, step: ProgramStep, pin: int) -> int:
        limited = self.queues is not None and self.queues.token_limit is not None
        taker = _engine(step) if limited and step.waiters else -1
        return self._lane((_cost(step).place, pin, taker, _cost(step).links), _cost(step).instances)

    def _lane(self, key: LaneKey, instances: int) -> int:
        if key in self.lanes:
            return self.lanes[key]
        place, pin, taker, links = key
        if place not in self.units:
            flags, holders = [0] * instances, [NOBODY] * instances
            self.units[place] = self.put([instances, *[0] * (machine.UNITS_FLAGS - 1), *flags, *holders])
        fields = {
            machine.LANE_UNITS: self.units[place],
            machine.LANE_PIN: pin,
            machine.LANE_LINKS: self.counted([word for link in links for word in self._link(*link)], 2),
        }
        if taker >= 0:
            fields[machine.LANE_TAKER] = self._live(taker)
            fields[machine.LANE_PROMOTED] = self._lane((place, pin, -1, links), instances)
        self.lanes[key] = self.put([0] * machine.LANE_WIDTH)
        self.set(self.lanes[key], fields)
        return self.lanes[key]

    def _link(self, level: str, rate: int) -> tuple[int, int]:
        if level not in self.links:
            most = 0 if self.queues is None else self.queues.machine.links[level]
            self.links[level] = self.put([0, most])
        return self.links[level], rate

    def _tie_lanes(self) -> None:
        """Tell units which lanes stand before them."""
        for place, units in self.units.items():
            lanes = [lane for key, lane in self.lanes.items() if key[0] == place]
            self.words[units + machine.UNITS_LANES] = self.counted(lanes)


def _cost(step: ProgramStep) -> Cost:
    assert step.cost is not None
    return step.cost


def _engine(step: ProgramStep) -> int:
    return 0 if step.task is None else step.task.engine or 0


# --- running it ---------------------------------------------------------------------------------------------


@cache
def _machine_code() -> Callable[[Memory], int]:
    return compile_functions(machine.FUNCTIONS)


class _Run:
    """One simulation in machine code: its memory, and what was taken out of the table of counts so far."""

    def __init__(self, image: _Image) -> None:
        self.image = image
        self.memory = self._allocate(len(image.words) + REGIONS * image.demand)
        self.memory[: len(image.words)] = image.words
        self.counted: Counter[int] = Counter()

    @staticmethod
    def _allocate(words: int) -> Memory:
        return np.empty(words, np.int64)

    def outcome(self) -> Simulation:
        """Run to the end."""
        code = _machine_code()
        status = machine.PAUSED
        while status != machine.FINISHED:
            status = code(self.memory)
            if status == machine.FULL:
                self._drain()
            elif status == machine.CROWDED:
                self._grow()
            self.memory[machine.PAUSE] = self.memory[machine.STARTED] + SLICE
        self._drain()
        return self._read()

    def _drain(self) -> None:
        first = int(self.memory[machine.TABLE])
        table = self.memory[first : first + 2 * TABLE_SIZE].reshape(-1, 2)
        for key, amount in table[table[:, 0] != 0].tolist():
            self.counted[key] += amount
        table[:] = 0
        self.memory[machine.TABLE_USED] = 0

    def _grow(self) -> None:
        more = self._allocate(len(self.memory))
        self.memory[machine.ARENA_END] += len(more)
        self.memory = np.concatenate((self.memory, more))

    def _read(self) -> Simulation:
        tasks, memory = self.image.tasks, self.memory
        starts: Counter[UnitStart] = Counter()
        waits: Counter[UnitWait] = Counter()
        for key, amount in self.counted.items():
            rest, blocker = divmod(key - 1, len(tasks) + 1)
            rest, kind = divmod(rest, machine.KINDS)
            number, instance = divmod(rest, int(memory[machine.INSTANCES]))
            start = UnitStart(_number(tasks[number]), _cost(tasks[number]).place, instance)
            if kind == machine.COUNTED:
                starts[start] += amount
            else:
                task = NOBODY if blocker == 0 else _number(tasks[blocker - 1])
                waits[UnitWait(start, _REASONS[kind], task)] += amount
        now = int(memory[machine.NOW])
        return Simulation(
            now,
            starts,
            waits,
            self._times(machine.STEP_BEGIN),
            self._times(machine.STEP_END),
            (),
            now,
            int(memory[machine.FORCED]),
            int(memory[machine.STARTED]),
        )

    def _times(self, name: int) -> dict[int, int]:
        """The first starts or the last ends, by task number."""
        pairs = zip(self.image.tasks, self.image.places, strict=True)
        return {_number(step): int(self.memory[place + name]) for step, place in pairs}


def _number(step: ProgramStep) -> int:
    assert step.task is not None
    return step.task.number
