"""Contests of whole models: every contestant in a process of its own, asked for samples in turn, round after round."""

from __future__ import annotations

import json
import os
import pickle
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import numpy as np

from lamella.base.arrays import Array
from lamella.pipeline.arrays import read_array
from lamella.pipeline.bench.contestants import Material
from lamella.pipeline.bench.steps import KernelTime
from lamella.pipeline.bench.worker import PROFILE, Entry
from lamella.pipeline.options import Options

PAUSE_S = 0.02
"""Until the waiting threads of the one before sleep and leave the processors alone."""
TOLD = 300
"""How much of a fault of a library is repeated."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What all contestants of a contest have in common."""

    threads: int = 1
    rounds: int = 5
    seconds: float = 0.5
    """How long each is measured in a round."""
    patience: float = 300.0
    """How long one may take to get ready, and to answer; who takes longer is out."""
    apart: bool = False
    """Whether each runs all its rounds before the next one starts, where memory does not hold all of them."""
    cache: Path | None = None
    """Where our machine code is kept; by default where it always is."""


@dataclass(slots=True)
class Standing:
    """How a contestant did."""

    name: str
    load: float = 0.0
    """Seconds from a file to something callable."""
    first: float = 0.0
    """Seconds of the first call, which compiles or packs what was left to it, beyond those of the second."""
    busy: float = 0.0
    """CPU seconds of both, of all threads: what they take where nobody else is on the machine."""
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: int = 0
    """The most memory that its process held, in bytes."""
    aside: int = 0
    """The most memory that a process held which compiled for it, in bytes; 0 where none did."""
    results: list[Array] = field(default_factory=list)
    kernels: list[KernelTime] = field(default_factory=list)
    """Where the time of one run went, for one of ours."""
    tuning: list[dict[str, object]] = field(default_factory=list)
    """What was measured to choose its kernels, as data, and as lines for people."""
    problem: str = ""
    """Why it is out; empty for one that is not."""

    def best(self, threads: int) -> float:
        """Seconds of the fastest call: CPU seconds of one thread, which other work does not lengthen."""
        return min(self.cpu if threads == 1 else self.wall, default=float("nan"))

    def median(self, threads: int) -> float:
        """Seconds of the call in the middle."""
        samples = self.cpu if threads == 1 else self.wall
        return statistics.median(samples) if samples else float("nan")


Tell = Callable[[str], None]
"""Takes a word on what is going on."""


def hold(
    names: Sequence[str], material: Material, terms: Terms, options: Options, tell: Tell = lambda _: None
) -> list[Standing]:
    """Run a contest; those that cannot take part are in the list with the reason."""
    given = {
        item.name: value
        for item in fields(Options)
        if (value := getattr(options, item.name)) != getattr(Options(), item.name)
    }
    with TemporaryDirectory(prefix="lamella-bench-") as folder:
        entries = [
            Entry(name, material, terms.threads, given, Path(folder) / str(place))
            for place, name in enumerate(names)
        ]
        groups = [[entry] for entry in entries] if terms.apart else [entries]
        return [standing for group in groups for standing in _hold(group, terms, tell)]


def _hold(entries: Sequence[Entry], terms: Terms, tell: Tell) -> list[Standing]:
    workers: list[_Worker] = []
    try:
        for entry in entries:
            tell(f"{entry.name} gets ready")
            workers.append(_Worker(entry, terms))
            workers[-1].get_ready()
        for number in range(terms.rounds):
            for worker in workers:
                tell(f"round {number + 1} of {terms.rounds}: {worker.standing.name}")
                time.sleep(PAUSE_S if terms.threads > 1 else 0)
                worker.take_round()
        for worker in workers if terms.rounds else ():
            worker.take_profile()
    finally:
        for worker in workers:
            worker.end()
    return [worker.standing for worker in workers]


