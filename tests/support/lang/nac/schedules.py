"""Programs with memory schedules: made as the public compilers make them, and followed step by step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from hypothesis import strategies as st

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
    Tick,
)

SAVE, FREE, FORWARD, PRELOAD = Action.SAVE_RESULT, Action.FREE, Action.FORWARD, Action.PRELOAD
Commands = dict[int, list[tuple[int, int]]]
NEG, ADD, COMPUTED, LOADED = 14, 11, 0, 1


@dataclass(frozen=True, slots=True)
class Uses:
    """What a program does, read anew from its offsets."""

    users: dict[int, list[int]]
    loads: set[int]
    inputs: set[int]
    outputs: set[int]


def uses_of(file: File) -> Uses:
    """The users of each result, with the instructions that are special."""
    users: dict[int, list[int]] = {index: [] for index in range(len(file.instructions))}
    for index, item in enumerate(file.instructions):
        for source in sorted({index + offset for offset in item.offsets}):
            users[source].append(index)
    kinds = [(item.operation, item.variant) for item in file.instructions]
    last = len(file.instructions) - 1
    return Uses(
        users,
        {index for index, kind in enumerate(kinds) if kind == (INPUT, 1)},
        {index for index, kind in enumerate(kinds) if kind == (INPUT, 0)},
        {last + offset for offset in file.instructions[last].offsets},
    )


@st.composite
def programs(draw: st.DrawFn, version: str = "1.6") -> File:
    """Small programs in which each parameter is loaded directly before its first user."""
    code = [Instruction(INPUT, 0)]
    computed = [0]
    for _ in range(draw(st.integers(1, 7))):
        loads = draw(st.integers(0, 2))
        for _ in range(loads):
            code.append(Instruction(INPUT, 1, (len(code),)))
        fresh = list(range(len(code) - loads, len(code)))
        sources = [*fresh, draw(st.sampled_from(computed))][:2]
        if len(sources) == 1 and draw(st.booleans()):
            sources.append(draw(st.sampled_from([*computed, *_loaded(code)])))
        here = len(code)
        code.append(Instruction(ADD if len(sources) == 2 else NEG, len(sources), (), _back(sources, here)))
        computed.append(here)
    results = draw(st.lists(st.sampled_from(computed[1:]), min_size=1, max_size=2, unique=True))
    code.append(Instruction(OUTPUT, 0, (), _back(results, len(code))))
    parameters = tuple(Parameter(index, f"w{index}") for index in _loaded(code))
    return File(
        header=Header(version, inputs=1, outputs=len(results)),
        signatures=(Signature(1, "T"), Signature(2, "TT")),
        instructions=tuple(code),
        parameters=parameters,
    )


def _loaded(code: list[Instruction]) -> list[int]:
    return [index for index, item in enumerate(code) if (item.operation, item.variant) == (INPUT, 1)]


def _back(sources: list[int], here: int) -> tuple[int, ...]:
    return tuple(source - here for source in sources)


def scheduled(file: File, commands: Commands) -> File:
    """The program with these commands."""
    ticks = (
        Tick(index, tuple(Command(*item) for item in commands[index]))
        for index in sorted(commands)
        if commands[index]
    )
    return replace(file, schedule=tuple(ticks))


def schedule_first(file: File) -> Commands:
    """The schedule of the compiler of 1.6, with the commands that it loses at the ticks of loads."""
    uses, commands = uses_of(file), defaultdict[int, list[tuple[int, int]]](list)
    kept = _preload_runs(uses, commands)
    for index in range(len(file.instructions) - 1):
        users = uses.users[index]
        if index in uses.loads or index in uses.inputs or not users:
            continue
        between = range(index + 1, users[0])
        if len(users) == 1 and index not in uses.outputs and all(tick in uses.loads for tick in between):
            commands[index].append((FORWARD, users[0]))
        else:
            commands[index].append((SAVE, index))
            kept.append(index)
    for index in kept:
        if index not in uses.outputs:
            commands[max(uses.users[index]) + 1].append((FREE, index))
    order = [FORWARD, FREE, SAVE, PRELOAD]
    return {
        tick: sorted(set(items), key=lambda item: (order.index(Action(item[0])), item[1]))
        for tick, items in commands.items()
        if tick not in uses.loads
    }


def _preload_runs(uses: Uses, commands: Commands) -> list[int]:
    """PRELOAD for each run of loads, at most three computations and twelve ticks before it."""
    planned: list[int] = []
    for start in sorted(uses.loads):
        if start in planned:
            continue
        run = [start]
        while run[-1] + 1 in uses.loads:
            run.append(run[-1] + 1)
        planned += run
        place, counted = -1, 0
        for tick in range(start - 1, max(start - 13, -1), -1):
            if any(action == PRELOAD for action, _ in commands[tick]):
                break
            place, counted = tick, counted + (tick not in uses.loads)
            if counted == 3:
                break
        if place >= 0:
            commands[place] += [(PRELOAD, load) for load in run]
    return [load for load in planned if any((PRELOAD, load) in items for items in commands.values())]


def schedule_newest(file: File) -> Commands:
    """The schedule of the compiler of 1.8, without the evening out of preloads."""
    uses, commands = uses_of(file), defaultdict[int, list[tuple[int, int]]](list)
    for index, users in uses.users.items():
        forwarded = users == [index + 1] and index not in uses.outputs | uses.loads | uses.inputs
        if users and not forwarded and index not in uses.outputs:
            commands[max(users)].append((FREE, index))
        if forwarded:
            commands[index].append((FORWARD, index + 1))
        elif users and index not in uses.loads | uses.inputs:
            commands[index].append((SAVE, index))
    for load in sorted(uses.loads):
        earlier = [tick for tick in range(load) if tick not in uses.loads]
        if earlier:
            commands[earlier[-1]].append((PRELOAD, load))
    order = [FREE, FORWARD, SAVE, PRELOAD]
    return {
        tick: sorted(items, key=lambda item: order.index(Action(item[0]))) for tick, items in commands.items()
    }


def follow(file: File) -> set[str]:
    """Execute a schedule step by step on values that know where they are; the codes of what goes wrong."""
    uses, faults = uses_of(file), set[str]()
    commands = {tick.index: tick.commands for tick in file.schedule}
    where: dict[int, str] = {}
    fetched: list[int] = []
    for now, item in enumerate(file.instructions):
        if any(where[now + offset] == "gone" for offset in item.offsets):
            faults.add("NAC111")
        where[now] = "given" if item.operation == INPUT else "passing"
        for command in dict.fromkeys(commands.get(now, ())):
            target = command.target
            if command.action == SAVE:
                faults |= {"NAC104"} if target != now else set()
                where[now] = "stored" if target == now and where[now] != "gone" else where[now]
            elif command.action == FORWARD:
                faults |= {"NAC105"} if target not in uses.users[now] else set()
                faults |= {"NAC106"} if len(uses.users[now]) > 1 else set()
            elif command.action == PRELOAD:
                faults |= set() if target in uses.loads else {"NAC107"}
                faults |= {"NAC108"} if target in where else set()
                faults |= {"NAC109"} if target in fetched else set()
                fetched.append(target)
            else:
                faults |= {"NAC114"} if target in uses.outputs else set()
                faults |= FREED[where.get(target, "to come")]
                where.update({target: "gone"} if target in where else {})
    return faults


FREED: dict[str, set[str]] = {
    **{"to come": {"NAC110"}, "gone": {"NAC113"}, "passing": {"NAC115"}},
    **{"given": set(), "stored": set()},
}
"""What is wrong with freeing a value, by where it is."""
