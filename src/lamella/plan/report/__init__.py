"""Reports of a simulation: a summary in text, a trace for Perfetto, the scene that a page shows."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from lamella.base.diagnostic import printable
from lamella.lang.nem.resolved import Plan
from lamella.plan.report.build import (
    LayerRow,
    MemoryTimeline,
    Scene,
    TaskRow,
    TaskSlice,
    Track,
    WaitStretch,
    count,
    find_named,
    in_bytes,
    in_thousands,
    percent,
    scene_of,
    with_slices,
)
from lamella.plan.timing.report import TimingReport

# --- A simulation as a person reads it on a terminal --------------------------------------------------------


MOST_TASKS = 20
MOST_UNITS = 40
MOST_LAYERS = 100
MOST_HOLDERS = 6
WIDEST = 34
BAR = 24
WIDTH = 110


def summary(report: TimingReport, plan: Plan) -> str:
    """The simulation in text: device, cycles, bounds, units, memory, tasks, and what the numbers include."""
    return summarise(scene_of(report, plan))


def bound_line(report: TimingReport) -> str:
    """How far a plan is from what no plan of its network can beat, in one line."""
    said = f"{count(report.cycles)} cycles on {printable(report.device)}"
    network = report.network
    if network is None:
        return said
    said += f": {report.cycles / max(1, network.largest.cycles):.3f} × the network's bound"
    if not network.compulsory:
        return said
    return f"{said}, DDR bytes {report.moved('DDR') / network.compulsory:.3f} × the compulsory ones"


def summarise(scene: Scene) -> str:
    """A scene in text."""
    parts = (_head, _bounds, _units, _memory, _layers, _tasks, _profile, _named, _notes)
    blocks = ("\n".join(part(scene)) for part in parts)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _head(scene: Scene) -> Iterator[str]:
    yield f"{scene.program}  ({scene.file})" if scene.file else scene.program
    yield f"  {'device':<17} {scene.device}  {scene.topology}"
    for label, value, note in scene.facts:
        yield f"  {label:<17} {value}{f'  {note}' if note else ''}"


def _bounds(scene: Scene) -> Iterator[str]:
    yield "lower bounds, in cycles"
    longest = max([scene.cycles, *(bound.cycles for bound in scene.bounds)], default=0)
    rows = [
        (
            bound.name,
            count(bound.cycles),
            _bar(bound.cycles, longest),
            "← binding  " * bound.binding + bound.what,
        )
        for bound in scene.bounds
    ]
    yield from _table([*rows, ("schedule", count(scene.cycles), _bar(scene.cycles, longest), "")], "<><<")


def _units(scene: Scene) -> Iterator[str]:
    yield f"units, busy share of {count(scene.cycles)} cycles"
    several = len({track.engine for track in scene.tracks} - {None}) > 1
    rows = [_unit(track, several, scene.cycles) for track in scene.tracks[:MOST_UNITS]]
    yield from _table(rows, "<><>")
    yield from _more(len(scene.tracks) - MOST_UNITS, "units")


def _unit(track: Track, several: bool, cycles: int) -> tuple[str, ...]:
    name = f"{track.group} {track.name}" if several else track.name
    return name, percent(track.utilisation), _bar(track.busy, cycles), count(track.busy)


def _memory(scene: Scene) -> Iterator[str]:
    yield "memory, bytes in use from first to last use of each buffer"
    yield from _table([_level(level) for level in scene.levels], "<>><<")


def _level(level: MemoryTimeline) -> tuple[str, ...]:
    held = [f"{name} {in_bytes(size)}" for name, size in level.holders]
    more = [f"{len(held) - MOST_HOLDERS} more"] * (len(held) > MOST_HOLDERS)
    share = f"of {in_bytes(level.capacity)}, {percent(level.peak / level.capacity)}" if level.capacity else ""
    when = f"at cycle {count(level.peak_at)}: {', '.join(held[:MOST_HOLDERS] + more)}" if level.peak else ""
    return level.name, "peak", in_bytes(level.peak), share, when


def _layers(scene: Scene) -> Iterator[str]:
    if not scene.layers:
        return
    yield "layers, each from its first task to its last, loads from DDR aside"
    shown = scene.layers[:MOST_LAYERS]
    head = ("layer", "line", "start", "cycles", "unit", "busy", "MACs", "DDR", "once", "energy")
    yield from _table([head, *map(_layer, shown)], "<>>><>>>>>")
    yield from _more(len(scene.layers) - MOST_LAYERS, "layers")


def _layer(row: LayerRow) -> tuple[str, ...]:
    macs = in_thousands(row.macs, "").strip() if row.macs else ""
    ddr, once = (in_bytes(row.ddr), in_bytes(row.once)) if row.ddr else ("", "")
    spans = (count(row.start), count(row.end - row.start), row.unit, percent(row.utilisation))
    return (_short(row.name), str(row.line), *spans, macs, ddr, once, row.energy)


def _tasks(scene: Scene) -> Iterator[str]:
    yield "tasks, by cycles"
    total = sum(row.cycles for row in scene.tasks)
    shown = sorted(scene.tasks, key=lambda row: -row.cycles)[:MOST_TASKS]
    head = ("task", "opcode", "unit", "line", "count", "cycles", "share", "waited", "why, in cycles")
    yield from _table([head, *(_task(row, total) for row in shown)], "<<<>>>>><")
    yield from _more(len(scene.tasks) - MOST_TASKS, "tasks")


def _task(row: TaskRow, total: int) -> tuple[str, ...]:
    more = [f"{row.others} more"] if row.others else []
    why = ", ".join([*map(_why, row.blockers), *more])
    share = percent(row.cycles / max(total, 1))
    numbers = (count(row.count), count(row.cycles), share, count(row.waited))
    return (_short(row.title), row.opcode, row.unit, str(row.line or ""), *numbers, why)


def _why(blocker: WaitStretch) -> str:
    cause = f" for {_short(blocker.cause)}" if blocker.cause else ""
    return f"{blocker.reason} {count(blocker.cycles)}{cause}"


def _profile(scene: Scene) -> Iterator[str]:
    tags = {row.profile for row in scene.tasks if row.profile}
    if not tags:
        return
    yield "@profile tags"
    cycles, instances, waited = Counter[str](), Counter[str](), Counter[str]()
    for row in scene.tasks:
        cycles[row.profile] += row.cycles
        instances[row.profile] += row.count
        waited[row.profile] += row.waited
    total = max(cycles.total(), 1)
    rows = [
        (tag, count(instances[tag]), count(cycles[tag]), percent(cycles[tag] / total), count(waited[tag]))
        for tag in sorted(tags, key=lambda tag: (-cycles[tag], tag))
    ]
    yield from _table([("tag", "count", "cycles", "share", "waited"), *rows], "<>>>>")


def _named(scene: Scene) -> Iterator[str]:
    if scene.named:
        yield "named loops and regions"
        rows = [
            (item.kind, item.name, f"line {item.line}" * (item.line > 0), item.what) for item in scene.named
        ]
        yield from _table(rows, "<<<<")


def _notes(scene: Scene) -> Iterator[str]:
    return (
        textwrap.fill(note, WIDTH, subsequent_indent="  ", break_on_hyphens=False) for note in scene.notes
    )


# --- layout ---------------------------------------------------------------------------------------------------


def _more(rest: int, what: str) -> Iterable[str]:
    return [f"  … {count(rest)} more {what}"] if rest > 0 else []


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _bar(part: int, whole: int) -> str:
    """A bar of fixed width; anything above nothing shows."""
    filled = min(BAR, max(1, round(BAR * part / whole))) if part > 0 and whole > 0 else 0
    return "█" * filled + "·" * (BAR - filled)


def _table(rows: Sequence[tuple[str, ...]], sides: str) -> Iterator[str]:
    """Rows with their columns aligned, each to the side that its sign points to."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        yield f"  {'  '.join(cells).rstrip()}"


