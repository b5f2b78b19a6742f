"""The rules of the memory schedule agree with a machine that follows it step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.base.diagnostic import errors
from lamella.lang.nac.check import PeakMemory, check, peak_bytes
from lamella.lang.nac.nodes import INPUT, OUTPUT, Action, Command, File, Header, Instruction, Signature
from tests.support.lang.nac.schedules import (
    FORWARD,
    FREE,
    PRELOAD,
    SAVE,
    Commands,
    follow,
    programs,
    schedule_first,
    schedule_newest,
    scheduled,
    uses_of,
)


@st.composite
def disturbed(draw: st.DrawFn) -> File:
    """Programs with a right schedule in which a few commands were added, removed, moved or changed."""
    file = draw(programs())
    commands: Commands = {tick: list(items) for tick, items in schedule_first(file).items()}
    ticks = st.integers(0, len(file.instructions) - 1)
    for _ in range(draw(st.integers(0, 2))):
        there = [(tick, *item) for tick, items in commands.items() for item in items]
        action: int = draw(st.sampled_from([SAVE, FREE, FORWARD, PRELOAD]))
        target, place, chosen, removed = draw(ticks), draw(ticks), draw(st.booleans()), draw(st.booleans())
        if there and chosen:
            place, action, target = draw(st.sampled_from(there))
            commands[place] = [item for item in commands[place] if item != (action, target) or not removed]
        users = uses_of(file).users[place]
        change = draw(st.sampled_from(["near", "anywhere", "forward", "free", "none"]))
        if change == "forward" and users:
            action, target = FORWARD, draw(st.sampled_from(users))
        elif change == "free":
            action, place = FREE, draw(ticks)
        elif change == "near":
            place = min(max(place + draw(st.integers(-2, 2)), 0), len(file.instructions) - 1)
        elif change == "anywhere":
            place = draw(ticks)
        if change != "none":
            items = commands.setdefault(place, [])
            items.insert(draw(st.integers(0, len(items))), (action, target))
    return scheduled(file, commands)


ACTIONS = {"NAC104": SAVE, **dict.fromkeys(("NAC105", "NAC106"), FORWARD)}
ACTIONS |= dict.fromkeys(("NAC107", "NAC108", "NAC109"), PRELOAD)
ACTIONS |= dict.fromkeys(("NAC110", "NAC111", "NAC113", "NAC114", "NAC115"), FREE)
"""The errors of a schedule, and the action that each is about."""


@given(disturbed())
@settings(max_examples=300)
def test_errors_are_what_goes_wrong_when_the_schedule_is_followed(file: File) -> None:
    """One command can be wrong in several ways; one of them is told."""
    found = {item.code for item in errors(check(file))}
    wrong = follow(file)
    assert found <= wrong
    assert {ACTIONS[code] for code in found} == {ACTIONS[code] for code in wrong}


@given(programs())
def test_schedules_of_the_first_compiler_have_nothing_wrong(file: File) -> None:
    findings = check(scheduled(file, schedule_first(file)))
    assert {item.code for item in findings} <= {"NAC119", "NAC120"}, "\n".join(map(str, findings))


@given(programs("1.8"))
def test_schedules_of_the_newest_compiler_lack_nothing(file: File) -> None:
    assert not check(scheduled(file, schedule_newest(file)))


@given(programs())
def test_freeing_at_the_last_use_is_doubtful_in_the_first_version(file: File) -> None:
    findings = check(scheduled(file, schedule_newest(file)))
    freed = [command for items in schedule_newest(file).values() for command in items if command[0] == FREE]
    assert [item.code for item in findings] == ["NAC112"] * len(freed)


@given(programs(), st.data())
def test_notes_name_what_is_missing(file: File, data: st.DataObject) -> None:
    """A command that is taken out of a complete schedule is missed."""
    commands = _complete(file)
    assert not check(scheduled(file, commands))
    places = [(tick, item) for tick, items in commands.items() for item in items]
    if not places:
        return
    tick, command = data.draw(st.sampled_from(places))
    commands[tick].remove(command)
    left = scheduled(file, commands)
    if not left.schedule:
        return
    missing = {FREE: {"NAC119"}, PRELOAD: {"NAC120"}, SAVE: {"NAC115", "NAC118"}, FORWARD: {"NAC118"}}
    allowed = missing[Action(command[0])]
    found = {item.code for item in check(left)}
    assert found <= allowed
    assert found or _is_free_of_choice(left, tick, command)


def _is_free_of_choice(file: File, tick: int, command: tuple[int, int]) -> bool:
    """User inputs need not be freed, and outputs need not be saved; a load can also be read directly."""
    uses = uses_of(file)
    direct = command[0] == FREE and not any(
        Command(PRELOAD, command[1]) in item.commands for item in file.schedule
    )
    return direct or command[1] in uses.inputs or (command[0] == SAVE and tick in uses.outputs)


def _complete(file: File) -> Commands:
    """The newest compiler's schedule with each FREE one tick later, as the first version says."""
    commands: Commands = {}
    for tick, items in schedule_newest(file).items():
        for item in items:
            commands.setdefault(tick + (item[0] == FREE), []).append(item)
    return commands


