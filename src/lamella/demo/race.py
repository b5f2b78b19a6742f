"""A short race on one core: our machine code, the reference and onnxruntime where it is installed, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lamella.backend.progress import Progress
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.optional import need
from lamella.pipeline import api
from lamella.pipeline.given import options_of

OURS, PEER = "lamella", "onnxruntime"
ROUNDS = 7
SECONDS = 0.1
"""How long each is measured in each round."""
BATCHES = (1, 64)

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Race:
    """Microseconds of CPU time of a call, the fastest of all rounds, by batch and contestant."""

    microseconds: Mapping[int, Mapping[str, float]]
    versions: Mapping[str, str]

    def sentence(self) -> str:
        """The times in words, ours beside the peer's where it takes part."""
        parts = []
        for batch, times in self.microseconds.items():
            words = f"batch {batch}: {times[OURS]:.1f} µs"
            if PEER in times:
                words += f", {PEER} {times[PEER]:.1f} µs ({times[OURS] / times[PEER]:.2f} ×)"
            parts.append(words)
        return "; ".join(parts)

    def to_json(self) -> dict[str, object]:
        """As data."""
        rows = {str(batch): dict(times) for batch, times in self.microseconds.items()}
        return {"microseconds": rows, "versions": dict(self.versions)}


def hold_race(path: Path, images: Array, rounds: int, progress: Progress) -> Race:
    """Measure an ONNX file of ours: interleaved, each on one thread, CPU time."""
    versions: dict[str, str] = {}
    found: dict[int, Mapping[str, float]] = {}
    for batch in progress(BATCHES, len(BATCHES)):
        calls = {OURS: _ours(path, images[:batch])}
        peer = _peer(path, images[:batch], versions)
        if peer is not None:
            calls[PEER] = peer
        found[batch] = _measure(calls, rounds)
    return Race(found, versions)


def _ours(path: Path, images: Array) -> Call:
    run = api.make_executable(path, "cpu", options_of({"threads": 1}))
    return lambda: run(image=images)


def _peer(path: Path, images: Array, versions: dict[str, str]) -> Call | None:
    """The peer, one thread; None where it is not installed."""
    try:
        package = need(PEER)
    except LamellaError:
        return None
    versions[PEER] = package.__version__
    settings = package.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = package.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"image": images})


def _measure(calls: Mapping[str, Call], rounds: int) -> dict[str, float]:
    for call in calls.values():
        call()
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], _time(call))
    return best


def _time(call: Call) -> float:
    """Microseconds of CPU time of a call, the mean of as many as fit into a moment."""
    start, count = time.process_time(), 0
    while time.process_time() - start < SECONDS:
        for _ in range(16):
            call()
        count += 16
    return (time.process_time() - start) / count * 1e6