# --- A simulation as a Chrome trace, which Perfetto opens ---------------------------------------------------


Event: TypeAlias = dict[str, object]
DEVICE = 1
"""The process of the device; engine n is the process n + 2."""


def chrome_trace(report: TimingReport, plan: Plan) -> dict[str, object]:
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


def _peak(level: MemoryTimeline) -> str:
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


def _arguments(item: TaskSlice, task: TaskRow) -> dict[str, object]:
    """What a click on a slice tells; only what there is to tell."""
    facts: dict[str, object] = {
        "opcode": task.opcode,
        "line": task.line,
        "iteration": item.iteration,
        "profile": task.profile,
        "reads": ", ".join(task.reads),
        "writes": ", ".join(task.writes),
    }
    facts |= {
        f"waited: {wait.reason}": f"{wait.cycles} cycles" + (f" for {wait.cause}" if wait.cause else "")
        for wait in item.waits
    }
    return {key: value for key, value in facts.items() if value}


def _arrows(scene: Scene) -> Iterator[Event]:
    """An arrow leaves in the last cycle of a slice, where it is still inside, and enters at the start of another."""
    number = 0
    for item in scene.slices:
        for earlier in item.after:
            number += 1
            first = scene.slices[earlier]
            yield {**_flow("s", number, scene, first), "ts": max(first.start, first.end - 1)}
            yield {**_flow("f", number, scene, item), "ts": item.start, "bp": "e"}


def _flow(phase: str, number: int, scene: Scene, item: TaskSlice) -> Event:
    process, thread = _thread(scene, item.track)
    return {"ph": phase, "id": number, "name": "token", "cat": "token", "pid": process, "tid": thread}


def _counters(scene: Scene) -> Iterator[Event]:
    """Memory in use, as far as the slices go: beyond them Perfetto would show an empty page."""
    until = scene.covered if scene.cut else scene.cycles
    return (event for level in scene.levels for event in _counter(level, until))


def _counter(level: MemoryTimeline, until: int) -> Iterator[Event]:
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


def full_scene(report: TimingReport, plan: Plan) -> Scene:
    """All that a page shows of a simulation, the task instances of its timeline too."""
    return with_slices(scene_of(report, plan), report, plan)


__all__ = [
    "Scene",
    "TaskSlice",
    "Track",
    "WaitStretch",
    "bound_line",
    "chrome_trace",
    "find_named",
    "full_scene",
    "summary",
]