# --- peak bytes -----------------------------------------------------------------------------------------------


@given(programs(), st.booleans(), st.data())
def test_peak_bytes_are_those_of_intervals(file: File, newest: bool, data: st.DataObject) -> None:
    sizes = {
        index: data.draw(st.integers(0, 100))
        for index in range(len(file.instructions))
        if data.draw(st.booleans())
    }
    whole = scheduled(file, schedule_newest(file) if newest else schedule_first(file))
    moments = _moments(whole)
    alive = [_interval(whole, index, moments) for index in range(len(file.instructions))]
    totals = [
        sum(sizes.get(index, 0) for index, (begin, end) in enumerate(alive) if begin <= moment < end)
        for moment in range(len(moments))
    ]
    peak = peak_bytes(whole, sizes)
    assert peak.bytes == max(totals)
    if peak.bytes:
        assert peak.tick == moments[totals.index(peak.bytes)][0]


Moment = tuple[int, str, int]


def _moments(file: File) -> list[Moment]:
    """What happens, in order: a tick's instruction, the end of what was forwarded to it, its commands, its end."""
    commands = {tick.index: tick.commands for tick in file.schedule}
    found: list[Moment] = []
    for index in range(len(file.instructions)):
        found += [(index, "execute", index), (index, "consume", index)]
        found += [(index, Action(item.action).name, item.target) for item in commands.get(index, ())]
        found.append((index, "end", index))
    return found


def _interval(file: File, index: int, moments: list[Moment]) -> tuple[int, int]:
    """From when on, and until when, the result of an instruction is in memory."""
    begin = min(
        place
        for place, (_, what, about) in enumerate(moments)
        if about == index and what in ("execute", "PRELOAD")
    )
    ends = [place for place, (_, what, about) in enumerate(moments) if (what, about) == ("FREE", index)]
    for tick, what, about in moments:
        if tick == index and what == "FORWARD":
            ends.append(moments.index((about, "consume", about)))
    if not uses_of(file).users[index] and (index, "SAVE_RESULT", index) not in moments:
        ends.append(moments.index((index, "end", index)))
    return begin, min(ends, default=len(moments))


CHAIN = File(
    header=Header(inputs=1, outputs=1),
    signatures=(Signature(1, "T"),),
    instructions=(
        Instruction(INPUT),
        Instruction(14, 1, (), (-1,)),
        Instruction(14, 1, (), (-1,)),
        Instruction(OUTPUT, 0, (), (-1,)),
    ),
)
"""An input, two computations and the output."""


def test_without_a_schedule_everything_stays() -> None:
    assert peak_bytes(CHAIN, {0: 5, 1: 7, 2: 11}) == PeakMemory(23, 2)


def test_what_is_forwarded_ends_with_its_user() -> None:
    file = scheduled(CHAIN, {1: [(FREE, 0), (FORWARD, 2)], 2: [(SAVE, 2)]})
    assert peak_bytes(file, {0: 5, 1: 7, 2: 4}) == PeakMemory(12, 1)


@pytest.mark.parametrize("action", [0, 11, 15, 25, 255])
def test_actions_without_a_meaning_are_refused(action: int) -> None:
    file = scheduled(CHAIN, {1: [(FORWARD, 2), (action, 0)], 2: [(SAVE, 2)]})
    assert [item.code for item in check(file)] == ["NAC102"]


@pytest.mark.parametrize("action", [15, 25])
def test_training_actions_belong_to_files_that_train(action: int) -> None:
    training = (Instruction(INPUT, 4, (1,)), Instruction(OUTPUT, 4, (), (-1,)))
    file = scheduled(CHAIN, {1: [(FORWARD, 2), (action, 1)], 2: [(SAVE, 2)], 3: [(25, 1)]})
    codes = {
        item.code
        for item in check(replace(file, training=training, header=Header("1.8", inputs=1, outputs=1)))
    }
    assert codes == ({"NAC117"} if action == 15 else {"NAC113"})
