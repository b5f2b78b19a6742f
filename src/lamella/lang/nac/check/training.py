"""Training graphs: the section TRNG as one step of training, and the resources that stand for it in version 1.6.

`training.nac` is a whole file: from inputs, targets and parameters it computes a loss and gradients. `training.json`
says which of its inputs and outputs are what.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.source import NOWHERE, Span
from lamella.lang.nac.check.instructions import show_value
from lamella.lang.nac.check.tables import SymbolTables
from lamella.lang.nac.layout import fields_of
from lamella.lang.nac.nodes import INPUT, NONE, OUTPUT, Constant, ConstantValue, File, Instruction, Resource
from lamella.lang.nac.notes import find_notes, read_object
from lamella.lang.nac.operations import FINAL, LIFTED, STATE, SUBGRAPH, TARGET, TRAINED, UPDATE
from lamella.lang.nac.parse import parse
from lamella.lang.nac.rules import sections as rules
from lamella.lang.nac.rules.container import FIELDS

# --- the training graph as a step: its end, its targets, which parameters it changes and by how much --------


def check_steps(file: File, tables: SymbolTables) -> Iterator[Diagnostic]:
    """What of a training graph cannot be one step of training, whatever its instructions compute."""
    if not file.training:
        return
    if not file.instructions:
        yield rules.TRAINING_ALONE.at(file.training[0].span, count=len(file.training))
    yield from _check_fields(file)
    yield from _check_end(file)
    yield from _check_targets(file)
    yield from _check_updates(file, tables)


def _check_fields(file: File) -> Iterator[Diagnostic]:
    """Loads, updates and the end have the fields of their variants, which a text can give any number of."""
    for index, item in enumerate(file.training):
        fields = (
            fields_of(item.operation, item.variant, None, 0) if item.operation in (INPUT, OUTPUT) else None
        )
        if fields is None or (item.operation == OUTPUT and item.variant in (FINAL, SUBGRAPH)):
            continue
        wanted = {"C": fields.constants or 0, "D": fields.offsets}
        given = {"C": len(item.constants), "D": len(item.offsets)}
        for name, count in wanted.items():
            if given[name] != count:
                yield FIELDS.at(item.span, index=index, given=given[name], field=name, wanted=count)


def _check_end(file: File) -> Iterator[Diagnostic]:
    ends = [index for index, item in enumerate(file.training) if is_end(item)]
    if ends and ends[0] + 1 < len(file.training):
        behind = file.training[ends[0] + 1]
        yield rules.TRAINING_AFTER_END.at(behind.span, index=ends[0] + 1, end=ends[0])


def _check_targets(file: File) -> Iterator[Diagnostic]:
    """Targets are 0, 1, 2 …: the caller gives them by their numbers."""
    taken = {item.constants[0]: item for item in file.training if is_target(item) and item.constants}
    missing = next(number for number in range(len(taken) + 1) if number not in taken)
    for number, item in taken.items():
        if not 0 <= number < missing:
            yield rules.TRAINING_TARGETS.at(item.span, number=number, missing=missing)


def _check_updates(file: File, tables: SymbolTables) -> Iterator[Diagnostic]:
    """Each parameter is changed once, by a rate that is a number where it is a constant."""
    changed: set[int] = set()
    for index, item in enumerate(file.training):
        if not is_update(item) or not item.constants:
            continue
        id_ = item.constants[0]
        parameter = tables.parameters.get(id_)
        if id_ in changed and parameter is not None:
            yield rules.TRAINING_PARAMETER.at(
                item.span, name=parameter.name, problem="two instructions change it"
            )
        changed.add(id_)
        constant = rate_constant(file, index, tables)
        if constant is not None and not is_rate(constant.value):
            yield rules.TRAINING_RATE.at(item.span, index=index, id=id_, found=show_value(constant))


def rate_constant(file: File, index: int, tables: SymbolTables) -> Constant | None:
    """The constant that is the learning rate of an update; None where the rate is something else."""
    place = index + (*file.training[index].offsets, 0, 0)[1]
    item = file.training[place] if 0 <= place < index else None
    if item is None or (item.operation, item.variant) != (INPUT, LIFTED) or not item.constants:
        return None
    return tables.constants.get(item.constants[0])


def is_rate(value: ConstantValue) -> bool:
    """Whether a constant can be a learning rate."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_target(item: Instruction) -> bool:
    """Whether an instruction takes a target of the training."""
    return (item.operation, item.variant) == (INPUT, TARGET)


