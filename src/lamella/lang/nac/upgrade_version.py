"""Upgrades and downgrades of files of other versions to version 1.6, the only one that is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lamella.lang.nac.check.tables import read_tables
from lamella.lang.nac.check.training import FORMAT, GRAPH, NOTES, is_end, is_target, is_update, rate_constant
from lamella.lang.nac.nodes import (
    INPUT,
    OUTPUT,
    V1_6,
    Action,
    ConstantValue,
    File,
    Header,
    Input,
    Instruction,
    Operation,
    Resource,
)
from lamella.lang.nac.notes import FORMAT as NOTES_FORMAT
from lamella.lang.nac.notes import notes_resource
from lamella.lang.nac.operations import FINAL, LIFTED, PARAMETER, SAVED, standard_operations
from lamella.lang.nac.regions import has_blocks
from lamella.lang.nac.schedule import plan_memory
from lamella.lang.nac.write import find_unwritable, write

# --- training graphs of newer versions as resources of version 1.6 ------------------------------------------


LOSS, GRADIENT = "loss", "gradient.{}"


@dataclass(slots=True)
class _TrainingGraph:
    """The instructions of a training graph while they become a file of their own."""

    code: list[Instruction] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """Where the results of the old instructions are now."""
    inputs: dict[int, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    targets: dict[int, int] = field(default_factory=dict)
    """By the numbers of targets the new instructions that take them."""
    parameters: dict[str, str] = field(default_factory=dict)
    saved: dict[str, int] = field(default_factory=dict)

    def take(self, name: str) -> str:
        """A new input; its name."""
        found = name
        while found in self.taken:
            found = f"{found}.{len(self.code)}"
        self.taken.add(found)
        self.inputs[len(self.code)] = found
        self.code.append(Instruction(INPUT))
        return found

    def add(self, index: int, item: Instruction) -> None:
        """An instruction with the distances that it has now."""
        here = len(self.code)
        offsets = tuple(self.places[index + offset] - here if offset else 0 for offset in item.offsets)
        self.code.append(replace(item, offsets=offsets))


def find_rate(file: File) -> ConstantValue:
    """The learning rate that all updates of a training graph share; None where there is no such number."""
    tables = read_tables(file)
    updates = [index for index, item in enumerate(file.training) if is_update(item)]
    constants = [rate_constant(file, index, tables) for index in updates]
    found = {None if item is None else item.value for item in constants}
    return found.pop() if len(found) == 1 else None


def is_movable(file: File) -> bool:
    """Whether a checked training graph can be said in resources: one rate for all, known loads alone, no blocks."""
    loads = (item for item in file.training if item.operation == INPUT)
    known = all(is_target(item) or item.variant in (PARAMETER, SAVED, LIFTED) for item in loads)
    there = any(item.name in (NOTES, GRAPH) for item in file.resources) or any(map(has_blocks, file.training))
    return known and not there and find_rate(file) is not None and _loss(file) is not None


def _loss(file: File) -> int | None:
    ends = (
        index + item.offsets[0] for index, item in enumerate(file.training) if is_end(item) and item.offsets
    )
    found = next(ends, None)
    if found is None or file.training[found].operation == INPUT:
        return None
    return found


def move_training(file: File) -> tuple[File, File]:
    """A file with the notes on its movable training graph in the place of the graph, and the graph as a file."""
    graph = _move(file)
    updates = [(index, item) for index, item in enumerate(file.training) if is_update(item)]
    names = {item.id: item.name for item in reversed(file.parameters)}
    gradients = {names[item.constants[0]]: index + item.offsets[0] for index, item in updates}
    outputs = {LOSS: _loss(file) or 0} | {GRADIENT.format(name): place for name, place in gradients.items()}
    notes: Mapping[str, object] = {
        "format": FORMAT,
        "targets": [graph.inputs[graph.targets[number]] for number in sorted(graph.targets)],
        "parameters": graph.parameters,
        "saved": graph.saved,
        "gradients": {name: GRADIENT.format(name) for name in gradients},
        "loss": LOSS,
        "lr": find_rate(file),
    }
    text = json.dumps(notes, sort_keys=True, separators=(",", ":"))
    bare = replace(file, training=(), resources=(*file.resources, Resource(NOTES, text.encode())))
    return bare, _as_file(file, graph, outputs)


def _move(file: File) -> _TrainingGraph:
    """The instructions in their order: loads are inputs, updates and the end are left out."""
    graph = _TrainingGraph()
    names = {item.id: item.name for item in reversed(file.parameters)}
    for index, item in enumerate(file.training):
        if item.operation == OUTPUT:
            continue
        if is_target(item):
            graph.places[index] = _take_target(graph, item.constants[0])
            continue
        graph.places[index] = len(graph.code)
        if (item.operation, item.variant) == (INPUT, PARAMETER):
            name = names[item.constants[0]]
            graph.parameters[graph.take(name)] = name
        elif (item.operation, item.variant) == (INPUT, SAVED):
            graph.saved[graph.take(f"saved_{item.constants[0]}")] = item.constants[0]
        else:
            graph.add(index, item)
    return graph


def _take_target(graph: _TrainingGraph, number: int) -> int:
    """The instruction that takes a target; one for all that need it."""
    if number not in graph.targets:
        graph.targets[number] = len(graph.code)
        graph.take(f"target_{number}")
    return graph.targets[number]


def _as_file(file: File, graph: _TrainingGraph, outputs: Mapping[str, int]) -> File:
    """The file of a training graph, with the tables of the file that it is from."""
    here = len(graph.code)
    end = Instruction(OUTPUT, FINAL, (), tuple(graph.places[place] - here for place in outputs.values()))
    said = {"format": NOTES_FORMAT, "outputs": [{"name": name} for name in outputs]}
    header = Header(file.header.version, internal=True, inputs=len(graph.inputs), outputs=len(outputs))
    return File(
        header,
        operations=file.operations,
        signatures=file.signatures,
        constants=file.constants,
        instructions=(*graph.code, end),
        inputs=tuple(Input(index, name) for index, name in graph.inputs.items()),
        resources=(notes_resource(said),),
    )


def upgrade_version(file: File) -> File:
    """The same file in version 1.6, where operations that became standard later need names in CMAP.

    A training graph becomes resources, where they can say it. What else 1.6 has no section for stays in the file:
    writing it is a finding.
    """
    if file.training and is_movable(file):
        bare, graph = move_training(file)
        graph = upgrade_version(graph)
        if not find_unwritable(graph):
            made = replace(bare, resources=(*bare.resources, Resource(GRAPH, write(graph))))
            file = _without_actions(made)
    known = {item.id for item in file.operations} | set(standard_operations(V1_6))
    names = standard_operations(file.header.version)
    used = {item.operation for item in file.instructions} & set(names) - known
    added = (Operation(number, names[number].name) for number in used)
    operations = (
        tuple(sorted((*file.operations, *added), key=lambda item: item.id)) if used else file.operations
    )
    return replace(file, header=replace(file.header, version=V1_6), operations=operations)


def _without_actions(file: File) -> File:
    """The file with another schedule, where its own has actions that only training graphs of newer versions know."""
    actions = {command.action for tick in file.schedule for command in tick.commands}
    newer = actions & {Action.SAVE_FOR_GRAD, Action.FREE_AFTER_TRNG}
    return replace(file, schedule=plan_memory(file)) if newer else file
