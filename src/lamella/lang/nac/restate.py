"""Files of other versions as files of version 1.6, the only one that is written."""

from __future__ import annotations

from dataclasses import replace

from lamella.lang.nac.check.sections.entry import GRAPH
from lamella.lang.nac.nodes import V1_6, Action, File, Operation, Resource
from lamella.lang.nac.operations import standard_operations
from lamella.lang.nac.schedule import plan_memory
from lamella.lang.nac.training import is_movable, move_training
from lamella.lang.nac.write import find_unwritable, write


def restate(file: File) -> File:
    """The same file in version 1.6, where operations that became standard later need names in CMAP.

    A training graph becomes resources, where they can say it. What else 1.6 has no section for stays in the file:
    writing it is a finding.
    """
    if file.training and is_movable(file):
        bare, graph = move_training(file)
        graph = restate(graph)
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
