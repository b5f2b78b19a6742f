"""Contests as lines of text: how everybody did, what bounds the time, and where ours goes by operator."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.pipeline.bench import Heat
from lamella.pipeline.bench.contest import Standing
from lamella.pipeline.bench.steps import by_operator

MOST_OPERATORS = 12


def heat_lines(heat: Heat) -> Iterator[str]:
    """The table of one contest, then those of our backends."""
    many = f"{heat.threads} thread{'s' * (heat.threads > 1)}"
    clock = "CPU time" if heat.threads == 1 else "time on the wall"
    yield f"{many}{'' if heat.batch is None else f', batch {heat.batch}'}: {clock} of a call"
    unit = heat.unit
    head = f"{f'min {unit.name}':>10}{'median':>10}{'load s':>8}{'first s':>8}{'peak MB':>9}{'ratio':>7}"
    yield f"{'':14}{head}  differs by"
    best = min((item.best(heat.threads) for item in heat.standings if item.wall), default=0.0)
    for item in heat.standings:
        yield f"{item.name:14}{item.problem}" if item.problem else _standing(heat, item, best)
    limits = (heat.arithmetic_bound, "arithmetic"), (heat.bandwidth_bound, "bandwidth")
    bounds = ", ".join(f"{seconds * unit.scale:.2f} {unit.name} by {name}" for seconds, name in limits)
    amounts = f"{heat.work.macs / 1e9:.3g} G products, {heat.work.fixed / 1e6:.3g} MB of weights and inputs"
    yield f"{'bounds':14}{bounds}: {amounts}"
    ceilings = f"{heat.ceilings.gflops:.0f} GF/s of f32, {heat.ceilings.gbytes:.1f} GB/s"
    yield f"{'ceilings':14}{ceilings}, measured; a second start of ours takes {heat.cached:.2f} s"
    for item in heat.standings[: heat.backends]:
        yield from _operators(heat, item)
        for report in item.tuning:
            lines = report.get("lines")
            yield from map(str, lines if isinstance(lines, list) else ())


def _standing(heat: Heat, item: Standing, best: float) -> str:
    apart = heat.differs(item)
    words = (
        "the judge"
        if item is heat.judge
        else ""
        if apart is None
        else f"{apart[0]:.1e}, {apart[1]:.1e} of the largest"
    )
    times = "".join(
        f"{heat.unit.of(found):>10}" for found in (item.best(heat.threads), item.median(heat.threads))
    )
    start = f"{item.load:>8.2f}{item.first:>8.2f}{item.peak / 1e6:>9.0f}"
    return (
        f"{item.name:14}{times}{start}{item.best(heat.threads) / best if best else 0:>7.2f}  {words}".rstrip()
    )


def _operators(heat: Heat, standing: Standing) -> Iterator[str]:
    """Where the time of one run went, with rates as parts of the ceilings."""
    rows = by_operator(standing.kernels)
    if not rows:
        return
    whole = sum(item.seconds for item in rows) or 1.0
    unit = heat.unit
    total = f"{whole * unit.scale:.2f} {unit.name} in all"
    yield f"{standing.name}, by operator: {total}, each step in its fastest of a few runs"
    yield f"{unit.name:>10}{'part':>7}{'calls':>7}{'GF/s':>8}{'of peak':>9}{'GB/s':>8}{'of peak':>9}  operator"
    for item in rows[:MOST_OPERATORS]:
        flops = f"{item.gflops:>8.1f}{item.gflops / heat.ceilings.gflops:>9.1%}" if item.macs else f"{'':17}"
        moved = f"{item.gbytes:>8.1f}{item.gbytes / heat.ceilings.gbytes:>9.1%}"
        yield f"{unit.of(item.seconds):>10}{item.seconds / whole:>7.1%}{item.calls:>7}{flops}{moved}  {item.operator}"
    rest = rows[MOST_OPERATORS:]
    if rest:
        seconds = sum(item.seconds for item in rest)
        calls = sum(item.calls for item in rest)
        yield f"{unit.of(seconds):>10}{seconds / whole:>7.1%}{calls:>7}{'':34}  {len(rest)} more"
