"""What a program takes in: inputs, parameters and states as variables, and their numbers when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from lamella.base.arrays import Array, cast, element_type_of, to_memory
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import F32, ElementType
from lamella.base.limits import Limits
from lamella.base.shape import element_count
from lamella.bridge.nac_to_graph.nodes import FAILED, UNTYPED, InputType, State, Value
from lamella.bridge.nac_to_graph.notes import Notes
from lamella.bridge.nac_to_graph.recorder import Recorder
from lamella.bridge.nac_to_graph.states import begin, find_misfit
from lamella.bridge.nac_to_graph.weights import Weights, original_shape, read_weight
from lamella.graph.nodes import Single
from lamella.graph.nodes import Tensor as Variable
from lamella.lang.nac.check.data import DTYPES
from lamella.lang.nac.check.tables import SymbolTables
from lamella.lang.nac.nodes import INPUT, File, Instruction, Method, Tensor, Unscaled
from lamella.lang.nac.operations import LIFTED, PARAMETER, USER
from lamella.lang.nac.rules import graphs as rules
from lamella.lang.nac.rules.instructions import STATE_INITIAL


class LazyData(Mapping[str, "Array"]):
    """Weights by the names of their variables, read and dequantised each time they are asked for."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor | None],
        source: Source,
        states: Mapping[str, State],
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


def element_read(tensor: Tensor, method: Method) -> ElementType:
    """The element type that a tensor has when it is read."""
    element = DTYPES[tensor.dtype][1]
    if not isinstance(tensor.quantization, Unscaled):
        return F32
    halved = Method.FP16 in (tensor.quantization.method, method) and element.name == "f16"
    return F32 if halved else element


@dataclass(frozen=True, slots=True)
class Source:
    """Where inputs and weights come from."""

    file: File
    tables: SymbolTables
    notes: Notes
    weights: Weights | None
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


def make_loads(builder: Recorder, source: Source) -> Loads:
    """Declare inputs in the order of instructions, then variables, then constants in the order of parameters."""
    return _Maker(builder, source).make()


class _Maker:
    """Declares what a program takes in."""

    def __init__(self, builder: Recorder, source: Source) -> None:
        self._builder = builder
        self._source = source
        self._found = Loads()
        self._own = {item.parameter: item for item in reversed(source.file.tensors)}

    def make(self) -> Loads:
        """Inputs, variables, constants."""
        self._make_inputs()
        tensors: dict[str, Tensor | None] = {}
        elements: dict[str, ElementType] = {}
        constants: list[tuple[int, Tensor]] = []
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

    def _element(self, name: str, tensor: Tensor) -> ElementType:
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

    def _make_states(self, tensors: dict[str, Tensor | None]) -> Iterator[tuple[str, State]]:
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

    def _begins(self, state: State) -> Tensor | Diagnostic | None:
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

    def _tensor(self, id_: int, name: str) -> Tensor | None:
        weights = self._source.weights
        found = None if weights is None else weights.tensors.get(name)
        return found or self._own.get(id_)

    def _is_short(self, tensor: Tensor) -> bool:
        return self._source.numbers and element_count(original_shape(tensor)) <= self._source.limits.max_pack

    def _make_constant(self, id_: int, tensor: Tensor) -> None:
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
        self._tell_strangers(list(known))

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
            self._found.findings.append(rules.INPUT_TYPE_MISSING.at(span, name=name))
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

    def _tell_strangers(self, known: list[str]) -> None:
        shown = ", ".join(known[:16]) or "none"
        taken = set(known)
        for name in dict.fromkeys((*self._source.inputs, *self._source.notes.inputs)):
            if name not in taken:
                span = self._source.file.header.span
                self._found.findings.append(rules.INPUT_UNKNOWN.at(span, name=name, known=shown))


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
