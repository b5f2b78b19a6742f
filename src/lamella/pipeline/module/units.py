"""Compiled units: a model as the JSON of its graph, its schedule and its schemas, written and read back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable
from lamella.base.errors import InputError, OutputError
from lamella.base.levels import at_level
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, is_there, shown
from lamella.base.writer import make_folder, write_text
from lamella.bridge.ir_to_graph import read_ir
from lamella.bridge.module_to_graph.backward import Differentiated, differentiate
from lamella.bridge.module_to_ir import UnitIR, is_unit, module_to_ir, read_unit, write_ir
from lamella.graph.model import Model
from lamella.lang.module.resolve import write_lock
from lamella.ops.modules import file_of
from lamella.pipeline import languages
from lamella.pipeline.backends import Backend
from lamella.pipeline.languages import SKRIPTND, Description
from lamella.pipeline.module.execution import build_compiled, settings_of
from lamella.pipeline.module.folders import Source, read_source
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents


@dataclass(frozen=True, slots=True)
class CompiledUnit:
    """The unit of a model on its way to a folder, with the graph that it was made from."""

    unit: UnitIR
    model: Model

    __repr__ = show_line
    _repr_html_ = show_html
    at = at_level

    def _card(self) -> Card:
        """The card of its graph."""
        return replace(self.model._card(), kind="compiled unit")

    @property
    def language(self) -> str:
        """The language that the model is written in."""
        return "unit"


def load(folder: Path, options: Options) -> Model:
    """The graph of a unit."""
    return with_extents(read_ir(folder, options.limits), options)


def lower(model: CompiledUnit, to: str, options: Options) -> languages.Model:
    """Lower the graph of a unit."""
    return SKRIPTND.lower(model.model, to, options)


def compile_as_graph(model: CompiledUnit, backend: Backend, options: Options) -> languages.Executable:
    """Make the graph of a unit executable."""
    return backend.compile(model.model, options)


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """A folder has no text; InputError."""
    raise InputError(f"'{shown(path)}' is a folder", path=shown(path), hint="name a .module file")


def build_unit(path: Path, options: Options) -> CompiledUnit:
    """The compiled unit of a .module file or a Hugging Face folder."""
    if options.shape:
        raise InputError(
            "a unit keeps its open dimensions", hint="leave --shape out, or give it when the unit is run"
        )
    if is_unit(path):
        raise InputError(f"'{shown(path)}' is a compiled unit already", path=shown(path))
    source = read_source(path, options)
    compiled, model = build_compiled(source, options, settings_of(source.program, options))
    trained = _trained(source, options)
    unit = module_to_ir(compiled, source.instance, write_lock(source.program.resolved), trained)
    return CompiledUnit(unit, model)


def save(made: CompiledUnit, folder: Path) -> None:
    """Write a unit into a folder of its own; its weights too, where all have numbers, and operators of its own."""
    if is_there(folder) and not is_unit(folder) and (not is_folder(folder) or any(folder.iterdir())):
        hint = "name a new folder: its files would be mixed with others"
        raise OutputError(f"the folder '{shown(folder)}' is not empty", path=folder, hint=hint)
    data, variables = made.model.data or {}, made.model.graph.variables
    write_ir(made.unit, folder, dict(data) if all(item.name in data for item in variables) else None)
    for name, document in made.model.library.own_modules().items():
        make_folder((folder / file_of(name)).parent)
        write_text(folder / file_of(name), document.span.source.text)


def check(folder: Path, options: Options) -> list[Diagnostic]:
    """What is wrong with the files of a unit: each is read, and its graph is verified."""
    try:
        read_unit(folder, options.limits)
        read_ir(folder, options.limits)
    except LamellaError as problem:
        return list(problem.findings)
    return []


def describe(name: str, options: Options) -> Description:
    """What a unit holds: ends, operators, parameters, work and memory."""
    folder = Path(name)
    unit = read_unit(folder, options.limits)
    facts = unit.metadata
    lines = [f"{printable(shown(folder))}: compiled unit of the Module DSL, {printable(facts.model)}"]
    for title, ends in (("input", facts.inputs), ("output", facts.outputs)):
        lines += [
            f"  {title:9}{printable(item.name)}: {item.dtype}[{', '.join(map(str, item.shape))}]"
            for item in ends
        ]
    lines.append(f"  {facts.parameters:,} parameters, {facts.trainable:,} trainable")
    lines.append(f"  {facts.flops} operations, {facts.flops_per_token} for each token")
    lines += [f"  {count:>6} × {printable(name)}" for name, count in facts.operators.items()]
    lines.append(f"  {len(unit.schedule.buffers)} buffers in {len(unit.schedule.pools)} pools")
    if unit.training is not None:
        lines.append(f"  with gradients: {len(unit.training.graph.nodes)} operations")
    data = {"file": shown(folder), "kind": "unit", "model": facts.model, "parameters": facts.parameters}
    return Description("\n".join(lines), data)


def _trained(source: Source, options: Options) -> Differentiated | None:
    """The graph with its gradients; none for a model that keeps caches, or that cannot go back."""
    if options.cache:
        return None
    found = differentiate(source.instance, settings_of(source.program, options))
    return None if found.model is None or errors(found.findings) else found
