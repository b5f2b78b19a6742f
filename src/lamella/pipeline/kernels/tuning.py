"""Choosing between the ways to compute products by measuring them, the largest products first, for a bounded time.

A choice is kept under what it depends on: the text of the usual way, the machine, and this compiler. Kept choices
are used where somebody asks for tuning, and nowhere else: what a run without it does depends on nothing that was
measured before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol

from lamella.backend.cuda import missing
from lamella.backend.cuda.autotune import DeviceMeasurer
from lamella.backend.cuda.compile import device_target
from lamella.base.errors import InputError
from lamella.base.object_cache import ObjectCache, open_cache
from lamella.base.package import fingerprint
from lamella.base.records import dataclass
from lamella.base.tuning import MeasuredWay, TunedProduct, TuningReport
from lamella.base.watching import TUNED
from lamella.kernels.candidates import Candidate, Place, Problem, anonymous_text
from lamella.kernels.nodes import KernelGraph
from lamella.kernels.target import Target
from lamella.pipeline.options import Options

PARTS = ("bridge/graph_to_kernels", "backend/cpu", "backend/cuda", "kernels", "lang/tensor")
"""The parts of the package that write kernels and machine code."""
MARGIN = 0.97
"""A way is taken in the place of the usual one where it takes less than this part of its time."""


class Measurer(Protocol):
    """A machine that says how long ways take."""

    @property
    def machine(self) -> str:
        """What times depend on: the device, its driver, the library that it may compute with."""

    @property
    def has_library(self) -> bool:
        """Whether a library may compute products."""

    def measure(
        self, candidates: Sequence[Candidate], fixed: frozenset[Place], until: float
    ) -> list[MeasuredWay] | None:
        """The time of each way, the usual one being first; None where the clock passes `until` before the end."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What was measured of a product, and what follows."""

    ways: tuple[MeasuredWay, ...]
    kept: bool

    @property
    def name(self) -> str:
        """The way that is taken: the fastest, where it is clearly faster than the usual one."""
        usual = self.ways[0]
        timed = [(item.seconds, item.name) for item in self.ways if item.seconds is not None]
        if usual.seconds is None or not timed:
            return usual.name
        seconds, name = min(timed)
        return name if seconds < MARGIN * usual.seconds else usual.name


def open_tuner(options: Options, target: Target | None) -> Tuner | None:
    """What chooses between ways where the options ask for it; InputError where no GPU here is the target."""
    if not options.tune:
        return None
    lacking = missing()
    if lacking is not None:
        hint = "the usual kernels are written without --tune"
        raise InputError(f"no kernel can be measured here: {lacking}", hint=hint)
    here = device_target()
    if target is None or target.name != here.name:
        shown = "this machine" if target is None else f"'{target.name}'"
        hint = f"--target {here.name}, or no --tune"
        raise InputError(f"kernels for {shown} cannot be measured on the GPU here, '{here.name}'", hint=hint)
    return Tuner(DeviceMeasurer(), open_cache(), options.tune_seconds, not options.strict_backend)


