"""Long loops without unrolling: a few iterations are bound, and what repeats in them stands for all.

A loop with T iterations is bound with K of them, T - K a multiple of a period p. Then the
records of p iterations are looked for that are followed by two periods of the same records: same units, same bits,
addresses that have grown by the same steps. Those are written once, as a `Repeat`, T - K iterations are added to them,
and what follows is moved on by as many. Where nothing repeats, a longer period is tried.

Why the long stream keeps the order of the program. p is a multiple of the window and of the periods of all offsets, so
that iterations i and i + p ask for the same order and the same units. What holds an order up in a stream is a path over
queues and token bits, all of it between its two ends. An order inside the loop leads to the same iteration or to those
of the window; three periods in a row are the same, so its path is one of the short stream, moved by whole periods. An
order that leads into the loop reaches the records that are added through those before them in the same queue. An order
that leads across the loop keeps its path, too: queues stay in order, and a token that crosses the place where periods
are added reaches the copy of its waiter, which stands before the waiter itself in the same queue. A token that is held
across the loop keeps its bit throughout in the short stream, so no record of the period uses it. That bits stay
unambiguous is proved again by every reader, on the long stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm

from lamella.lang.nem.resolved import Index, Item, Loop, Operation, Plan, Region, Task, Variable
from lamella.plan.bind.placement import Placement
from lamella.plan.stcb.nodes import Repeat, Stream, StridedAccess, TaskRecord

LONGEST_PERIOD = 64
"""Iterations of the shortest period that is looked at."""
MULTIPLES = (1, 2, 4, 12)
"""Periods that are tried, in shortest ones: units are given to tasks in turns that may take longer than the text."""
KEPT = 6
"""Periods that are bound: three that are the same, and room for how they begin and end."""

Advance = tuple[int, int]
"""After so many iterations an index has grown by so much, from wherever it starts."""
Box = Mapping[int, tuple[int, int]]
"""The values of loop variables, first and last."""


@dataclass(frozen=True, slots=True)
class LoopCut:
    """A loop that is bound with fewer iterations: all of them, those that are kept, and the period that is tried."""

    loop: Loop
    depth: int
    """Loops around it."""
    trips: int
    kept: int
    period: int


def iterations(plan: Plan) -> Box:
    """The values of the variables of all loops that are executed."""
    loops = (item for item, _ in plan.walk() if isinstance(item, Loop) and item.trips > 0)
    return {loop.number: (loop.first, loop.last) for loop in loops}


def shorten(plan: Plan, placement: Placement, tried: Mapping[int, int]) -> tuple[Plan, list[LoopCut]]:
    """The plan with its long loops cut short; `tried` says how many multiples of a loop's period were in vain."""
    shortening = _Shortening(iterations(plan), placement, tried)
    body = shortening.items(plan.body, 0)
    return replace(plan, body=body), shortening.cuts


class _Shortening:
    """Cuts the outermost loops that can be cut."""

    def __init__(self, box: Box, placement: Placement, tried: Mapping[int, int]) -> None:
        self.box = box
        self.placement = placement
        self.tried = tried
        self.cuts: list[LoopCut] = []

    def items(self, body: Sequence[Item], depth: int) -> tuple[Item, ...]:
        """A statement list with its long loops cut short, or with those inside them."""
        found: list[Item] = []
        for item in body:
            if not isinstance(item, Loop) or item.trips <= 0:
                found.append(item)
                continue
            cut = self._cut(item, depth)
            if cut is None:
                found.append(replace(item, body=self.items(item.body, depth + 1)))
            else:
                self.cuts.append(cut)
                found.append(replace(item, last=item.first + cut.kept - 1))
        return tuple(found)

    def _cut(self, loop: Loop, depth: int) -> LoopCut | None:
        multiples = MULTIPLES[self.tried.get(loop.number, 0) :]
        shortest = _period(loop, self.box, self.placement) if multiples else None
        if shortest is None or next(iter(_tasks(loop.body)), None) is None:
            return None
        period = multiples[0] * shortest
        kept = KEPT * period + loop.trips % period
        return LoopCut(loop, depth, loop.trips, kept, period) if kept < loop.trips else None


