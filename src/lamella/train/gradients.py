"""Gradients of what can be trained: modules by their tapes, other graphs by the formulas of their operators."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.gc import gc_paused
from lamella.base.paths import shown
from lamella.bridge.module_to_graph import fusion_hints
from lamella.bridge.module_to_graph.backward import (
    AUXILIARY,
    AuxiliaryLosses,
    Differentiated,
    losses_of_parts,
    writes_gradients,
)
from lamella.bridge.module_to_graph.backward import differentiate as differentiate_module
from lamella.bridge.module_to_graph.backward.tape import is_trainable
from lamella.bridge.module_to_graph.nodes import Compiled, GradientControl, Weight
from lamella.bridge.module_to_ir.annotations import (
    KEPT,
    MOVED,
    find_memory_modes,
    find_pinned,
    find_replayed,
    find_stages,
    find_streams,
)
from lamella.bridge.module_to_ir.nodes import Annotation
from lamella.bridge.nac_to_graph.training import has_training, step_of, translate_step
from lamella.graph.build import Builder
from lamella.graph.gradient import differentiate_all
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Node, Tensor, tensors
from lamella.graph.rewrite import Substitution, defined, members, operands_of, results_of
from lamella.lang.module.annotations import read_annotation
from lamella.lang.module.instantiate import Instance, Known
from lamella.lang.module.rules.gradients import NO_BACKWARD
from lamella.pipeline.api import read
from lamella.pipeline.languages import FOLDER, MODULE, NAC, language_of
from lamella.pipeline.module.execution import (
    WeightSource,
    build_compiled,
    locate_weights,
    settings_of,
    with_data,
)
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.module.observe import find_places
from lamella.pipeline.module.regions import profiled_regions
from lamella.pipeline.nac.graphs import read_types, to_graph, weights_of
from lamella.pipeline.nac.model import Model as NacModel
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents
from lamella.train.sources import ParameterPolicy, StageMark, TensorMark, TrainableGraph, halves

SHARD, COMM = "shard", "comm"
ANY_RATE = 1.0
"""A rate for training graphs that have none: only their gradients are used."""
FIXED_INPUTS: Mapping[str, tuple[str, ...]] = {
    "norm": ("mean", "variance", "running_mean", "running_variance", "running_var"),
    "rope": ("freqs",),
    "rotate": ("cos", "sin"),
}
"""What operators call the inputs that are measured or computed, not trained, by a part of the operators' names."""
CONSTANT = re.compile(r"constant(_\d+)?|(.*\W|.*_)?(freqs|inv_freq|(cos|sin)_cached)")
"""Names of variables that are numbers of an export, or tables of angles."""


@gc_paused()
def trainable(path: Path, options: Options) -> TrainableGraph:
    """A model in any language with its gradients; LamellaError and InputError say what is wrong."""
    language = language_of(path, options.language)
    if language in (MODULE, FOLDER):
        return trainable_source(read_source(path, options), options)
    model = read(path, options)
    if language is NAC:
        return trainable_file(cast(NacModel, model), options)
    if not isinstance(model, Model):
        raise InputError(f"'{shown(path)}' is no model that can be trained", hint="graphs and modules can")
    return trainable_graph(model)


# --- modules -------------------------------------------------------------------------------------------------


def trainable_source(source: Source, options: Options) -> TrainableGraph:
    """A model of the Module DSL that is instantiated, with its gradients and its weights.

    Where a primitive has no backward operator, all gradients are those of the formulas.
    """
    weights = locate_weights(source.instance, source.folder, options)
    settings = replace(settings_of(source.program, options), given=weights.has, has_history=True)
    found = differentiate_module(source.instance, settings, auxiliary=True)
    wrong = errors(found.findings)
    if wrong and all(item.code == NO_BACKWARD.code for item in wrong):
        if writes_gradients(source.instance):
            raise LamellaError([_unwritten(item) for item in wrong])
        return _derived_source(source, options)
    return _assembled(found, source, weights, options)


def written_source(source: Source, options: Options) -> tuple[TrainableGraph, Collection[str]] | None:
    """A model whose declarations have backward graphs of their own, with gradients that are no two tensors' at once.

    Beside it the tensors that gradients have to go back to; None where all gradients are derived anyway.
    """
    if not writes_gradients(source.instance):
        return None
    weights = locate_weights(source.instance, source.folder, options)
    settings = replace(settings_of(source.program, options), given=weights.has, has_history=True)
    found = differentiate_module(source.instance, settings, auxiliary=True, is_apart=True)
    wrong = errors(found.findings)
    if wrong and all(item.code == NO_BACKWARD.code for item in wrong):
        raise LamellaError([_unwritten(item) for item in wrong])
    return _assembled(found, source, weights, options), found.needed


