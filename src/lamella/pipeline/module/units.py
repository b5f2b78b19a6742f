"""Compiled units: a model as the JSON of its graph, its schedule and its schemas, written and read back."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable
from lamella.base.errors import InputError, OutputError
from lamella.base.paths import is_there, shown
from lamella.base.writer import make_folder, write_text
from lamella.bridge.ir_to_graph import read_ir
from lamella.bridge.module_to_graph.backward import Differentiated, differentiate
from lamella.bridge.module_to_ir import is_unit, module_to_ir, read_unit, write_ir
from lamella.graph.model import Model
from lamella.lang.module.resolve import write_lock
from lamella.ops.modules import file_of
from lamella.pipeline.languages import Description
from lamella.pipeline.module.execution import build_compiled, settings_of
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.options import Options


def write_unit(path: Path, folder: Path, options: Options) -> tuple[Model, Model]:
    """Write the unit of a model into a folder, and give the model as it was and as it is read back."""
    if options.shape:
        raise InputError(
            "a unit keeps its open dimensions", hint="leave --shape out, or give it when the unit is run"
        )
    if is_there(folder) and not is_unit(folder) and any(folder.iterdir()):
        hint = "name a new folder: its files would be mixed with others"
        raise OutputError(f"the folder '{shown(folder)}' is not empty", path=folder, hint=hint)
    source = read_source(path, options)
    settings = settings_of(source.program, options)
    compiled, model = build_compiled(source, options, settings)
    trained = _trained(source, options)
    unit = module_to_ir(compiled, source.instance, write_lock(source.program.resolved), trained)
    given = model.data or {}
    numbers = dict(given) if all(item.tensor.name in given for item in compiled.weights) else None
    write_ir(unit, folder, numbers)
    for name, document in settings.library.own_modules().items():
        make_folder((folder / file_of(name)).parent)
        write_text(folder / file_of(name), document.span.source.text)
    return model, read_ir(folder, options.limits)


def check_unit(folder: Path, options: Options) -> list[Diagnostic]:
    """What is wrong with the files of a unit: each is read, and its graph is verified."""
    try:
        read_unit(folder, options.limits)
        read_ir(folder, options.limits)
    except LamellaError as problem:
        return list(problem.findings)
    return []


def describe_unit(folder: Path, options: Options) -> Description:
    """What a unit holds: ends, operators, parameters, work and memory."""
    unit = read_unit(folder, options.limits)
    told = unit.metadata
    lines = [f"{printable(shown(folder))}: compiled unit of the Module DSL, {printable(told.model)}"]
    for title, ends in (("input", told.inputs), ("output", told.outputs)):
        lines += [
            f"  {title:9}{printable(item.name)}: {item.dtype}[{', '.join(map(str, item.shape))}]"
            for item in ends
        ]
    lines.append(f"  {told.parameters:,} parameters, {told.trainable:,} trainable")
    lines.append(f"  {told.flops} operations, {told.flops_per_token} for each token")
    lines += [f"  {count:>6} × {printable(name)}" for name, count in told.operators.items()]
    lines.append(f"  {len(unit.schedule.buffers)} buffers in {len(unit.schedule.pools)} pools")
    if unit.training is not None:
        lines.append(f"  with gradients: {len(unit.training.graph.nodes)} operations")
    data = {"file": shown(folder), "kind": "unit", "model": told.model, "parameters": told.parameters}
    return Description("\n".join(lines), data)


def _trained(source: Source, options: Options) -> Differentiated | None:
    """The graph with its gradients; none for a model that keeps caches, or that cannot go back."""
    if options.cache:
        return None
    found = differentiate(source.instance, settings_of(source.program, options))
    return None if found.model is None or errors(found.findings) else found
