"""Benchmarks of whole models: ours beside peers, each in its own process, in one run, beside what bounds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, replace
from io import StringIO
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from lamella.backend.cpu.host import processor
from lamella.backend.executor import GraphExecutable
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.dim import DimSymbol, symbols
from lamella.base.errors import InputError
from lamella.base.optional import Foreign, need
from lamella.bridge.graph_to_kernels import flatten
from lamella.bridge.torch_to_graph.program import first_line
from lamella.graph.model import Model as Graph
from lamella.graph.nodes import Tensor
from lamella.pipeline.accuracy import FULL
from lamella.pipeline.api import make_executable
from lamella.pipeline.bench.ceilings import Ceilings, measure_ceilings
from lamella.pipeline.bench.contest import Standing, Tell, Terms, difference, hold
from lamella.pipeline.bench.contestants import Material, precise, version_of
from lamella.pipeline.bench.work import GraphWork, count_graph, extents_of
from lamella.pipeline.comparison_options import PEERS
from lamella.pipeline.languages import TORCH, language_of
from lamella.pipeline.options import Options
from lamella.pipeline.torch.execution import opened_program

DEFAULT_BACKEND, TUNED_BACKEND = "cpu", "cuda"
BY_ONNX = ("onnxruntime", "openvino")


class TimeUnit(NamedTuple):
    """A unit of time, and how many of it a second has."""

    name: str
    scale: float
    digits: int

    def of(self, seconds: float) -> str:
        """Seconds as a number of the unit."""
        return f"{seconds * self.scale:.{self.digits}f}"


MILLISECONDS, MICROSECONDS = TimeUnit("ms", 1e3, 3), TimeUnit("µs", 1e6, 2)
SHORT = 1e-4
"""Seconds below which a call is told in microseconds."""


@dataclass(frozen=True, slots=True)
class Heat:
    """One contest: a batch and a number of threads, how everybody did, and what bounds the time."""

    batch: int | None
    """None where the model's own is taken."""
    threads: int
    standings: Sequence[Standing]
    backends: int
    """How many of the standings, the first, are ours."""
    work: GraphWork
    ceilings: Ceilings
    again: Standing
    """A second start of our first backend, whose machine code is kept by then."""

    @property
    def unit(self) -> TimeUnit:
        """What times are told in: the slowest contestant decides."""
        slowest = max((item.best(self.threads) for item in self.standings if item.wall), default=1.0)
        return MILLISECONDS if slowest >= SHORT else MICROSECONDS

    @property
    def arithmetic_bound(self) -> float:
        """Seconds that the products of the model take at the machine's peak."""
        return 2 * self.work.macs / self.ceilings.gflops / 1e9

    @property
    def bandwidth_bound(self) -> float:
        """Seconds that reading the weights and inputs once takes."""
        return self.work.fixed / self.ceilings.gbytes / 1e9

    @property
    def cached(self) -> float:
        """Seconds of the second start; not a number where it failed."""
        return float("nan") if self.again.problem else self.again.load + self.again.first

    @property
    def ratio(self) -> float:
        """Our time by the best peer's; not a number where one of them is missing."""
        peers = [item.best(self.threads) for item in self.standings[self.backends :] if item.wall]
        ours = [item.best(self.threads) for item in self.standings[: self.backends] if item.wall]
        return ours[0] / min(peers) if peers and ours else float("nan")

    @property
    def judge(self) -> Standing | None:
        """Whose numbers the others are compared with: torch where it takes part, else the first who gave any."""
        ran = [item for item in self.standings if not item.problem]
        return next((item for item in ran if item.name == "torch"), ran[-1] if len(ran) > 1 else None)

    def differs(self, standing: Standing) -> tuple[float, float] | None:
        """How far a contestant's numbers lie from the judge's; None for the judge itself."""
        judge = self.judge
        if judge is None or standing is judge or standing.problem:
            return None
        return difference(standing.results, judge.results)

    def to_json(self) -> dict[str, object]:
        """All of it as data."""
        return {
            "batch": self.batch,
            "threads": self.threads,
            "ratio": _finite(self.ratio),
            "cached_start": _finite(self.cached),
            "cached_start_cpu": self.again.busy,
            "cached_peak_bytes": self.again.peak,
            "macs": self.work.macs,
            "bytes": self.work.fixed,
            "bounds": {"arithmetic": self.arithmetic_bound, "bandwidth": self.bandwidth_bound},
            "ceilings": {"gflops": self.ceilings.gflops, "gbytes": self.ceilings.gbytes},
            "contestants": [self._contestant(item) for item in self.standings],
        }

    def _contestant(self, item: Standing) -> dict[str, object]:
        facts: dict[str, object] = {"name": item.name, "version": version_of(item.name)}
        if item.problem:
            return {**facts, "problem": item.problem}
        apart = self.differs(item)
        facts |= {
            "min": item.best(self.threads),
            "median": item.median(self.threads),
            "samples": len(item.wall),
        }
        facts |= {"load": item.load, "first": item.first, "start_cpu": item.busy, "peak_bytes": item.peak}
        facts |= {"compiler_peak_bytes": item.aside} if item.aside else {}
        facts |= {"tuning": item.tuning} if item.tuning else {}
        facts |= {} if apart is None else {"difference": {"absolute": apart[0], "relative": apart[1]}}
        return {**facts, **({"kernels": [asdict(step) for step in item.kernels]} if item.kernels else {})}


def _finite(value: float) -> float | None:
    """A number as JSON can say it."""
    return value if isfinite(value) else None


