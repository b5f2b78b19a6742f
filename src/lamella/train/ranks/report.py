"""`sim --ranks`: the time line of a step as text, as data, as a trace for Perfetto and as a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from lamella.base.page import article, text
from lamella.pipeline.options import Options
from lamella.train.ranks.ledger import read_ledger
from lamella.train.ranks.timeline import COMPUTE, EXCHANGE, Event, StepTimeline, read_link, simulate_step

WIDTH, ROW, LEFT = 1000, 22, 90
MOST_BARS = 5000
"""Bars of a page; of more events the longest are drawn."""
MICRO = 1e6
STYLE = "svg .compute { fill: var(--c0) } svg .exchange { fill: var(--c1) }\n"


def simulate_ranks(path: Path, options: Options) -> StepTimeline:
    """The time line of a step of training the model of a file on the mesh that options name."""
    return simulate_step(read_ledger(path, options), read_link(options.link))


def summary(timeline: StepTimeline) -> str:
    """The time line in words."""
    return "\n".join(_lines(timeline))


def _lines(timeline: StepTimeline) -> Iterator[str]:
    ledger, link, whole = timeline.ledger, timeline.link, timeline.seconds
    extents = ", ".join(f"{name}={size}" for name, size in ledger.extents.items())
    parts = f" in {ledger.parts} parts" if ledger.parts > 1 else ""
    yield f"{ledger.name} on {ledger.mesh}: a step of {extents or 'one batch'}{parts} takes {_time(whole)}"
    yield (
        f"  a rank: {link.flops:.3g} operations/s, {link.memory:.3g} bytes/s; "
        f"a link: {link.bandwidth:.3g} bytes/s, {_time(link.latency)}"
    )
    for stage in range(len(ledger.stages)):
        work, sent = timeline.busy(stage, COMPUTE), timeline.busy(stage, EXCHANGE)
        name = f"stage {stage}" if len(ledger.stages) > 1 else "each rank"
        yield (
            f"  {name} computes {_time(work)} ({_share(work, whole)}), exchanges {_time(sent)} "
            f"({_share(sent, whole)}), waits {_time(whole - work)}"
        )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else "0%"


def _time(seconds: float) -> str:
    return f"{seconds * MICRO:.4g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.4g} ms"


def to_json(timeline: StepTimeline) -> dict[str, object]:
    """The time line as data."""
    ledger = timeline.ledger
    return {
        "name": ledger.name,
        "mesh": dict(ledger.mesh.extents),
        "parts": ledger.parts,
        "extents": dict(ledger.extents),
        "link": asdict(timeline.link),
        "seconds": timeline.seconds,
        "stages": [
            {
                "compute": timeline.busy(stage, COMPUTE),
                "exchange": timeline.busy(stage, EXCHANGE),
                "wait": timeline.seconds - timeline.busy(stage, COMPUTE),
            }
            for stage in range(len(ledger.stages))
        ],
        "events": [asdict(item) for item in timeline.events],
    }


def chrome_trace(timeline: StepTimeline) -> dict[str, object]:
    """The time line as Perfetto reads it: a process for each stage, a thread for each track."""
    tracks = (COMPUTE, EXCHANGE)
    names = [
        {"ph": "M", "name": "process_name", "pid": stage, "args": {"name": f"stage {stage}"}}
        for stage in range(len(timeline.ledger.stages))
    ]
    bars = [
        {
            "ph": "X",
            "name": item.name,
            "pid": item.stage,
            "tid": tracks.index(item.track),
            "ts": item.start * MICRO,
            "dur": (item.end - item.start) * MICRO,
        }
        for item in timeline.events
    ]
    return {"traceEvents": [*names, *bars]}


def page(timeline: StepTimeline) -> str:
    """The time line as one HTML page that needs nothing else, and runs nothing."""
    rows = "".join(f"<p>{text(line)}</p>\n" for line in _lines(timeline))
    title = f"lamella sim: {timeline.ledger.name} on {timeline.ledger.mesh}"
    return article(title, (rows, _drawing(timeline)), STYLE)


def _drawing(timeline: StepTimeline) -> str:
    count = len(timeline.ledger.stages)
    height = ROW * (2 * count + 1)
    longest = sorted(timeline.events, key=lambda item: item.start - item.end)[:MOST_BARS]
    bars = "".join(_bar(item, timeline.seconds) for item in longest)
    labels = "".join(
        f'<text x="0" y="{ROW * (2 * stage + number) + 15}">{stage} {track}</text>'
        for stage in range(count)
        for number, track in enumerate((COMPUTE, EXCHANGE))
    )
    end = f'<text x="{WIDTH}" y="{height - 6}" text-anchor="end">{_time(timeline.seconds)}</text>'
    return f'<svg class="figure" viewBox="0 0 {WIDTH} {height}">{labels}{bars}{end}</svg>'


def _bar(item: Event, whole: float) -> str:
    scale = (WIDTH - LEFT) / whole if whole > 0 else 0.0
    row = 2 * item.stage + (item.track == EXCHANGE)
    title = text(f"{item.name}: {_time(item.end - item.start)}", 200)
    width = max(0.5, (item.end - item.start) * scale)
    return (
        f'<rect class="{item.track}" x="{LEFT + item.start * scale:.2f}" y="{row * ROW + 2}" width="{width:.2f}" '
        f'height="{ROW - 4}"><title>{title}</title></rect>'
    )
