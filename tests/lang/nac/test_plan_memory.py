"""Schedules that we make: a machine that obeys them never misses a value, and keeps none longer than it must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.lang.nac import check, parse, write
from lamella.lang.nac.check import PeakMemory, peak_bytes
from lamella.lang.nac.nodes import (
    INPUT,
    OUTPUT,
    Action,
    Command,
    File,
    Header,
    Instruction,
    Parameter,
    Signature,
    Tensor,
    Tick,
    Unscaled,
)
from lamella.lang.nac.schedule import describe_schedule, plan_memory
from tests.support.lang.nac.schedules import ADD, FORWARD, FREE, NEG, PRELOAD, SAVE, Uses, follow, uses_of

MANY = 10 * settings().max_examples
"""Schedules are quickly drawn, and rarely those that are hard."""

Kind = tuple[str, tuple[int, ...]]


@st.composite
def programs(draw: st.DrawFn) -> File:
    """Programs with loads anywhere, uses over any distance, several outputs, results and loads that nobody uses."""
    code = [Instruction(INPUT)] if draw(st.booleans()) else [Instruction(INPUT, 1, (1,))]
    for _ in range(draw(st.integers(1, 14))):
        here = len(code)
        if draw(st.integers(0, 2)) == 0:
            code += [Instruction(INPUT, 1, (draw(st.integers(1, 4)),))] * draw(st.integers(1, 4))
            continue
        first = draw(st.sampled_from([here - 1, draw(st.integers(0, here - 1))]))
        sources = [first, draw(st.integers(0, here - 1))][: draw(st.integers(1, 2))]
        code.append(Instruction(ADD if len(sources) == 2 else NEG, len(sources), (), _back(sources, here)))
    inputs = sum((item.operation, item.variant) == (INPUT, 0) for item in code)
    results = draw(st.lists(st.integers(0, len(code) - 1), min_size=1, max_size=3))
    code.append(Instruction(OUTPUT, 0, (), _back(results, len(code))))
    return program_of(code, inputs)


def program_of(code: list[Instruction], inputs: int = 1) -> File:
    """A right file of these instructions."""
    loaded = sorted({item.constants[0] for item in code if (item.operation, item.variant) == (INPUT, 1)})
    return File(
        header=Header(inputs=inputs, outputs=len(code[-1].offsets)),
        signatures=(Signature(1, "T"), Signature(2, "TT")),
        instructions=tuple(code),
        parameters=tuple(Parameter(number, f"w{number}") for number in loaded),
    )


def _back(sources: list[int], here: int) -> tuple[int, ...]:
    return tuple(source - here for source in sources)


def planned(file: File, sizes: Mapping[int, int] | None = None) -> File:
    """The program with its schedule."""
    return replace(file, schedule=plan_memory(file, sizes))


def computing(uses: Uses, tick: int) -> bool:
    """Whether a tick does something else than to load a parameter."""
    return tick not in uses.loads


class Machine:
    """Obeys a schedule with values that are somewhere: given, in the fast memory, on the way to one user, or gone."""

    def __init__(self, file: File) -> None:
        self.file, self.uses = file, uses_of(file)
        self.commands = {tick.index: tick.commands for tick in file.schedule}
        self.alive: dict[int, str] = {}
        self.freed: Counter[int] = Counter()
        self.most: set[frozenset[int]] = set()

    def run(self) -> None:
        for now, item in enumerate(self.file.instructions):
            for source in {now + offset for offset in item.offsets}:
                assert source in self.alive, f"{now} misses {source}"
                assert self.alive[source] in ("given", "loaded", "saved", f"to {now}"), (now, source)
            if now in self.uses.loads:
                self.alive[now] = "loaded"
            else:
                self.alive[now] = "given" if item.operation == INPUT else "fresh"
            self.most.add(frozenset(self.alive))
            for source in [index for index, place in self.alive.items() if place == f"to {now}"]:
                del self.alive[source]
            for command in self.commands.get(now, ()):
                self.obey(now, command)
            self.most.add(frozenset(self.alive))
            if self.alive.get(now) == "fresh":
                assert not self.uses.users[now], f"{now} is lost"
                del self.alive[now]

    def obey(self, now: int, command: Command) -> None:
        target = command.target
        if command.action == FREE:
            assert self.alive.pop(target) in ("loaded", "saved")
            self.freed[target] += 1
        elif command.action == PRELOAD:
            assert target not in self.alive
            self.alive[target] = "on the way"
        else:
            assert self.alive[now] == "fresh"
            self.alive[now] = "saved" if command.action == SAVE else f"to {target}"

    def peak(self, sizes: Mapping[int, int]) -> int:
        """The most bytes at any moment."""
        return max(sum(sizes.get(index, 0) for index in moment) for moment in self.most)


@given(programs())
@settings(max_examples=MANY)
def test_the_verifier_has_nothing_to_say(file: File) -> None:
    whole = planned(file)
    assert not [item for item in check(whole) if "NAC100" <= item.code <= "NAC129"]
    assert {item.code for item in check(whole)} == {item.code for item in check(file)}
    assert follow(whole) == set()
    assert parse(write(whole)).file.schedule == whole.schedule


@given(programs())
@settings(max_examples=MANY)
def test_every_value_is_there_when_it_is_used_and_goes_once(file: File) -> None:
    machine = Machine(planned(file))
    machine.run()
    uses, last = machine.uses, len(file.instructions) - 1
    forwarded = {
        tick.index for tick in machine.file.schedule for item in tick.commands if item.action == FORWARD
    }
    owned = {index for index in range(last) if uses.users[index] or index in uses.loads}
    expected = owned - uses.inputs - uses.outputs - forwarded
    assert machine.freed == Counter(expected)
    assert set(machine.alive) == {index for index in range(last) if index in uses.inputs | uses.outputs}


@given(programs())
@settings(max_examples=MANY)
def test_each_command_stands_where_the_rules_say(file: File) -> None:
    uses, seen = uses_of(file), Counter[int]()
    first = next(tick for tick in range(len(file.instructions)) if computing(uses, tick))
    for tick in plan_memory(file):
        assert computing(uses, tick.index)
        order = [FORWARD, FREE, SAVE, PRELOAD]
        keys = [(order.index(Action(item.action)), item.target) for item in tick.commands]
        assert keys == sorted(set(keys))
        for command in tick.commands:
            if command.action == FREE:
                after = max([command.target, *uses.users[command.target]]) + 1
                assert not any(computing(uses, other) for other in range(after, tick.index))
                assert after <= tick.index
            elif command.action == PRELOAD:
                seen[command.target] += 1
                between = range(tick.index, command.target)
                start = max(other for other in between if computing(uses, other)) + 1
                assert start - tick.index <= 12
                assert sum(computing(uses, other) for other in between) <= 3
    assert seen == Counter(load for load in uses.loads if load > first)


@given(programs(), st.data())
@settings(max_examples=MANY)
def test_the_peak_is_that_of_the_latest_preloads_and_never_more_than_all(
    file: File, data: st.DataObject
) -> None:
    uses = uses_of(file)
    unused = {index for index in uses.loads | uses.inputs if not uses.users[index]}
    sizes = {index: data.draw(st.integers(0, 9)) for index in uses.users if index not in unused}
    whole = planned(file, sizes)
    machine = Machine(whole)
    machine.run()
    peak = peak_bytes(whole, sizes)
    assert machine.peak(sizes) == peak.bytes <= sum(sizes.values())
    assert peak.bytes == peak_bytes(_latest(whole), sizes).bytes
    if not sum(sizes.get(index, 0) for index, users in uses.users.items() if not users):
        assert peak.bytes <= peak_bytes(file, sizes).bytes


def _latest(file: File) -> File:
    """The schedule with each PRELOAD at the last computing tick before its load."""
    uses = uses_of(file)
    commands = {
        index: [item for tick in file.schedule if tick.index == index for item in tick.commands]
        for index in range(len(file.instructions))
    }
    for index, items in commands.items():
        commands[index] = [item for item in items if item.action != PRELOAD]
    for load in sorted(uses.loads):
        earlier = [tick for tick in range(load) if computing(uses, tick)]
        if earlier:
            commands[earlier[-1]].append(Command(PRELOAD, load))
    return replace(file, schedule=tuple(Tick(index, tuple(items)) for index, items in commands.items()))


def chain(weights: list[int], between: int = 0) -> tuple[File, dict[int, int]]:
    """An input, then for each weight a load, a sum and some negations; the sizes of the weights."""
    code, sizes = [Instruction(INPUT)], dict[int, int]()
    for number, size in enumerate(weights, 1):
        sizes[len(code)] = size
        code.append(Instruction(INPUT, 1, (number,)))
        code.append(Instruction(ADD, 2, (), (-2, -1)))
        code += [Instruction(NEG, 1, (), (-1,))] * between
    code.append(Instruction(OUTPUT, 0, (), (-1,)))
    return program_of(code), sizes


def preloads(file: File) -> dict[int, int]:
    """The tick at which each load is preloaded."""
    return {
        item.target: tick.index for tick in file.schedule for item in tick.commands if item.action == PRELOAD
    }


def test_weights_come_early_only_while_memory_is_left() -> None:
    """The second weight decides the peak: no other is there together with it, the last ones come early."""
    file, sizes = chain([1, 100, 1, 1], between=1)
    assert sorted(sizes) == [1, 4, 7, 10]
    assert preloads(planned(file, sizes)) == {1: 0, 4: 3, 7: 6, 10: 8}
    assert preloads(planned(file)) == {1: 0, 4: 2, 7: 3, 10: 6}
    equal, sizes = chain([5, 5, 5], between=0)
    assert preloads(planned(equal, sizes)) == {1: 0, 3: 2, 5: 4}


def test_the_weights_of_the_file_count_where_no_sizes_are_given() -> None:
    file, sizes = chain([1, 100, 1], between=1)
    stored = (
        Tensor(number, 8, (size,), Unscaled(), bytes(size)) for number, size in enumerate(sizes.values(), 1)
    )
    assert plan_memory(replace(file, tensors=tuple(stored))) == plan_memory(file, sizes)
    assert plan_memory(file) != plan_memory(file, sizes)


@pytest.mark.parametrize("count", [254, 255, 256, 300, 700])
def test_a_tick_that_is_full_passes_commands_on(count: int) -> None:
    """So many loads that one tick cannot preload them, all used in one sum, and so many results to free at once."""
    code = [Instruction(INPUT)]
    code += [Instruction(NEG, 1, (), (-1 - number,)) for number in range(count)]
    code += [Instruction(INPUT, 1, (number,)) for number in range(1, count + 1)]
    here = len(code)
    code.append(Instruction(10, 3, (), tuple(range(-here, 0))))
    code += [Instruction(NEG, 1, (), (-1,))] * 10
    code += [Instruction(INPUT, 1, (1,)), Instruction(ADD, 2, (), (-2, -1))]
    code.append(Instruction(OUTPUT, 0, (), (-1,)))
    file = replace(
        program_of(code), signatures=(Signature(1, "T"), Signature(2, "TT"), Signature(3, "T" * here))
    )
    whole = planned(file)
    assert not [item for item in check(whole) if "NAC100" <= item.code <= "NAC129"]
    machine = Machine(whole)
    machine.run()
    assert len(machine.freed) == 2 * count
    assert max(len(tick.commands) for tick in whole.schedule) <= 255


def test_commands_of_a_full_tick_before_a_load_leave_it_room() -> None:
    """As many results end at one tick as it has places, and a run of loads follows it."""
    code = [Instruction(INPUT)] + [Instruction(NEG, 1, (), (-1 - number,)) for number in range(300)]
    code.append(Instruction(10, 3, (), tuple(range(-301, 0))))
    code.append(Instruction(NEG, 1, (), (-1,)))
    code += [Instruction(INPUT, 1, (1,)), Instruction(INPUT, 1, (2,)), Instruction(ADD, 2, (), (-2, -1))]
    code += [Instruction(ADD, 2, (), (-4, -1)), Instruction(OUTPUT, 0, (), (-1,))]
    file = replace(
        program_of(code), signatures=(Signature(1, "T"), Signature(2, "TT"), Signature(3, "T" * 301))
    )
    whole = planned(file)
    assert not [item for item in check(whole) if "NAC100" <= item.code <= "NAC129"]
    Machine(whole).run()


def test_programs_that_ticks_cannot_name_have_no_schedule() -> None:
    code = [Instruction(INPUT), *[Instruction(NEG, 1, (), (-1,))] * 65534, Instruction(OUTPUT, 0, (), (-1,))]
    assert len(plan_memory(program_of(code))) == 65534
    assert plan_memory(program_of([*code[:2], *code[1:]])) == ()
    assert plan_memory(File()) == ()


def test_a_report_says_what_the_schedule_does() -> None:
    file, sizes = chain([1, 100, 1, 1], between=1)
    results = {index: 4 for index in range(len(file.instructions)) if index not in sizes}
    report = describe_schedule(planned(file, sizes), {**sizes, **results})
    assert report.unscheduled == 4 * 10 + 103
    assert report.peak == PeakMemory(112, 5)
    assert report.commands == {FORWARD: 7, SAVE: 1, FREE: 4, PRELOAD: 4}
    assert (report.nearest, report.mean, report.farthest) == (1, 1.25, 2)
    assert list(report.lines()) == [
        "peak memory: 112 bytes at tick 5",
        "without the schedule: 143 bytes (22% less)",
        "commands: 1 SAVE_RESULT, 4 FREE, 7 FORWARD, 4 PRELOAD",
        "preloaded 1 to 2 ticks before the load, 1.2 on average",
    ]


def test_a_report_without_a_schedule() -> None:
    file, sizes = chain([1, 2])
    assert list(describe_schedule(file, sizes).lines()) == [
        "peak memory: 3 bytes at tick 3",
        "without the schedule: 3 bytes",
        "commands: none",
    ]


def test_a_report_passes_over_actions_without_a_name() -> None:
    file, sizes = chain([1, 2])
    strange = replace(file, schedule=(Tick(1, (Command(99, 0), Command(PRELOAD, 2))),))
    assert describe_schedule(strange, sizes).commands == {PRELOAD: 1}