def _unwritten(finding: Diagnostic) -> Diagnostic:
    """The finding that an operation has no backward, in a model where formulas cannot take over."""
    hint = "gradients of formulas would pass over the backward: sections of this model; take them out, or the operation"
    return replace(finding, hint=hint)


def _assembled(
    found: Differentiated, source: Source, weights: WeightSource, options: Options
) -> TrainableGraph:
    """What was differentiated, with all that the text says of its training."""
    wrong = errors(found.findings)
    if wrong:
        raise LamellaError(wrong)
    if found.model is None:
        raise InputError("the model gives no tensor", hint="declare its outputs, and bind them in its graph")
    compiled = found.compiled
    names = {item.path: item.tensor.name for item in compiled.weights}
    modes = find_memory_modes(compiled, source.instance, found.saved, found.seeds.values())
    places = find_places(compiled, source.instance)
    hints, streams = fusion_hints(compiled.marks), find_streams(compiled)
    regions = profiled_regions(compiled, source.instance)
    model = replace(found.model, hints=hints, places=places, streams=streams, regions=regions)
    return TrainableGraph(
        with_data(model, compiled, weights, options),
        {names[path]: gradient for path, gradient in found.gradients.items()},
        found.seeds,
        policies={item.tensor.name: _policy(item, source.instance) for item in compiled.weights},
        auxiliary=found.auxiliary,
        origin=source,
        kept=frozenset(name for name, mode in modes.items() if mode in KEPT),
        moved=frozenset(name for name, mode in modes.items() if mode in MOVED),
        pinned=find_pinned(compiled),
        stages={name: _stage(item) for name, item in find_stages(compiled, source.instance).items()},
        marks=_marks(compiled),
        adjoints=found.adjoints,
    )


def _derived_source(source: Source, options: Options) -> TrainableGraph:
    compiled, model = build_differentiable(source, options)
    wanted = [item.tensor.name for item in compiled.weights if is_trainable(item)]
    return annotated(trainable_graph(model, source, wanted, compiled), compiled, source)


def build_differentiable(source: Source, options: Options) -> tuple[Compiled, Model]:
    """A model compiled for gradients from formulas, and its graph with its weights."""
    settings = replace(settings_of(source.program, options), has_history=True, has_gradients=True)
    return build_compiled(source, options, settings)


def annotated(graph: TrainableGraph, compiled: Compiled, source: Source) -> TrainableGraph:
    """A graph whose gradients are those of formulas, with what the text of the model says of its training."""
    modes = find_memory_modes(compiled, source.instance)
    return replace(
        graph,
        model=replace(graph.model, places=find_places(compiled, source.instance)),
        policies={item.tensor.name: _policy(item, source.instance) for item in compiled.weights},
        stages={name: _stage(item) for name, item in find_stages(compiled, source.instance).items()},
        marks=_marks(compiled),
        kept=_kept(graph, compiled, modes, find_replayed(compiled, source.instance)),
        moved=frozenset(name for name, mode in modes.items() if mode in MOVED),
        pinned=find_pinned(compiled),
    )


def _kept(
    graph: TrainableGraph, compiled: Compiled, modes: Mapping[str, str], replayed: Collection[str]
) -> frozenset[str] | None:
    """What the way back finds where the way forward left it; None for everything.

    What operations are decomposed into, and what adapters add to them, no text can name: it belongs to the tensor
    that it is computed for, and is computed again where the operation of that one is.
    """
    nodes = () if compiled.model is None else compiled.model.graph.nodes
    named = {item.name for node in nodes for item in results_of(node)}
    again = {name for name, mode in modes.items() if mode not in KEPT}
    inside = again.union(replayed)
    forward, _ = halves(graph.model.graph.nodes, graph.gradient_inputs)
    lost = {
        name
        for name, owner in _owners(forward, named).items()
        if owner in (again if name == owner else inside)
    }
    if graph.kept is not None:
        return graph.kept - lost
    if not lost and not any(mode in MOVED for mode in modes.values()):
        return None
    return frozenset(item.name for node in forward for item in results_of(node) if item.name not in lost)


def _owners(nodes: Sequence[Node], named: Collection[str]) -> dict[str, str]:
    """The tensor with a name that each tensor is computed for: itself, or what its first reader is computed for."""
    owners: dict[str, str] = {}
    read: dict[str, str] = {}
    for node in reversed(nodes):
        made = [item.name for item in results_of(node)]
        for name in made:
            owners[name] = name if name in named else read.get(name, "")
        own = next((owners[name] for name in made if owners[name]), "")
        read |= {item.name: own for item in operands_of(node)}
    return owners


