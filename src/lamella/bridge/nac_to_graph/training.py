"""Training graphs of files: found, joined with their programs to one step, and lowered to graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Generic, TypeVar, cast

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import F32
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Span
from lamella.bridge.nac_to_graph.builder import output_names as graph_output_names
from lamella.bridge.nac_to_graph.loads import element_read
from lamella.bridge.nac_to_graph.nodes import InputType, KeptState, Translation, describe
from lamella.bridge.nac_to_graph.notes import Notes, read_notes
from lamella.bridge.nac_to_graph.translate import nac_to_graph
from lamella.bridge.nac_to_graph.weights import StoredWeights, original_shape, own_weights
from lamella.graph.nodes import Tensor as GraphTensor
from lamella.lang.nac.check import check
from lamella.lang.nac.check.tables import read_tables
from lamella.lang.nac.check.training import (
    GRAPH,
    NOTES,
    TrainingEntry,
    final_offsets,
    has_entry,
    is_end,
    is_target,
    is_update,
    output_names,
    rate_constant,
    read_entry,
)
from lamella.lang.nac.nodes import (
    FIRST_REGULAR,
    INPUT,
    OUTPUT,
    Constant,
    ConstantType,
    ConstantValue,
    File,
    Input,
    Instruction,
    Operation,
    Parameter,
    Signature,
    Tensor,
)
from lamella.lang.nac.notes import find_notes, with_notes
from lamella.lang.nac.operations import (
    FINAL,
    LIFTED,
    PARAMETER,
    SAVED,
    STATE,
    SUBGRAPH,
    TARGET,
    is_user_input,
)
from lamella.lang.nac.rules import sections as rules

# --- training graphs and steps ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParameterChange:
    """A parameter that a step changes, by places in the training graph: its gradient, times a rate."""

    parameter: int
    gradient: int
    span: Span
    rate: float | None = None
    """The learning rate, where it is a constant."""
    source: int | None = None
    """The instruction that gives the learning rate, where one does."""


@dataclass(frozen=True, slots=True)
class BackwardProgram:
    """The instructions of a training graph, in the ids of `file`; their inputs are of the variants of TRNG."""

    file: File
    instructions: tuple[Instruction, ...]
    changes: tuple[ParameterChange, ...]
    loss: int | None
    """The instruction whose result the graph ends with."""
    targets: Mapping[int, InputType] = field(default_factory=dict)
    """By their numbers what targets are, where somebody says it."""
    notes: Notes = field(default_factory=Notes)
    """What is noted of these instructions: ranges of extents, origins, results of branches, names of constants."""


@dataclass(frozen=True, slots=True)
class TrainedParameter:
    """A parameter that a step changes, with its type in words.

    The others are instructions of the step: the gradient, the rate where it is computed, the old value and the new.
    """

    name: str
    type: str
    gradient: int
    rate: int | None
    old: int
    new: int
    change: ParameterChange


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A step of training as a program: parameters are states, and their new values are what the step makes of them."""

    file: File
    trained: tuple[TrainedParameter, ...]
    targets: tuple[str, ...]
    """The inputs of the program that are targets, by their numbers."""
    loss: str
    """The output that is the loss; empty where the graph does not end with one."""
    first: int
    """Where the training graph begins in the program."""


# --- what the parameters of a file are once they are read ---------------------------------------------------


def parameter_types(file: File, notes: Notes, weights: StoredWeights) -> dict[str, InputType]:
    """By their names the element types and shapes of the parameters that have weights, in the file or beside it."""
    own = {item.parameter: item for item in reversed(file.tensors)}
    found: dict[str, InputType] = {}
    for item in file.parameters:
        tensor = weights.tensors.get(item.name) or own.get(item.id)
        if tensor is None or item.name in found:
            continue
        read = element_read(tensor, file.header.method)
        element = notes.elements.get(item.name, read) if read == F32 else read
        found[item.name] = InputType(element, original_shape(tensor))
    return found


# --- the tables of a file while instructions of another one are put into its ids ----------------------------


K = TypeVar("K")


class _Ids(Generic[K]):
    """Ids by what they stand for; what has none gets the next free one."""

    def __init__(self, known: Mapping[K, int], taken: Iterable[int], first: int = 1) -> None:
        self._known = dict(known)
        self._taken = set(taken)
        self._free = count(first)
        self.new: list[tuple[int, K]] = []

    def take(self, key: K) -> int:
        """The id of something."""
        if key not in self._known:
            number = next(item for item in self._free if item not in self._taken)
            self._known[key] = number
            self.new.append((number, key))
        return self._known[key]


