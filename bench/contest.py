"""Contests: several ways to do the same work, run in turn, the fastest sample of each; one line for each contest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from lamella.base.arrays import Array

OURS = "lamella"
SAMPLE_S = 3e-4
"""A sample is so many calls that it takes about this long."""
PAUSE_S = 4e-3
"""Until the waiting threads of another library sleep and leave the processors alone."""
FEWEST_ROUNDS = 5
Work = Callable[[], object]


@dataclass(slots=True)
class Report:
    """What all contests of a run have in common, and how they ended."""

    seconds: float
    """How long a contest lasts."""
    threads: int = 1
    judged: bool = True
    """Whether ratios are held to targets: not where other work keeps the threads waiting for each other."""
    below: list[str] = field(default_factory=list)
    met: int = 0

    @property
    def clock(self) -> Callable[[], float]:
        """CPU time of the thread, which other work does not lengthen; with more than one, the time on the wall."""
        return time.thread_time if self.threads == 1 else time.perf_counter

    def judge(self, what: str, ratio: float, target: float | None) -> str:
        """Whether a ratio meets its target."""
        if target is None or not self.judged:
            return ""
        if ratio >= target:
            self.met += 1
            return f"  target {target:.2f} ok"
        self.below.append(f"{what}, {self.threads} threads: {ratio:.2f} of {target:.2f}")
        return f"  target {target:.2f} missed"

    def finish(self) -> None:
        """Say how many targets were met, and name the others."""
        print(f"\n{self.met} targets met, {len(self.below)} missed")
        for line in self.below:
            print(f"  {line}")


def contest(report: Report, work: Mapping[str, Work]) -> dict[str, float]:
    """Seconds of one call of each, the fastest of many samples taken in turn."""
    counts = {name: _calls(call, report.clock) for name, call in work.items()}
    best = dict.fromkeys(work, float("inf"))
    end = time.perf_counter() + report.seconds
    rounds = 0
    while rounds < FEWEST_ROUNDS or time.perf_counter() < end:
        rounds += 1
        for name, call in work.items():
            if report.threads > 1:
                time.sleep(PAUSE_S)
            call()  # the caches hold its own numbers again, not those of the one before
            best[name] = min(best[name], _sample(call, counts[name], report.clock))
    return best


def _calls(call: Work, clock: Callable[[], float]) -> int:
    call()
    return max(1, int(SAMPLE_S / max(_sample(call, 1, clock), 1e-7)))


def _sample(call: Work, count: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count


def tell(
    report: Report,
    what: str,
    times: Mapping[str, float],
    *,
    amount: float,
    unit: str,
    target: float | None = None,
    limit: float | None = None,
) -> float:
    """Print the line of a contest: our rate, the best peer, the ratio, the target, and the limit of the machine."""
    ours = times[OURS]
    peer = min((name for name in times if name != OURS), key=lambda name: times[name])
    ratio = times[peer] / ours
    words = f"{what:44} {amount / ours / 1e9:8.1f} {unit}  {peer:14} {amount / times[peer] / 1e9:8.1f}"
    bound = "" if limit is None else f"  limit {amount / limit / 1e9:.0f}"
    print(f"{words}  ratio {ratio:5.2f}{report.judge(what, ratio, target)}{bound}", flush=True)
    return ratio


def tell_mean(report: Report, what: str, ratios: Sequence[float], target: float) -> None:
    """Print the geometric mean of some ratios."""
    mean = float(np.exp(np.mean(np.log(ratios))))
    print(f"{what:44} {'':30} mean ratio {mean:5.2f}{report.judge(what, mean, target)}", flush=True)


def fill(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random numbers in memory that begins at a line of the cache."""
    return torch.randn(*shape).to(dtype)


def view(tensor: torch.Tensor) -> Array:
    """The memory of a tensor with the contiguous mode first, as kernels have it."""
    found: Array = tensor.numpy().T
    return found


def copy_call(size: int) -> Work:
    """A copy that reads and writes so many bytes in all."""
    source = torch.ones(max(1, size // 8))
    return partial(torch.empty_like(source).copy_, source)
