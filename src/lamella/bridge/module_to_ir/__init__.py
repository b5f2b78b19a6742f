"""A compiled instance of the Module DSL as documented JSON: graph, schedule, weights, config, metadata."""

from __future__ import annotations

from dataclasses import replace

from lamella.base.errors import InputError
from lamella.bridge.module_to_graph.backward.tape import Differentiated
from lamella.bridge.module_to_graph.nodes import Compiled
from lamella.bridge.module_to_ir.annotations import Marks, find_memory_modes
from lamella.bridge.module_to_ir.files import is_unit, read_part, read_unit, write_ir
from lamella.bridge.module_to_ir.graph import make_graph
from lamella.bridge.module_to_ir.nodes import GraphIR, ScheduleIR, TrainingParts, UnitIR
from lamella.bridge.module_to_ir.schedule import make_schedule
from lamella.bridge.module_to_ir.schemas import make_schemas
from lamella.graph.nodes import Graph, Operation
from lamella.lang.module.instantiate import Instance

__all__ = [
    "GraphIR",
    "ScheduleIR",
    "TrainingParts",
    "UnitIR",
    "is_unit",
    "module_to_ir",
    "read_part",
    "read_unit",
    "write_ir",
]


def module_to_ir(
    compiled: Compiled, instance: Instance, lock: str = "", trained: Differentiated | None = None
) -> UnitIR:
    """The unit of a compiled instance; `lock` is the text of its lock file.

    `trained` is the graph of the instance with its gradients: what it reads of the way forward is saved. InputError
    where the instance has no graph.
    """
    graph = _graph_of(compiled, instance)
    marks = Marks(compiled.marks)
    modes = find_memory_modes(compiled, instance, () if trained is None else trained.saved)
    made = make_graph(compiled, graph, instance, modes)
    plan = make_schedule(graph, marks, modes)
    weights, config, metadata = make_schemas(compiled, graph, instance, (made, plan), lock)
    training = None if trained is None else _train(trained, instance)
    return UnitIR(made, plan, weights, config, metadata, training)


def _train(trained: Differentiated, instance: Instance) -> TrainingParts:
    """The parts of a graph that goes back too; what is saved lies together, and is free after its last use."""
    graph = _graph_of(trained.compiled, instance)
    modes = find_memory_modes(trained.compiled, instance, trained.saved, trained.seeds.values())
    made = make_graph(trained.compiled, graph, instance, modes)
    gradients = {**trained.gradients, **trained.input_gradients}
    plan = make_schedule(graph, Marks(trained.compiled.marks), modes, lasting=False)
    return TrainingParts(replace(made, gradients=gradients, seeds=dict(trained.seeds)), plan)


def _graph_of(compiled: Compiled, instance: Instance) -> Graph:
    if compiled.model is None or not all(isinstance(item, Operation) for item in compiled.model.graph.nodes):
        raise InputError(f"'{instance.module.name}' has no graph that could be written")
    return compiled.model.graph
