"""Module DSL models and Hugging Face folders for the API: what is loaded is a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lamella.base.arrays import uniform
from lamella.base.codes import Codes
from lamella.base.diagnostic import NOTE, Diagnostic, LamellaError, errors
from lamella.base.errors import InputError, Malformed
from lamella.base.limits import Limits
from lamella.base.optional import load_late
from lamella.base.paths import is_folder, map_bytes
from lamella.base.safetensors import read_index
from lamella.bridge.hf_to_module import Folder, ImportPlan, StoredWeights, is_model_folder, open_folder
from lamella.bridge.module_to_graph import CompilationSettings, Compiled, graph_name, module_to_graph
from lamella.bridge.module_to_graph.constant_tables import compute_table
from lamella.bridge.module_to_graph.precision import recipe_named
from lamella.bridge.module_to_ir.annotations import find_streams
from lamella.graph.data import read_weights
from lamella.graph.model import Model
from lamella.graph.passes.keep_codes import CODES, OFFSETS, SCALES, keep_codes
from lamella.lang.module.instantiate import Instance
from lamella.pipeline.module.folders import Source, read_source, reason_for_torch
from lamella.pipeline.module.operators import library_of
from lamella.pipeline.module.program import Program
from lamella.pipeline.module.regions import profiled_regions
from lamella.pipeline.module.weight_plan import COMPUTED, plan_weights
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents

if TYPE_CHECKING:
    from lamella.base.arrays import Array


# --- the numbers of a model: from a Hugging Face folder by the mapping of the model, or from a file ---------


class LazyWeights(Mapping[str, "Array"]):
    """The numbers of the variables of a graph, each read when it is asked for."""

    def __init__(
        self,
        compiled: Compiled,
        numbers: StoredWeights,
        known: Mapping[str, Array],
        kept: frozenset[str] = frozenset(),
    ) -> None:
        self._paths = {
            item.tensor.name: item.path for item in compiled.weights if item.tensor.name not in kept
        }
        self._numbers = numbers
        self._known = known
        self._parts: dict[str, tuple[str, str]] = {}
        """The parts of weights that are codes: the path of the weight, and which part."""
        self._last: tuple[str, Codes] | None = None
        """The codes that were read last: their parts are asked for one after the other."""
        for item in compiled.weights:
            form = numbers.form_of(item.path) if item.tensor.name in kept else None
            if form is not None:
                parts = (CODES, SCALES, OFFSETS) if form.has_offsets else (CODES, SCALES)
                self._parts |= {f"{item.tensor.name}{part}": (item.path, part) for part in parts}

    def __getitem__(self, name: str) -> Array:
        if name in self._known:
            return self._known[name]
        return self._part(*self._parts[name]) if name in self._parts else self._numbers[self._paths[name]]

    def _part(self, path: str, part: str) -> Array:
        if self._last is None or self._last[0] != path:
            self._last = path, self._numbers.codes_of(path)
        found = self._last[1]
        if part == OFFSETS:
            self._last = None
            return found.offset_rows()
        if part == SCALES:
            self._last = self._last if found.offsets is not None else None
            return found.scales[..., None]
        rows, groups = found.scales.shape
        return found.codes.reshape(rows, groups, -1)

    def __contains__(self, name: object) -> bool:
        # What a mapping does without this makes the numbers, only to see that they are there.
        return name in self._known or name in self._paths or name in self._parts

    def __iter__(self) -> Iterator[str]:
        yield from self._known
        yield from self._paths
        yield from self._parts

    def __len__(self) -> int:
        return len(self._known) + len(self._paths) + len(self._parts)


@dataclass(frozen=True, slots=True)
class WeightSource:
    """Where the numbers of a model come from: a folder by the plan of its tensors, a file, or nowhere."""

    plan: ImportPlan | None = None
    file: Path | None = None
    names: frozenset[str] = frozenset()
    """What is there: paths of parameters for a folder, names of variables for a file."""
    findings: tuple[Diagnostic, ...] = ()

    def has(self, path: str) -> bool:
        """Whether there are numbers for the parameter at a path."""
        return path in self.names or (self.file is not None and graph_name(path) in self.names)


def locate_weights(instance: Instance, folder: Folder | None, options: Options) -> WeightSource:
    """The place of the weights: where the user says, else the folder of the model; nothing is read yet."""
    file = options.weights
    if file is not None and is_model_folder(file):
        folder, file = open_folder(file, options.limits), None
        if errors(folder.findings):
            raise LamellaError(errors(folder.findings))
    if file is not None:
        return WeightSource(file=file, names=_names_in(file, options.limits))
    if folder is None:
        return WeightSource()
    element = "fp64" if options.dtype == "f64" else COMPUTED
    plan = plan_weights(instance, folder, options.unused, element)
    names = frozenset(item.path for item in plan.items)
    return WeightSource(plan, None, names, plan.findings)


def _names_in(file: Path, limits: Limits) -> frozenset[str]:
    """The names of the tensors of a file, or of a folder of them; what is wrong with it is found when it is read."""
    if is_folder(file):
        return frozenset(item.stem for item in file.glob("*.dat"))
    try:
        return frozenset(item.name for item in read_index(map_bytes(file, limits).data).entries)
    except Malformed:
        return frozenset()


def with_data(model: Model, compiled: Compiled, source: WeightSource, options: Options) -> Model:
    """The model with its constants, with its caches empty, and with its weights where there are some."""
    known = _known(model, compiled, options)
    model = replace(model, tables=frozenset(known))
    if source.file is not None:
        return _from_file(model, known, source.file, options)
    if source.plan is None:
        return replace(model, data=known)
    numbers = source.plan.data("f64" if options.dtype == "f64" else None)
    model, kept = _with_codes(model, compiled, numbers, options)
    data = LazyWeights(compiled, numbers, known, kept)
    return replace(model, data=data, findings=(*model.findings, *source.findings))


def _with_codes(
    model: Model, compiled: Compiled, numbers: StoredWeights, options: Options
) -> tuple[Model, frozenset[str]]:
    """The model whose weights are codes where the checkpoint has codes that kernels read, and which these are."""
    found = {item.tensor.name: numbers.form_of(item.path) for item in compiled.weights}
    forms = {name: form for name, form in found.items() if form is not None}
    return keep_codes(model, forms) if forms and options.dtype != "f64" else (model, frozenset())


def _known(model: Model, compiled: Compiled, options: Options) -> dict[str, Array]:
    """The variables that are no weights: built constants, and caches, which begin with zeros."""
    real = np.float64 if options.dtype == "f64" else np.float32
    known: dict[str, Array] = {
        name: compute_table(built).astype(real) for name, built in compiled.constants.items()
    }
    for update in model.graph.updates:
        variable = update.variable
        shape = tuple(item for item in variable.shape if isinstance(item, int))
        kind = np.dtype(np.int64 if variable.element.is_integer else real)
        known[variable.name] = uniform(shape, 0, kind)
    return known


def _from_file(model: Model, known: Mapping[str, Array], home: Path, options: Options) -> Model:
    """Weights of a `.safetensors` file or a folder of `.dat` files, by the names of the variables."""
    own = tuple(item for item in model.graph.variables if item.name not in known)
    if not own:
        hint = "leave the option out, or choose another declaration"
        raise InputError(f"'{model.graph.name}' has no parameters that could take weights", hint=hint)
    found = read_weights(home, replace(model.graph, variables=own), options.limits)
    wrong: list[Diagnostic] = errors(found.findings)
    if wrong:
        raise LamellaError(wrong)
    return replace(model, data={**known, **found.arrays}, findings=(*model.findings, *found.findings))


BATCH = "B"
"""The dimension of sequences, as the models of the library call it."""


def load(path: Path, options: Options) -> Model:
    """The graph of a model with its weights; LamellaError holds all findings when something is wrong."""
    why = reason_for_torch(path, options)
    if why is not None:
        found: Model = load_late("lamella.pipeline.torch.folders").load_through_torch(path, options, why)
        return found
    source = read_source(path, options)
    return with_extents(build(source, options, settings_of(source.program, options)), options)


def settings_of(program: Program, options: Options) -> CompilationSettings:
    """What the options decide for a compilation: one that keeps what it computed is for one sequence at a time."""
    extents = {BATCH: 1} if options.cache else {}
    precision = None if options.recipe is None else recipe_named(options.recipe, program.resolved.scope)
    return CompilationSettings(
        library=library_of(program, options),
        extents=extents,
        cached=options.cache,
        optional=frozenset(options.contents),
        precision=precision,
    )


def build(source: Source, options: Options, settings: CompilationSettings) -> Model:
    """The graph of a model with its weights, built as the settings say."""
    return build_compiled(source, options, settings)[1]


def build_compiled(source: Source, options: Options, settings: CompilationSettings) -> tuple[Compiled, Model]:
    """A model compiled, with what its graph cannot say, and its graph with its weights.

    A parameter that may be missing is there where its numbers are. LamellaError holds what is wrong.
    """
    weights = locate_weights(source.instance, source.folder, options)
    compiled = module_to_graph(source.instance, replace(settings, given=weights.has))
    if errors(compiled.findings):
        raise LamellaError(errors(compiled.findings))
    if compiled.model is None:
        raise InputError("the model gives no tensor", hint="declare its outputs, and bind them in its graph")
    if options.cache and not compiled.model.graph.updates:
        hint = "leave --cache out (cache=): causal attention, rope and Mamba's operators are what keeps something"
        raise InputError(f"'{compiled.model.graph.name}' keeps nothing from call to call", hint=hint)
    model = with_data(compiled.model, compiled, weights, options)
    streams = find_streams(compiled)
    model = replace(model, regions=profiled_regions(compiled, source.instance), streams=streams)
    # Notes on a folder, such as which file declares its model, are for `check` and `show`.
    warnings = (item for item in source.findings if item.severity != NOTE)
    return compiled, replace(model, findings=(*warnings, *model.findings))
