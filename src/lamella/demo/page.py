"""The report of a demonstration: one HTML page that needs nothing else, and runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lamella.base.arrays import Array
from lamella.base.page import article, text
from lamella.demo import DemoStage
from lamella.demo.race import OURS
from lamella.demo.story import DEVICE, Story

WIDTH, HEIGHT = 380, 190
NAMES, LONGEST = 162, 150
"""Where bars begin, and how long they are."""
NO_BREAK = "e\N{NON-BREAKING HYPHEN}"
"""An exponent stays on the line of its number."""
SHOWN = 64
"""Images in the picture."""
STYLE = """
ol.way { list-style: none; display: flex; flex-wrap: wrap; gap: 7px; padding: 0; margin: 20px 0 }
ol.way li { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 7px 13px }
ol.way li + li::before { content: "→"; color: var(--soft); margin-right: 7px }
ol.way b { display: inline-block } ol.way span { display: block; color: var(--soft); font-size: 12px }
.article th, .article td { text-align: left; vertical-align: top; white-space: normal }
.article td.number { text-align: right; white-space: nowrap }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 18px }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px }
figcaption { font-weight: 600; margin-bottom: 8px } figure.wide { grid-column: 1 / -1 }
figure svg { width: 100%; height: auto; display: block } svg text { fill: var(--soft); font-size: 13px }
svg .line { fill: none; stroke: var(--c0); stroke-width: 2 } svg .grid { stroke: var(--line) }
svg .bar { fill: var(--c0) } svg .peer { fill: var(--c7) } svg .ink { fill: var(--text) }
svg .pixel { fill: var(--text) } svg .good { fill: var(--good) } svg .bad { fill: var(--bad) }
details { border: 1px solid var(--line); border-radius: 8px; margin: 8px 0; padding: 6px 13px; background: var(--card) }
summary { cursor: pointer } details pre { border: 0; padding: 4px 0 }
a { color: var(--accent) }
"""


def report_page(story: Story, stages: Sequence[DemoStage]) -> str:
    """The whole page."""
    seconds = sum(item.seconds for item in stages)
    parts = (*_head(stages, seconds), *_table(stages), *_figures(story), *_texts(stages))
    return article(
        "lamella demo: one classifier through five languages", (f"{part}\n" for part in parts), STYLE
    )


def _head(stages: Sequence[DemoStage], seconds: float) -> Iterator[str]:
    yield f'<p class="faint">Every number was computed by this run, in {seconds:.0f} seconds.</p>'
    chips = (f"<li><b>{text(item.name)}</b><span>{text(item.language)}</span></li>" for item in stages)
    yield f'<ol class="way">{"".join(chips)}</ol>'


def _table(stages: Sequence[DemoStage]) -> Iterator[str]:
    yield '<div class="scroll"><table><tr><th>stage</th><th>what was made</th><th>reads right</th>'
    yield "<th>beside the one above</th><th>seconds</th></tr>"
    for item in stages:
        right = "" if item.accuracy is None else f"{item.accuracy:.2%}"
        files = f'<br><span class="faint">{text(", ".join(item.files))}</span>' if item.files else ""
        yield (
            f"<tr><td><b>{text(item.name)}</b></td><td>{text(item.sentence)}{files}</td>"
            f'<td class="number">{right}</td><td>{text(item.above.replace("e-", NO_BREAK))}</td>'
            f'<td class="number">{item.seconds:.1f}</td></tr>'
        )
    yield "</table></div>"


def _figures(story: Story) -> Iterator[str]:
    yield '<h2>What happened</h2><div class="figures">'
    yield _figure("Loss of training, by step", _curve(story.losses))
    if story.race is not None:
        rows = [
            (f"{name}, batch {batch}", time, name == OURS, f"{time:.1f} µs")
            for batch, times in story.race.microseconds.items()
            for name, time in times.items()
        ]
        yield _figure("CPU time of a call on one core", _bars(rows))
    if story.timing is not None:
        units = [
            (item.name(story.timing.engines), item.utilisation, True, f"{item.utilisation:.0%}")
            for item in story.timing.units
        ]
        caption = f"Units of {DEVICE} during {story.timing.cycles:,} cycles"
        yield _figure(
            caption, _bars(units, 1.0) + '<p><a href="timeline.html">the time line, task by task</a></p>'
        )
    if story.read.size:
        wrong = int((story.read != story.labels).sum())
        caption = f"What the simulated NPU reads: {wrong} of {len(story.read)} wrong, shown first"
        yield _figure(caption, _images(story), "wide")
    yield "</div>"


def _texts(stages: Sequence[DemoStage]) -> Iterator[str]:
    yield "<h2>The texts</h2><p>Nothing between two stages is hidden: each is a file that can be read and edited.</p>"
    for item in stages:
        if item.excerpt:
            head = f"<summary>{text(item.language)}, <b>{text(item.name)}</b></summary>"
            lines = "\n".join(text(line) for line in item.excerpt.splitlines())
            yield f"<details>{head}<pre>{lines}</pre></details>"


# --- pictures ------------------------------------------------------------------------------------------------------


def _figure(caption: str, picture: str, kind: str = "") -> str:
    return f'<figure class="{kind}"><figcaption>{text(caption)}</figcaption>{picture}</figure>'


def _curve(losses: Sequence[float]) -> str:
    """Losses in averages of a few steps, the first above, the last at the right."""
    part = max(1, len(losses) // 120)
    means = [sum(losses[at : at + part]) / len(losses[at : at + part]) for at in range(0, len(losses), part)]
    top = max(means) or 1.0
    points = [
        f"{40 + (WIDTH - 50) * number / max(1, len(means) - 1):.1f},{10 + (HEIGHT - 40) * (1 - loss / top):.1f}"
        for number, loss in enumerate(means)
    ]
    low = HEIGHT - 30
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="losses by step">'
        f'<line class="grid" x1="40" x2="{WIDTH}" y1="{low}" y2="{low}"/>'
        f'<text x="0" y="20">{top:.1f}</text><text x="0" y="{low + 4}">0</text>'
        f'<text x="40" y="{HEIGHT - 8}">1</text><text x="{WIDTH - 40}" y="{HEIGHT - 8}">{len(losses)}</text>'
        f'<path class="line" d="M{" L".join(points)}"/></svg>'
    )


def _bars(rows: Sequence[tuple[str, float, bool, str]], top: float | None = None) -> str:
    """Horizontal bars: a name, a length, whether it is ours, a number in words."""
    most = top or max(value for _, value, _, _ in rows) or 1.0
    height = 34 * len(rows) + 4
    drawn = []
    for number, (name, value, is_ours, words) in enumerate(rows):
        y, length = 34 * number + 6, LONGEST * value / most
        kind = "bar" if is_ours else "peer"
        drawn.append(f'<text x="0" y="{y + 16}">{text(name)}</text>')
        drawn.append(f'<rect class="{kind}" x="{NAMES}" y="{y}" width="{length:.1f}" height="22" rx="3"/>')
        drawn.append(f'<text class="ink" x="{NAMES + 6 + length:.1f}" y="{y + 16}">{text(words)}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="bars">{"".join(drawn)}</svg>'


def _images(story: Story) -> str:
    """Images with what they were taken for: the wrong ones first."""
    order = np.argsort(story.read == story.labels, kind="stable")[:SHOWN]
    columns, size = 16, 58
    drawn = []
    for place, number in enumerate(order):
        x, y = place % columns * size, place // columns * (size + 18)
        right = story.read[number] == story.labels[number]
        words = f"{story.read[number]}" if right else f"{story.read[number]}, is {story.labels[number]}"
        drawn.append(f'<g transform="translate({x} {y})">{_pixels(story.images[number][0])}')
        drawn.append(f'<text class="{"good" if right else "bad"}" x="2" y="50">{words}</text></g>')
    rows = (len(order) + columns - 1) // columns
    return (
        f'<svg viewBox="0 0 {columns * size} {rows * (size + 18)}" role="img" aria-label="digits and readings">'
        f"{''.join(drawn)}</svg>"
    )


def _pixels(image: Array) -> str:
    found = []
    for (row, column), value in np.ndenumerate(image):
        if value > 0:
            light = float(value) / 16
            found.append(
                f'<rect class="pixel" x="{column * 4.5:.1f}" y="{row * 4.5:.1f}" width="4.6" height="4.6"'
                f' fill-opacity="{light:.2f}"/>'
            )
    return "".join(found)
