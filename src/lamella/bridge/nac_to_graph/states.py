"""What a file keeps between runs: whether its notes fit the file, and with which numbers the first run begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lamella.base.arrays import Array, cast, element_type_of, numpy_dtype
from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import ElementType
from lamella.base.limits import Limits
from lamella.base.source import Span
from lamella.bridge.nac_to_graph.measure import find_excess
from lamella.bridge.nac_to_graph.nodes import State, Value, describe
from lamella.bridge.nac_to_graph.notes import Notes
from lamella.graph.nodes import Tensor
from lamella.lang.nac.check.memory.flow import is_state
from lamella.lang.nac.nodes import File, Instruction
from lamella.lang.nac.rules import graphs
from lamella.lang.nac.rules import instructions as rules

MOST_NAMES = 16


def state_id(item: Instruction) -> int | str:
    """The id of the state that an instruction loads."""
    return item.constants[0] if item.constants else "without a number"


def find_misfits(file: File, notes: Notes, limits: Limits) -> Iterator[Diagnostic]:
    """What of the notes on states does not fit the file or themselves; those that cannot be read are told already."""
    if notes.states is None or notes.findings:
        return
    yield from _find_twice(notes.states, notes.span)
    yield from _find_places(notes.states, file.header.outputs, notes.span)
    yield from _find_sizes(notes.states, limits, notes.span)
    yield from _find_undescribed(file, notes.states)


def _find_twice(states: Sequence[State], span: Span) -> Iterator[Diagnostic]:
    """Two states with one id, one name or one output."""
    seen: dict[tuple[str, int | str], State] = {}
    for item in states:
        parts: Mapping[str, int | str] = {
            "the id": item.id,
            "the name": item.name,
            "the output": item.update,
        }
        for what, value in parts.items():
            first = seen.setdefault((what, value), item)
            if first is not item:
                yield rules.STATE_TWICE.at(span, id=item.id, name=item.name, what=what, first=first.name)
                break


def _find_places(states: Sequence[State], count: int, span: Span) -> Iterator[Diagnostic]:
    """New values that do not stand behind the outputs of the caller."""
    places = range(max(count - len(states), 0), count)
    told = f"{len(states)} state{'s' * (len(states) != 1)}"
    wanted = f"{places.start} to {count - 1}" if len(places) > 1 else str(places.start)
    for item in states:
        if item.update not in places:
            yield rules.STATE_UPDATE.at(
                span, name=item.name, update=item.update, states=told, wanted=wanted if places else "none"
            )


def _find_sizes(states: Sequence[State], limits: Limits, span: Span) -> Iterator[Diagnostic]:
    """States that are too large, each or all together."""
    total = 0
    for item in states:
        tensor = Tensor(item.name, item.element, item.shape)
        excess = find_excess(tensor, limits)
        problem = "" if excess is None else excess.problem
        if not problem:
            total += tensor_bytes(item)
            problem = limits.excess("max_total_bytes", total, "the size in bytes of the states so far") or ""
        if problem:
            told = f"state '{item.name}' is {describe(tensor)}: {problem}"
            yield graphs.NOTES_MALFORMED.at(span, problem=told)
            return


def tensor_bytes(state: State) -> int:
    """The bytes of a state in memory."""
    size = int(numpy_dtype(state.element).itemsize)
    for extent in state.shape:
        size *= extent
    return size


def _find_undescribed(file: File, states: Sequence[State]) -> Iterator[Diagnostic]:
    known = {item.id for item in states}
    shown = ", ".join(map(str, sorted(known)[:MOST_NAMES])) or "none"
    for index, item in enumerate(file.instructions):
        if is_state(item) and state_id(item) not in known:
            yield rules.STATE_UNDESCRIBED.at(item.span, index=index, id=state_id(item), known=shown)


def find_misfit(state: State, element: ElementType, shape: Sequence[int], span: Span) -> Diagnostic | None:
    """Why numbers of a type cannot be the first of a state; real ones may be stored in fewer bits."""
    alike = element == state.element or (element.is_float and state.element.is_float)
    if alike and tuple(shape) == state.shape:
        return None
    found = f"is {element}[{', '.join(map(str, shape))}]"
    return rules.STATE_INITIAL.at(span, name=state.name, type=state.type, id=state.initial, problem=found)


def check_update(state: State, value: Value, span: Span) -> Diagnostic | None:
    """Whether an output is something that a state can become."""
    if isinstance(value, Tensor) and (value.element, value.shape) == (state.element, state.shape):
        return None
    return rules.STATE_TYPE.at(
        span, name=state.name, type=state.type, update=state.update, found=describe(value)
    )


def begin(state: State, values: Array | None) -> Array:
    """The numbers that a state begins with: zeros where there are none, else in the element type of the state."""
    if values is None:
        return np.zeros(state.shape, numpy_dtype(state.element))
    return values if element_type_of(values.dtype) == state.element else cast(values, state.element)