def _policy(weight: Weight, root: Instance) -> ParameterPolicy:
    """What the annotations of a parameter say of its training."""
    values, gradient = _said(weight, root, "trainable"), _said(weight, root, "gradient")
    rate, decay = (_number(values.get(name), 1.0) for name in ("lr_scale", "wd_scale"))
    limits = [item for item in (values.get("grad_clip"), gradient.get("clip")) if item is not None]
    return ParameterPolicy(
        weight.path,
        rate,
        decay,
        min((_number(item, 0.0) for item in limits), default=None),
        _number(gradient.get("scale"), 1.0),
        _mark(_said(weight, root, "shard"), {}),
        _said(weight, root, "memory").get("mode") == "stream",
    )


def _marks(compiled: Compiled) -> dict[str, TensorMark]:
    """What `@shard` and `@comm` say of tensors, by tensor."""
    weights = {item.tensor.name for item in compiled.weights}
    said: dict[str, dict[str, Mapping[str, object]]] = {}
    for mark in compiled.marks:
        if mark.annotation.name in (SHARD, COMM) and mark.tensor.name not in weights:
            said.setdefault(mark.tensor.name, {})[mark.annotation.name] = mark.arguments
    return {name: _mark(item.get(SHARD, {}), item.get(COMM, {})) for name, item in said.items()}


def _mark(shard: Mapping[str, object], comm: Mapping[str, object]) -> TensorMark:
    """What a `@shard` and a `@comm` say together."""
    bucket = comm.get("bucket_size")
    sizes = {axis: size for axis in ("tp", "ep", "pp") if isinstance(size := shard.get(f"{axis}_size"), int)}
    return TensorMark(
        str(shard.get("strategy", "")),
        str(comm.get("op", "")),
        str(comm.get("group", "default")),
        (comm or shard).get("async" if comm else "async_comm") is not False,
        shard.get("reduce_scatter") is not False,
        bucket if isinstance(bucket, int) else None,
        sizes,
    )


def _stage(annotation: Annotation) -> StageMark:
    """What a `@partition` says."""
    said = annotation.arguments
    stage = said.get("stage")
    return StageMark(
        stage if isinstance(stage, int) else 0, said.get("micro_batch") is True, said.get("recompute") is True
    )


def _said(weight: Weight, root: Instance, name: str) -> Mapping[str, object]:
    """The arguments of the last annotation of a name that a parameter has."""
    said = [item for item in weight.slot.annotations if item.name == name]
    return read_annotation(said[-1], _constants_at(weight.path, root)).arguments if said else {}


def _constants_at(path: str, root: Instance) -> Mapping[str, Known]:
    """The constants that an annotation of a parameter may name: those of its owner, then of what is around that."""
    found: Mapping[str, Known] = root.values
    owner = root
    for name, index in re.findall(r"([^.\[\]]+)(?:\[(\d+)\])?\.", path):
        child = owner.children.get(name)
        if isinstance(child, tuple):
            child = child[int(index or 0)]
        if child is None:
            break
        owner = child
        found = ChainMap(dict(owner.values), dict(found))
    return found


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default


# --- graphs --------------------------------------------------------------------------------------------------


def _measured(graph: Graph) -> Iterator[str]:
    """The magnitudes that scales of narrow types are made of: numbers are rounded by them, not changed."""
    readers: dict[str, set[str]] = {}
    for node in graph.operations():
        for item in operands_of(node):
            readers.setdefault(item.name, set()).add(node.operator)
    for node in graph.operations():
        if node.operator == "math.abs":
            yield from (
                item.name for item in results_of(node) if readers.get(item.name) == {"math.max_reduce"}
            )


def trainable_graph(
    model: Model,
    origin: object = None,
    wanted: Sequence[str] | None = None,
    compiled: Compiled | None = None,
) -> TrainableGraph:
    """A graph with the gradients of its variables, or of some; LamellaError names what has no derivative.

    Statistics of batches, tables of angles and what the graph updates by itself are not trained. Of the text that a
    graph was `compiled` from, `@gradient` and the losses of parts count.
    """
    graph = model.graph
    if wanted is None:
        own = {item.variable.name for item in graph.updates} | set(_fixed(model))
        wanted = [item.name for item in graph.variables if item.element.is_float and item.name not in own]
    if not wanted:
        raise InputError(f"'{graph.name}' has no variable that could be trained")
    controls = {} if compiled is None else compiled.controls
    stopped = {name for name, item in controls.items() if item.is_stopped}
    changes = {name: partial(_changed, item) for name, item in controls.items() if not item.is_stopped}
    parts = _losses_of_parts(model, compiled)
    scored = replace(model, graph=replace(graph, outputs=(*graph.outputs, *parts)))
    found, adjoints = differentiate_all(scored, wanted, (*_measured(graph), *stopped), changes)
    added = {item.name for argument in found.graph.inputs for item in tensors(argument)}
    added -= {item.name for argument in graph.inputs for item in tensors(argument)}
    seeds = {
        item.name: name
        for item in members(scored.graph.outputs)
        for name in (f"d_{item.name}", f"d_{item.name}_in")
        if name in added
    }
    gradients = [item.name for argument in found.graph.outputs for item in tensors(argument)]
    whole = replace(found.graph, outputs=(*graph.outputs, *found.graph.outputs), updates=graph.updates)
    made = TrainableGraph(
        replace(found, graph=whole),
        dict(zip(wanted, gradients, strict=True)),
        seeds,
        origin=model if origin is None else origin,
        adjoints=adjoints,
    )
    return _with_one_seed(made, parts) if parts else made


