"""A model as a Hugging Face folder that transformers loads, and that Lamella reads again whatever the model is."""

from __future__ import annotations

import json
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from lamella.backend.executor import GraphExecutable
from lamella.backend.reference import compile_model
from lamella.base import dim
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.dim import Extent
from lamella.base.errors import InputError
from lamella.base.paths import Mapped as MappedFile
from lamella.bridge.hf_to_module import (
    Folder,
    is_gguf,
    is_model_folder,
    open_folder,
    open_gguf_tokenizer,
    plan_import,
    read_config,
)
from lamella.bridge.hf_to_module.checkpoint import Checkpoint, CheckpointTensor
from lamella.bridge.hf_to_module.quantised import QUANTIZATION
from lamella.bridge.module_to_graph import CompilationSettings, Compiled, graph_name, module_to_graph
from lamella.bridge.module_to_graph.constant_tables import compute_table
from lamella.bridge.module_to_hf import (
    Export,
    ExportMapping,
    ExportPlan,
    TensorEncoder,
    export_folder,
    plan_export,
    write_config,
)
from lamella.graph.nodes import Graph, Operation, Tensor
from lamella.lang.module.instantiate import Instance
from lamella.lang.module.instantiate.messages import show
from lamella.lang.module.resolve.lineage import config_params, inherited_config, trace_lineage
from lamella.lang.module.rules.mappings import UNFAITHFUL
from lamella.ops.library import Library
from lamella.ops.modules import file_of
from lamella.pipeline.module.execution import build
from lamella.pipeline.module.folders import TRAVELLING, Source, find_known, pick, read_source
from lamella.pipeline.module.operators import library_of, own_units
from lamella.pipeline.module.program import build_instance, read_program
from lamella.pipeline.module.weight_plan import context_of, plan_weights, weights_of
from lamella.pipeline.options import Options

# --- whether a folder means to others what the model that it is written from means: its named ---------------


MOST_TOLD = 6
TOLERANCE = 1e-4
SIZE = 4
"""The extent of an open dimension, in the comparison of numbers."""


def require_faithful(
    instance: Instance,
    mapped: ExportMapping,
    config: Mapping[str, object],
    numbers: Mapping[str, Array],
    options: Options,
) -> None:
    """LamellaError names what the architecture that a config names would lose of a model.

    An architecture that the library does not have judges nothing.
    """
    known = find_known(config) if isinstance(config.get("architectures"), list) else None
    if known is None:
        return
    file, name = known
    judge = _judge(file, name, config, options)
    if _is_same(instance, judge):
        return
    theirs = ExportMapping(
        weights_of(judge), judge.module.hf_mapping or (), judge.module.hf_export or (), context_of(judge)
    )
    pair = _Pair(instance, judge, options)
    differences = list(_tensors(mapped, theirs, numbers)) or list(pair.differences(mapped, theirs, numbers))
    if differences:
        more = f"; and {len(differences) - MOST_TOLD} more" if len(differences) > MOST_TOLD else ""
        why = "; ".join(differences[:MOST_TOLD]) + more
        raise LamellaError([UNFAITHFUL.at(instance.module.span, model=instance.name, other=name, why=why)])


def _is_same(one: Instance, other: Instance) -> bool:
    """Whether two instances are of one declaration and have the same values."""
    paths = {item.declared.unit.path for item in (one, other)}
    values = [{name: known.value for name, known in item.values.items()} for item in (one, other)]
    return len(paths) == 1 and one.name == other.name and values[0] == values[1]


def _judge(file: Path, name: str, config: Mapping[str, object], options: Options) -> Instance:
    """The architecture of the library with the values that the config says."""
    plain = replace(options, model=None, preset=None, config={}, lock=False)
    program = read_program(file, plain)
    declared = next(item for item in program.modules if item.name == name)
    lineage = trace_lineage(declared, program.resolved.scope)
    read = read_config(inherited_config(lineage), config_params(lineage), config)
    if errors(read.findings):
        raise LamellaError(errors(read.findings))
    return build_instance(program, declared, dict(read.values), plain)


