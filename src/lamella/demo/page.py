"""The report of a demonstration: one HTML page that needs nothing else, and runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.demo import Stage
from lamella.demo.race import OURS
from lamella.demo.story import DEVICE, Story

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
WIDTH, HEIGHT = 380, 190
NAMES, LONGEST = 162, 150
"""Where bars begin, and how long they are."""
SHOWN = 60
"""Images in the picture."""
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --card: #f6f8fa; --faint: #66707b; --line: #d9dee4;
  --bar: #2563eb; --peer: #94a3b8; --good: #15803d; --bad: #dc2626 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --paper: #14171b; --card: #1c2127; --faint: #98a2ad;
  --line: #2f353d; --bar: #60a5fa; --peer: #64748b; --good: #4ade80; --bad: #f87171 } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2.5rem auto;
  max-width: 64rem; padding: 0 1.2rem }
h1 { font-size: 1.7rem; margin: 0 0 .2rem } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem }
p { margin: .3rem 0 } .faint { color: var(--faint) }
ol.way { list-style: none; display: flex; flex-wrap: wrap; gap: .4rem; padding: 0; margin: 1.4rem 0 }
ol.way li { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .45rem .8rem }
ol.way li + li::before { content: "→"; color: var(--faint); margin-right: .5rem }
ol.way b { display: inline-block } ol.way span { display: block; color: var(--faint); font-size: .82rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th { text-align: left; color: var(--faint); font-weight: 600; font-size: .85rem }
th, td { padding: .45rem .7rem .45rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 1.2rem }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .9rem }
figcaption { font-weight: 600; margin-bottom: .5rem } figure.wide { grid-column: 1 / -1 }
svg { width: 100%; height: auto; display: block } svg text { fill: var(--faint); font-size: 13px }
svg .line { fill: none; stroke: var(--bar); stroke-width: 2 } svg .grid { stroke: var(--line) }
svg .bar { fill: var(--bar) } svg .peer { fill: var(--peer) } svg .ink { fill: var(--ink) }
svg .pixel { fill: var(--ink) } svg .good { fill: var(--good) } svg .bad { fill: var(--bad) }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .5rem 0; padding: .4rem .8rem }
summary { cursor: pointer } pre { overflow-x: auto; font-size: 12.5px; line-height: 1.4 }
a { color: var(--bar) }
"""


def report_page(story: Story, stages: Sequence[Stage]) -> str:
    """The whole page."""
    seconds = sum(item.seconds for item in stages)
    body = "\n".join((*_head(stages, seconds), *_table(stages), *_figures(story), *_texts(stages)))
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<title>lamella demo</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n{body}\n</html>\n"
    )


def _head(stages: Sequence[Stage], seconds: float) -> Iterator[str]:
    yield "<h1>One classifier through five languages</h1>"
    yield f'<p class="faint">Every number was computed by this run, in {seconds:.0f} seconds.</p>'
    chips = (f"<li><b>{_safe(item.name)}</b><span>{_safe(item.language)}</span></li>" for item in stages)
    yield f'<ol class="way">{"".join(chips)}</ol>'


def _table(stages: Sequence[Stage]) -> Iterator[str]:
    yield '<div class="scroll"><table><tr><th>stage</th><th>what was made</th><th>reads right</th>'
    yield "<th>beside the one above</th><th>seconds</th></tr>"
    for item in stages:
        right = "" if item.accuracy is None else f"{item.accuracy:.2%}"
        files = f'<br><span class="faint">{_safe(", ".join(item.files))}</span>' if item.files else ""
        yield (
            f"<tr><td><b>{_safe(item.name)}</b></td><td>{_safe(item.sentence)}{files}</td>"
            f'<td class="number">{right}</td><td>{_safe(item.above)}</td>'
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


def _texts(stages: Sequence[Stage]) -> Iterator[str]:
    yield "<h2>The texts</h2><p>Nothing between two stages is hidden: each is a file that can be read and edited.</p>"
    for item in stages:
        if item.excerpt:
            head = f"<summary>{_safe(item.language)}, <b>{_safe(item.name)}</b></summary>"
            text = "\n".join(printable(line, 400) for line in item.excerpt.splitlines())
            yield f"<details>{head}<pre>{escape(text)}</pre></details>"


# --- pictures ------------------------------------------------------------------------------------------------------


def _figure(caption: str, picture: str, kind: str = "") -> str:
    return f'<figure class="{kind}"><figcaption>{_safe(caption)}</figcaption>{picture}</figure>'


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
        drawn.append(f'<text x="0" y="{y + 16}">{_safe(name)}</text>')
        drawn.append(f'<rect class="{kind}" x="{NAMES}" y="{y}" width="{length:.1f}" height="22" rx="3"/>')
        drawn.append(f'<text class="ink" x="{NAMES + 6 + length:.1f}" y="{y + 16}">{_safe(words)}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="bars">{"".join(drawn)}</svg>'


def _images(story: Story) -> str:
    """Images with what they were taken for: the wrong ones first."""
    order = np.argsort(story.read == story.labels, kind="stable")[:SHOWN]
    columns, size = 20, 46
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


def _safe(text: str) -> str:
    return escape(printable(text, 400))
