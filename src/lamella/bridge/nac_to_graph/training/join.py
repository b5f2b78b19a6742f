"""A program and its training graph as one program: a step of training, whose states are the parameters it changes.

Everything is computed with the parameters as they were before; all of them change at once when the step is over. The
instructions of the training graph keep their order behind those of the program. Where the graph takes no result of the
program it computes all that it needs itself, and of the program only the inputs are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import F32
from lamella.base.errors import InputError
from lamella.bridge.nac_to_graph.nodes import InputType, State
from lamella.bridge.nac_to_graph.notes import Notes, read_notes
from lamella.bridge.nac_to_graph.outputs import output_names
from lamella.bridge.nac_to_graph.training.nodes import Backward, Change, Step, Trained
from lamella.bridge.nac_to_graph.training.parameters import parameter_types
from lamella.bridge.nac_to_graph.training.tables import MergedTables, fresh_name
from lamella.bridge.nac_to_graph.weights import Weights
from lamella.lang.nac.check.instructions import is_user_input
from lamella.lang.nac.check.training import GRAPH, NOTES, final_offsets, is_target
from lamella.lang.nac.nodes import INPUT, OUTPUT, ConstantType, File, Input, Instruction
from lamella.lang.nac.notes import find_notes, with_notes
from lamella.lang.nac.operations import FINAL, LIFTED, PARAMETER, SAVED, STATE, SUBGRAPH
from lamella.lang.nac.rules import sections as rules

# --- what a step of training notes of itself: its inputs, its outputs, and the states that its --------------


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


RATE, TARGET, OTHER = "lr", "target_{}", "training_{}"
"""Names of the inputs that a training graph has beside those of its program."""


def join_training(backward: Backward, weights: Weights, rate: float | None = None) -> Step:
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


def _find_untrainable(backward: Backward, notes: Notes, weights: Weights) -> Iterator[Diagnostic]:
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

    def __init__(self, backward: Backward, notes: Notes, weights: Weights) -> None:
        self._backward, self._notes = backward, notes
        self._file = backward.file
        self._tables = MergedTables(backward.file)
        self._end, self._results = final_offsets(backward.file)
        self._whole = any(map(self._takes_result, backward.instructions))
        own = [index for index in range(self._end) if self._whole or self._is_input(index)]
        self._places = {old: new for new, old in enumerate(own)}
        self._code: list[Instruction] = []
        self._told = Told(self._whole)
        self._names: set[str] = set()
        self._sources = {change.source for change in backward.changes}
        self._states = self._make_states(weights)

    def _takes_result(self, item: Instruction) -> bool:
        """Whether an instruction takes something of the program that is no input of it."""
        kind = (item.operation, item.variant)
        return kind == (INPUT, STATE) or (kind == (INPUT, SAVED) and not self._is_input(item.constants[0]))

    def _is_input(self, index: int) -> bool:
        return is_user_input(self._file.instructions[index])

    def _make_states(self, weights: Weights) -> dict[int, State]:
        """By the ids of parameters the states that they are in a step."""
        types = parameter_types(self._file, self._notes, weights)
        names = {item.id: item.name for item in reversed(self._file.parameters)}
        first = max((item.id + 1 for item in self._notes.states or ()), default=0)
        found = {}
        for number, change in enumerate(self._backward.changes, first):
            type_ = types[names[change.parameter]]
            shape = tuple(extent for extent in type_.shape if isinstance(extent, int))
            found[change.parameter] = State(
                number, names[change.parameter], type_.element, shape, change.parameter, 0
            )
        return found

    def join(self, rate: float | None) -> Step:
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
        file, loss = describe_step(made, self._notes, self._backward, self._told, states, first)
        return Step(file, tuple(trained), self._target_names(), loss, first)

    def _target_names(self) -> tuple[str, ...]:
        found = self._told.targets
        return tuple(self._told.inputs[found[number]] for number in sorted(found))

    # --- what is taken in -----------------------------------------------------------------------------------

    def _name_inputs(self) -> None:
        """The inputs of the program keep their names; those that have none are numbered."""
        names = {item.index: item.name for item in reversed(self._file.inputs)}
        taken = [old for old in self._places if self._is_input(old)]
        for number, old in enumerate(taken):
            usual = "input" if len(taken) == 1 else f"input_{number}"
            self._told.inputs[self._places[old]] = names.get(old, usual)
        self._names = set(self._told.inputs.values())

    def _as_state(self, item: Instruction) -> Instruction:
        """A load; parameters that are trained are states."""
        if (item.operation, item.variant) != (INPUT, PARAMETER) or item.constants[0] not in self._states:
            return item
        return replace(item, variant=STATE, constants=(self._states[item.constants[0]].id,))

    def _take(self, name: str, item: Instruction, type_: InputType | None) -> Instruction:
        """A new input."""
        found = fresh_name(name, self._names)
        self._names.add(found)
        self._told.inputs[len(self._code)] = found
        if type_ is not None:
            self._told.types[found] = type_
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
        if number in self._told.targets:
            return self._pass(self._told.targets[number], item)
        self._told.targets[number] = len(self._code)
        return self._take(TARGET.format(number), item, self._backward.targets.get(number))

    def _call(
        self, name: str, codes: str, places: tuple[int, ...], item: Instruction, *constants: int
    ) -> Instruction:
        """A call on the results of instructions, with constants behind them."""
        offsets = (*(place - len(self._code) for place in places), *(0 for _ in constants))
        operation, signature = self._tables.operation(name), self._tables.signature(codes)
        return Instruction(operation, signature, constants, offsets, item.span)

    # --- new values -----------------------------------------------------------------------------------------

    def _train(self, change: Change, first: int, rate: float | None) -> Trained:
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
        return Trained(state.name, state.type, gradient, source, old, len(self._code) - 1, change)

    def _finish(self, first: int, renewed: list[int]) -> None:
        """End the program: what callers get, then the new values of states."""
        loss = self._backward.loss
        ends = [self._places[self._end + offset] for offset in self._results] if self._whole else []
        kept = len(self._notes.states or ()) if self._whole else 0
        callers, states = ends[: len(ends) - kept], ends[len(ends) - kept :]
        if loss is not None and not self._is_number(loss):
            self._told.has_loss = True
            callers = [*callers, first + loss]
        self._told.callers = len(callers)
        self._told.moved = len(callers) - (len(self._results) - kept)
        here = len(self._code)
        offsets = tuple(place - here for place in (*callers, *states, *renewed))
        self._code.append(Instruction(OUTPUT, FINAL, (), offsets, self._file.instructions[self._end].span))

    def _is_number(self, place: int) -> bool:
        item = self._backward.instructions[place]
        return (item.operation, item.variant) == (INPUT, LIFTED)
