"""What is chosen for a stage, and what a choice must keep to."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Grain:
    """In which pieces weights come: small ones are there sooner, and each takes a line and a token."""

    together: int = 1 << 18
    """Bytes of several stages that are fetched from DDR together."""
    far: int = 1 << 15
    """Bytes below which a fetch from DDR is not divided among several sDMAs."""
    near: int = 1 << 15
    """Bytes below which a load into L1 is not divided among several DMAs."""


FINE = Grain(0, 1 << 14, 1 << 13)
"""For stages that are shorter than the loads of their weights."""
COLD = Grain(1 << 40, 1 << 8, 1 << 8)
"""For plans that are over before anything could hide a latency: all weights come at once, by all units."""


@dataclass(slots=True)
class Effort:
    """Steps of a search, counted so that a plan is always the same: tilings that are priced, lines that are written."""

    limit: int
    spent: int = 0

    def take(self, steps: int = 1) -> None:
        """Count steps."""
        self.spent += steps

    @property
    def over(self) -> bool:
        """Whether there are none left."""
        return self.spent >= self.limit


@dataclass(frozen=True, slots=True)
class Tactic:
    """What one attempt at a plan takes for granted; no closed form knows, so several are made and simulated."""

    weights_hidden: bool
    """Whether weights that an engine keeps come during the stage before."""
    pace: float
    """The part of the time of DDR that computation may take: estimates are not exact, and stages begin and end."""
    neighbours: bool = True
    """Whether the weights of a stage are charged to the one before."""
    lines: int = 50
    """Lines that each stage of a plan may have on average."""
    thrift: float = 60.0
    """Cycles that a line less is worth as long as there is time."""
    grain: Grain = Grain()
    stripes: bool = False
    """Whether stages hand rows to each other inside L1 where that costs less."""
    solved: bool = False
    """Whether a solver decides what stays in L2."""
    coded: bool = True
    """Whether weights come through WDM where that saves bytes."""
    engines: int = 0
    """Engines that are used at most; 0: all."""

    @property
    def cold(self) -> bool:
        """Whether all weights are fetched at once."""
        return self.grain == COLD


TACTICS = (
    Tactic(False, 0.8),
    Tactic(False, 0.8, stripes=True),
    Tactic(False, 0.8, grain=FINE),
    Tactic(False, 0.8, lines=140),
    Tactic(True, 0.8, neighbours=False),
    Tactic(False, 0.8, neighbours=False, grain=Grain(near=1 << 13), stripes=True),
)
"""The attempts, in this order."""
COLD_TACTICS = tuple(
    Tactic(False, 0.8, grain=COLD, stripes=stripes, coded=False, engines=engines)
    for engines in (1, 0)
    for stripes in (True, False)
)
"""Attempts at plans whose weights come in a few latencies."""
LATENCIES = 8
"""How many."""
SOLVED = tuple(replace(item, solved=True) for item in TACTICS[:2])
"""More attempts, which take a solver."""


@dataclass(frozen=True, slots=True)
class Price:
    """Cycles of a stage whose weights are there, those of loading its weights, and those of loading its tiles."""

    alone: int
    weights: int
    tiles: int


@dataclass(frozen=True, slots=True)
class Choice:
    """How a stage is tiled: rows of a tile, channels of a chunk (0: all), chunks resident in L1, tiles in flight."""

    height: int
    chunk: int
    ring: int
    flight: int
    engines: int
    cycles: int
    l1_bytes: int
    streamed: bool = False
    across: bool = False
    """Whether the engines share the output channels rather than the rows."""
    eager: bool = False
    """Whether tasks begin before their stage's operands are all there: the first stage of a plan."""
    remote: bool = False
    """Whether the task works on operands where they lie: a view that cannot be divided and does not fit into L1."""
    edge: int = 0
    """Rows of the first and the last tile of such a stage."""
    lines: int = 0
    """Lines of text, about."""
    price: Price | None = None
    """What its cycles consist of; nothing where its weights pass through L1 in chunks."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tiling must keep to: bytes of L1, engines, and whether engines may share channels."""

    room: int
    engines: int
    across: bool | None = None
    """Whether engines must share channels or must not; None where they may."""
    thrift: float = 5.0
    """Cycles that a line less is worth: lines cost tokens, and they are read."""