class MergedTables:
    """The ids of a file, with new ones for what it has no id for yet."""

    def __init__(self, file: File) -> None:
        self._file = file
        known = read_tables(file)
        numbers = sorted({*known.standard, *known.operations}, reverse=True)
        names = {known.name_of(number) or "": number for number in numbers}
        codes = {item.codes: item.id for item in reversed(file.signatures) if item.id}
        values = {_key(item.type, item.value): item.id for item in reversed(file.constants)}
        self._operations = _Ids(names, numbers, FIRST_REGULAR)
        self._signatures = _Ids(codes, known.signatures)
        self._constants = _Ids(values, known.constants)
        self._values: dict[tuple[ConstantType, str], ConstantValue] = {}
        self._parameters = _Ids({item.name: item.id for item in file.parameters}, known.parameters)
        self._names = {item.name for item in file.parameters}
        self._tensors: list[Tensor] = []

    def operation(self, name: str) -> int:
        """The id of an operation."""
        return self._operations.take(name)

    def signature(self, codes: str) -> int:
        """The id of a signature."""
        return self._signatures.take(codes)

    def constant(self, type_: ConstantType, value: ConstantValue) -> int:
        """The id of a constant."""
        key = _key(type_, value)
        self._values[key] = value
        return self._constants.take(key)

    def parameter(self, name: str, tensor: Tensor) -> Parameter:
        """A new parameter, under a name that nothing has."""
        found = fresh_name(name, self._names)
        self._names.add(found)
        number = self._parameters.take(found)
        self._tensors.append(replace(tensor, parameter=number))
        return Parameter(number, found)

    def file(self) -> File:
        """The file with all that is new."""
        file = self._file
        constants = (Constant(number, key[0], self._values[key]) for number, key in self._constants.new)
        return replace(
            file,
            operations=(*file.operations, *(Operation(*item) for item in self._operations.new)),
            signatures=(*file.signatures, *(Signature(*item) for item in self._signatures.new)),
            constants=(*file.constants, *constants),
            parameters=(*file.parameters, *(Parameter(*item) for item in self._parameters.new)),
            tensors=(*file.tensors, *self._tensors),
        )


def _key(type_: ConstantType, value: ConstantValue) -> tuple[ConstantType, str]:
    """What equal constants share: numbers that are written alike are equal to the bit."""
    return type_, repr(value)


def fresh_name(stem: str, taken: Collection[str]) -> str:
    """A name like this one that nothing has."""
    names = (stem if number == 0 else f"{stem}_{number}" for number in count())
    return next(name for name in names if name not in taken)


class IdTranslation:
    """Puts the instructions of one file into the ids of another."""

    def __init__(self, source: File, tables: MergedTables) -> None:
        self._known = read_tables(source)
        self._tables = tables
        stored = {item.parameter: item for item in reversed(source.tensors)}
        self.parameters = {
            item.id: tables.parameter(item.name, stored[item.id])
            for item in source.parameters
            if item.id in stored
        }
        """What the parameters of the one file are in the other."""

    def restate(self, item: Instruction) -> Instruction:
        """An instruction in the new ids; blocks and outputs have none."""
        if item.operation >= FIRST_REGULAR:
            signature = self._known.signatures.get(item.variant) if item.variant else None
            return replace(
                item,
                operation=self._tables.operation(self._known.name_of(item.operation) or ""),
                variant=0 if signature is None else self._tables.signature(signature.codes),
                constants=tuple(map(self._constant, item.constants)),
            )
        if (item.operation, item.variant) == (INPUT, PARAMETER):
            return replace(item, constants=(self.parameters[item.constants[0]].id,))
        if (item.operation, item.variant) == (INPUT, LIFTED):
            return replace(item, constants=tuple(map(self._constant, item.constants)))
        return item

    def _constant(self, number: int) -> int:
        found = self._known.constants[number]
        return self._tables.constant(found.type, found.value)


# --- finding the training graph: from its section TRNG, or from the resources of version 1.6 ----------------


# --- the training graph of the resources `training.json` and `training.nac`, in the ids of the file ---------