def bench(path: Path, options: Options, tell: Tell = lambda _: None) -> Iterator[Heat]:
    """Hold a contest for every batch and number of threads that the options name."""
    if options.tune and TUNED_BACKEND not in options.backends:
        raise InputError(
            "--tune measures kernels of cuda, and none of the backends is that",
            hint="--backend cuda, or no --tune",
        )
    with TemporaryDirectory(prefix="lamella-bench-") as folder:
        for batch in options.batches or (None,):
            chosen = _with_batch(path, batch, options)
            tell(f"reading {path}")
            graph, material = _prepare(path, chosen, Path(folder) / str(batch), tell)
            shapes = {name: np.shape(item) for name, item in material.inputs.items()}
            work = count_graph(flatten(graph, options.limits), extents_of(graph.graph.inputs, shapes))
            for threads in options.thread_counts or (1,):
                cache = Path(folder) / f"objects{batch}-{threads}"
                yield _hold(material, work, (batch, threads), replace(chosen, threads=threads), cache, tell)


def _hold(
    material: Material,
    work: GraphWork,
    heat: tuple[int | None, int],
    options: Options,
    cache: Path,
    tell: Tell,
) -> Heat:
    batch, threads = heat
    ours = list(options.backends) or [DEFAULT_BACKEND]
    if options.precision != FULL:
        # Ours in full precision stands beside it: what it gains in time, and what it loses in numbers.
        ours = [precise(name, word) for name in ours for word in (options.precision, FULL)]
    patience = Terms().patience + (options.tune_seconds if options.tune else 0)
    terms = Terms(threads, cache=cache, seconds=options.round_seconds, patience=patience)
    tell("measuring the ceilings of the machine")
    ceilings = measure_ceilings(threads)
    standings = hold([*ours, *_peers(material, options)], material, terms, options, tell)
    running = [name for name, item in zip(ours, standings, strict=False) if not item.problem]
    if not running:
        raise InputError(standings[0].problem, hint="lamella doctor says what runs here, and why not")
    tell("starting again")
    again = hold(running[:1], material, replace(terms, rounds=0), options)[0]
    return Heat(batch, threads, standings, len(ours), work, ceilings, again)


def _peers(material: Material, options: Options) -> list[str]:
    """The peers that are asked for; else those that are installed and can run the model, but for the slow one."""
    if options.against:
        return list(options.against)
    if material.program is None:
        return []
    return [name for name in PEERS if name != "inductor" and version_of(name)]


# --- the model as files, and its inputs ---------------------------------------------------------------------


def _with_batch(path: Path, batch: int | None, options: Options) -> Options:
    """The options with the open extent that stands first in the inputs set to a batch."""
    if batch is None:
        return options
    executable = _executable(path, options)
    extents = [
        item.shape[0] for item in executable.model.graph.inputs if isinstance(item, Tensor) and item.shape
    ]
    open_ones: list[DimSymbol] = [symbol for extent in extents for symbol in symbols(extent)]
    if not open_ones:
        if all(extent == batch for extent in extents):
            return options
        hint = "export it with an open first extent: dynamic={0: 'batch'}"
        raise InputError(
            f"the batch of '{path}' is {extents[0] if extents else 'fixed'}", path=path, hint=hint
        )
    return replace(options, shape={**options.shape, open_ones[0].name: batch})


def _executable(path: Path, options: Options) -> GraphExecutable:
    found = make_executable(path, "reference", replace(options, threads=0))
    if not isinstance(found, GraphExecutable):
        raise InputError(
            f"'{path}' does not say what its inputs are", path=path, hint="say it with --type NAME=f32[2,8]"
        )
    return found


def _prepare(path: Path, options: Options, folder: Path, tell: Tell) -> tuple[Graph, Material]:
    """The graph of a model, and the files and arrays that contestants get."""
    executable = _executable(path, options)
    drawn = executable.draw_inputs()
    material = Material(path, inputs=drawn)
    if language_of(path, options.language) is not TORCH:
        return executable.model, material
    with opened_program(path, options.limits) as program:
        if not options.shape:
            material = replace(material, inputs=_examples(program, drawn))
        wanted = [name for name in _peers(replace(material, program=path), options) if name in BY_ONNX]
        if wanted:
            tell("torch writes ONNX")
            material = _with_onnx(material, program, folder)
    return executable.model, replace(material, program=path)


def _examples(program: Foreign, drawn: Mapping[str, Array]) -> Mapping[str, Array]:
    """The inputs that a program was exported with, under our names, where it has kept all of them."""
    torch, tree = need("torch"), need("torch.utils._pytree")
    leaves = [item for item in tree.tree_leaves(program.example_inputs) if isinstance(item, torch.Tensor)]
    if len(leaves) != len(drawn):
        return drawn
    return {name: item.detach().numpy() for name, item in zip(drawn, leaves, strict=True)}


def _with_onnx(material: Material, program: Foreign, folder: Path) -> Material:
    """Torch's own ONNX of a program; where it writes none, the reason."""
    try:
        need("onnxscript")
        torch = need("torch")
        folder.mkdir(parents=True, exist_ok=True)
        with _silence():
            found = torch.onnx.export(program, dynamo=True, verbose=False)
            found.save(str(folder / "model.onnx"), external_data=True)
    except LamellaError as problem:
        finding = problem.findings[0]
        return replace(material, onnx_problem=f"{finding.message}; {finding.hint}")
    except (RuntimeError, TypeError, ValueError, KeyError, AttributeError, AssertionError) as problem:
        return replace(material, onnx_problem=f"torch writes no ONNX of it: {first_line(problem)}")
    return replace(material, onnx=folder / "model.onnx")


@contextmanager
def _silence() -> Iterator[None]:
    """What an exporter prints is for its developers."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        yield


__all__ = ["Heat", "bench", "processor"]