def _written(mapped: ExportMapping, given: Mapping[str, object]) -> ExportPlan:
    plan = plan_export(mapped, given)
    if errors(plan.findings):
        raise LamellaError(errors(plan.findings))
    return plan


def _tensors(ours: ExportMapping, theirs: ExportMapping, numbers: Mapping[str, Array]) -> Iterator[str]:
    """Tensors that only one of the two has, or that have another shape."""
    here = {item.name: item.shape for item in _written(ours, numbers).tensors}
    free = {item.path for item in theirs.weights if item.optional}
    plan = _written(theirs, dict.fromkeys(item.path for item in theirs.weights))
    there = {item.name: item for item in plan.tensors}
    for name, item in there.items():
        if name not in here and (item.weight is None or item.weight.path not in free):
            yield f"it needs the tensor '{name}', which this model does not have or has tied to another"
        elif name in here and here[name] != item.shape:
            yield f"'{name}' is {list(here[name])} here and {list(item.shape)} there"
    yield from (f"it has no tensor '{name}'" for name in here if name not in there)


class _Pair:
    """The graphs of a model and of its judge."""

    def __init__(self, ours: Instance, theirs: Instance, options: Options) -> None:
        self.instances = (ours, theirs)
        self.options = options
        settings = CompilationSettings(library=Library(limits=options.limits), given=lambda path: True)
        self.compiled = tuple(module_to_graph(item, settings) for item in self.instances)

    def differences(
        self, ours: ExportMapping, theirs: ExportMapping, numbers: Mapping[str, Array]
    ) -> Iterator[str]:
        """What differs between the two graphs, where their numbers do."""
        here, there = self.compiled
        if here.model is None or there.model is None:
            raise LamellaError([*errors(here.findings), *errors(there.findings)])
        if _meaning(here, ours) == _meaning(there, theirs):
            return
        given = (here.model.graph.inputs, there.model.graph.inputs)
        if [_kind(item) for item in given[0]] != [_kind(item) for item in given[1]]:
            yield "it takes other inputs"
            return
        off = self._distance(_checkpoint(ours, numbers), ours, theirs)
        if not off <= TOLERANCE:  # neither is what is no number
            yield from _told(here, there)
            yield f"its numbers differ by {off:.2g} of their size"

    def _distance(self, store: Checkpoint, ours: ExportMapping, theirs: ExportMapping) -> float:
        """The largest difference of an output on the same random inputs, over the size of the outputs."""
        results = []
        for compiled, mapped, instance in zip(self.compiled, (ours, theirs), self.instances, strict=True):
            if compiled.model is None:
                return float("inf")
            executable = compile_model(compiled.model, seed=0, limits=self.options.limits)
            plan = plan_import(mapped.weights, instance.module.hf_mapping or (), store, mapped.context)
            if errors(plan.findings):
                raise LamellaError(errors(plan.findings))
            for path, array in plan.data("f32").items():
                executable.state[graph_name(path)] = array
            for name, built in compiled.constants.items():
                executable.state[name] = compute_table(built).astype(np.float32)
            results.append(_run(executable, compiled.model.graph))
        return max(
            (
                float(np.max(np.abs(one - two)) / max(1e-30, float(np.max(np.abs(one)))))
                if one.shape == two.shape
                else 1.0
            )
            for one, two in zip(*results, strict=False)
        )


def _run(executable: GraphExecutable, graph: Graph) -> list[Array]:
    rng = np.random.default_rng(0)
    inputs: dict[str, Array] = {}
    for item in graph.inputs:
        if isinstance(item, Tensor):
            shape = tuple(_size(extent) for extent in item.shape)
            draw = rng.normal(size=shape) if item.element.is_float else rng.integers(0, 2, shape)
            inputs[item.name] = draw.astype(np.float32 if item.element.is_float else np.int64)
    return [array.astype(np.float64) for array in executable(**inputs).values()]