def entry_to_backward(file: File, entry: TrainingEntry) -> BackwardProgram:
    """The training graph of checked resources."""
    graph, tables = entry.graph, MergedTables(file)
    restating, loads = IdTranslation(graph, tables), _loads(file, entry)
    end, offsets = final_offsets(graph)
    code = [
        loads[index] if is_user_input(item) else restating.restate(item)
        for index, item in enumerate(graph.instructions[:end])
    ]
    outputs = {name: end + offset for name, offset in zip(output_names(graph), offsets, strict=True)}
    ids = {item.name: item.id for item in reversed(file.parameters)}
    changes = [
        ParameterChange(ids[name], outputs[output], entry.span, entry.rate)
        for name, output in entry.gradients.items()
    ]
    notes = read_notes(graph)
    moved = {item.name: restating.parameters[item.id].name for item in graph.parameters}
    notes = replace(notes, constants={moved[name] for name in notes.constants if name in moved})
    known = {number: notes.inputs[name] for number, name in enumerate(entry.targets) if name in notes.inputs}
    return BackwardProgram(tables.file(), tuple(code), tuple(changes), outputs[entry.loss], known, notes)


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


def find_misfits(file: File, entry: TrainingEntry, weights: StoredWeights) -> Iterator[Diagnostic]:
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
            wanted_type = _words(expected)
            yield rules.ENTRY_TYPE.at(entry.span, name=name, what=what, found=wanted_type, type=_words(found))


def _words(item: InputType) -> str:
    return describe(GraphTensor("", item.element, item.shape))


def has_training(file: File) -> bool:
    """Whether a file says how it is trained."""
    return bool(file.training) or has_entry(file)


def find_backward(file: File, weights: StoredWeights) -> BackwardProgram:
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
    """What is reported of a file that cannot be trained."""
    hint = "lamella.from_torch(module, args, loss=…, targets=…) makes one"
    return InputError("the file has no training graph", hint=hint)


def _of_section(file: File) -> BackwardProgram:
    tables, code = read_tables(file), file.training
    changes = []
    for index, item in enumerate(code):
        if is_update(item):
            constant = rate_constant(file, index, tables)
            gradient, source = (index + offset for offset in item.offsets)
            number = None if constant is None else float(cast("float", constant.value))
            changes.append(ParameterChange(item.constants[0], gradient, item.span, number, source))
    ends = (index + item.offsets[0] for index, item in enumerate(code) if is_end(item) and item.offsets)
    return BackwardProgram(file, code, tuple(changes), next(ends, None))


# --- joining a program and its training graph to one step, whose states are the parameters it changes -------
#
# Everything is computed with the parameters as they were before; all of them change at once when the step is
# over. The instructions of the training graph keep their order behind those of the program. Where the graph takes
# no result of the program it computes all that it needs itself, and of the program only the inputs are there.


# --- the notes of a step: inputs, outputs, states -----------------------------------------------------------


LOSS = "loss"


@dataclass(slots=True)
class StepDescription:
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
    file: File,
    notes: Notes,
    backward: BackwardProgram,
    step: StepDescription,
    states: Sequence[KeptState],
    first: int,
) -> tuple[File, str]:
    """The whole file of a step from its code and tables, and the name of the loss; `first` is where training begins."""
    named = step.callers - step.has_loss
    outputs = graph_output_names(notes.outputs if step.whole else [], named)
    loss = fresh_name(LOSS, outputs) if step.has_loss else ""
    kept = (notes.states or []) if step.whole else []
    renewed = [replace(state, update=state.update + step.moved) for state in kept]
    behind = step.callers + len(kept)
    renewed += [replace(state, update=behind + number) for number, state in enumerate(states)]
    content = {
        **(find_notes(file) or {}),
        "inputs": list(_described({**_known(notes, step), **step.types})),
        "outputs": [{"name": name} for name in (*outputs, *([loss] if loss else []))],
        "states": [_state_to_json(state) for state in renewed],
        "extents": {**notes.ranges, **backward.notes.ranges},
        "constants": dict.fromkeys((*notes.constants, *backward.notes.constants), ()),
        "origins": _moved(notes.origins, backward.notes.origins, step.whole, first),
        "branches": _moved(notes.branches, backward.notes.branches, step.whole, first),
    }
    inputs = tuple(Input(index, name) for index, name in sorted(step.inputs.items()))
    header = replace(file.header, inputs=len(inputs), outputs=step.callers + len(renewed))
    resources = tuple(item for item in file.resources if item.name not in (NOTES, GRAPH))
    bare = replace(file, header=header, inputs=inputs, resources=resources, schedule=(), training=())
    return with_notes(bare, content), loss