def _period(loop: Loop, box: Box, placement: Placement) -> int | None:
    """After how many iterations the text of a loop says the same again, but for steady offsets."""
    period = loop.window
    for task in _tasks(loop.body):
        for region in (*task.inputs, *task.outputs):
            found = advance(region.offset, loop.number, box)
            if found is None:
                return None
            period = lcm(period, found[0])
        if task.resource is not None:
            found = advance(task.resource.index, loop.number, box)
            if found is None:
                return None
            count = max(1, placement.costs[task.number].instances)
            period = lcm(period, found[0] * (count // gcd(count, found[1])))
        if period > LONGEST_PERIOD:
            return None
    return period


def _tasks(body: Sequence[Item]) -> Iterable[Task]:
    todo = list(reversed(body))
    while todo:
        item = todo.pop()
        if isinstance(item, Task):
            yield item
        elif isinstance(item, Loop) and item.trips > 0:
            todo += reversed(item.body)


def advance(index: Index, loop: int, box: Box) -> Advance | None:
    """How an index grows with a loop, whatever the other loops do; None where it does not grow steadily."""
    parts: list[tuple[int, int]] = []
    for atom, factor in index.terms:
        if isinstance(atom, Variable):
            parts.append((1, factor * (atom.loop == loop)))
            continue
        found = _advance_operation(atom, loop, box)
        if found is None:
            return None
        parts.append((found[0], factor * found[1]))
    period = lcm(*(count for count, _ in parts))
    return period, sum(growth * (period // count) for count, growth in parts)


def _advance_operation(atom: Operation, loop: int, box: Box) -> Advance | None:
    """A remainder comes back after a period, a quotient has grown by a whole number; below zero both turn round."""
    if loop not in atom.left.loops() | atom.right.loops():
        return 1, 0
    left = advance(atom.left, loop, box)
    divisor = atom.right.constant
    if left is None or not atom.right.is_constant or divisor <= 0 or atom.sign == "*":
        return None
    if _range(atom.left, box)[0] < 0:
        return None
    turns = divisor // gcd(divisor, left[1])
    return left[0] * turns, 0 if atom.sign == "mod" else left[1] * turns // divisor


def _range(index: Index, box: Box) -> tuple[int, int]:
    """Bounds of an index over all iterations, not always the closest."""
    low = high = index.constant
    for atom, factor in index.terms:
        ends = box[atom.loop] if isinstance(atom, Variable) else _range_of_operation(atom, box)
        products = sorted(factor * end for end in ends)
        low, high = low + products[0], high + products[1]
    return low, high


def _range_of_operation(atom: Operation, box: Box) -> tuple[int, int]:
    left, right = _range(atom.left, box), _range(atom.right, box)
    if atom.sign == "*":
        products = [one * other for one in left for other in right]
        return min(products), max(products)
    largest = max(map(abs, left))
    if atom.sign == "mod":
        largest = min(largest, max(map(abs, right)) - 1)
    return (0 if left[0] >= 0 and right[0] > 0 else -largest), largest


# --- what repeats in a stream --------------------------------------------------------------------------------


Around = tuple[int, ...]
"""The iterations of the loops around a loop, which is executed once in each of them."""


@dataclass(frozen=True, slots=True)
class TaskMark:
    """Where a written record comes from: the task, and the iterations of the loops around it, the outermost first."""

    task: Task | None
    iterations: tuple[tuple[int, int], ...] = ()

    def inside(self, cut: LoopCut) -> Around | None:
        """The iterations of the loops around a loop that the record is in; None where it is not in that loop."""
        if len(self.iterations) <= cut.depth or self.iterations[cut.depth][0] != cut.loop.number:
            return None
        return tuple(value for _, value in self.iterations[: cut.depth])


@dataclass(slots=True)
class _Written:
    """The records of an engine while some of them become repeats."""

    records: list[TaskRecord]
    marks: list[TaskMark]


def restore(
    stream: Stream, marks: Sequence[Sequence[TaskMark]], cuts: Sequence[LoopCut], box: Box
) -> Stream | set[int]:
    """The stream of the whole program from that of the short one, or the loops in which nothing repeats."""
    engines = [
        _Written(list(records), list(found)) for records, found in zip(stream.engines, marks, strict=True)
    ]
    repeats: list[Repeat] = []
    failed: set[int] = set()
    for cut, around in _executions(engines, cuts):
        found = _LoopFold(engines, cut, around, box).run()
        if found is None:
            failed.add(cut.loop.number)
        else:
            repeats += found
    if failed:
        return failed
    return replace(
        stream,
        engines=tuple(tuple(engine.records) for engine in engines),
        repeats=tuple(sorted(repeats, key=lambda item: (item.engine, item.first))),
    )


def _executions(engines: Sequence[_Written], cuts: Sequence[LoopCut]) -> list[tuple[LoopCut, Around]]:
    """Every execution of a loop that was cut, in the order of the program."""
    first: dict[tuple[int, Around], int] = {}
    by_number = {cut.loop.number: cut for cut in cuts}
    for engine in engines:
        for record, mark in zip(engine.records, engine.marks, strict=True):
            cut = next((by_number[loop] for loop, _ in mark.iterations if loop in by_number), None)
            around = None if cut is None else mark.inside(cut)
            if cut is not None and around is not None:
                key = cut.loop.number, around
                first[key] = min(record.seq, first.get(key, record.seq))
    return [(by_number[loop], around) for loop, around in sorted(first, key=lambda item: first[item])]


class _LoopFold:
    """One execution of a loop: its iterations on every engine, and the period that they come to."""

    def __init__(self, engines: Sequence[_Written], cut: LoopCut, around: Around, box: Box) -> None:
        self.engines = engines
        self.cut = cut
        self.around = around
        self.box = box
        self.places = [self._places(engine) for engine in engines]

    def _places(self, engine: _Written) -> list[list[int]]:
        """The places of the records of each iteration."""
        found: list[list[int]] = [[] for _ in range(self.cut.kept)]
        for place, mark in enumerate(engine.marks):
            if mark.inside(self.cut) == self.around:
                found[mark.iterations[self.cut.depth][1] - self.cut.loop.first].append(place)
        return found

    def run(self) -> list[Repeat] | None:
        """Fold the loop in all engines; None where nothing repeats."""
        period = self.cut.period
        alike = [self._alike(number, period) for number in range(self.cut.kept - period)]
        start = _first_run(alike, 2 * period)
        if start is None or not self._is_block(start, period):
            return None
        return self._fold(start, period, _run_length(alike, start) // period)

    def _is_block(self, start: int, period: int) -> bool:
        """Whether the records of a period stand side by side on each engine."""
        for places in self.places:
            found = [place for iteration in places[start : start + period] for place in iteration]
            if found and found != list(range(found[0], found[0] + len(found))):
                return False
        return True

    def _alike(self, number: int, period: int) -> bool:
        """Whether an iteration has the same records as the one a period later, but for what grows."""
        for engine, places in zip(self.engines, self.places, strict=True):
            one, other = places[number], places[number + period]
            if len(one) != len(other):
                return False
            for here, there in zip(one, other, strict=True):
                if not self._same(engine, here, there, period):
                    return False
        return True

    def _same(self, engine: _Written, here: int, there: int, period: int) -> bool:
        one, other = engine.records[here], engine.records[there]
        if engine.marks[here].task is not engine.marks[there].task:
            return False
        grown = _grown(one, self._steps(engine.marks[here].task, period), 1)
        return replace(grown, seq=other.seq, origin=other.origin) == other

    def _steps(self, task: Task | None, period: int) -> tuple[int, ...]:
        """How far the operands of a task move in a period."""
        regions: tuple[Region, ...] = () if task is None else (*task.inputs, *task.outputs)
        found = [advance(region.offset, self.cut.loop.number, self.box) for region in regions]
        return tuple(0 if item is None else item[1] * (period // item[0]) for item in found)

    def _fold(self, start: int, period: int, copies: int) -> list[Repeat]:
        """Keep one period, count the others and those that are missing, and move on what follows."""
        each = sum(len(places[start]) for places in self.places)
        first_seq = min(
            engine.records[place].seq
            for engine, places in zip(self.engines, self.places, strict=True)
            for place in places[0]
        )
        missing = (self.cut.trips - self.cut.kept) // period
        repeats: list[Repeat] = []
        end = start + period
        behind = first_seq + each * (end + copies * period)
        for number, (engine, places) in enumerate(zip(self.engines, self.places, strict=True)):
            period_places = [place for iteration in places[start:end] for place in iteration]
            gone = {p for iteration in places[end : end + copies * period] for p in iteration}
            if period_places:
                steps = tuple(self._steps(engine.marks[place].task, period) for place in period_places)
                count = 1 + copies + missing
                place, length = period_places[0], len(period_places)
                variable = self.cut.depth, period
                repeats.append(Repeat(number, place, length, count, each * period, *variable, steps))
            self._move(engine, gone, behind, missing, period, each)
        return repeats

    def _move(
        self, engine: _Written, gone: set[int], behind: int, missing: int, period: int, each: int
    ) -> None:
        """Drop what a repeat stands for; what follows it is that many iterations later."""
        records: list[TaskRecord] = []
        marks: list[TaskMark] = []
        for place, (record, mark) in enumerate(zip(engine.records, engine.marks, strict=True)):
            if place in gone:
                continue
            if record.seq >= behind:
                record = replace(record, seq=record.seq + each * period * missing)
                if mark.inside(self.cut) == self.around:
                    record = _grown(record, self._steps(mark.task, period), missing)
                    origin = record.origin.later(self.cut.depth, missing * period)
                    record = replace(record, origin=origin)
            records.append(record)
            marks.append(mark)
        engine.records, engine.marks = records, marks


def _first_run(alike: Sequence[bool], length: int) -> int | None:
    """Where so many true ones stand one behind the other for the first time."""
    run = 0
    for place, value in enumerate(alike):
        run = run + 1 if value else 0
        if run == length:
            return place - length + 1
    return None


def _run_length(alike: Sequence[bool], start: int) -> int:
    return next((place for place in range(start, len(alike)) if not alike[place]), len(alike)) - start


def _grown(record: TaskRecord, steps: Sequence[int], times: int) -> TaskRecord:
    def move(items: tuple[StridedAccess, ...], by: Sequence[int]) -> tuple[StridedAccess, ...]:
        pairs = zip(items, by, strict=False)
        return tuple(replace(item, addr=item.addr + times * step) for item, step in pairs)

    return replace(record, src=move(record.src, steps), dst=move(record.dst, steps[len(record.src) :]))
