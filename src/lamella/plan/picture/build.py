"""From a report and its plan to the scene that all pictures show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath

from lamella.base.diagnostic import printable
from lamella.lang.nem.resolved import Buffer, Plan, Task
from lamella.plan.bind.addresses import pack
from lamella.plan.picture.arrows import MOST_ARROWS, arrows
from lamella.plan.picture.facts import find_facts, find_notes, tell_bound, tell_topology
from lamella.plan.picture.labels import find_named
from lamella.plan.picture.names import (
    buffer_name,
    count,
    iteration_name,
    line_of,
    loops_of,
    name,
    region_name,
)
from lamella.plan.picture.scene import Bound, Box, Level, Row, Scene, Slice, Track, Waiting
from lamella.plan.timing.machine import SHARED
from lamella.plan.timing.occupancy import Occupancy
from lamella.plan.timing.report import Report, TaskUse
from lamella.plan.timing.schedule import TOKEN, Wait

MOST_BLOCKERS = 3
MOST_LINES = 50_000
"""Lines of the program text that a page shows."""
_FAR = ("DDR", "L2")
_FEWER = f"Only the first {count(MOST_ARROWS)} dependencies between task instances are shown."


def scene_of(report: Report, plan: Plan) -> Scene:
    """Everything but the slices, which only the timelines need."""
    program = name(plan.name) or "program"
    return Scene(
        program=program,
        file=name(PurePath(plan.source.name).name) if plan.source.text else "",
        device=name(report.device),
        topology=tell_topology(report, plan),
        cycles=report.cycles,
        covered=report.covered,
        cut=_tell_cut(report),
        tracks=tuple(_tracks(report)),
        tasks=tuple(_row(use, task, plan) for use, task in zip(report.tasks, plan.tasks(), strict=True)),
        levels=tuple(_levels(report, plan)),
        bounds=tuple(
            Bound(bound.name.replace("_", "-"), bound.cycles, tell_bound(bound), bound is report.binding)
            for bound in report.bounds
        ),
        ratio=report.ratio,
        facts=tuple(find_facts(report)),
        notes=tuple(find_notes(report)),
        named=tuple(find_named(plan)),
        source=tuple(_lines(plan)),
    )


def _tell_cut(report: Report) -> str:
    if report.is_complete:
        return ""
    return (
        f"The timeline shows the first {count(len(report.timeline))} of {count(report.instances)} task instances: "
        f"everything up to cycle {count(report.covered)}. Every total is of the whole program."
    )


def _lines(plan: Plan) -> Iterator[str]:
    if plan.source.text:
        for line in plan.source.text.removesuffix("\n").split("\n", MOST_LINES)[:MOST_LINES]:
            yield printable(line.rstrip("\r").expandtabs(4))


def _tracks(report: Report) -> Iterator[Track]:
    for use in report.units:
        engine = None if use.engine == SHARED else use.engine
        yield Track(use.unit, use.instance, engine, use.busy, use.utilisation)


def _row(use: TaskUse, task: Task, plan: Plan) -> Row:
    return Row(
        title=name(use.title),
        opcode=name(use.opcode),
        unit=use.unit,
        line=line_of(task.span, plan),
        profile=name(use.profile),
        count=use.count,
        cycles=use.busy,
        waits={reason: cycles for reason, cycles in use.waited.items() if cycles},
        blockers=tuple(
            Waiting(item.reason, item.cycles, name(item.title)) for item in use.blockers[:MOST_BLOCKERS]
        ),
        others=max(0, len(use.blockers) - MOST_BLOCKERS),
        reads=tuple(region_name(region) for region in task.inputs),
        writes=tuple(region_name(region) for region in task.outputs),
    )


# --- memory ---------------------------------------------------------------------------------------------------


def _levels(report: Report, plan: Plan) -> Iterator[Level]:
    """The memories, those nearest to the units first."""
    members: dict[str, list[Buffer]] = defaultdict(list)
    for buffer in plan.buffers:
        members[buffer.level].append(buffer)
    near = [item for item in report.memory if item.level not in _FAR]
    far = [item for item in report.memory if item.level in _FAR]
    return (_level(item, members[item.level]) for item in (*near, *reversed(far)))


def _level(item: Occupancy, members: list[Buffer]) -> Level:
    """A memory with its buffers where the binder puts them."""
    placed = pack(members)
    holders = sorted(item.holders, key=lambda held: -held.buffer.size)
    return Level(
        name=item.level,
        engine=_engine(members),
        capacity=item.capacity,
        peak=item.peak,
        peak_at=item.peak_at,
        holders=tuple((buffer_name(held.buffer), held.buffer.size) for held in holders),
        steps=item.steps,
        boxes=tuple(
            Box(buffer_name(held.buffer), placed[held.buffer.name], held.buffer.size, held.start, held.end)
            for held in item.held
        ),
    )


def _engine(members: list[Buffer]) -> int | None:
    return next((buffer.engine for buffer in members if buffer.memory == "L1"), None)


# --- the timeline ---------------------------------------------------------------------------------------------


def with_slices(scene: Scene, report: Report, plan: Plan) -> Scene:
    """The scene with the task instances of the report's timeline."""
    loops = loops_of(plan)
    tracks = {(track.engine, track.unit, track.instance): number for number, track in enumerate(scene.tracks)}
    rows = {use.number: position for position, use in enumerate(report.tasks)}
    befores = arrows(plan, [(item.record.task, item.iteration) for item in report.timeline])
    titles = {use.number: row.title for use, row in zip(report.tasks, scene.tasks, strict=True)}
    slices = []
    for item, before in zip(report.timeline, befores, strict=True):
        (engine, unit), number = item.record.place, item.record.task
        slices.append(
            Slice(
                track=tracks[None if engine == SHARED else engine, unit, item.record.instance],
                task=rows[number],
                start=item.start,
                end=item.end,
                iteration=iteration_name(loops[number], item.iteration),
                waits=tuple(_waiting(wait, titles) for wait in item.record.waits),
                after=before,
            )
        )
    told = (_FEWER,) if sum(map(len, befores)) >= MOST_ARROWS else ()
    return replace(scene, slices=tuple(slices), notes=(*scene.notes, *told))


def _waiting(wait: Wait, titles: Mapping[int, str]) -> Waiting:
    return Waiting(
        wait.reason, wait.cycles, "a free token" if wait.reason == TOKEN else titles.get(wait.task, "")
    )
