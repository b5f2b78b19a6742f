"""A plan as the studio shows it: its scene, the operations behind its tasks, and its critical path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from lamella.lang.nem.resolved import Plan
from lamella.plan.report import Scene, TaskSlice, Track, WaitStretch, full_scene
from lamella.plan.timing import simulate
from lamella.studio.graph_level import Things


def plan_level(plan: Plan, operations: Sequence[str], things: Things) -> dict[str, object]:
    """A plan simulated, its tasks linked with the operations of the graph that it was made from, by their names."""
    level = scene_data(full_scene(simulate(plan), plan))
    numbers = [things.maker(name) for name in operations]
    linked = [[] if number is None else [number] for number in numbers]
    return {**level, "things": linked} if linked else level


# --- the data of the page -------------------------------------------------------------------------------------


def scene_data(scene: Scene) -> dict[str, object]:
    """A scene as the page reads it; slices in columns, which keeps twenty thousand of them small."""
    stretches = {waits: number for number, waits in enumerate(dict.fromkeys(s.waits for s in scene.slices))}
    return {
        "program": scene.program,
        "file": scene.file,
        "device": f"{scene.device} · {scene.topology}",
        "cycles": scene.cycles,
        "covered": scene.covered,
        "cut": scene.cut,
        "ratio": _ratio(scene),
        "facts": scene.facts,
        "notes": scene.notes,
        "tracks": [_track(track) for track in scene.tracks],
        "tasks": [asdict(row) for row in scene.tasks],
        "layers": [asdict(row) for row in scene.layers],
        "slices": _columns(scene.slices, stretches),
        "critical": critical_path(scene.slices),
        "waits": [[asdict(wait) for wait in waits] for waits in stretches],
        "levels": [asdict(level) for level in scene.levels],
        "bounds": [asdict(bound) for bound in scene.bounds],
        "source": scene.source,
        "things": [[] for _ in scene.tasks],
    }


def critical_path(slices: Sequence[TaskSlice]) -> list[int]:
    """The slices that decide the end, last to first: from each the one that ended last among those it waited for.

    What it waited for is what its tokens name, or the slice before it on the same unit, whichever ended later.
    """
    if not slices:
        return []
    before: dict[int, int] = {}
    latest: dict[int, int] = {}
    for number in sorted(range(len(slices)), key=lambda item: (slices[item].start, item)):
        item = slices[number]
        if item.track in latest:
            before[number] = latest[item.track]
        latest[item.track] = number
    found = [max(range(len(slices)), key=lambda item: slices[item].end)]
    while True:
        item = slices[found[-1]]
        options = [*item.after, *([before[found[-1]]] if found[-1] in before else [])]
        options = [place for place in options if slices[place].end <= item.start]
        if not options:
            return found
        found.append(max(options, key=lambda place: slices[place].end))


def _ratio(scene: Scene) -> str:
    binding = scene.binding
    return "" if binding is None else f"schedule ÷ {binding.name} = {scene.ratio:.3f}"


def _track(track: Track) -> dict[str, object]:
    return {"name": track.name, "group": track.group, "busy": track.busy, "utilisation": track.utilisation}


def _columns(
    slices: Sequence[TaskSlice], stretches: Mapping[tuple[WaitStretch, ...], int]
) -> dict[str, list[object]]:
    return {
        "track": [item.track for item in slices],
        "task": [item.task for item in slices],
        "start": [item.start for item in slices],
        "end": [item.end for item in slices],
        "iteration": [item.iteration for item in slices],
        "waits": [stretches[item.waits] for item in slices],
        "after": [item.after for item in slices],
    }