class Tuner:
    """Decides between ways by what is kept or measured; `choose` is given to who writes kernels."""

    def __init__(
        self,
        measurer: Measurer,
        store: ObjectCache | None,
        seconds: float,
        native: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measurer, self._store, self._clock = measurer, store, clock
        self._left = seconds
        """Seconds that may still be spent, over all extents of a model."""
        self._native = native and measurer.has_library
        self._choices: dict[bytes, Choice] = {}
        self._met: dict[bytes, Problem] = {}
        """The problems of the graph that is written."""
        self._taken: dict[bytes, Candidate] = {}
        """The ways that it takes."""

    def tune(self, write: Callable[[], KernelGraph]) -> KernelGraph:
        """The kernels of a graph, written again where measuring found better ones; who listens is told."""
        self._met, self._taken = {}, {}
        written = write()
        usual = dict(self._taken)
        seconds = self.measure(written)
        if any(self._choices[key].name != item.name for key, item in usual.items() if key in self._choices):
            self._met, self._taken = {}, {}
            written = write()
        report = self.report(written, seconds)
        TUNED.get()(report)
        return replace(written, tuning=report)

    def choose(self, problem: Problem) -> Candidate:
        """The way that is taken: what was chosen before, else the usual one, for now."""
        key = self._key(problem)
        if key not in self._choices:
            kept = self._find(key)
            if kept is not None:
                self._choices[key] = kept
        choice, taken = self._choices.get(key), problem.default
        if choice is not None and choice.name != taken.name:
            ways = problem.candidates(self._native)
            taken = next((item for item in ways if item.name == choice.name), taken)
        self._met[key], self._taken[key] = problem, taken
        return taken

    def measure(self, written: KernelGraph) -> float:
        """Measure the problems of a graph that nothing is known of; gives how long that took."""
        begin = self._clock()
        for key in self._waiting(written):
            candidates = list(self._met[key].candidates(self._native))
            until = begin + self._left
            ways = None
            if self._clock() < until:
                ways = self._measurer.measure(candidates, self._met[key].fixed, until)
            if ways is None:
                break
            self._choices[key] = Choice(tuple(ways), False)
            if ways[0].seconds is not None:  # else nothing was learnt, for want of memory say
                self._keep(key, ways)
        spent = self._clock() - begin
        self._left = max(0.0, self._left - spent)
        return spent

    def _waiting(self, written: KernelGraph) -> list[bytes]:
        """The problems of a graph with several ways that are not measured, the largest first."""
        launches = self._count_launches(written)
        return [
            key
            for key in sorted(launches, key=lambda key: -self._met[key].steps * launches[key])
            if key not in self._choices and launches[key] and self._has_ways(self._met[key])
        ]

    def _has_ways(self, problem: Problem) -> bool:
        return len(list(islice(problem.candidates(self._native), 2))) > 1

    def report(self, written: KernelGraph, seconds: float) -> TuningReport:
        """What is known of the products of a graph, for which so long was measured."""
        launches = self._count_launches(written)
        ordered = sorted(launches, key=lambda key: -self._met[key].steps * launches[key])
        products = tuple(
            TunedProduct(
                self._met[key].default.calls[-1].kernel, launches[key], choice.ways, choice.name, choice.kept
            )
            for key in ordered
            if launches[key] and (choice := self._choices.get(key)) is not None
        )
        return TuningReport(products, len(self._waiting(written)), seconds)

    def _count_launches(self, written: KernelGraph) -> dict[bytes, int]:
        """How often a run launches what each problem was given."""
        called = Counter(
            call.kernel
            for item in written.model.graph.operations()
            for call in written.calls.get(written.key(item), ())
        )
        texts = {anonymous_text(item): called[item.name] for item in written.program.functions}
        found = {}
        for key, taken in self._taken.items():
            names = {call.kernel for call in taken.calls if not call.once}
            often = [texts.get(anonymous_text(item), 0) for item in taken.functions if item.name in names]
            found[key] = min(often, default=0)
        return found

    # --- what is kept ----------------------------------------------------------------------------------------------

    def _key(self, problem: Problem) -> bytes:
        parts = ("tuned", problem.text(), self._measurer.machine, fingerprint(*PARTS), str(self._native))
        return hashlib.sha256("\0".join(parts).encode()).digest()

    def _find(self, key: bytes) -> Choice | None:
        content = None if self._store is None else self._store.get(key)
        if content is None:
            return None
        # It comes from a file whose digest was verified.
        return Choice(tuple(MeasuredWay(*item) for item in json.loads(content)), True)

    def _keep(self, key: bytes, ways: Iterable[MeasuredWay]) -> None:
        if self._store is not None:
            self._store.put(key, json.dumps([list(item) for item in ways]).encode())
