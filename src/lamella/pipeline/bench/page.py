"""Contests as one HTML page that needs nothing else: the table, the roofline of our steps, the time line of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log10

from lamella.base.page import article, table, text
from lamella.pipeline.bench import Heat, TimeUnit
from lamella.pipeline.bench.contest import Standing
from lamella.pipeline.bench.steps import KernelTime, by_operator

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 380, 60, 40
COLOURS = 8
MOST_SLICES = 4000
STYLE = "svg .roof { stroke: var(--roof); stroke-width: 2; fill: none }\n"


def bench_page(model: str, machine: str, heats: Sequence[Heat]) -> str:
    """The whole page."""
    parts = [f"<p>{text(machine)}</p>\n", *(f"{part}\n" for heat in heats for part in _heat(heat))]
    return article(f"lamella bench {model}", parts, STYLE)


def _heat(heat: Heat) -> Iterator[str]:
    batch = "" if heat.batch is None else f", batch {heat.batch}"
    yield f"<h2>{heat.threads} thread{'s' * (heat.threads > 1)}{batch}</h2>"
    clock = "CPU time" if heat.threads == 1 else "Time on the wall"
    unit = heat.unit
    yield f"<p>{clock} of a call. Bounds: {unit.of(heat.arithmetic_bound)} {unit.name} by arithmetic "
    yield f"({heat.work.macs / 1e9:.3g} G products at {heat.ceilings.gflops:.0f} GF/s), "
    yield f"{unit.of(heat.bandwidth_bound)} {unit.name} by bandwidth "
    yield f"({heat.work.fixed / 1e6:.3g} MB at {heat.ceilings.gbytes:.1f} GB/s).</p>"
    yield from _contestants(heat)
    for standing in heat.standings[: heat.backends]:
        if standing.kernels:
            rows = by_operator(standing.kernels)
            colours = {item.operator: place % COLOURS for place, item in enumerate(rows)}
            yield f"<h3>{text(standing.name)}: where the time goes</h3>"
            yield from _kernels(heat, rows, colours)
            yield "<h3>Roofline</h3>"
            yield from _roofline(heat, standing.kernels, colours)
            yield "<h3>Time line of one run</h3>"
            yield from _time_line(standing, colours, heat.unit)


def _contestants(heat: Heat) -> Iterator[str]:
    best = min((item.best(heat.threads) for item in heat.standings if item.wall), default=0.0)
    unit = heat.unit.name
    heads = ("", f"min {unit}", f"median {unit}", "load s", "first s", "peak MB", "ratio", "differs by")
    yield table(heads, (_contestant(heat, item, best) for item in heat.standings))


def _contestant(heat: Heat, item: Standing, best: float) -> Sequence[str]:
    if item.problem:
        return text(item.name), f'<span class="faint">{text(item.problem)}</span>'
    apart = heat.differs(item)
    return (
        text(item.name),
        heat.unit.of(item.best(heat.threads)),
        heat.unit.of(item.median(heat.threads)),
        f"{item.load:.2f}",
        f"{item.first:.2f}",
        f"{item.peak / 1e6:.0f}",
        f"{item.best(heat.threads) / best:.2f}" if best else "",
        "" if apart is None else f"{apart[1]:.1e} of the largest",
    )


def _kernels(heat: Heat, rows: Sequence[KernelTime], colours: dict[str, int]) -> Iterator[str]:
    whole = sum(item.seconds for item in rows) or 1.0
    heads = ("operator", heat.unit.name, "part", "calls", "GF/s", "of peak", "GB/s", "of memory's")
    yield table(
        heads,
        (
            (
                f"{_dot(colours[item.operator])}{text(item.operator)}",
                heat.unit.of(item.seconds),
                f"{item.seconds / whole:.1%}",
                f"{item.calls}",
                f"{item.gflops:.1f}" if item.macs else "",
                f"{item.gflops / heat.ceilings.gflops:.1%}" if item.macs else "",
                f"{item.gbytes:.1f}",
                f"{item.gbytes / heat.ceilings.gbytes:.1%}",
            )
            for item in rows
        ),
    )


def _dot(colour: int) -> str:
    fill = f'<rect class="c{colour}" width="10" height="10" rx="3"/>'
    return f'<svg class="dot" viewBox="0 0 10 10">{fill}</svg>'


# --- the roofline: rates against operations per byte, both logarithmic ---------------------------------------


def _roofline(heat: Heat, steps: Sequence[KernelTime], colours: dict[str, int]) -> Iterator[str]:
    """A dot for each step that multiplies and adds, below the roof of bandwidth and peak."""
    dots = [(2 * item.macs / item.moved, item.gflops, item) for item in steps if item.macs and item.moved]
    if not dots:
        yield '<p class="faint">no step adds up products</p>'
        return
    peak, bandwidth = heat.ceilings.gflops, heat.ceilings.gbytes
    ridge = peak / bandwidth
    across = _Scale(
        min(ridge, *(x for x, _, _ in dots)) / 2, max(ridge, *(x for x, _, _ in dots)) * 2, LEFT, WIDTH
    )
    up = _Scale(min(rate for _, rate, _ in dots) / 2, peak * 2, HEIGHT - BOTTOM, 10)
    yield f'<svg class="figure" viewBox="0 0 {WIDTH + 20} {HEIGHT}" role="img" aria-label="roofline">'
    yield from _axes(across, up)
    left = across.low
    points = ((left, max(up.low, left * bandwidth)), (ridge, peak), (across.high, peak))
    roof = " ".join(f"{across.place(x):.1f},{up.place(y):.1f}" for x, y in points)
    yield f'<polyline class="roof" points="{roof}"/>'
    for x, rate, item in dots:
        words = text(
            f"{item.operator} {item.result}: {rate:.1f} GF/s, {x:.1f} flop/byte, "
            f"{heat.unit.of(item.seconds)} {heat.unit.name}"
        )
        place = f'cx="{across.place(x):.1f}" cy="{up.place(rate):.1f}"'
        look = f'r="4" class="c{colours[item.operator]}" fill-opacity=".75"'
        yield f"<circle {place} {look}><title>{words}</title></circle>"
    yield f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">flop per byte</text>'
    turned = f'transform="rotate(-90 12 {HEIGHT / 2})" text-anchor="middle"'
    yield f'<text x="12" y="{HEIGHT / 2}" {turned}>GF/s</text></svg>'


class _Scale:
    """A logarithmic axis from one place of the drawing to another."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = low, high
        self._start, self._end = start, end

    def place(self, value: float) -> float:
        """Where a value lies."""
        part = log10(max(value, self.low) / self.low) / log10(self.high / self.low)
        return self._start + part * (self._end - self._start)

    def decades(self) -> Iterator[float]:
        """The powers of ten on the axis."""
        for power in range(floor(log10(self.low)), floor(log10(self.high)) + 1):
            if 10.0**power >= self.low:
                yield 10.0**power