def _changed(control: GradientControl, builder: Builder, adjoint: Tensor) -> Tensor:
    """The adjoint of a tensor as its `@gradient` wants it."""
    if control.scale != 1.0:
        adjoint = builder.call("llm.scale", adjoint, factor=control.scale)
    return adjoint if control.limit is None else builder.call("optim.clip_norm", adjoint, limit=control.limit)


def _losses_of_parts(model: Model, compiled: Compiled | None) -> tuple[Tensor, ...]:
    """The auxiliary losses that are no outputs already."""
    if compiled is None:
        return ()
    outputs = {item.name for item in members(model.graph.outputs)}
    made = {item.name for node in model.graph.nodes for item in results_of(node)} - outputs
    return tuple({item.name: item for item in losses_of_parts(compiled.names) if item.name in made}.values())


def _with_one_seed(graph: TrainableGraph, parts: Sequence[Tensor]) -> TrainableGraph:
    """The graph in which all losses of parts have one gradient, which is no output's."""
    names = {item.name for item in parts}
    own = {graph.seeds[name] for name in names if name in graph.seeds}
    seed = replace(parts[0], name=f"d_{AUXILIARY}")
    while any(item.name == seed.name for item in defined(graph.model.graph)):
        seed = replace(seed, name=f"{seed.name}_")
    body = graph.model.graph
    inputs = tuple(item for item in body.inputs if not (isinstance(item, Tensor) and item.name in own))
    nodes = map(Substitution(lambda item: seed if item.name in own else item).node, body.nodes)
    return replace(
        graph,
        model=replace(graph.model, graph=replace(body, inputs=(*inputs, seed), nodes=tuple(nodes))),
        seeds={name: item for name, item in graph.seeds.items() if name not in names},
        auxiliary=AuxiliaryLosses(
            tuple(item.name for item in parts),
            tuple(item.name for item in parts if item.name in graph.seeds),
            seed.name,
        ),
    )


def _fixed(model: Model) -> Iterator[str]:
    """The variables that are no parameters: by their names, or by what operators take them for."""
    yield from (item.name for item in model.graph.variables if CONSTANT.fullmatch(item.name))
    for node in model.graph.operations():
        fixed = {name for part, names in FIXED_INPUTS.items() if part in node.operator for name in names}
        definition = model.library.find(node.operator) if fixed else None
        names = () if definition is None else [item.name for item in definition.operator.parameters("input")]
        for name, value in zip(names, node.inputs, strict=False):
            if name in fixed:
                yield from (item.name for item in tensors(value))


# --- NAC files -----------------------------------------------------------------------------------------------


def trainable_file(model: NacModel, options: Options) -> TrainableGraph:
    """A NAC file with the gradients of its training graph; those of its formulas where it has none."""
    if not has_training(model.file):
        return trainable_graph(to_graph(model, options), model)
    weights = weights_of(model, options)
    step = step_of(model.file, weights, ANY_RATE)
    known = read_types(options.types, step.file)
    found = translate_step(step, weights, known, options.limits)
    if not step.loss:
        raise InputError(
            f"the training graph of '{shown(model.path)}' gives no loss", hint="`lamella show` prints it"
        )
    names = {state.name: variable.name for state, variable in found.states}
    gradients = {names[item.name]: found.results[item.gradient] for item in step.trained}
    graph = with_extents(found.model, options).graph
    trained = tuple(item for item in graph.updates if item.variable.name not in gradients)
    return TrainableGraph(
        replace(found.model, graph=replace(graph, updates=trained)),
        {name: item.name for name, item in gradients.items() if isinstance(item, Tensor)},
        {},
        loss=step.loss,
        targets=step.targets,
        policies={variable: ParameterPolicy(name) for name, variable in names.items()},
        origin=model,
    )


__all__ = [
    "annotated",
    "build_differentiable",
    "trainable",
    "trainable_file",
    "trainable_graph",
    "trainable_source",
    "written_source",
]