class _Worker:
    """The process of a contestant, seen from outside."""

    def __init__(self, entry: Entry, terms: Terms) -> None:
        self.standing = Standing(entry.name)
        self._terms = terms
        self._folder = entry.folder
        self._rest = b""
        command = [sys.executable, "-m", "lamella.pipeline.bench.worker"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(terms),
        )
        self._send(pickle.dumps(entry))

    def get_ready(self) -> None:
        """Wait until the model has run once, and take its results."""
        facts = self._receive()
        if facts is None:
            return
        self.standing.load, self.standing.first = _number(facts, "load"), _number(facts, "first")
        self.standing.busy, self.standing.peak = _number(facts, "busy"), int(_number(facts, "peak"))
        self.standing.aside = int(_number(facts, "aside"))
        tuning = facts.get("tuning")
        self.standing.tuning = list(tuning) if isinstance(tuning, list) else []
        paths = [self._folder / f"{place}.npy" for place in range(int(_number(facts, "results")))]
        self.standing.results = [read_array(path) for path in paths]

    def take_round(self) -> None:
        """Ask for the samples of a round."""
        if self.standing.problem:
            return
        self._send(f"{self._terms.seconds}\n".encode())
        facts = self._receive()
        if facts is not None:
            for samples, word in ((self.standing.wall, "wall"), (self.standing.cpu, "cpu")):
                found = facts[word]
                samples += found if isinstance(found, list) else []
            self.standing.peak = max(self.standing.peak, int(_number(facts, "peak")))

    def take_profile(self) -> None:
        """Ask for one more run, step by step."""
        if not self.standing.problem:
            self._send(PROFILE + b"\n")
            facts = self._receive() or {}
            found = facts.get("kernels")
            self.standing.kernels = [KernelTime(**item) for item in found] if isinstance(found, list) else []

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(OSError):
            self._process.communicate()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _send(self, data: bytes) -> None:
        with suppress(BrokenPipeError):  # who is gone says so when it is to answer
            self._input.write(data)
            self._input.flush()

    def _receive(self) -> Mapping[str, object] | None:
        """The next answer; None where it does not come, and the standing says why."""
        end = time.monotonic() + self._terms.patience
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        out, err = self._process.stdout.fileno(), self._process.stderr.fileno()
        heard = b""
        while b"\n" not in self._rest:
            ready = select.select([out, err], [], [], max(0.0, end - time.monotonic()))[0]
            if not ready:
                return self._give_up(f"no answer within {self._terms.patience:g} s")
            if err in ready:
                heard = (heard + os.read(err, 65536))[-4000:]
            if out in ready:
                part = os.read(out, 1 << 20)
                if not part:
                    heard += os.read(err, 65536) if select.select([err], [], [], 0.2)[0] else b""
                    return self._give_up(self._how_it_ended(heard))
                self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        facts: Mapping[str, object] = json.loads(line)
        return self._give_up(str(facts["error"])) if "error" in facts else facts

    def _give_up(self, problem: str) -> Mapping[str, object] | None:
        """No answer: the contestant is out."""
        self.standing.problem = problem
        self._process.kill()
        return None

    def _how_it_ended(self, heard: bytes) -> str:
        code = self._process.wait()
        if code < 0:
            return f"its process was ended by signal {-code}"
        lines = [line for line in heard.decode(errors="replace").splitlines() if line.strip()]
        # behind the indented lines of a traceback stands what was raised
        above = max((place for place, line in enumerate(lines) if line.startswith(" ")), default=-1)
        return (lines[above + 1 :] or lines or [f"its process ended with status {code}"])[0][:TOLD]


def _number(facts: Mapping[str, object], name: str) -> float:
    value = facts[name]
    return float(value) if isinstance(value, int | float) else 0.0


def _environment(terms: Terms) -> dict[str, str]:
    """As many threads as the contest allows for whoever reads it from there."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    found = {**os.environ, **dict.fromkeys(names, str(terms.threads))}
    return found if terms.cache is None else {**found, "LAMELLA_CACHE": str(terms.cache)}


def difference(ours: Sequence[Array], theirs: Sequence[Array]) -> tuple[float, float]:
    """The largest difference of two sets of results: absolute, and as a part of the largest number of `theirs`."""
    if len(ours) != len(theirs):
        return float("inf"), float("inf")
    worst = [0.0, 0.0]
    for left, right in zip(ours, theirs, strict=True):
        if left.shape != right.shape:
            return float("inf"), float("inf")
        if not left.size:
            continue
        wide = right.astype(np.float64)
        apart = float(np.abs(left.astype(np.float64) - wide).max())
        worst = [max(worst[0], apart), max(worst[1], apart / (float(np.abs(wide).max()) or 1.0))]
    return worst[0], worst[1]
