"""What a step of training notes of itself: its inputs, its outputs, and the states that its parameters are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lamella.bridge.nac_to_graph.nodes import InputType, State
from lamella.bridge.nac_to_graph.notes import Notes
from lamella.bridge.nac_to_graph.outputs import output_names
from lamella.bridge.nac_to_graph.training.nodes import Backward
from lamella.bridge.nac_to_graph.training.tables import fresh_name
from lamella.lang.nac.check.sections.entry import GRAPH, NOTES
from lamella.lang.nac.nodes import File, Input
from lamella.lang.nac.notes import find_notes, with_notes

LOSS = "loss"


@dataclass(slots=True)
class Told:
    """What is known of a step while it is put together."""

    whole: bool
    """Whether the program is run in it."""
    inputs: dict[int, str] = field(default_factory=dict)
    """By their instructions the names of inputs."""
    types: dict[str, InputType] = field(default_factory=dict)
    targets: dict[int, int] = field(default_factory=dict)
    """By the numbers of targets the instructions that take them."""
    callers: int = 0
    """How many outputs the caller gets."""
    has_loss: bool = False
    moved: int = 0
    """How far the new values of the program's own states stand behind where they stood."""


def describe_step(
    file: File, notes: Notes, backward: Backward, told: Told, states: Sequence[State], first: int
) -> tuple[File, str]:
    """The whole file of a step from its code and tables, and the name of the loss; `first` is where training begins."""
    named = told.callers - told.has_loss
    outputs = output_names(notes.outputs if told.whole else [], named)
    loss = fresh_name(LOSS, outputs) if told.has_loss else ""
    kept = (notes.states or []) if told.whole else []
    renewed = [replace(state, update=state.update + told.moved) for state in kept]
    behind = told.callers + len(kept)
    renewed += [replace(state, update=behind + number) for number, state in enumerate(states)]
    content = {
        **(find_notes(file) or {}),
        "inputs": list(_described({**_known(notes, told), **told.types})),
        "outputs": [{"name": name} for name in (*outputs, *([loss] if loss else []))],
        "states": [_state_to_json(state) for state in renewed],
        "extents": {**notes.ranges, **backward.notes.ranges},
        "constants": dict.fromkeys((*notes.constants, *backward.notes.constants), ()),
        "origins": _moved(notes.origins, backward.notes.origins, told.whole, first),
        "branches": _moved(notes.branches, backward.notes.branches, told.whole, first),
    }
    inputs = tuple(Input(index, name) for index, name in sorted(told.inputs.items()))
    header = replace(file.header, inputs=len(inputs), outputs=told.callers + len(renewed))
    resources = tuple(item for item in file.resources if item.name not in (NOTES, GRAPH))
    bare = replace(file, header=header, inputs=inputs, resources=resources, schedule=(), training=())
    return with_notes(bare, content), loss


def _known(notes: Notes, told: Told) -> dict[str, InputType]:
    """What the file says of the inputs that a step has; a program that is run may describe constants too."""
    names = set(told.inputs.values())
    return {name: item for name, item in notes.inputs.items() if told.whole or name in names}


def _described(types: Mapping[str, InputType]) -> Iterator[dict[str, object]]:
    for name, item in types.items():
        shape = [extent if isinstance(extent, int) else str(extent) for extent in item.shape]
        yield {"name": name, "dtype": item.element.name, "shape": shape}


def _state_to_json(state: State) -> dict[str, object]:
    facts = {"id": state.id, "name": state.name, "dtype": state.element.name, "shape": list(state.shape)}
    return {**facts, "initial": state.initial, "update": state.update}


def _moved(
    own: Mapping[int, str | int], behind: Mapping[int, str | int], whole: bool, first: int
) -> dict[str, object]:
    """What is noted of instructions by their places in the step."""
    found = {**(own if whole else {}), **{first + index: value for index, value in behind.items()}}
    return {str(index): value for index, value in found.items()}
