"""A simulation as a Chrome trace, which Perfetto opens.

One process for the device and one for each engine, one thread for each unit instance, arrows for tokens, counters for
the bytes in use. Times are exact: one cycle is one microsecond of the trace, whatever the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from lamella.lang.nem.resolved import Plan
from lamella.plan.picture.build import scene_of, with_slices
from lamella.plan.picture.scene import Level, Row, Scene, Slice, Track
from lamella.plan.timing.report import Report

Event: TypeAlias = dict[str, object]
DEVICE = 1
"""The process of the device; engine n is the process n + 2."""


def chrome_trace(report: Report, plan: Plan) -> dict[str, object]:
    """The trace of a simulation, ready for `json.dump`."""
    return trace_scene(with_slices(scene_of(report, plan), report, plan))


def trace_scene(scene: Scene) -> dict[str, object]:
    """The trace of a scene."""
    events = [*_name_tracks(scene), *_slices(scene), *_arrows(scene), *_counters(scene)]
    return {"displayTimeUnit": "ns", "traceEvents": events, "otherData": _other(scene)}


def _other(scene: Scene) -> dict[str, object]:
    binding = scene.binding
    return {
        "time": "1 cycle of the device is 1 µs of this trace",
        "program": scene.program,
        "file": scene.file,
        "device": scene.device,
        "cycles": scene.cycles,
        "binding bound": "" if binding is None else f"{binding.name}: {binding.cycles} cycles",
        "schedule / bound": round(scene.ratio, 4),
        "cut": scene.cut or "no",
        "memory": [_peak(level) for level in scene.levels],
        "named": [f"{item.kind} {item.name}, line {item.line}: {item.what}" for item in scene.named],
        "notes": list(scene.notes),
    }


def _peak(level: Level) -> str:
    held = ", ".join(f"{name} {size}" for name, size in level.holders)
    return f"{level.name}: peak {level.peak} bytes at cycle {level.peak_at}: {held}"


def _process(engine: int | None) -> int:
    return DEVICE if engine is None else engine + 2


def _thread(scene: Scene, track: int) -> tuple[int, int]:
    return _process(scene.tracks[track].engine), track + 1


# --- names ----------------------------------------------------------------------------------------------------


def _name_tracks(scene: Scene) -> Iterator[Event]:
    engines = {track.engine for track in scene.tracks} | {level.engine for level in scene.levels} | {None}
    for engine in sorted(engines, key=_process):
        name = f"device {scene.device}" if engine is None else f"engine {engine}"
        yield _meta("process_name", _process(engine), 0, "name", name)
        yield _meta("process_sort_index", _process(engine), 0, "sort_index", _process(engine))
    for number, track in enumerate(scene.tracks):
        yield from _name_track(track, *_thread(scene, number))


def _name_track(track: Track, process: int, thread: int) -> Iterator[Event]:
    yield _meta("thread_name", process, thread, "name", track.name)
    yield _meta("thread_sort_index", process, thread, "sort_index", thread)


def _meta(kind: str, process: int, thread: int, key: str, value: object) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {key: value}}


# --- what happens ---------------------------------------------------------------------------------------------


def _slices(scene: Scene) -> Iterator[Event]:
    for item in scene.slices:
        process, thread = _thread(scene, item.track)
        task = scene.tasks[item.task]
        yield {
            "ph": "X",
            "name": task.title,
            "cat": ",".join(filter(None, (task.opcode, task.profile))),
            "pid": process,
            "tid": thread,
            "ts": item.start,
            "dur": item.end - item.start,
            "args": _arguments(item, task),
        }


def _arguments(item: Slice, task: Row) -> dict[str, object]:
    """What a click on a slice tells; only what there is to tell."""
    told: dict[str, object] = {
        "opcode": task.opcode,
        "line": task.line,
        "iteration": item.iteration,
        "profile": task.profile,
        "reads": ", ".join(task.reads),
        "writes": ", ".join(task.writes),
    }
    told |= {
        f"waited: {wait.reason}": f"{wait.cycles} cycles" + (f" for {wait.cause}" if wait.cause else "")
        for wait in item.waits
    }
    return {key: value for key, value in told.items() if value}


def _arrows(scene: Scene) -> Iterator[Event]:
    """An arrow leaves in the last cycle of a slice, where it is still inside, and enters at the start of another."""
    number = 0
    for item in scene.slices:
        for earlier in item.after:
            number += 1
            first = scene.slices[earlier]
            yield {**_flow("s", number, scene, first), "ts": max(first.start, first.end - 1)}
            yield {**_flow("f", number, scene, item), "ts": item.start, "bp": "e"}


def _flow(phase: str, number: int, scene: Scene, item: Slice) -> Event:
    process, thread = _thread(scene, item.track)
    return {"ph": phase, "id": number, "name": "token", "cat": "token", "pid": process, "tid": thread}


def _counters(scene: Scene) -> Iterator[Event]:
    """Memory in use, as far as the slices go: beyond them Perfetto would show an empty page."""
    until = scene.covered if scene.cut else scene.cycles
    return (event for level in scene.levels for event in _counter(level, until))


def _counter(level: Level, until: int) -> Iterator[Event]:
    for cycle, held in level.steps:
        if cycle > until:
            return
        yield {
            "ph": "C",
            "name": f"{level.name} bytes in use",
            "pid": _process(level.engine),
            "ts": cycle,
            "args": {"bytes": held},
        }
