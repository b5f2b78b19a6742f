"""The memory schedule, followed tick by tick: what is saved, forwarded, preloaded and freed, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.lang.nac.check.memory.flow import UseRanges, is_end, is_load, read_flow
from lamella.lang.nac.nodes import INPUT, V1_5, V1_6, Action, Command, File, Tick
from lamella.lang.nac.rules import instructions as blocks
from lamella.lang.nac.rules import schedule as rules

LAST_TICK = 65535
"""The last instruction that a record of the schedule can name."""


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """What the commands so far have done to each instruction's result."""

    file: File
    flow: UseRanges
    actions: frozenset[int]
    saved: set[int] = field(default_factory=set)
    forwarded: set[int] = field(default_factory=set)
    preloaded: set[int] = field(default_factory=set)
    freed: set[int] = field(default_factory=set)


def check_schedule(file: File) -> Iterator[Diagnostic]:
    """The commands in their order, then what no command says; a file without a schedule is right."""
    memory = ScheduleState(
        file, read_flow(file.instructions), _TRAINING_ACTIONS if file.training else _ACTIONS
    )
    before = -1
    for tick in file.schedule:
        if tick.index <= before:
            yield rules.TICK_ORDER.at(tick.span, tick=tick.index, before=before)
        before = max(before, tick.index)
        yield from _check_tick(memory, tick)
    if file.schedule:
        yield from _check_left(memory)


def _check_tick(memory: ScheduleState, tick: Tick) -> Iterator[Diagnostic]:
    count = len(memory.file.instructions)
    if tick.index >= count:
        yield rules.TICK_RANGE.at(tick.span, tick=tick.index, count=count)
        return
    seen: set[tuple[int, int]] = set()
    for command in tick.commands:
        if command.action not in memory.actions:
            yield rules.UNKNOWN_ACTION.at(command.span, action=command.action)
        elif command.target >= count:
            name = Action(command.action).name
            yield rules.TARGET_RANGE.at(command.span, action=name, target=command.target, count=count)
        elif (command.action, command.target) in seen:
            name = Action(command.action).name
            yield rules.COMMAND_TWICE.at(command.span, action=name, target=command.target, tick=tick.index)
        else:
            yield from _FOLLOW[command.action](memory, tick.index, command)
        seen.add((command.action, command.target))
    if tick.index in memory.saved and tick.index in memory.forwarded:
        yield rules.SAVED_AND_FORWARDED.at(tick.span, tick=tick.index)


_ACTIONS: frozenset[int] = frozenset({Action.SAVE_RESULT, Action.FREE, Action.FORWARD, Action.PRELOAD})
_TRAINING_ACTIONS: frozenset[int] = frozenset(Action)


def _save(memory: ScheduleState, tick: int, command: Command) -> Iterator[Diagnostic]:
    if command.target != tick:
        name = Action(command.action).name
        yield rules.SAVE_ELSEWHERE.at(command.span, action=name, tick=tick, target=command.target)
    else:
        memory.saved.add(tick)


def _forward(memory: ScheduleState, tick: int, command: Command) -> Iterator[Diagnostic]:
    target, flow = command.target, memory.flow
    memory.forwarded.add(tick)
    if tick - target not in memory.file.instructions[target].offsets or target <= tick:
        yield rules.FORWARD_TARGET.at(command.span, tick=tick, target=target)
    elif flow.first[tick] != flow.last[tick]:
        other = flow.last[tick] if flow.first[tick] == target else flow.first[tick]
        yield rules.FORWARD_SHARED.at(command.span, tick=tick, target=target, other=other)


def _preload(memory: ScheduleState, tick: int, command: Command) -> Iterator[Diagnostic]:
    target = command.target
    if not is_load(memory.file.instructions[target]):
        yield rules.PRELOAD_TARGET.at(command.span, target=target)
    elif target <= tick:
        yield rules.PRELOAD_LATE.at(command.span, tick=tick, target=target)
    elif target in memory.preloaded:
        yield rules.PRELOAD_TWICE.at(command.span, target=target)
    memory.preloaded.add(target)


def _free(memory: ScheduleState, tick: int, command: Command) -> Iterator[Diagnostic]:
    target, last = command.target, memory.flow.last[command.target]
    if target > tick:
        yield rules.FREE_EARLY.at(command.span, tick=tick, target=target)
        return
    if target in memory.freed:
        yield rules.FREE_TWICE.at(command.span, target=target)
    elif target in memory.flow.outputs:
        yield rules.FREE_OUTPUT.at(command.span, tick=tick, target=target)
    elif last > tick:
        yield rules.FREE_USED.at(command.span, tick=tick, target=target, user=last)
    elif target not in memory.saved and memory.file.instructions[target].operation != INPUT:
        yield rules.FREE_UNSAVED.at(command.span, tick=tick, target=target)
    elif last == tick and memory.file.header.version in (V1_5, V1_6):
        yield rules.FREE_AT_USE.at(command.span, tick=tick, target=target)
    elif target < memory.flow.blocks.start(tick):
        yield blocks.FREE_INSIDE.at(command.span, tick=tick, target=target)
    memory.freed.add(target)


def _free_later(memory: ScheduleState, tick: int, command: Command) -> Iterator[Diagnostic]:
    """What is freed after training is free of the program's order."""
    if command.target in memory.freed:
        yield rules.FREE_TWICE.at(command.span, target=command.target)
    memory.freed.add(command.target)


_FOLLOW: Mapping[int, Callable[[ScheduleState, int, Command], Iterator[Diagnostic]]] = MappingProxyType(
    {
        Action.SAVE_RESULT: _save,
        Action.SAVE_FOR_GRAD: _save,
        Action.FREE: _free,
        Action.FREE_AFTER_TRNG: _free_later,
        Action.FORWARD: _forward,
        Action.PRELOAD: _preload,
    }
)


def _check_left(memory: ScheduleState) -> Iterator[Diagnostic]:
    """Results that are used without being kept, kept without being freed, loaded without being preloaded."""
    computed = False  # whether a tick came in this block that does not load
    blocks = memory.flow.blocks
    for index, item in enumerate(memory.file.instructions[: LAST_TICK + 1]):
        load, last = is_load(item), memory.flow.last[index]
        computed = computed and index != blocks.start(index)
        if item.operation != INPUT and _is_lost(memory, index):
            yield rules.NEVER_KEPT.at(item.span, user=memory.flow.first[index], index=index)
        if load and computed and index not in memory.preloaded:
            yield rules.NEVER_PRELOADED.at(item.span, index=index)
        if _leaks(memory, index):
            yield rules.NEVER_FREED.at(item.span, index=index, user=max(index, last))
        computed = computed or not load


def _is_lost(memory: ScheduleState, index: int) -> bool:
    """Whether a later operation uses a result that no command keeps; outputs are kept without one."""
    first = memory.flow.first[index]
    kept = index in memory.saved or index in memory.forwarded
    return first >= 0 and not kept and not is_end(memory.file.instructions[first])


def _leaks(memory: ScheduleState, index: int) -> bool:
    """Whether something is kept to the end although a tick comes at which it could be freed."""
    kept = index in memory.saved or index in memory.preloaded
    freed = index in memory.freed or index in memory.flow.outputs
    after = max(index, memory.flow.last[index]) + 1
    return kept and not freed and after < min(len(memory.file.instructions), LAST_TICK + 1)
