"""How hazards are told: bytes, iterations, places."""

from __future__ import annotations

from lamella.plan.hazards.accesses import Point
from lamella.plan.order import Site

IRREGULAR = "the offsets are too irregular to be compared within the budget"
TOO_MANY = "there are more pairs of accesses than may be compared"


def show_bytes(low: int, high: int) -> str:
    """A byte range as sentences have it."""
    return f"bytes [{low}, {high})"


def show_iteration(site: Site, point: Point) -> str:
    """One iteration in the program's variables: `i=3, j=0`; empty outside loops."""
    return ", ".join(
        f"{loop.variable}={loop.first + number}" for loop, number in zip(site.loops, point, strict=True)
    )


def window_hint(early: tuple[Site, Point], late: tuple[Site, Point]) -> str | None:
    """What a window that is too wide would have to be; None where the two are in the same iterations."""
    common = zip(early[0].loops, late[0].loops, early[1], late[1], strict=False)
    for one, other, before, after in common:
        if one.number != other.number:
            return None
        if before != after:
            distance = abs(after - before)
            return (
                f"iterations of {one.variable} that are {distance} apart use the same bytes, "
                f"and @max_in_flight({one.window}) lets them overlap; lower it to {distance}, or use more slots"
            )
    return None


def show_iterations(*instances: tuple[Site, Point]) -> str:
    """The iterations of instances in the order in which a sentence names them, each told once."""
    shown = dict.fromkeys(show_iteration(site, point) for site, point in instances)
    told = " and ".join(text for text in shown if text)
    return f" ({told})" if told else ""
