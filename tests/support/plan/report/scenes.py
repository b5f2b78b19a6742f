"""Scenes made by hand, for what a simulation of a small program does not show."""

from __future__ import annotations

from lamella.plan.report.build import (
    BoundRow,
    BufferBox,
    MemoryTimeline,
    NamedScope,
    Scene,
    TaskRow,
    TaskSlice,
    Track,
    WaitStretch,
)

HOSTILE = (
    "<script>document.body.dataset.pwned='1'</script>",
    "</script><script>document.body.dataset.pwned='1'</script>",
    "<!--<script>",
    "<img src=x onerror=\"document.body.dataset.pwned='1'\">",
    "{scene}{script}",
    "'\"&lt;&amp;",
    "__proto__",
)
"""Names that would do harm where they are taken for more than names."""


def make_scene(*names: str, tiles: int = 4) -> Scene:
    """A pipeline of load, work and store over tiles; names replace those of the tasks, in turn."""
    called = [names[position % len(names)] if names else "" for position in range(3)]
    tasks = tuple(
        TaskRow(
            called[i] or title,
            opcode,
            unit,
            i + 1,
            "work",
            tiles,
            tiles * 10,
            {"dependency": 7},
            (),
            0,
            (title,),
            (),
        )
        for i, (title, opcode, unit) in enumerate(
            [("load", "transfer", "DMA"), ("work", "conv2d", "NMU"), ("keep", "store", "CSTL")]
        )
    )
    slices: list[TaskSlice] = []
    for tile in range(tiles):
        for stage in range(3):
            start = 10 * (tile + stage)
            waits = (WaitStretch("dependency", start, called[0] or "load"),) if stage else ()
            after = (len(slices) - 1,) if stage else ()
            slices.append(TaskSlice(stage, stage, start, start + 10, f"i={tile}", waits, after))
    cycles = 10 * (tiles + 2)
    box = BufferBox(called[0] or "X", 0, 512, 0, cycles)
    return Scene(
        program=called[0] or "pipeline",
        file=called[1] or "pipeline.nem",
        device=called[2] or "npm_lite",
        topology="1 engine",
        cycles=cycles,
        covered=cycles,
        cut="",
        tracks=tuple(Track(unit, 0, 0, 10 * tiles, tiles / (tiles + 2)) for unit in ("DMA", "NMU", "CSTL")),
        tasks=tasks,
        levels=(
            MemoryTimeline("L1[0]", 0, 1024, 512, 0, ((box.name, 512),), ((0, 512), (cycles, 0)), (box,)),
        ),
        bounds=(BoundRow("unit", 10 * tiles, "NMU", True),),
        ratio=cycles / (10 * tiles),
        facts=(("cycles", str(cycles), called[0]),),
        notes=("a note", called[1] or "another"),
        named=(NamedScope("loop", called[0] or "tiles", 1, called[1]),),
        source=tuple(called) if names else ("load", "work", "keep"),
        slices=tuple(slices),
    )
