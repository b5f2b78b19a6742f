"""The time line of a step on several ranks, from a model of links: how long each rank computes, exchanges and waits.

A rank computes so many operations, and moves so many bytes of its memory, in a second; work takes the longer of the
two. Links have a bandwidth and a latency. The n ranks of a group are a ring: a sum of s bytes takes 2 (n - 1) rounds of
s / n bytes, a gather, a scatter and an all-to-all take n - 1. What begins and is waited for later goes on beside the
computing of a rank, one exchange after the other. Ranks that differ in dp, tp or ep do the same at the same time, so
one of each stage is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from lamella.base.errors import InputError
from lamella.pipeline.bench.work import Work
from lamella.train.ranks.ledger import Await, StageLedger, StepItem, StepLedger, Transfer
from lamella.train.ranks.pipeline import one_forward_one_backward

COMPUTE, EXCHANGE = "compute", "exchange"
UPDATE_READS = 7
"""Times that AdamW reads or writes a number of each parameter: it, its gradient, its two slots."""


@dataclass(frozen=True, slots=True)
class LinkModel:
    """What a rank does in a second, and what lies between two."""

    flops: float = 5e13
    memory: float = 1e12
    """Bytes."""
    bandwidth: float = 2.5e10
    """Bytes."""
    latency: float = 1e-5
    """Seconds."""

    def work(self, work: Work) -> float:
        """Seconds of some work."""
        return max(work.flops / self.flops, work.moved / self.memory)

    def transfer(self, item: Transfer) -> float:
        """Seconds of an exchange."""
        rounds = 1 if item.kind == "send" else item.ranks - 1
        rounds *= 2 if item.kind == "all_reduce" else 1
        return rounds * self.latency + item.sent / self.bandwidth


def read_link(text: str | None) -> LinkModel:
    """The model that a text such as `bandwidth=1e11,latency=2e-6` changes; InputError says what is wrong in it."""
    known = {item.name for item in fields(LinkModel)}
    found: dict[str, float] = {}
    for word in (text or "").split(",") if text else ():
        name, _, number = word.strip().partition("=")
        try:
            found[name] = float(number)
        except ValueError:
            found[name] = -1.0
        if (
            name not in known
            or not 0 <= found[name] < float("inf")
            or (name != "latency" and not found[name])
        ):
            hint = f"name {', '.join(sorted(known))}, each with a number: bandwidth=1e11"
            raise InputError(f"'{word[:40]}' says nothing of a link", hint=hint)
    return LinkModel(**found)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a rank does."""

    stage: int
    track: str
    """Whether it computes, or exchanges."""
    name: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class StepTimeline:
    """A step in seconds."""

    ledger: StepLedger
    link: LinkModel
    events: tuple[Event, ...]

    @property
    def seconds(self) -> float:
        """How long the step takes."""
        return max((item.end for item in self.events), default=0.0)

    def busy(self, stage: int, track: str) -> float:
        """Seconds in which a rank of a stage computes, or exchanges."""
        return sum(
            item.end - item.start for item in self.events if (item.stage, item.track) == (stage, track)
        )


class _Rank:
    """The clock of a rank: what it computes, and what it exchanges beside that."""

    def __init__(self, stage: int, link: LinkModel) -> None:
        self.stage, self.link = stage, link
        self.now = 0.0
        self.free = 0.0
        """When the links are free again."""
        self.pending: dict[int, float] = {}
        self.events: list[Event] = []

    def compute(self, seconds: float, name: str) -> None:
        """Work for so long."""
        self.events.append(Event(self.stage, COMPUTE, name, self.now, self.now + seconds))
        self.now += seconds

    def exchange(self, item: Transfer) -> float:
        """Begin an exchange as soon as the links are free; gives its end."""
        start = max(self.now, self.free)
        self.free = start + self.link.transfer(item)
        name = f"{item.kind} {item.axis} {item.tensor}"
        self.events.append(Event(self.stage, EXCHANGE, name, start, self.free))
        return self.free

    def run(self, items: Sequence[StepItem], name: str) -> None:
        """Do what a half of a step is made of."""
        for item in items:
            if isinstance(item, Work):
                self.compute(self.link.work(item), name)
            elif isinstance(item, Await):
                self.now = max(self.now, self.pending.pop(item.number, 0.0))
            elif item.is_later:
                self.pending[item.number] = self.exchange(item)
            else:
                self.now = self.exchange(item)


class _Pipeline:
    """All stages of a step, each as far as what it waits for has come."""

    def __init__(self, ledger: StepLedger, link: LinkModel) -> None:
        self.ledger, self.link = ledger, link
        count = len(ledger.stages)
        self.ranks = [_Rank(stage, link) for stage in range(count)]
        self.orders = [[*one_forward_one_backward(stage, count, ledger.parts)] for stage in range(count)]
        self.arrived: dict[tuple[int, int, bool, int], float] = {}
        """When what one stage sends another is there, by the two, the direction, and the part."""

    def run(self) -> tuple[Event, ...]:
        """The events of all."""
        while any(self.orders):
            ready = [stage for stage, order in enumerate(self.orders) if order and self._is_ready(stage)]
            for stage in ready:
                self._take(stage, *self.orders[stage].pop(0))
        for rank, ledger in zip(self.ranks, self.ledger.stages, strict=True):
            self._update(rank, ledger)
        return tuple(event for rank in self.ranks for event in rank.events)

    def _senders(self, stage: int, is_back: bool) -> Iterator[int]:
        for number, item in enumerate(self.ledger.stages):
            sent = item.returned if is_back else item.sent
            if any(one.stages is not None and one.stages[1] == stage for one in sent):
                yield number

    def _is_ready(self, stage: int) -> bool:
        is_back, part = self.orders[stage][0]
        return all((one, stage, is_back, part) in self.arrived for one in self._senders(stage, is_back))

    def _take(self, stage: int, is_back: bool, part: int) -> None:
        rank, ledger = self.ranks[stage], self.ledger.stages[stage]
        came = [self.arrived[one, stage, is_back, part] for one in self._senders(stage, is_back)]
        rank.now = max([rank.now, *came])
        rank.run(
            ledger.backward if is_back else ledger.forward, f"{'backward' if is_back else 'forward'} {part}"
        )
        for item in ledger.returned if is_back else ledger.sent:
            if item.stages is not None:
                self.arrived[stage, item.stages[1], is_back, part] = rank.exchange(item)

    def _update(self, rank: _Rank, ledger: StageLedger) -> None:
        ends = [rank.now]
        for item in ledger.gradients:
            ends.append(rank.exchange(item))
            rank.now = rank.now if item.is_later else ends[-1]
        rank.now = max(ends)
        trained = sum(item.size for item in ledger.parameters if item.is_trained)
        rank.compute(self.link.work(Work(0, UPDATE_READS * trained)), "update")


def simulate_step(ledger: StepLedger, link: LinkModel) -> StepTimeline:
    """The time line of a step."""
    return StepTimeline(ledger, link, _Pipeline(ledger, link).run())
