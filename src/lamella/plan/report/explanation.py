"""An explanation of a layer as a person reads it on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.plan.explain import Explanation, Remedy
from lamella.plan.report.build import count, in_bytes, in_thousands, name, percent

MOST_SHOWN = 12


def explanation_text(found: Explanation) -> str:
    """Roofs, waits and remedies of a layer."""
    return "\n".join([*_head(found), "", *_roofs(found), "", *_remedies(found)]) + "\n"


def _head(found: Explanation) -> Iterator[str]:
    where = f" (line {found.line})" if found.line and "line" not in found.name else ""
    share = percent(found.layer_cycles / max(1, found.cycles))
    yield f"{name(found.name)}{where}: {count(found.layer_cycles)} of {count(found.cycles)} cycles, {share}"
    moved = [f"{in_bytes(size)} across {level}" for level, size in found.moved.items() if size]
    work = [f"{in_thousands(found.macs, '').strip()} MACs"] if found.macs else []
    yield f"  work     {', '.join([*work, *moved]) or 'none that is counted'}"
    if found.intensity is not None and found.ridge is not None and found.macs:
        side = "compute" if found.intensity >= found.ridge else found.level
        numbers = f"{found.intensity:.4g} MACs a byte of {found.level}, the ridge is at {found.ridge:.4g}"
        yield f"  roofline {numbers}: under the roof of {side}"
    if found.waits:
        yield "  waited   " + ", ".join(f"{reason} {count(cycles)}" for reason, cycles in found.waits)


def _roofs(found: Explanation) -> Iterator[str]:
    yield "roofs: the work of each unit on all its instances, in cycles"
    binding = found.binding
    for roof in found.roofs:
        mark = f"  ← binding, {found.layer_cycles / max(1, roof.cycles):.3f} ×" if roof is binding else ""
        yield f"  {name(roof.name):<8} {count(roof.cycles):>12}{mark}"


def _remedies(found: Explanation) -> Iterator[str]:
    useful = [item for item in found.remedies if item.cycles < found.cycles]
    idle = [item.title for item in found.remedies if item.cycles >= found.cycles]
    yield "what would change it, each simulated: cycles of the plan, and of the layer"
    for item in useful[:MOST_SHOWN]:
        yield _remedy(item, found)
    if not useful:
        yield "  nothing that was tried"
    if idle:
        yield f"  no gain: {'; '.join(map(name, idle[:MOST_SHOWN]))}"


def _remedy(item: Remedy, found: Explanation) -> str:
    gain = percent(1 - item.cycles / max(1, found.cycles))
    layer = "" if item.layer_cycles is None else f", layer {count(item.layer_cycles)}"
    return f"  {count(item.cycles):>12}  −{gain}{layer}: {name(item.title)}"