def _axes(across: _Scale, up: _Scale) -> Iterator[str]:
    for value in across.decades():
        x = across.place(value)
        yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="10" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{value:g}</text>'
    for value in up.decades():
        y = up.place(value)
        yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'


# --- the time line ------------------------------------------------------------------------------------------


def _time_line(standing: Standing, colours: dict[str, int], unit: TimeUnit) -> Iterator[str]:
    """The steps of one run from left to right; what a pointer rests on says what it is and where it comes from."""
    steps = standing.kernels[:MOST_SLICES]
    whole = max(item.start + item.seconds for item in steps) or 1.0
    yield f'<svg class="figure" viewBox="0 0 {WIDTH + 20} 90" role="img" aria-label="time line">'
    for item in steps:
        x, width = item.start / whole * WIDTH, max(item.seconds / whole * WIDTH, 0.2)
        when = f"{unit.of(item.seconds)} {unit.name} at {unit.of(item.start)} {unit.name}"
        words = f"{item.operator} {item.result}: {when}"
        origin = f"\n{item.origin}" if item.origin else ""
        yield (
            f'<rect x="{x:.2f}" y="10" width="{width:.2f}" height="50" class="c{colours[item.operator]}">'
            f"<title>{text(words + origin)}</title></rect>"
        )
    end = f"{unit.of(whole)} {unit.name}"
    yield f'<text x="0" y="78">0</text><text x="{WIDTH}" y="78" text-anchor="end">{end}</text></svg>'
    if len(standing.kernels) > MOST_SLICES:
        yield f'<p class="faint">the first {MOST_SLICES} of {len(standing.kernels)} steps</p>'
