"""What a program takes in: inputs, parameters and states as variables, and their numbers when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lamella.base.arrays import Array, cast, element_type_of, numpy_dtype, to_memory
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import F32, ElementType
from lamella.base.limits import Limits
from lamella.base.shape import element_count
from lamella.base.source import Span
from lamella.bridge.nac_to_graph.builder import UndoBuilder
from lamella.bridge.nac_to_graph.nodes import (
    FAILED,
    UNTYPED,
    InputType,
    KeptState,
    Value,
    describe,
    find_excess,
)
from lamella.bridge.nac_to_graph.notes import Notes
from lamella.bridge.nac_to_graph.weights import StoredWeights, original_shape, read_weight
from lamella.graph.nodes import Single, Tensor
from lamella.graph.nodes import Tensor as Variable
from lamella.lang.nac.check.data import DTYPES
from lamella.lang.nac.check.memory.flow import is_state
from lamella.lang.nac.check.tables import SymbolTables
from lamella.lang.nac.nodes import INPUT, File, Instruction, Method, Unscaled
from lamella.lang.nac.nodes import Tensor as StoredTensor
from lamella.lang.nac.operations import LIFTED, PARAMETER, USER
from lamella.lang.nac.rules import graphs
from lamella.lang.nac.rules import instructions as rules
from lamella.lang.nac.rules.instructions import STATE_INITIAL

# --- states: whether their notes fit the file, and the numbers of the first run -----------------------------


MOST_NAMES = 16


def state_id(item: Instruction) -> int | str:
    """The id of the state that an instruction loads."""
    return item.constants[0] if item.constants else "without a number"


def find_misfits(file: File, notes: Notes, limits: Limits) -> Iterator[Diagnostic]:
    """What of the notes on states does not fit the file or themselves; what cannot be read has findings already."""
    if notes.states is None or notes.findings:
        return
    yield from _find_twice(notes.states, notes.span)
    yield from _find_places(notes.states, file.header.outputs, notes.span)
    yield from _find_sizes(notes.states, limits, notes.span)
    yield from _find_undescribed(file, notes.states)


def _find_twice(states: Sequence[KeptState], span: Span) -> Iterator[Diagnostic]:
    """Two states with one id, one name or one output."""
    seen: dict[tuple[str, int | str], KeptState] = {}
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


def _find_places(states: Sequence[KeptState], count: int, span: Span) -> Iterator[Diagnostic]:
    """New values that do not stand behind the outputs of the caller."""
    places = range(max(count - len(states), 0), count)
    counted = f"{len(states)} state{'s' * (len(states) != 1)}"
    wanted = f"{places.start} to {count - 1}" if len(places) > 1 else str(places.start)
    for item in states:
        if item.update not in places:
            yield rules.STATE_UPDATE.at(
                span, name=item.name, update=item.update, states=counted, wanted=wanted if places else "none"
            )


def _find_sizes(states: Sequence[KeptState], limits: Limits, span: Span) -> Iterator[Diagnostic]:
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
            sentence = f"state '{item.name}' is {describe(tensor)}: {problem}"
            yield graphs.NOTES_MALFORMED.at(span, problem=sentence)
            return


def tensor_bytes(state: KeptState) -> int:
    """The bytes of a state in memory."""
    size = int(numpy_dtype(state.element).itemsize)
    for extent in state.shape:
        size *= extent
    return size


def _find_undescribed(file: File, states: Sequence[KeptState]) -> Iterator[Diagnostic]:
    known = {item.id for item in states}
    shown = ", ".join(map(str, sorted(known)[:MOST_NAMES])) or "none"
    for index, item in enumerate(file.instructions):
        if is_state(item) and state_id(item) not in known:
            yield rules.STATE_UNDESCRIBED.at(item.span, index=index, id=state_id(item), known=shown)


def find_misfit(
    state: KeptState, element: ElementType, shape: Sequence[int], span: Span
) -> Diagnostic | None:
    """Why numbers of a type cannot be the first of a state; real ones may be stored in fewer bits."""
    alike = element == state.element or (element.is_float and state.element.is_float)
    if alike and tuple(shape) == state.shape:
        return None
    found = f"is {element}[{', '.join(map(str, shape))}]"
    return rules.STATE_INITIAL.at(span, name=state.name, type=state.type, id=state.initial, problem=found)


def check_update(state: KeptState, value: Value, span: Span) -> Diagnostic | None:
    """Whether an output is something that a state can become."""
    if isinstance(value, Tensor) and (value.element, value.shape) == (state.element, state.shape):
        return None
    return rules.STATE_TYPE.at(
        span, name=state.name, type=state.type, update=state.update, found=describe(value)
    )


def begin(state: KeptState, values: Array | None) -> Array:
    """The numbers that a state begins with: zeros where there are none, else in the element type of the state."""
    if values is None:
        return np.zeros(state.shape, numpy_dtype(state.element))
    return values if element_type_of(values.dtype) == state.element else cast(values, state.element)


class LazyData(Mapping[str, "Array"]):
    """Weights by the names of their variables, read and dequantised each time they are asked for."""

    def __init__(
        self,
        tensors: Mapping[str, StoredTensor | None],
        source: LoadSource,
        states: Mapping[str, KeptState],
        elements: Mapping[str, ElementType],
    ) -> None:
        self._tensors = tensors
        self._method = source.file.header.method
        self._mapped = None if source.weights is None else source.weights.mapped
        self._states = states
        self._elements = elements

    def __getitem__(self, name: str) -> Array:
        tensor = self._tensors[name]
        if self._mapped is not None:
            self._mapped.check_whole()
        values = None if tensor is None else read_weight(tensor, self._method)
        if values is not None and name in self._elements:
            values = _as(values, self._elements[name])
        return begin(self._states[name], values) if values is None or name in self._states else values

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _as(values: Array, element: ElementType) -> Array:
    """Numbers in the type of their variable, which may be narrower than the one they are read in."""
    return values if element_type_of(values.dtype) == element else cast(values, element)


def element_read(tensor: StoredTensor, method: Method) -> ElementType:
    """The element type that a tensor has when it is read."""
    element = DTYPES[tensor.dtype][1]
    if not isinstance(tensor.quantization, Unscaled):
        return F32
    halved = Method.FP16 in (tensor.quantization.method, method) and element.name == "f16"
    return F32 if halved else element


@dataclass(frozen=True, slots=True)
class LoadSource:
    """Where inputs and weights come from."""

    file: File
    tables: SymbolTables
    notes: Notes
    weights: StoredWeights | None
    inputs: Mapping[str, InputType]
    limits: Limits
    numbers: bool = True
    """Whether the numbers of constants may be read."""
    partial: bool = False
    """Whether what nothing describes is left untyped, so that the rest is looked at all the same."""

    def describe(self, name: str) -> InputType | None:
        """What an input is: what is given is stronger than what the file says."""
        return self.inputs.get(name) or self.notes.inputs.get(name)


@dataclass(slots=True)
class Loads:
    """What the loads of a program give, by their instructions and by the ids of parameters."""

    inputs: dict[int, Value] = field(default_factory=dict)
    parameters: dict[int, Value] = field(default_factory=dict)
    states: dict[int, Variable] = field(default_factory=dict)
    """By their ids the variables that are states."""
    data: Mapping[str, Array] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)


def make_loads(builder: UndoBuilder, source: LoadSource) -> Loads:
    """Declare inputs in the order of instructions, then variables, then constants in the order of parameters."""
    return _LoadMaker(builder, source).make()


class _LoadMaker:
    """Declares what a program takes in."""

    def __init__(self, builder: UndoBuilder, source: LoadSource) -> None:
        self._builder = builder
        self._source = source
        self._found = Loads()
        self._own = {item.parameter: item for item in reversed(source.file.tensors)}

    def make(self) -> Loads:
        """Inputs, variables, constants."""
        self._make_inputs()
        tensors: dict[str, StoredTensor | None] = {}
        elements: dict[str, ElementType] = {}
        constants: list[tuple[int, StoredTensor]] = []
        initial = self._initial()
        for item in self._source.file.parameters:
            tensor = self._tensor(item.id, item.name)
            if tensor is None or item.id in self._found.parameters or item.id in initial:
                continue
            if item.name in self._source.notes.constants and self._is_short(tensor):
                constants.append((item.id, tensor))
                continue
            element = self._element(item.name, tensor)
            variable = self._builder.variable(
                item.name or f"parameter_{item.id}", element, original_shape(tensor)
            )
            self._found.parameters[item.id] = variable
            tensors[variable.name] = tensor
            elements[variable.name] = element
        states = dict(self._make_states(tensors))
        elements |= {name: state.element for name, state in states.items()}
        for id_, tensor in constants:
            self._make_constant(id_, tensor)
        self._found.data = LazyData(tensors, self._source, states, elements)
        return self._found

    def _element(self, name: str, tensor: StoredTensor) -> ElementType:
        """What a parameter is once it is read; a quantised one may have been of another type than float32."""
        read = element_read(tensor, self._source.file.header.method)
        return self._source.notes.elements.get(name, read) if read == F32 else read

    # --- states ---------------------------------------------------------------------------------------------

    def _initial(self) -> set[int]:
        """The parameters that are nothing but the beginning of a state."""
        loads = (item for item in self._source.file.instructions if is_parameter(item))
        loaded = {number for item in loads for number in item.constants}
        states = self._source.notes.states or []
        return {item.initial for item in states if item.initial is not None} - loaded

    def _make_states(self, tensors: dict[str, StoredTensor | None]) -> Iterator[tuple[str, KeptState]]:
        """Declare the states, each with the tensor that it begins with."""
        for state in self._source.notes.states or []:
            found = self._begins(state)
            if isinstance(found, Diagnostic):
                self._found.findings.append(found)
                found = None
            variable = self._builder.variable(state.name, state.element, state.shape)
            self._found.states.setdefault(state.id, variable)
            tensors[variable.name] = found
            yield variable.name, state

    def _begins(self, state: KeptState) -> StoredTensor | Diagnostic | None:
        """The tensor that a state begins with, none for zeros."""
        if state.initial is None:
            return None
        span, parameter = self._source.notes.span, self._source.tables.parameters.get(state.initial)
        tensor = None if parameter is None else self._tensor(parameter.id, parameter.name)
        if tensor is None:
            problem = "does not exist" if parameter is None else "has no numbers"
            return STATE_INITIAL.at(span, name=state.name, type=state.type, id=state.initial, problem=problem)
        element = self._element(parameter.name if parameter else "", tensor)
        return find_misfit(state, element, original_shape(tensor), span) or tensor

    # --- parameters and inputs ------------------------------------------------------------------------------

    def _tensor(self, id_: int, name: str) -> StoredTensor | None:
        weights = self._source.weights
        found = None if weights is None else weights.tensors.get(name)
        return found or self._own.get(id_)

    def _is_short(self, tensor: StoredTensor) -> bool:
        return self._source.numbers and element_count(original_shape(tensor)) <= self._source.limits.max_pack

    def _make_constant(self, id_: int, tensor: StoredTensor) -> None:
        try:
            values = read_weight(tensor, self._source.file.header.method)
        except LamellaError as problem:
            self._found.findings += problem.findings
            self._found.parameters[id_] = FAILED
            return
        element = self._element(self._source.tables.parameters[id_].name, tensor)
        numbers = _numbers(_as(values, element))
        self._found.parameters[id_] = self._builder.constant(numbers, element, values.shape)

    def _make_inputs(self) -> None:
        names = {item.index: item.name for item in reversed(self._source.file.inputs)}
        taken = [index for index, item in enumerate(self._source.file.instructions) if _is_user(item)]
        known: dict[str, None] = {}
        for number, index in enumerate(taken):
            name = names.get(index) or self._unnamed(number, len(taken))
            known[name] = None
            self._found.inputs[index] = self._input(index, name)
        for index, item in enumerate(self._source.file.instructions):
            if item.operation == INPUT and item.variant == LIFTED:
                known |= self._make_lifted(index, item, names.get(index, f"constant_{index}"))
        self._report_unknown_inputs(list(known))

    def _unnamed(self, number: int, count: int) -> str:
        """The name of an input that DATA does not name."""
        noted = list(self._source.notes.inputs)
        if len(noted) == count:
            return noted[number]
        return "input" if count == 1 else f"input_{number}"

    def _input(self, index: int, name: str) -> Value:
        found = self._source.describe(name)
        if found is None and self._source.partial:
            return UNTYPED
        if found is None:
            span = self._source.file.instructions[index].span
            self._found.findings.append(graphs.INPUT_TYPE_MISSING.at(span, name=name))
            return FAILED
        return self._builder.input(name, found.element, found.shape)

    def _make_lifted(self, index: int, item: Instruction, name: str) -> dict[str, None]:
        """A lifted constant is an input where something describes it, else its value from the table."""
        constant = self._source.tables.constants.get(item.constants[0]) if item.constants else None
        value = None if constant is None else constant.value
        if self._source.describe(name) is None and value is not None and not isinstance(value, str):
            self._found.inputs[index] = value
            return {}
        self._found.inputs[index] = self._input(index, name)
        return {name: None}

    def _report_unknown_inputs(self, known: list[str]) -> None:
        shown = ", ".join(known[:16]) or "none"
        taken = set(known)
        for name in dict.fromkeys((*self._source.inputs, *self._source.notes.inputs)):
            if name not in taken:
                span = self._source.file.header.span
                self._found.findings.append(graphs.INPUT_UNKNOWN.at(span, name=name, known=shown))


def _is_user(item: Instruction) -> bool:
    return item.operation == INPUT and item.variant == USER


def is_parameter(item: Instruction) -> bool:
    """Whether an instruction loads a parameter."""
    return item.operation == INPUT and item.variant == PARAMETER


def _numbers(values: Array) -> Single | tuple[Single, ...]:
    """The numbers of a constant; one where all elements have the same bits."""
    image = to_memory(values).reshape(values.size, -1) if values.size else np.empty((0, 0), np.uint8)
    flat = values.reshape(-1)
    # NumPy has no Python number for the narrow floating types that it does not know itself.
    numbers: list[Single] = (flat.astype(np.float32) if flat.dtype.kind == "V" else flat).tolist()
    return numbers[0] if values.size and bool((image == image[0]).all()) else tuple(numbers)