def is_update(item: Instruction) -> bool:
    """Whether an instruction changes a parameter."""
    return (item.operation, item.variant) == (OUTPUT, UPDATE)


def is_end(item: Instruction) -> bool:
    """Whether an instruction ends a training graph."""
    return (item.operation, item.variant) == (OUTPUT, TRAINED)


NOTES, GRAPH = "training.json", "training.nac"
FORMAT = 1
_SHOWN, _MOST = 16, 100
LARGEST_RATE = sys.float_info.max

Check = Callable[[File], list[Diagnostic]]


@dataclass(frozen=True, slots=True)
class TrainingEntry:
    """A training graph and what it is given: names of its inputs and outputs, for what stands in the file around it.

    Inputs that nothing is said about are the inputs of the file with the same names.
    """

    graph: File
    targets: tuple[str, ...]
    inputs: Mapping[str, str]
    """By inputs of the graph the inputs of the file that they are, where those have other names."""
    parameters: Mapping[str, str]
    """By inputs of the graph the parameters that they are."""
    saved: Mapping[str, int]
    """By inputs of the graph the instructions of the program whose results they are."""
    gradients: Mapping[str, str]
    """By parameters the outputs that are their gradients."""
    loss: str
    rate: float | None = None
    span: Span = NOWHERE


@dataclass(slots=True)
class _EntryReading:
    """The two resources while they are read."""

    file: File
    notes: Resource
    findings: list[Diagnostic] = field(default_factory=list)

    def malformed(self, problem: str) -> None:
        """Tell what is wrong with the notes."""
        self.findings.append(rules.ENTRY_MALFORMED.at(self.notes.span, problem=problem))


def has_entry(file: File) -> bool:
    """Whether a file carries a training graph in its resources."""
    return any(item.name == NOTES for item in file.resources)


def read_entry(file: File, check: Check) -> tuple[TrainingEntry | None, list[Diagnostic]]:
    """The training graph that the resources hold, or what is wrong with them; neither where there are none."""
    notes = next((item for item in file.resources if item.name == NOTES), None)
    if notes is None:
        return None, []
    reading = _EntryReading(file, notes)
    if file.training:
        reading.findings.append(rules.ENTRY_TWICE.at(notes.span))
    content = _load(reading)
    graph = _graph(reading, check)
    if content is None or graph is None or reading.findings:
        return None, reading.findings
    entry = _entry(reading, content, graph)
    if entry is not None:
        reading.findings += _strangers(file, entry)
    return (None if reading.findings else entry), reading.findings


def _load(reading: _EntryReading) -> Mapping[str, object] | None:
    content = read_object(reading.notes)
    if content is None:
        reading.malformed("it is no JSON object")
        return None
    if type(content.get("format")) is not int or content["format"] != FORMAT:
        shown = json.dumps(content.get("format"))[:40]
        reading.malformed(f"its format is {shown}, and only {FORMAT} is known")
        return None
    return content


def _graph(reading: _EntryReading, check: Check) -> File | None:
    """The file inside, where it is sound."""
    resource = next((item for item in reading.file.resources if item.name == GRAPH), None)
    if resource is None:
        reading.findings.append(rules.ENTRY_GRAPH.at(reading.notes.span, problem="is missing"))
        return None
    graph, found = parse(resource.data, GRAPH)
    nested = graph.training or any(item.name in (NOTES, GRAPH) for item in graph.resources)
    if nested:
        reading.findings.append(rules.ENTRY_NESTED.at(resource.span))
        return None
    wrong = errors(found) or errors(check(graph))
    problem = f"is wrong: {wrong[0].code}, {wrong[0].message}" if wrong else _unfit(graph)
    if problem:
        reading.findings.append(rules.ENTRY_GRAPH.at(resource.span, problem=problem))
    return None if problem else graph


def _unfit(graph: File) -> str:
    """Why a sound file is no training graph, as the rest of a sentence."""
    if not graph.instructions:
        return "has no instructions"
    if any((item.operation, item.variant) == (INPUT, STATE) for item in graph.instructions):
        return "keeps states"
    if graph.parameters and not graph.header.internal:
        return "has weights outside"
    if len(graph.inputs) != graph.header.inputs:
        return "does not name its inputs"
    return "" if len(output_names(graph)) == graph.header.outputs else "does not name its outputs"


