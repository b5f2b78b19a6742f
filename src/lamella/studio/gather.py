"""All levels of a model, gathered for one page: each is made the way `lower` makes it, and linked by origins.

What cannot be made is left out, and the page says why; only what cannot be read at all is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from lamella.backend.cpu.host import host_target
from lamella.backend.executor.extents import Extents
from lamella.backend.executor.inputs import choose_extent
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, printable
from lamella.base.errors import InputError
from lamella.graph.data import read_dat, read_safetensors
from lamella.graph.model import Model as GraphModel
from lamella.graph.nodes import Graph
from lamella.graph.rewrite import members
from lamella.kernels.nodes import KernelGraph
from lamella.pipeline.api import lower_model, make_executable, read
from lamella.pipeline.diff import as_graph
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.languages import DATA, Model, language_of
from lamella.pipeline.nac.graphs import translate
from lamella.pipeline.nac.model import Model as NacModel
from lamella.pipeline.nem.lowering import LoweredPlan
from lamella.pipeline.nem.program import Program, plan_of
from lamella.pipeline.options import Options, drawing
from lamella.pipeline.profile import Profile
from lamella.pipeline.tensor.program import KernelFile
from lamella.studio.code_levels import kernel_level, kernel_things, nac_level
from lamella.studio.graph_level import Things, graph_level, source_level
from lamella.studio.plan_level import plan_level
from lamella.studio.weights import weight_rows

_EMPTY = Graph("", (), (), ())
QUICK = 600
"""Operations up to which kernels are made unasked."""
FEW = 80
"""Kernels up to which machine code is made unasked."""
KINDS: Mapping[str, str] = {
    "module": "Module DSL",
    "folder": "Hugging Face folder",
    "unit": "compiled unit",
    "skriptnd": "SkriptND",
    "onnx": "ONNX",
    "torch": "PyTorch export",
    "nac": "NAC",
    "tensor": "tensor language",
    "nem": "NEM plan",
    "data": "tensors",
    "kernels": "graph with kernels",
    "plans": "graph with plans",
}


@dataclass(slots=True)
class Gathered:
    """A model on its way to the page: what is known of it, and what was left out."""

    title: str
    options: Options
    levels: dict[str, object] = field(default_factory=dict)
    facts: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    model: GraphModel | None = None
    things: Things | None = None
    extents: Extents = field(default_factory=Extents)
    """What extents are taken for that the graph leaves open: those of a random run."""

    def wants(self, level: str) -> bool:
        """Whether a level is shown: it was asked for, or nobody said which."""
        return not self.options.levels or level in self.options.levels

    def asked(self, level: str) -> bool:
        """Whether a level was asked for by its name."""
        return level in self.options.levels

    def leave_out(self, level: str, reason: str) -> None:
        """Say why a level is not there."""
        self.notes.append(printable(f"{level}: {reason}"))

    def attempt(self, level: str, make: Callable[[], None]) -> None:
        """Make a level; what keeps it from being made is a note of the page."""
        try:
            make()
        except LamellaError as problem:
            first = problem.findings[0]
            hint = f" ({first.hint})" if first.hint else ""
            self.leave_out(level, f"{first.message}{hint}")

    def data(self) -> dict[str, object]:
        """What the page reads."""
        return {"title": self.title, "facts": self.facts, "notes": self.notes, **self.levels}


def gather(item: Model | Path, options: Options) -> Gathered:
    """A model with all levels that can be made of it."""
    if isinstance(item, Path):
        language = language_of(item, options.language)
        title = printable(item.name or str(item), 200)
        found = Gathered(title, options)
        found.levels["kind"] = KINDS.get(language.name, language.name)
        if language is DATA:
            _add_weights(found, _read_tensors(item, options), {})
            return found
        _add_model(found, read(item, options))
        return found
    name = getattr(getattr(item, "graph", None), "name", "") or item.language
    found = Gathered(printable(name, 200), options)
    found.levels["kind"] = KINDS.get(item.language, item.language)
    _add_model(found, item)
    return found


def _read_tensors(path: Path, options: Options) -> dict[str, Array]:
    if path.suffix.lower() == ".safetensors":
        return dict(read_safetensors(path, options.limits))
    return {path.name.removesuffix(".dat"): read_dat(path, options.limits).values}


def _add_model(found: Gathered, model: Model) -> None:
    if isinstance(model, KernelFile):
        rows = kernel_level(model.program, {}, found.options, found.wants("machine"))
        found.levels["kernels"] = rows
        found.facts.append(("kernels", str(len(rows))))
    elif isinstance(model, Program):
        found.levels["plan"] = plan_level(plan_of(model), (), Things(_EMPTY))
    elif isinstance(model, KernelGraph):
        _add_graph(found, model.model)
        _add_kernels(found, model)
    elif isinstance(model, LoweredPlan):
        _add_graph(found, model.model)
        _add_plan(found, model)
    elif isinstance(model, NacModel):
        _add_nac(found, model)
    else:
        graph = model if isinstance(model, GraphModel) else as_graph(model, found.options)
        if graph is None:
            raise InputError(f"there is no picture of {KINDS.get(model.language, model.language)} files")
        _add_graph(found, graph)
        _add_below(found, graph)


def _add_nac(found: Gathered, model: NacModel) -> None:
    """A NAC file: its graph where its inputs are known, its listing always."""

    def add() -> None:
        translated = translate(model, found.options)
        _add_graph(found, translated.model)
        made = [_first_name(item) for item in translated.results]
        things = found.things
        assert things is not None  # _add_graph made them
        level = nac_level(model, things, found.options)
        level["things"] = [_things_of(name, things) for name in made]
        found.levels["nac"] = level
        _add_kernels_of(found, translated.model)
        _add_plan_of(found, translated.model)

    found.attempt("graph", add)
    if "nac" not in found.levels:
        found.levels["nac"] = nac_level(model, Things(_EMPTY), found.options)


def _first_name(result: object) -> str:
    item = next(iter(result), None) if isinstance(result, tuple) else result
    return str(getattr(item, "name", ""))


def _things_of(name: str, things: Things) -> list[int]:
    return [things.by_tensor[name]] if name in things.by_tensor else things.readers.get(name, [])


# --- levels of a graph ------------------------------------------------------------------------------------------


def _add_graph(found: Gathered, model: GraphModel) -> None:
    things = Things(model.graph)
    found.model, found.things = model, things
    for extent in (extent for item in members(model.graph.inputs) for extent in item.shape):
        choose_extent(extent, found.extents)
    level = graph_level(model, things, found.extents)
    if found.extents:
        taken = ", ".join(f"{name}={size}" for name, size in found.extents.items())
        found.leave_out("open extents", f"work and kernels are those of {taken}; --shape says others")
    found.levels["graph"] = level
    parameters = sum(_count(item.shape) for item in model.graph.variables if item.name not in model.tables)
    found.facts += [("operations", f"{len(things.nodes):,}"), ("parameters", f"{parameters:,}")]
    if found.wants("source"):
        found.levels |= source_level(things)
    if model.data and found.wants("weights"):
        _add_weights(found, model.data, things.readers)
    if found.options.profile:
        found.attempt("time", lambda: _add_times(found, model, things))


def _count(shape: Iterable[object]) -> int:
    product = 1
    for extent in shape:
        product *= extent if isinstance(extent, int) else 1
    return product


def _add_weights(found: Gathered, data: Mapping[str, Array], readers: Mapping[str, list[int]]) -> None:
    rows = weight_rows(data, readers)
    found.levels["weights"] = rows
    if len(data) > len(rows):
        found.leave_out("weights", f"{len(rows):,} of {len(data):,} tensors are shown")


def _add_below(found: Gathered, model: GraphModel) -> None:
    """The levels that a graph is lowered to."""
    bare = replace(model, data=None)
    if found.wants("nac"):
        found.attempt("NAC", lambda: _add_listing(found, bare))
    _add_kernels_of(found, bare)
    _add_plan_of(found, model)


def _add_plan_of(found: Gathered, model: GraphModel) -> None:
    if found.options.device is not None or found.asked("plan"):
        found.attempt("plan", lambda: _add_plan(found, _lowered_plan(found, model)))
    elif found.wants("plan"):
        found.leave_out("plan", "a plan is made for a device, such as --device npm_lite")


def _add_listing(found: Gathered, model: GraphModel) -> None:
    lowered = lower_model(model, "nac", found.options)
    assert isinstance(lowered, NacModel)  # what graphs lower to as NAC
    assert found.things is not None  # of the graph
    found.levels["nac"] = nac_level(lowered, found.things, Options(limits=found.options.limits))


def _add_kernels_of(found: Gathered, model: GraphModel) -> None:
    if not found.wants("kernels") and not found.asked("machine"):
        return
    size = len(model.graph.nodes)
    if size > QUICK and not (found.asked("kernels") or found.asked("machine")):
        found.leave_out("kernels", f"{size:,} operations take a while; ask with --levels kernels")
        return
    found.attempt("kernels", lambda: _lower_kernels(found, model))


def _lower_kernels(found: Gathered, model: GraphModel) -> None:
    options = found.options
    _add_kernels(found, to_kernels(prepare(model, options), options, found.extents, host=host_target()))


def _add_kernels(found: Gathered, kernels: KernelGraph) -> None:
    things = found.things
    assert things is not None  # of the graph
    count = len(kernels.program.functions)
    machine = found.asked("machine") or (found.wants("machine") and count <= FEW)
    if found.wants("machine") and not machine:
        found.leave_out("machine code", f"{count} kernels take a while; ask with --levels kernels,machine")
    rows = kernel_level(kernels.program, kernel_things(kernels, things), found.options, machine)
    found.levels["kernels"] = rows
    found.facts.append(("kernels", f"{count:,}"))
    if len(rows) < count:
        found.leave_out("kernels", f"{len(rows):,} of {count:,} are shown")


def _lowered_plan(found: Gathered, model: GraphModel) -> LoweredPlan:
    lowered = lower_model(model, "nem", found.options)
    assert isinstance(lowered, LoweredPlan)  # what graphs lower to as plans
    return lowered


def _add_plan(found: Gathered, lowered: LoweredPlan) -> None:
    assert found.things is not None  # of the graph
    plan = plan_of(lowered.final.program)
    found.levels["plan"] = plan_level(plan, lowered.operations, found.things)


# --- what is measured: this runs the model ------------------------------------------------------------------------


def _add_times(found: Gathered, model: GraphModel, things: Things) -> None:
    """Seconds of each operation in the faster of two runs; a kernel's time is shared by what it computes."""
    executable = make_executable(model, None, drawing(replace(found.options, random=True)))
    runs = []
    for _ in range(3):
        profile = Profile()
        executable.progress = profile
        executable()
        runs.append(profile)
    best = min(runs[1:], key=lambda run: sum(run.seconds.values()))
    seconds = np.zeros(len(things.nodes))
    for step in best.steps:
        origin = getattr(step.item, "origin", None)
        behind = things.behind(origin, [step.result])
        for number in behind:
            seconds[number] += step.seconds / len(behind)
    level = found.levels["graph"]
    assert isinstance(level, dict)  # made above
    level["ops"]["seconds"] = [float(f"{item:.4g}") for item in seconds]
    found.facts.append(("a run", _duration(sum(best.seconds.values()))))


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"