def _known(notes: Notes, step: StepDescription) -> dict[str, InputType]:
    """What the file says of the inputs that a step has; a program that is run may describe constants too."""
    names = set(step.inputs.values())
    return {name: item for name, item in notes.inputs.items() if step.whole or name in names}


def _described(types: Mapping[str, InputType]) -> Iterator[dict[str, object]]:
    for name, item in types.items():
        shape = [extent if isinstance(extent, int) else str(extent) for extent in item.shape]
        yield {"name": name, "dtype": item.element.name, "shape": shape}


def _state_to_json(state: KeptState) -> dict[str, object]:
    facts = {"id": state.id, "name": state.name, "dtype": state.element.name, "shape": list(state.shape)}
    return {**facts, "initial": state.initial, "update": state.update}


def _moved(
    own: Mapping[int, str | int], behind: Mapping[int, str | int], whole: bool, first: int
) -> dict[str, object]:
    """What is noted of instructions by their places in the step."""
    found = {**(own if whole else {}), **{first + index: value for index, value in behind.items()}}
    return {str(index): value for index, value in found.items()}


RATE, TARGET_NAME, OTHER = "lr", "target_{}", "training_{}"
"""Names of the inputs that a training graph has beside those of its program."""


def join_training(
    backward: BackwardProgram, weights: StoredWeights, rate: float | None = None
) -> TrainingStep:
    """The step that a training graph makes of its program; a rate that is given is stronger than those of the graph.

    LamellaError tells which parameters cannot be trained, InputError that nothing says the learning rate.
    """
    notes = read_notes(backward.file)
    findings = [*notes.findings, *_find_untrainable(backward, notes, weights)]
    if findings:
        raise LamellaError(findings)
    if rate is None and any(item.rate is None and item.source is None for item in backward.changes):
        raise InputError("the training graph has no learning rate of its own", hint="give one: --lr 0.01")
    return _Joiner(backward, notes, weights).join(rate)


def _find_untrainable(
    backward: BackwardProgram, notes: Notes, weights: StoredWeights
) -> Iterator[Diagnostic]:
    types = parameter_types(backward.file, notes, weights)
    names = {item.id: item.name for item in reversed(backward.file.parameters)}
    for change in backward.changes:
        name = names[change.parameter]
        found = types.get(name)
        if found is None or not found.element.is_float:
            problem = "it has no weights" if found is None else f"its elements are {found.element}"
            yield rules.TRAINING_PARAMETER.at(change.span, name=name, problem=problem)