def output_names(graph: File) -> list[str]:
    """The names of the outputs, as the notes of a file say them."""
    noted = (find_notes(graph) or {}).get("outputs")
    items = noted if isinstance(noted, list) else []
    names = [item.get("name") if isinstance(item, dict) else None for item in items]
    return [name for name in names if isinstance(name, str)]


def final_offsets(graph: File) -> tuple[int, tuple[int, ...]]:
    """Where a program ends, and how far before that its outputs stand."""
    items = enumerate(graph.instructions)
    found = ((index, item) for index, item in items if (item.operation, item.variant) == (OUTPUT, FINAL))
    index, item = next(found)
    return index, item.offsets


# --- what the notes say -------------------------------------------------------------------------------------


def _entry(reading: _EntryReading, content: Mapping[str, object], graph: File) -> TrainingEntry | None:
    targets = _words(reading, content.get("targets", []))
    inputs, parameters = _names(reading, content, "inputs"), _names(reading, content, "parameters")
    gradients = _names(reading, content, "gradients")
    saved = _places(reading, content.get("saved", {}))
    loss, rate = _loss(reading, content.get("loss")), _rate(reading, content.get("lr"))
    twice = [name for name, count in Counter([*targets, *inputs, *parameters, *saved]).items() if count > 1]
    if twice:
        reading.malformed(f"input '{twice[0]}' is two things")
    if reading.findings:
        return None
    return TrainingEntry(graph, targets, inputs, parameters, saved, gradients, loss, rate, reading.notes.span)


def _words(reading: _EntryReading, value: object) -> tuple[str, ...]:
    found = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(found) != len(value):
        reading.malformed("'targets' is no list of names")
    return tuple(found)


def _names(reading: _EntryReading, content: Mapping[str, object], key: str) -> dict[str, str]:
    value = content.get(key, {})
    items = value if isinstance(value, dict) else {}
    found = {name: item for name, item in items.items() if isinstance(item, str)}
    if not isinstance(value, dict) or len(found) != len(items):
        reading.malformed(f"'{key}' does not give names by names")
    return found


def _places(reading: _EntryReading, value: object) -> dict[str, int]:
    items = value if isinstance(value, dict) else {}
    found = {name: item for name, item in items.items() if type(item) is int}
    if not isinstance(value, dict) or len(found) != len(items):
        reading.malformed("'saved' does not give instructions by names")
    return found


def _loss(reading: _EntryReading, value: object) -> str:
    if not isinstance(value, str):
        reading.malformed("'loss' is no name")
    return str(value)


def _rate(reading: _EntryReading, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_RATE:
        return float(value)
    reading.malformed("'lr' is no finite number")
    return None


# --- what they speak of -------------------------------------------------------------------------------------


def _strangers(file: File, entry: TrainingEntry) -> Iterator[Diagnostic]:
    """Names and instructions that do not exist, in the graph or in the file around it."""
    inputs, outputs = {item.name for item in entry.graph.inputs}, set(output_names(entry.graph))
    parameters, own = {item.name for item in file.parameters}, {item.name for item in file.inputs}
    given = (*entry.targets, *entry.inputs, *entry.parameters, *entry.saved)
    rest = sorted(inputs - set(given))
    for what, names, place, known in (
        ("input", given, GRAPH, inputs),
        ("output", (entry.loss, *entry.gradients.values()), GRAPH, outputs),
        ("parameter", (*entry.parameters.values(), *entry.gradients), "the file", parameters),
        ("input", (*entry.inputs.values(), *rest), "the file", own),
    ):
        strange = [name for name in dict.fromkeys(names) if name not in known]
        shown = ", ".join(sorted(known)[:_SHOWN]) if strange else ""
        for name in strange[:_MOST]:
            yield rules.ENTRY_NAME.at(entry.span, what=what, name=name, place=place, known=shown or "none")
    for name, index in entry.saved.items():
        if not 0 <= index < len(file.instructions) or file.instructions[index].operation in (NONE, OUTPUT):
            last = f"0 to {len(file.instructions) - 1}, of which '{name}' needs one that computes"
            yield rules.ENTRY_NAME.at(entry.span, what="result", name=index, place="the file", known=last)