def _size(extent: Extent) -> int:
    found = dim.substitute(extent, {item.name: SIZE for item in dim.symbols(extent)})
    return found if isinstance(found, int) else SIZE


def _checkpoint(mapped: ExportMapping, arrays: Mapping[str, Array]) -> Checkpoint:
    """The tensors that would be written, in memory."""
    numbers = TensorEncoder(arrays, None, mapped.context.head_dim)
    tensors: dict[str, CheckpointTensor] = {}
    files: dict[str, MappedFile] = {}
    for item in _written(mapped, arrays).tensors:
        element = numbers.element_of(item)
        data = bytes(numbers.image(item, element))
        tensors[item.name] = CheckpointTensor(item.name, element, item.shape, item.name, 0, len(data))
        files[item.name] = MappedFile(Path(item.name), data)
    return Checkpoint(tensors, files)


def _kind(item: object) -> object:
    return (item.element.is_float, len(item.shape)) if isinstance(item, Tensor) else item


def _meaning(compiled: Compiled, mapped: ExportMapping) -> list[int]:
    """A number for each output that two graphs share where they compute it alike from the same tensors."""
    names: dict[str, list[str]] = {}
    for made in _written(mapped, dict.fromkeys(weight.path for weight in mapped.weights)).tensors:
        if made.weight is not None:
            names.setdefault(made.weight.path, []).append(made.name)
    graph = compiled.model.graph if compiled.model is not None else None
    if graph is None:
        return []
    found: dict[str, int] = {}
    for number, item in enumerate(graph.inputs):
        if isinstance(item, Tensor):
            found[item.name] = hash(("input", number, item.element.name))
    for weight in compiled.weights:
        found[weight.tensor.name] = hash(("tensor", tuple(names.get(weight.path, [weight.path]))))
    for name, built in compiled.constants.items():
        found[name] = hash((built.function, built.positional, tuple(sorted(built.named.items()))))
    for node in graph.nodes:
        key = _call(node) if isinstance(node, Operation) else repr(node)
        operands = node.inputs if isinstance(node, Operation) else ()
        whole = hash((key, tuple(_hashes(operands, found))))
        for number, result in enumerate(_flat(node.outputs)):
            found[result.name] = hash((whole, number))
    return [found.get(item.name, 0) for item in _flat(graph.outputs)]


def _call(node: Operation) -> str:
    """An operation without its tensors; dimensions of the inputs have the names that the text gives them."""
    return f"{node.operator} {node.attributes} {node.types}"


def _hashes(items: object, found: Mapping[str, int]) -> Iterator[object]:
    for item in items if isinstance(items, tuple) else ():
        if isinstance(item, Tensor):
            yield found.get(item.name, item.name)
        elif isinstance(item, tuple):
            yield tuple(_hashes(item, found))
        else:
            yield repr(item)


def _flat(items: object) -> Iterator[Tensor]:
    for item in items if isinstance(items, tuple) else ():
        if isinstance(item, Tensor):
            yield item
        else:
            yield from _flat(item)


def _told(here: Compiled, there: Compiled) -> Iterator[str]:
    """Operations that have other attributes, and constants that are built of other values."""
    counts = [Counter(_attributes(item)) for item in (here, there)]
    only = [list(one - two) for one, two in (counts, counts[::-1])]
    for operator, name, value in only[0]:
        others = [item[2] for item in only[1] if item[:2] == (operator, name)]
        if others:
            yield f"'{name}' of '{operator}' is {value} here and {others[0]} there"


def _attributes(compiled: Compiled) -> Iterator[tuple[str, str, str]]:
    graph = compiled.model.graph if compiled.model is not None else None
    for node in graph.operations() if graph is not None else ():
        yield from ((node.operator, name, str(value)) for name, value in node.attributes)
    for built in compiled.constants.values():
        for number, value in enumerate(built.positional):
            yield built.function, f"argument {number + 1}", show(value)
        yield from ((built.function, name, show(value)) for name, value in built.named.items())