class _Joiner:
    """Puts one program together."""

    def __init__(self, backward: BackwardProgram, notes: Notes, weights: StoredWeights) -> None:
        self._backward, self._notes = backward, notes
        self._file = backward.file
        self._tables = MergedTables(backward.file)
        self._end, self._results = final_offsets(backward.file)
        self._whole = any(map(self._takes_result, backward.instructions))
        own = [index for index in range(self._end) if self._whole or self._is_input(index)]
        self._places = {old: new for new, old in enumerate(own)}
        self._code: list[Instruction] = []
        self._step = StepDescription(self._whole)
        self._names: set[str] = set()
        self._sources = {change.source for change in backward.changes}
        self._states = self._make_states(weights)

    def _takes_result(self, item: Instruction) -> bool:
        """Whether an instruction takes something of the program that is no input of it."""
        kind = (item.operation, item.variant)
        return kind == (INPUT, STATE) or (kind == (INPUT, SAVED) and not self._is_input(item.constants[0]))

    def _is_input(self, index: int) -> bool:
        return is_user_input(self._file.instructions[index])

    def _make_states(self, weights: StoredWeights) -> dict[int, KeptState]:
        """By the ids of parameters the states that they are in a step."""
        types = parameter_types(self._file, self._notes, weights)
        names = {item.id: item.name for item in reversed(self._file.parameters)}
        first = max((item.id + 1 for item in self._notes.states or ()), default=0)
        found = {}
        for number, change in enumerate(self._backward.changes, first):
            type_ = types[names[change.parameter]]
            shape = tuple(extent for extent in type_.shape if isinstance(extent, int))
            found[change.parameter] = KeptState(
                number, names[change.parameter], type_.element, shape, change.parameter, 0
            )
        return found

    def join(self, rate: float | None) -> TrainingStep:
        """The step."""
        for old in self._places:
            self._code.append(self._as_state(self._file.instructions[old]))
        self._name_inputs()
        first = len(self._code)
        for number, item in enumerate(self._backward.instructions):
            self._code.append(self._restate(number, item))
        trained = [self._train(change, first, rate) for change in self._backward.changes]
        self._finish(first, [item.new for item in trained])
        states = list(self._states.values())
        made = replace(self._tables.file(), instructions=tuple(self._code))
        file, loss = describe_step(made, self._notes, self._backward, self._step, states, first)
        return TrainingStep(file, tuple(trained), self._target_names(), loss, first)

    def _target_names(self) -> tuple[str, ...]:
        found = self._step.targets
        return tuple(self._step.inputs[found[number]] for number in sorted(found))

    # --- what is taken in -----------------------------------------------------------------------------------

    def _name_inputs(self) -> None:
        """The inputs of the program keep their names; those that have none are numbered."""
        names = {item.index: item.name for item in reversed(self._file.inputs)}
        taken = [old for old in self._places if self._is_input(old)]
        for number, old in enumerate(taken):
            usual = "input" if len(taken) == 1 else f"input_{number}"
            self._step.inputs[self._places[old]] = names.get(old, usual)
        self._names = set(self._step.inputs.values())

    def _as_state(self, item: Instruction) -> Instruction:
        """A load; parameters that are trained are states."""
        if (item.operation, item.variant) != (INPUT, PARAMETER) or item.constants[0] not in self._states:
            return item
        return replace(item, variant=STATE, constants=(self._states[item.constants[0]].id,))

    def _take(self, name: str, item: Instruction, type_: InputType | None) -> Instruction:
        """A new input."""
        found = fresh_name(name, self._names)
        self._names.add(found)
        self._step.inputs[len(self._code)] = found
        if type_ is not None:
            self._step.types[found] = type_
        return Instruction(INPUT, span=item.span)

    # --- the training graph ---------------------------------------------------------------------------------

    def _restate(self, number: int, item: Instruction) -> Instruction:
        """An instruction of the training graph in the step; its place behind the others stays."""
        if (item.operation, item.variant) == (INPUT, SAVED):
            return self._pass(self._places[item.constants[0]], item)
        if is_target(item):
            return self._target(item.constants[0], item)
        if is_user_input(item):
            if number not in self._sources:
                return self._take(OTHER.format(number), item, None)
            name = RATE if RATE not in self._names else f"{RATE}_{number}"
            return self._take(name, item, InputType(F32, ()))
        if item.operation == OUTPUT and item.variant != SUBGRAPH:
            return self._pass(len(self._code) + item.offsets[0], item)
        return self._as_state(item)

    def _pass(self, place: int, item: Instruction) -> Instruction:
        """The result of another instruction again."""
        return self._call("nac.pass", "T", (place,), item)

    def _target(self, number: int, item: Instruction) -> Instruction:
        if number in self._step.targets:
            return self._pass(self._step.targets[number], item)
        self._step.targets[number] = len(self._code)
        return self._take(TARGET_NAME.format(number), item, self._backward.targets.get(number))

    def _call(
        self, name: str, codes: str, places: tuple[int, ...], item: Instruction, *constants: int
    ) -> Instruction:
        """A call on the results of instructions, with constants behind them."""
        offsets = (*(place - len(self._code) for place in places), *(0 for _ in constants))
        operation, signature = self._tables.operation(name), self._tables.signature(codes)
        return Instruction(operation, signature, constants, offsets, item.span)

    # --- new values -----------------------------------------------------------------------------------------

    def _train(self, change: ParameterChange, first: int, rate: float | None) -> TrainedParameter:
        """Change a parameter."""
        state = self._states[change.parameter]
        gradient = first + change.gradient
        origin = Instruction(INPUT, STATE, (state.id,), (), change.span)
        self._code.append(origin)
        old, number = len(self._code) - 1, change.rate if rate is None else rate
        source = None if number is not None or change.source is None else first + change.source
        if source is not None:
            self._code.append(self._call("aten.mul.Tensor", "TT", (gradient, source), origin))
            self._code.append(self._call("nac.sub", "TT", (old, len(self._code) - 1), origin))
        else:
            constant = self._tables.constant(ConstantType.FLOAT64, number)
            self._code.append(self._call("nac.sub", "TTf", (old, gradient), origin, constant))
        return TrainedParameter(state.name, state.type, gradient, source, old, len(self._code) - 1, change)

    def _finish(self, first: int, renewed: list[int]) -> None:
        """End the program: what callers get, then the new values of states."""
        loss = self._backward.loss
        ends = [self._places[self._end + offset] for offset in self._results] if self._whole else []
        kept = len(self._notes.states or ()) if self._whole else 0
        callers, states = ends[: len(ends) - kept], ends[len(ends) - kept :]
        if loss is not None and not self._is_number(loss):
            self._step.has_loss = True
            callers = [*callers, first + loss]
        self._step.callers = len(callers)
        self._step.moved = len(callers) - (len(self._results) - kept)
        here = len(self._code)
        offsets = tuple(place - here for place in (*callers, *states, *renewed))
        self._code.append(Instruction(OUTPUT, FINAL, (), offsets, self._file.instructions[self._end].span))

    def _is_number(self, place: int) -> bool:
        item = self._backward.instructions[place]
        return (item.operation, item.variant) == (INPUT, LIFTED)


