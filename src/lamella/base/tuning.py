"""What measuring found: the ways to compute each product of a model, how long they take, and which one is taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lamella.base.diagnostic import printable


class MeasuredWay(NamedTuple):
    """One way: its seconds for one launch, or why it was dropped."""

    name: str
    seconds: float | None
    reason: str = ""

    def __str__(self) -> str:
        return (
            f"{self.name} {self.reason}"
            if self.seconds is None
            else f"{self.name} {self.seconds * 1e6:.1f} us"
        )


class TunedProduct(NamedTuple):
    """A product with its ways, the first of which is taken where nothing is measured."""

    kernel: str
    """What the kernel of its first way is called."""
    launches: int
    """How often a run computes it."""
    ways: tuple[MeasuredWay, ...]
    chosen: str
    kept: bool
    """Whether an earlier measurement was found in the cache."""

    def line(self) -> str:
        """All of it on one line, what is taken in brackets."""
        shown = [f"[{item}]" if item.name == self.chosen else str(item) for item in self.ways]
        return f"{printable(self.kernel)} x {self.launches}: {', '.join(shown)}"

    def to_json(self) -> dict[str, object]:
        """The same as data, times in microseconds."""
        ways = [
            {"name": item.name, "microseconds": item.seconds * 1e6}
            if item.seconds is not None
            else {"name": item.name, "dropped": item.reason}
            for item in self.ways
        ]
        facts = {"kernel": self.kernel, "launches": self.launches, "ways": ways}
        return {**facts, "chosen": self.chosen, "cached": self.kept}


class TuningReport(NamedTuple):
    """What was measured for a model."""

    products: tuple[TunedProduct, ...]
    left: int
    """Products for whose ways there was no time."""
    seconds: float
    """How long it took."""

    @property
    def changed(self) -> int:
        """How many products another way was found for than the usual one."""
        return sum(item.chosen != item.ways[0].name for item in self.products)

    def lines(self) -> Iterator[str]:
        """For people: a sentence, and a line for each product."""
        kept = sum(item.kept for item in self.products)
        words = [f"{len(self.products)} products"] if self.products else ["no product has several ways"]
        words += [f"{kept} of them measured before"] if kept else []
        words += [f"{self.left} not measured, the time was up"] if self.left else []
        yield f"tuned in {self.seconds:.1f} s: {', '.join(words)}; {self.changed} run another way than without --tune"
        yield from (f"  {item.line()}" for item in self.products)

    def to_json(self) -> dict[str, object]:
        """All of it as data."""
        return {
            "seconds": round(self.seconds, 3),
            "left": self.left,
            "products": [item.to_json() for item in self.products],
        }


def tuning_of(thing: object) -> TuningReport | None:
    """What was measured for an executable or for lowered kernels; None where nothing was."""
    found = getattr(thing, "tuning", None)
    return found if isinstance(found, TuningReport) else None
