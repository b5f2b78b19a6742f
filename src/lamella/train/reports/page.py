"""The curves of a training as one HTML page that needs nothing else, and runs nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from lamella.base.page import article, table, text
from lamella.train.loop import smoothed

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 900, 380, 64, 28, 12
MOST_POINTS = 2000
"""Points of a line; of more steps some are drawn, always the first and the last."""
STYLE = """
svg.figure path { fill: none } .raw { stroke: var(--soft); opacity: .35 }
.mean { stroke: var(--accent); stroke-width: 2 }
.other { stroke: var(--roof); stroke-width: 2 } circle { fill: var(--roof) }
.facts td:last-child { text-align: left; white-space: normal; overflow-wrap: anywhere }
.legend b { font-weight: 600 } .legend .one { color: var(--accent) } .legend .two { color: var(--roof) }
"""


def training_page(
    title: str, losses: Sequence[float], evaluations: Sequence[tuple[int, float]], facts: Mapping[str, object]
) -> str:
    """The whole page: the losses of all steps, their exponential mean, evaluations, and facts."""
    return article(title, (f"{part}\n" for part in _body(losses, evaluations, facts)), STYLE)


def _body(
    losses: Sequence[float], evaluations: Sequence[tuple[int, float]], facts: Mapping[str, object]
) -> Iterator[str]:
    if losses:
        values = [*losses, *(loss for _, loss in evaluations)]
        yield _Chart(len(losses), min(values), max(values)).draw(losses, evaluations)
        evaluated = ', <b class="two">evaluations</b>' if evaluations else ""
        words = 'the loss of each step, <b class="one">its mean</b>'
        yield f'<p class="legend faint">From left to right steps, up {words}{evaluated}.</p>'
    plain = {name: value for name, value in facts.items() if not isinstance(value, Mapping)}
    yield f'<h2>Facts</h2><div class="facts">{_facts(plain)}</div>'
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            yield f'<h2>{text(name.capitalize())}</h2><div class="facts">{_facts(value)}</div>'


def _facts(facts: Mapping[str, object]) -> str:
    """Facts that are known, one on a line."""
    known = {name.replace("_", " "): value for name, value in facts.items() if value not in (None, [], {})}
    return table(("", ""), ([text(name), text(_words(value))] for name, value in known.items()))


def _words(value: object) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(item)}" for name, item in value.items())
    return ", ".join(map(_words, value)) if isinstance(value, list | tuple) else str(value)


class _Chart:
    """The frame of a chart: steps to the right, losses up."""

    def __init__(self, steps: int, low: float, high: float) -> None:
        self._steps = steps
        margin = (high - low) * 0.05 or max(abs(high), 1.0) * 0.05
        self._low, self._high = low - margin, high + margin

    def draw(self, losses: Sequence[float], evaluations: Sequence[tuple[int, float]]) -> str:
        """The chart as SVG."""
        points = list(enumerate(losses, 1))
        means = list(enumerate(smoothed(losses), 1))
        dots = "".join(
            f'<circle cx="{self._x(step):.1f}" cy="{self._y(loss):.1f}" r="3"><title>step {step}: {loss:.6g}</title>'
            "</circle>"
            for step, loss in _thinned(evaluations)
        )
        lines = [*self._grid(), self._path(points, "raw"), self._path(means, "mean")]
        if len(evaluations) > 1:
            lines.append(self._path(evaluations, "other"))
        label = "losses by step, their mean, and evaluations"
        head = f'<svg class="figure" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        return f"{head}{''.join(lines)}{dots}</svg>"

    def _x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - 8) * (step - 1) / max(1, self._steps - 1)

    def _y(self, loss: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self._high - loss) / (self._high - self._low)

    def _path(self, points: Sequence[tuple[int, float]], kind: str) -> str:
        places = " ".join(f"{self._x(step):.1f},{self._y(loss):.1f}" for step, loss in _thinned(points))
        return f'<path class="{kind}" d="M{places.replace(" ", " L")}"/>'

    def _grid(self) -> Iterator[str]:
        for value in _ticks(self._low, self._high):
            y = self._y(value)
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
        for step in sorted({1, (1 + self._steps) // 2, self._steps}):
            yield f'<text x="{self._x(step):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{step}</text>'


def _thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """Some of many points, the last among them."""
    every = max(1, math.ceil(len(points) / MOST_POINTS))
    return points if every == 1 else [*points[:-1:every], points[-1]]


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two others."""
    step = 10.0 ** math.floor(math.log10(high - low))
    step = next(item for item in (step / 5, step / 2, step, 2 * step) if (high - low) / item <= 8)
    first = math.ceil(low / step)
    return [number * step for number in range(first, first + 10) if number * step <= high]
