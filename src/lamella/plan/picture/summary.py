"""A simulation as a person reads it on a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from lamella.lang.nem.resolved import Plan
from lamella.plan.picture.build import scene_of
from lamella.plan.picture.names import count, in_bytes, percent
from lamella.plan.picture.scene import Level, Row, Scene, Track, Waiting
from lamella.plan.timing.report import Report

MOST_TASKS = 20
MOST_UNITS = 40
MOST_HOLDERS = 6
WIDEST = 34
BAR = 24
WIDTH = 110


def summary(report: Report, plan: Plan) -> str:
    """The simulation in text: device, cycles, bounds, units, memory, tasks, and what the numbers include."""
    return summarise(scene_of(report, plan))


def summarise(scene: Scene) -> str:
    """A scene in text."""
    parts = (_head, _bounds, _units, _memory, _tasks, _profile, _named, _notes)
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


def _level(level: Level) -> tuple[str, ...]:
    held = [f"{name} {in_bytes(size)}" for name, size in level.holders]
    more = [f"{len(held) - MOST_HOLDERS} more"] * (len(held) > MOST_HOLDERS)
    share = f"of {in_bytes(level.capacity)}, {percent(level.peak / level.capacity)}" if level.capacity else ""
    when = f"at cycle {count(level.peak_at)}: {', '.join(held[:MOST_HOLDERS] + more)}" if level.peak else ""
    return level.name, "peak", in_bytes(level.peak), share, when


def _tasks(scene: Scene) -> Iterator[str]:
    yield "tasks, by cycles"
    total = sum(row.cycles for row in scene.tasks)
    shown = sorted(scene.tasks, key=lambda row: -row.cycles)[:MOST_TASKS]
    head = ("task", "opcode", "unit", "line", "count", "cycles", "share", "waited", "why, in cycles")
    yield from _table([head, *(_task(row, total) for row in shown)], "<<<>>>>><")
    yield from _more(len(scene.tasks) - MOST_TASKS, "tasks")


def _task(row: Row, total: int) -> tuple[str, ...]:
    more = [f"{row.others} more"] if row.others else []
    why = ", ".join([*map(_why, row.blockers), *more])
    share = percent(row.cycles / max(total, 1))
    numbers = (count(row.count), count(row.cycles), share, count(row.waited))
    return (_short(row.title), row.opcode, row.unit, str(row.line or ""), *numbers, why)


def _why(blocker: Waiting) -> str:
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