class Exported(NamedTuple):
    """The files of a folder that was written, the config last, and what there is to say about it."""

    files: tuple[Path, ...]
    findings: tuple[Diagnostic, ...] = ()


def export(path: Path, target: Path, options: Options) -> Exported:
    """Write the folder of a model; tensors that are not changed keep their bytes.

    A model that is none of the library travels in the folder, with the files that it imports.
    """
    return export_source(read_source(path, options), target, options)


def export_source(
    source: Source, target: Path, options: Options, changed: Mapping[str, Array] | None = None
) -> Exported:
    """Write the folder of a model that is read, with other numbers for the weights at some paths."""
    module = source.instance.module
    if module.hf_config is None or module.hf_mapping is None:
        hint = "add hf_config: and hf_mapping: to the model"
        raise InputError(f"'{module.name}' does not say what it is called in Hugging Face", hint=hint)
    folder = source.folder or _given_folder(options)
    config = write_config(module.hf_config, source.instance.values, None if folder is None else folder.config)
    if folder is not None and folder.checkpoint.coded:
        # Numbers are written, not codes.
        config.pop(QUANTIZATION, None)
    mapped = ExportMapping(
        weights_of(source.instance), module.hf_mapping, module.hf_export or (), context_of(source.instance)
    )
    beside = _travelling(source, config, options)
    if folder is not None and is_gguf(folder.path):
        beside["tokenizer.json"] = json.dumps(open_gguf_tokenizer(folder.path, options.limits))
    numbers, findings = _numbers(source, folder, options)
    if changed:
        numbers = ChainMap(dict(changed), cast("MutableMapping[str, Array]", numbers))
    require_faithful(source.instance, mapped, config, numbers, options)
    files = export_folder(target, numbers, Export(mapped, config, folder, beside=beside), options.limits)
    return Exported(files, (*source.findings, *findings))


def _given_folder(options: Options) -> Folder | None:
    home = options.weights
    return open_folder(home, options.limits) if home is not None and is_model_folder(home) else None


def _numbers(
    source: Source, folder: Folder | None, options: Options
) -> tuple[Mapping[str, Array], tuple[Diagnostic, ...]]:
    """The weights by path: as the folder has them, or those of a file, or random ones from the seed."""
    instance: Instance = source.instance
    if folder is not None and (options.weights is None or is_model_folder(options.weights)):
        plan = plan_weights(instance, folder, options.unused, "")
        return plan.data(), plan.findings
    model = build(source, options, CompilationSettings(library=library_of(source.program, options)))
    state = compile_model(model, seed=options.start_seed, limits=options.limits).state
    numbers = {
        item.path: state[name] for item in weights_of(instance) if (name := graph_name(item.path)) in state
    }
    return numbers, ()


def _travelling(source: Source, config: Mapping[str, object], options: Options) -> dict[str, str]:
    """The texts of a model, by their places in the folder; none for one that the library has under its names."""
    program = source.program
    main = program.resolved.unit
    if main.standard and find_known(config) == (main.path, source.instance.name):
        return {}
    again = pick(program, config, replace(options, model=None))
    if again.name != source.instance.name:
        hint = f"let hf_config: of '{source.instance.name}' name an architecture of its own"
        raise InputError(f"the folder would be read as '{again.name}'", hint=hint)
    texts = {TRAVELLING: main.document.span.source.text}
    for unit in (item for item in own_units(program) if item is not main):
        *folders, stem = unit.name.split(".")
        name = "/".join((*folders, unit.path.name if unit.path is not None else f"{stem}.module"))
        _add(texts, name, unit.document.span.source.text)
    for module, document in library_of(program, options).own_modules().items():
        _add(texts, file_of(module), document.span.source.text)
    return texts


def _add(texts: dict[str, str], name: str, text: str) -> None:
    if texts.setdefault(name, text) != text:
        hint = "rename one of them: all files of a model travel in one folder"
        raise InputError(f"two files of the model would be '{name}'", hint=hint)
