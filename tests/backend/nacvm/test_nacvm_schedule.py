"""What a memory schedule does to a run: to its numbers nothing, to its memory what it says."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.nacvm import NacMachine, NacProgram, compile_program
from lamella.backend.progress import Progress
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import F32
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.lang.nac.nodes import INPUT, OUTPUT, Action, File, Header, Instruction, Parameter
from lamella.lang.nac.schedule import plan_memory
from lamella.ops.library import Library
from tests.support.backend.nacvm.assembling import assemble, with_schedule
from tests.support.backend.nacvm.chains import LENGTH, give_meaning, judge, weights
from tests.support.lang.nac.schedules import Commands, programs, schedule_first, schedule_newest, scheduled

SAVE, FREE, FORWARD, PRELOAD = (
    int(item) for item in (Action.SAVE_RESULT, Action.FREE, Action.FORWARD, Action.PRELOAD)
)
T = TypeVar("T")
X = np.arange(LENGTH, dtype=np.float32)


def chain(*rows: Sequence[int], commands: Commands | None = None) -> File:
    """Instructions by the indices of their arguments: the first is the input, `-1` loads a parameter, the last ends."""
    code: list[Instruction] = []
    for index, row in enumerate(rows):
        back = tuple(source - index for source in row if source >= 0)
        if not row:
            code.append(Instruction(INPUT, 0))
        elif row == [-1]:
            code.append(Instruction(INPUT, 1, (index,)))
        elif index == len(rows) - 1:
            code.append(Instruction(OUTPUT, 0, (), back))
        else:
            code.append(Instruction(11, len(back), (), back))
    loads = tuple(Parameter(index, f"w{index}") for index, row in enumerate(rows) if row == [-1])
    file = File(Header(inputs=1, outputs=len(rows[-1])), instructions=tuple(code), parameters=loads)
    return file if commands is None else scheduled(file, commands)


def run(file: File, load: Callable[[int], Array] = weights) -> tuple[NacMachine, list[Array]]:
    """The machine of a file after one call, and what the call gave."""
    machine = compile_program(give_meaning(file, load), traced=True)
    return machine, list(machine(v0=X).values())


def looking(machine: NacMachine, look: Callable[[int], None]) -> Progress:
    """A watch that looks before each instruction that does something."""
    owners = list(dict.fromkeys(machine._code.owners))

    def watch(items: Iterable[T], total: int, /) -> Iterable[T]:
        for number, item in enumerate(items):
            look(owners[number])
            yield item

    return watch


# --- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [schedule_first, schedule_newest, None])
@given(data=st.data())
def test_schedules_change_memory_and_no_number(
    schedule: Callable[[File], Commands] | None, data: st.DataObject
) -> None:
    file = data.draw(programs())
    ticks = plan_memory(file) if schedule is None else scheduled(file, schedule(file)).schedule
    plain, wanted = run(file)[0], judge(file, X)
    machine, found = run(replace(file, schedule=ticks))
    for array, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(array, other)
    assert machine.peak_bytes <= machine.schedule_bytes <= plain.peak_bytes
    assert plain.peak_bytes == 4 * LENGTH * (len(file.instructions) - 1)


@given(file=programs(), drawn=st.data())
def test_any_commands_end_in_the_right_numbers_or_in_findings(file: File, drawn: st.DataObject) -> None:
    places = st.integers(0, len(file.instructions) - 1)
    command = st.tuples(st.sampled_from([SAVE, FREE, FORWARD, PRELOAD]), places)
    commands = drawn.draw(st.dictionaries(places, st.lists(command, min_size=1, max_size=3), min_size=1))
    with suppress(Gone):
        for array, other in zip(run_or_miss(scheduled(file, commands)), judge(file, X), strict=True):
            np.testing.assert_array_equal(array, other)
    assert not preloading()


class Gone(Exception):
    """A run that missed a result."""


def run_or_miss(file: File) -> list[Array]:
    """What a run gives; Gone where a result is missed, and nothing else may be wrong."""
    try:
        return run(file)[1]
    except LamellaError as problem:
        if {item.code for item in problem.findings} != {"NAC235"}:
            raise
        raise Gone from problem


def perceptron(depth: int) -> tuple[NacProgram, int]:
    """A deep network, and the bytes of one of its results."""
    builder = Builder(Library(), "G")
    value = builder.input("x", F32, (4, 16))
    for number in range(depth):
        weight = builder.variable(f"w{number}", F32, (16, 16))
        value = builder.call("aten.tanh", builder.call("aten.matmul", value, weight))
    model = Model(builder.finish(value), builder.library)
    return assemble(model, lambda parameter: np.eye(16, dtype=np.float32) / parameter), 4 * 4 * 16


def test_the_peak_of_a_deep_network_is_that_of_its_schedule() -> None:
    program, each = perceptron(12)
    plain = compile_program(program)
    kept = compile_program(with_schedule(program, plan_memory(program.file)))
    given = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
    for one, other in zip(plain(x=given).values(), kept(x=given).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert plain.peak_bytes == each + 12 * (2 * each + 16 * 16 * 4)
    assert kept.peak_bytes == kept.schedule_bytes < plain.peak_bytes / 4


# --- each command has its effect ----------------------------------------------------------------------------


def gone(file: File) -> str:
    """The finding of a run in which a result is gone."""
    with pytest.raises(LamellaError) as problem:
        run(file)
    (finding,) = problem.value.findings
    assert finding.code == "NAC235"
    assert re.search(r"instruction \d+ aten", finding.origins[0])
    return finding.message


SHARED = [[], [0], [0, 1], [1, 2], [3]]


def test_a_result_is_there_for_later_users_where_it_is_saved() -> None:
    kept = {1: [(SAVE, 1)], 2: [(SAVE, 2)], 3: [(SAVE, 3)]}
    machine, (found,) = run(chain(*SHARED, commands=kept))
    np.testing.assert_array_equal(found, -X + (X - X))
    assert [event.kind for event in machine.trace] == ["save"] * 3


def test_a_result_that_no_command_speaks_of_stays() -> None:
    """Each result is stored (8.2); a schedule that only frees or preloads takes nothing else away."""
    for commands in ({2: [(SAVE, 2)]}, {0: [(PRELOAD, 9)]}, {3: [(FREE, 1)]}):
        file = chain(*SHARED, commands=commands)
        (found,) = compile_program(give_meaning(file, weights))(v0=X).values()
        (wanted,) = compile_program(give_meaning(chain(*SHARED), weights))(v0=X).values()
        assert np.array_equal(found, wanted)


def test_a_freed_result_is_gone_and_its_array_too() -> None:
    kept = {1: [(SAVE, 1)], 2: [(SAVE, 2)]}
    assert gone(chain(*SHARED, commands=kept | {2: [(FREE, 1), (SAVE, 2)]})).endswith("was freed at tick 2")


def test_arrays_live_as_long_as_the_schedule_says() -> None:
    alive: dict[int, weakref.ref[Array]] = {}
    seen: dict[int, list[int]] = {}

    def load(parameter: int) -> Array:
        array = weights(parameter)
        alive[parameter] = weakref.ref(array)
        return array

    file = chain(
        [], [-1], [0, 1], [-1], [2, 3], [4], [5], commands={2: [(SAVE, 2), (FREE, 1)], 4: [(FORWARD, 5)]}
    )
    machine = compile_program(give_meaning(file, load), traced=True)

    def look(index: int) -> None:
        seen[index] = [parameter for parameter, array in alive.items() if array() is not None]

    machine.progress = looking(machine, look)
    machine(v0=X)
    assert (seen[2], seen[3], seen[5]) == ([1], [], [3])
    assert [(item.kind, item.tick, item.target) for item in machine.trace] == [
        *[("load", 1, 1), ("save", 2, 2), ("free", 2, 1), ("load", 3, 3), ("forward", 4, 5)]
    ]


def test_a_part_does_not_keep_the_whole_alive() -> None:
    builder = Builder(Library(), "G")
    weight = builder.variable("w", F32, (10000, 4))
    part = builder.call("aten.slice", weight, dim=0, start=3, end=5)
    model = Model(builder.finish(builder.call("aten.neg", part)), builder.library)
    alive = list[weakref.ref[Array]]()
    seen = list[bool]()

    def load(parameter: int) -> Array:
        array = np.ones((10000, 4), np.float32)
        alive.append(weakref.ref(array))
        return array

    program = assemble(model, load)
    file = scheduled(program.file, {1: [(SAVE, 1), (FREE, 0)], 2: [(SAVE, 2)]})
    machine = compile_program(with_schedule(program, file.schedule))
    machine.progress = looking(
        machine, lambda index: seen.append(alive[0]() is not None) if index > 1 else None
    )
    machine()
    assert seen == [False] * len(seen)
    assert seen


def test_a_forwarded_result_is_for_one_user() -> None:
    once = {1: [(FORWARD, 2)], 2: [(SAVE, 2)], 3: [(SAVE, 3)]}
    assert gone(chain(*SHARED, commands=once)).endswith("was forwarded to instruction 2")
    late = {1: [(FORWARD, 3)], 2: [(SAVE, 2)], 3: [(SAVE, 3)]}
    assert gone(chain(*SHARED, commands=late)).endswith("is forwarded to instruction 3")
    _, (found,) = run(chain([], [0], [0, 1], [2], commands={1: [(FORWARD, 2)]}))
    np.testing.assert_array_equal(found, X - X)


# --- preloading ---------------------------------------------------------------------------------------------

AHEAD = [[], [0], [1], [-1], [2, 3], [4]]
KEPT: dict[int, list[tuple[int, int]]] = {1: [(SAVE, 1)], 2: [(SAVE, 2)], 4: [(SAVE, 4)]}


def preloading() -> bool:
    """Whether a thread that preloads is alive."""
    return any(thread.name.startswith("preload") for thread in threading.enumerate())


def test_a_preload_reads_while_instructions_run() -> None:
    """The read waits for an instruction after its PRELOAD, which on one thread would wait for the read."""
    computed, threads = threading.Event(), list[int]()

    def load(parameter: int) -> Array:
        threads.append(threading.get_ident())
        assert computed.wait(30)
        return weights(parameter)

    file = chain(*AHEAD, commands=KEPT | {0: [(PRELOAD, 3)]})
    machine = compile_program(give_meaning(file, load), traced=True)
    machine.progress = looking(machine, lambda index: computed.set() if index == 3 else None)
    (found,) = machine(v0=X).values()
    np.testing.assert_array_equal(found, X + 3)
    assert threads != [threading.get_ident()]
    events = [(item.kind, item.thread) for item in machine.trace if "load" in item.kind]
    assert events[0] == ("preload start", threads[0])
    assert set(events[1:]) == {("preload end", threads[0]), ("load", threading.get_ident())}
    assert not preloading()


def test_a_load_without_a_preload_reads_by_itself() -> None:
    threads = list[int]()

    def load(parameter: int) -> Array:
        threads.append(threading.get_ident())
        return weights(parameter)

    machine, (found,) = run(chain(*AHEAD, commands=KEPT), load)
    np.testing.assert_array_equal(found, X + 3)
    assert threads == [threading.get_ident()]
    assert [item.kind for item in machine.trace if "load" in item.kind] == ["load"]


def test_what_fails_on_the_thread_fails_in_the_caller() -> None:
    def load(parameter: int) -> Array:
        raise OSError(f"parameter {parameter} lies on a disk that is gone")

    with pytest.raises(OSError, match="parameter 3"):
        run(chain(*AHEAD, commands=KEPT | {0: [(PRELOAD, 3)]}), load)
    assert not preloading()


def test_a_run_that_fails_leaves_no_thread_and_waits_for_none() -> None:
    """The read is under way, and another waits behind it, when an instruction misses its argument."""
    reading, failing = threading.Event(), threading.Event()

    def load(parameter: int) -> Array:
        reading.set()
        assert failing.wait(30)
        return weights(parameter)

    commands = {0: [(PRELOAD, 3), (PRELOAD, 4)], 1: [(FREE, 1)], 3: [(SAVE, 3)]}
    file = chain([], [0], [1], [-1], [-1], [3, 4], [5], commands=commands)
    machine = compile_program(give_meaning(file, load))

    def look(index: int) -> None:
        if index == 2:
            assert reading.wait(30)
            failing.set()

    machine.progress = looking(machine, look)
    with pytest.raises(LamellaError):
        machine(v0=X)
    assert not preloading()


def test_a_second_preload_and_one_that_comes_late_do_nothing() -> None:
    count = list[int]()

    def load(parameter: int) -> Array:
        count.append(parameter)
        return weights(parameter)

    commands = {0: [(PRELOAD, 3)], 1: [(SAVE, 1), (PRELOAD, 3)], 2: [(SAVE, 2)], 4: [(SAVE, 4), (PRELOAD, 3)]}
    _, (found,) = run(chain(*AHEAD, commands=commands), load)
    np.testing.assert_array_equal(found, X + 3)
    assert count == [3]