ANY_RATE = 1.0


def step_of(file: File, weights: StoredWeights, rate: float | None = None) -> TrainingStep:
    """The step of training that a checked file describes, with its own learning rate or another one.

    LamellaError tells what is wrong with it, InputError that there is none.
    """
    return join_training(find_backward(file, weights), weights, rate)


def translate_step(
    step: TrainingStep,
    weights: StoredWeights | None = None,
    inputs: Mapping[str, InputType] | None = None,
    limits: Limits = DEFAULT,
) -> Translation:
    """The graph of a step, in which the parameters that change are variables with updates; as `nac_to_graph`.

    Gradients have the types of their parameters, also where arithmetic would take others; rates are single numbers.
    """
    try:
        found = nac_to_graph(step.file, weights, inputs, limits)
    except LamellaError as problem:
        wrong = _find_wrong(step, nac_to_graph(_unchanged(step), weights, inputs, limits))
        raise LamellaError(wrong or problem.findings) from None
    wrong = _find_wrong(step, found)
    if wrong:
        raise LamellaError(wrong)
    return found


def check_training(
    file: File,
    inputs: Mapping[str, InputType] | None = None,
    weights: StoredWeights | None = None,
    limits: Limits = DEFAULT,
) -> list[Diagnostic]:
    """What keeps the training graph of a checked file from being a step, element types and shapes included."""
    found = own_weights(file) if weights is None else weights
    try:
        backward = find_backward(file, found)
        has_rates = all(item.rate is not None or item.source is not None for item in backward.changes)
        step = join_training(backward, found, None if has_rates else ANY_RATE)
        return list(translate_step(step, found, inputs, limits).findings)
    except LamellaError as problem:
        return list(problem.findings)


def _unchanged(step: TrainingStep) -> File:
    """The program of a step that leaves every parameter as it is: what it computes can be seen all the same."""
    code = list(step.file.instructions)
    for item in step.trained:
        for place in range(item.old + 1, item.new + 1):
            code[place] = code[item.old]
    return replace(step.file, instructions=tuple(code))


def _type_of(tensor: GraphTensor) -> str:
    return f"{tensor.element}[{', '.join(map(str, tensor.shape))}]"


def _find_wrong(step: TrainingStep, found: Translation) -> list[Diagnostic]:
    return list(_check_results(step, found))


def _check_results(step: TrainingStep, found: Translation) -> Iterator[Diagnostic]:
    for item in step.trained:
        change, gradient = item.change, found.results[item.gradient]
        if not isinstance(gradient, GraphTensor) or _type_of(gradient) != item.type:
            shown = describe(gradient)
            yield rules.TRAINING_GRADIENT.at(change.span, name=item.name, found=shown, type=item.type)
        rate = None if item.rate is None else found.results[item.rate]
        if item.rate is not None and not (isinstance(rate, GraphTensor) and rate.shape == ()):
            index = item.rate - step.first
            shown = describe(rate)
            yield rules.TRAINING_RATE.at(change.span, index=index, id=change.parameter, found=shown)
