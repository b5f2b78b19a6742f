"""A training graph as resources, since version 1.6 has no section for it.

`training.nac` is a whole file: from inputs, targets and parameters it computes a loss and gradients. `training.json`
says which of its inputs and outputs are what.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.errors import Malformed
from lamella.base.jsontext import decode_object
from lamella.base.source import NOWHERE, Span
from lamella.lang.nac.nodes import INPUT, NONE, OUTPUT, File, Resource
from lamella.lang.nac.notes import find_notes
from lamella.lang.nac.operations import FINAL, STATE
from lamella.lang.nac.parse import parse
from lamella.lang.nac.rules import sections as rules

NOTES, GRAPH = "training.json", "training.nac"
FORMAT = 1
_LONGEST = 1 << 24
_SHOWN, _MOST = 16, 100
LARGEST_RATE = sys.float_info.max

Check = Callable[[File], list[Diagnostic]]


@dataclass(frozen=True, slots=True)
class Entry:
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
class _Reading:
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


def check_entry(file: File, check: Check) -> Iterator[Diagnostic]:
    """What is wrong with the resources; `check` looks at the file inside."""
    if has_entry(file):
        yield from read_entry(file, check)[1]


def read_entry(file: File, check: Check) -> tuple[Entry | None, list[Diagnostic]]:
    """The training graph that the resources hold, or what is wrong with them; neither where there are none."""
    notes = next((item for item in file.resources if item.name == NOTES), None)
    if notes is None:
        return None, []
    reading = _Reading(file, notes)
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


def _load(reading: _Reading) -> Mapping[str, object] | None:
    data = reading.notes.data
    try:
        content = decode_object(data) if len(data) <= _LONGEST else None
    except Malformed:
        content = None
    if content is None:
        reading.malformed("it is no JSON object")
        return None
    if type(content.get("format")) is not int or content["format"] != FORMAT:
        shown = json.dumps(content.get("format"))[:40]
        reading.malformed(f"its format is {shown}, and only {FORMAT} is known")
        return None
    return content


def _graph(reading: _Reading, check: Check) -> File | None:
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


def _entry(reading: _Reading, content: Mapping[str, object], graph: File) -> Entry | None:
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
    return Entry(graph, targets, inputs, parameters, saved, gradients, loss, rate, reading.notes.span)


def _words(reading: _Reading, value: object) -> tuple[str, ...]:
    found = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(found) != len(value):
        reading.malformed("'targets' is no list of names")
    return tuple(found)


def _names(reading: _Reading, content: Mapping[str, object], key: str) -> dict[str, str]:
    value = content.get(key, {})
    items = value if isinstance(value, dict) else {}
    found = {name: item for name, item in items.items() if isinstance(item, str)}
    if not isinstance(value, dict) or len(found) != len(items):
        reading.malformed(f"'{key}' does not give names by names")
    return found


def _places(reading: _Reading, value: object) -> dict[str, int]:
    items = value if isinstance(value, dict) else {}
    found = {name: item for name, item in items.items() if type(item) is int}
    if not isinstance(value, dict) or len(found) != len(items):
        reading.malformed("'saved' does not give instructions by names")
    return found


def _loss(reading: _Reading, value: object) -> str:
    if not isinstance(value, str):
        reading.malformed("'loss' is no name")
    return str(value)


def _rate(reading: _Reading, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_RATE:
        return float(value)
    reading.malformed("'lr' is no finite number")
    return None


# --- what they speak of -------------------------------------------------------------------------------------


def _strangers(file: File, entry: Entry) -> Iterator[Diagnostic]:
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
