"""The training graph of the resources `training.json` and `training.nac`, in the ids of the file around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic
from lamella.bridge.nac_to_graph.nodes import InputType, describe
from lamella.bridge.nac_to_graph.notes import read_notes
from lamella.bridge.nac_to_graph.training.nodes import Backward, Change
from lamella.bridge.nac_to_graph.training.parameters import parameter_types
from lamella.bridge.nac_to_graph.training.tables import MergedTables, Restating
from lamella.bridge.nac_to_graph.weights import Weights
from lamella.graph.nodes import Tensor
from lamella.lang.nac.check.instructions import is_user_input
from lamella.lang.nac.check.sections.entry import Entry, final_offsets, output_names
from lamella.lang.nac.nodes import INPUT, File, Instruction
from lamella.lang.nac.operations import PARAMETER, SAVED, TARGET
from lamella.lang.nac.rules import sections as rules


def entry_to_backward(file: File, entry: Entry) -> Backward:
    """The training graph of checked resources."""
    graph, tables = entry.graph, MergedTables(file)
    restating, loads = Restating(graph, tables), _loads(file, entry)
    end, offsets = final_offsets(graph)
    code = [
        loads[index] if is_user_input(item) else restating.restate(item)
        for index, item in enumerate(graph.instructions[:end])
    ]
    outputs = {name: end + offset for name, offset in zip(output_names(graph), offsets, strict=True)}
    ids = {item.name: item.id for item in reversed(file.parameters)}
    changes = [
        Change(ids[name], outputs[output], entry.span, entry.rate) for name, output in entry.gradients.items()
    ]
    notes = read_notes(graph)
    moved = {item.name: restating.parameters[item.id].name for item in graph.parameters}
    notes = replace(notes, constants={moved[name] for name in notes.constants if name in moved})
    known = {number: notes.inputs[name] for number, name in enumerate(entry.targets) if name in notes.inputs}
    return Backward(tables.file(), tuple(code), tuple(changes), outputs[entry.loss], known, notes)


def _loads(file: File, entry: Entry) -> dict[int, Instruction]:
    """What the inputs of the graph are in a training graph of the file, by their instructions."""
    ids = {item.name: item.id for item in reversed(file.parameters)}
    own = {item.name: item.index for item in reversed(file.inputs)}
    targets = {name: number for number, name in enumerate(entry.targets)}
    found = {}
    for item in entry.graph.inputs:
        span = entry.graph.instructions[item.index].span
        if item.name in targets:
            variant, number = TARGET, targets[item.name]
        elif item.name in entry.parameters:
            variant, number = PARAMETER, ids[entry.parameters[item.name]]
        else:
            place = own.get(entry.inputs.get(item.name, item.name), 0)
            variant, number = SAVED, entry.saved.get(item.name, place)
        found[item.index] = Instruction(INPUT, variant, (number,), (), span)
    return found


def find_misfits(file: File, entry: Entry, weights: Weights) -> Iterator[Diagnostic]:
    """Inputs of the graph that are described as another type than that of what they are given."""
    wanted, noted = read_notes(entry.graph), read_notes(file)
    yield from noted.findings
    if wanted.findings:
        problem = f"is wrong: {wanted.findings[0].message}"
        yield rules.ENTRY_GRAPH.at(entry.span, problem=problem)
        return
    parameters = parameter_types(file, noted, weights)
    for name, expected in wanted.inputs.items():
        parameter = entry.parameters.get(name)
        if parameter is not None:
            found, what = parameters.get(parameter), f"parameter '{parameter}'"
        else:
            given = entry.inputs.get(name, name)
            taken = name in entry.targets or name in entry.saved
            found, what = None if taken else noted.inputs.get(given), f"input '{given}' of the file"
        if found is not None and found != expected:
            told = _words(expected)
            yield rules.ENTRY_TYPE.at(entry.span, name=name, what=what, found=told, type=_words(found))


def _words(item: InputType) -> str:
    return describe(Tensor("", item.element, item.shape))
