"""The process of one contestant: it makes the model ready, then takes samples whenever it is asked for a round.

Each contestant has a process of its own, so that its memory is its own and the waiting threads of one library do not
disturb another. Answers are lines of JSON; what libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, cast

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.paths import read_text
from lamella.base.system import busy_seconds, peak_bytes
from lamella.base.tuning import TuningReport
from lamella.base.watching import TUNED
from lamella.pipeline.arrays import write_array
from lamella.pipeline.bench.contestants import Contestant, Material, Ours, enter, load_packages
from lamella.pipeline.bench.steps import profile_steps
from lamella.pipeline.options import Options

MOST_SAMPLES = 2000
PROFILE = b"profile"
"""The order for a profile; a number orders a round of so many seconds."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a worker is to enter the contest with."""

    name: str
    material: Material
    threads: int
    options: Mapping[str, object]
    """Those that are not as nobody gave them, by name."""
    folder: Path
    """Where it leaves the results of its first call."""


def serve(orders: BinaryIO, answers: int) -> None:
    """Do what the lines of `orders` ask for until they end."""
    entry: Entry = pickle.load(orders)
    load_packages(entry.name, entry.material)  # their start is not that of a model
    tuned: list[TuningReport] = []
    TUNED.set(tuned.append)
    start, idle = time.perf_counter(), busy_seconds()
    contestant = enter(
        entry.name, entry.material, entry.threads, cast("Callable[..., Options]", Options)(**entry.options)
    )
    ready = time.perf_counter()
    found = contestant.call()
    first, busy = time.perf_counter(), busy_seconds() - idle
    again, run = _timed(contestant)
    results = contestant.results(found)
    for place, array in enumerate(results):
        write_array(entry.folder / f"{place}.npy", array)
    # What a run takes is no part of a start, whatever the batch: a first call packs weights, and then it runs.
    times = {"load": ready - start, "first": max(0.0, first - ready - again), "busy": busy - run}
    peaks = {"peak": peak_memory(), "aside": peak_bytes(children=True)}
    told = [{"lines": list(item.lines()), **item.to_json()} for item in tuned]
    _answer(answers, {**times, **peaks, "results": len(results), "tuning": told})
    for line in orders:
        is_profile = line.strip() == PROFILE
        _answer(answers, _profile(contestant) if is_profile else _take_round(contestant, float(line)))


def _take_round(contestant: Contestant, seconds: float) -> Mapping[str, object]:
    """Samples of single calls for about so long, on the wall and in CPU time of the whole process."""
    contestant.call()  # the caches hold its own numbers again, not those of the one before
    wall: list[float] = []
    work: list[float] = []
    end = time.perf_counter() + seconds
    while not wall or (time.perf_counter() < end and len(wall) < MOST_SAMPLES):
        took, busy = _timed(contestant)
        wall.append(took)
        work.append(busy)
    return {"wall": wall, "cpu": work, "peak": peak_memory()}


def _timed(contestant: Contestant) -> tuple[float, float]:
    """Seconds of one call, on the wall and in CPU time of the whole process."""
    start, busy = time.perf_counter(), time.process_time()
    contestant.call()
    return time.perf_counter() - start, time.process_time() - busy


def _profile(contestant: Contestant) -> Mapping[str, object]:
    """The steps of one more run of ours, each with its work, in order."""
    if not isinstance(contestant, Ours):
        return {"kernels": []}
    return {"kernels": [asdict(item) for item in profile_steps(contestant)]}


def peak_memory() -> int:
    """The most memory that this process ever held, in bytes; 0 where the system does not say."""
    try:
        text = read_text(Path("/proc/self/status"))
    except LamellaError:
        return 0
    line = next((item for item in text.splitlines() if item.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(line.split()[1]) * 1024


def _answer(answers: int, facts: Mapping[str, object]) -> None:
    os.write(answers, (json.dumps(facts) + "\n").encode())


def _told(finding: Diagnostic) -> str:
    return f"{finding.message}; {finding.hint}" if finding.hint else finding.message


def _main() -> None:
    """Serve on standard input and output; what a library raises ends the process, its last line says why."""
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, answers)
    except LamellaError as problem:
        _answer(answers, {"error": "; ".join(map(_told, problem.findings))})


if __name__ == "__main__":
    _main()
