"""The training graph of a file: from its section TRNG, or from the resources that version 1.6 has instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import InputError
from lamella.bridge.nac_to_graph.nodes import InputType, describe
from lamella.bridge.nac_to_graph.notes import read_notes
from lamella.bridge.nac_to_graph.training.nodes import Backward, Change
from lamella.bridge.nac_to_graph.training.parameters import parameter_types
from lamella.bridge.nac_to_graph.training.tables import MergedTables, Restating
from lamella.bridge.nac_to_graph.weights import Weights
from lamella.graph.nodes import Tensor
from lamella.lang.nac.check import check
from lamella.lang.nac.check.instructions import is_user_input
from lamella.lang.nac.check.tables import read_tables
from lamella.lang.nac.check.training import (
    TrainingEntry,
    final_offsets,
    has_entry,
    is_end,
    is_update,
    output_names,
    rate_constant,
    read_entry,
)
from lamella.lang.nac.nodes import INPUT, File, Instruction
from lamella.lang.nac.operations import PARAMETER, SAVED, TARGET
from lamella.lang.nac.rules import sections as rules

# --- the training graph of the resources `training.json` and `training.nac`, in the ids of the file ---------


def entry_to_backward(file: File, entry: TrainingEntry) -> Backward:
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


def _loads(file: File, entry: TrainingEntry) -> dict[int, Instruction]:
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


def find_misfits(file: File, entry: TrainingEntry, weights: Weights) -> Iterator[Diagnostic]:
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


def has_training(file: File) -> bool:
    """Whether a file says how it is trained."""
    return bool(file.training) or has_entry(file)


def find_backward(file: File, weights: Weights) -> Backward:
    """The training graph of a checked file; LamellaError tells what is wrong with it, or that there is none."""
    if file.training:
        return _of_section(file)
    entry, findings = read_entry(file, check)
    if entry is not None:
        findings = list(find_misfits(file, entry, weights))
    if findings:
        raise LamellaError(findings)
    if entry is None:
        raise no_training()
    return entry_to_backward(file, entry)


def no_training() -> InputError:
    """What is told of a file that cannot be trained."""
    hint = "lamella.from_torch(module, args, loss=…, targets=…) makes one"
    return InputError("the file has no training graph", hint=hint)


def _of_section(file: File) -> Backward:
    tables, code = read_tables(file), file.training
    changes = []
    for index, item in enumerate(code):
        if is_update(item):
            constant = rate_constant(file, index, tables)
            gradient, source = (index + offset for offset in item.offsets)
            number = None if constant is None else float(cast("float", constant.value))
            changes.append(Change(item.constants[0], gradient, item.span, number, source))
    ends = (index + item.offsets[0] for index, item in enumerate(code) if is_end(item) and item.offsets)
    return Backward(file, code, tuple(changes), next(ends, None))
