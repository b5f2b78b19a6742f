"""NAC files on their virtual machine: translated for the shapes of each call, run, and kept for the next one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import Drawn, name_inputs, refuse_missing
from lamella.backend.executor.extents import Extents, require_checks
from lamella.backend.executor.findings import findings_at
from lamella.backend.executor.inputs import choose_extent
from lamella.backend.nacvm import NacMachine, NacProgram, ProgramState, compile_program
from lamella.backend.progress import Progress, no_progress
from lamella.base.arrays import Array, element_type_of
from lamella.base.card import Card, join_names, show_html, show_line
from lamella.base.diagnostic import NOTE, Diagnostic, LamellaError
from lamella.base.dim import symbols
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.placement import OperationPlacement, placement_of
from lamella.base.source import NOWHERE
from lamella.base.suggest import list_known
from lamella.bridge.nac_to_graph import InputType, Translation, nac_to_graph
from lamella.bridge.nac_to_graph.builder import output_names
from lamella.bridge.nac_to_graph.convert_weights import with_external, with_internal
from lamella.bridge.nac_to_graph.notes import read_notes
from lamella.bridge.nac_to_graph.training import (
    TrainingStep,
    has_training,
    no_training,
    step_of,
    translate_step,
)
from lamella.bridge.nac_to_graph.weights import StoredWeights, read_weight
from lamella.lang.nac import plan_memory
from lamella.lang.nac.nodes import File
from lamella.lang.nac.operations import user_inputs
from lamella.lang.skriptnd.rules.data import EXTENT_OUT_OF_BOUND
from lamella.pipeline import languages
from lamella.pipeline.backends import Backend
from lamella.pipeline.languages import ENDINGS
from lamella.pipeline.nac.execution import save
from lamella.pipeline.nac.graphs import read_types, refuse_wrong, to_graph, weights_of
from lamella.pipeline.nac.model import Model
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents

Translate = Callable[[File, StoredWeights, Mapping[str, InputType], Limits], Translation]
"""How a file becomes a graph."""
UNTYPED = "of a type that the file does not say"
MOST_MACHINES = 4
"""How many sets of shapes stay prepared."""


def compile_file(model: Model, options: Options, translate: Translate = nac_to_graph) -> Executable:
    """Make a file callable; what can be known before a call is checked at once."""
    return Executable(model, options, translate)


def compile_as_graph(model: Model, backend: Backend, options: Options) -> languages.Executable:
    """Make the graph of a file callable on a backend for graphs; each call describes inputs that nothing else does."""
    if options.training:
        return compile_training(model, backend, options)
    notes = read_notes(model.file, options.limits)
    declared = {**notes.inputs, **read_types(options.types, model.file)}
    if all(item.name in declared for item in user_inputs(model.file)):
        return backend.compile(to_graph(model, options), options)
    refuse_wrong(model, declared, weights_of(model, options), options.limits)
    count = max(model.file.header.outputs - len(notes.states or ()), 0)
    names = tuple(output_names(notes.outputs, count))
    return Specialised(model, names, lambda known: to_graph(model, options, known), backend, options)


class Specialised:
    """Runs the graph of a file whose inputs only the arrays of a call describe; what it prepares stays for the next."""

    def __init__(
        self,
        model: Model,
        outputs: tuple[str, ...],
        to_graph: Callable[[Mapping[str, InputType]], languages.Model],
        backend: Backend,
        options: Options,
    ) -> None:
        self.findings: list[Diagnostic] = [item for item in model.findings if item.severity != NOTE]
        """What the last call found."""
        self.progress: Progress = no_progress
        """Wraps the steps of a call, for a progress bar."""
        self.inputs = tuple(item.name for item in user_inputs(model.file))
        """The names of the inputs, in order."""
        self.outputs = outputs
        """The names of the outputs, in order."""
        self.draws = options.draws
        """Whether inputs that a call does not give are random; where not, they are missing."""
        self.drawn = Drawn()
        """What the last call drew."""
        self.placement: list[OperationPlacement] = []
        """Where the operations of the last call ran."""
        self._to_graph = to_graph
        self._backend, self._options = backend, options
        self._made: dict[tuple[tuple[str, InputType], ...], languages.Executable] = {}

    def __call__(self, /, *arrays: npt.ArrayLike, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once; LamellaError names the inputs that nothing describes."""
        named = name_inputs(self.inputs, arrays, inputs)
        given = {name: np.asarray(value) for name, value in named.items()}
        if not self.draws and given.keys() <= set(self.inputs):
            missing = [name for name in self.inputs if name not in given]
            refuse_missing(dict.fromkeys(missing, UNTYPED))
        types: dict[str, InputType] = {}
        for name in self.inputs:
            element = element_type_of(given[name].dtype) if name in given else None
            if element is not None:
                types[name] = InputType(element, given[name].shape)
        run = self._prepare(types)
        run.progress, run.draws = self.progress, self.draws
        outputs = run(**given)
        self.findings, self.drawn, self.placement = run.findings, run.drawn, placement_of(run)
        return outputs

    def _prepare(self, types: Mapping[str, InputType]) -> languages.Executable:
        key = tuple(sorted(types.items(), key=lambda item: item[0]))
        if key not in self._made:
            while len(self._made) >= MOST_MACHINES:
                del self._made[next(iter(self._made))]
            graph = self._to_graph(types)
            self._made[key] = self._backend.compile(graph, self._options)
        return self._made[key]


class Executable:
    """Runs a file; states stay from call to call."""

    def __init__(self, model: Model, options: Options, translate: Translate = nac_to_graph) -> None:
        self._translate = translate
        self._warnings = [item for item in model.findings if item.severity != NOTE]
        self.findings: list[Diagnostic] = self._warnings
        """What the last call found."""
        self.progress: Progress = no_progress
        """Wraps the instructions of a call, for a progress bar."""
        self.draws = options.draws
        """Whether inputs that a call does not give are random; where not, they are missing."""
        self.drawn = Drawn()
        """What the last call drew."""
        self.machine: NacMachine | None = None
        """The machine of the last call, with what it measured."""
        self._model = model
        self._options = options
        self._weights = weights_of(model, options)
        notes = read_notes(model.file, options.limits)
        self._checks = notes.checks
        self._declared = {**notes.inputs, **read_types(options.types, model.file)}
        _require_extents(self._declared, options)
        count = max(model.file.header.outputs - len(notes.states or ()), 0)
        self._outputs = tuple(output_names(notes.outputs, count))
        self._state: dict[str, Array] = {}
        self._machines: dict[tuple[tuple[str, InputType], ...], NacMachine] = {}
        if not any(_is_open(self._declared.get(name)) for name in self.inputs):
            self._prepare({})
        elif any(name not in self._declared for name in self.inputs) and translate is nac_to_graph:
            refuse_wrong(model, self._declared, self._weights, options.limits)

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """The card of the file, with what it takes and gives."""
        card = self._model._card()
        taken = join_names([f"{name}: {self.type_of(name)}" for name in self.inputs])
        interface = f"{taken} -> {join_names(self.outputs)}"
        return replace(card, kind="executable NAC", facts=(*card.facts[:-2], ("interface", interface)))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(item.name for item in user_inputs(self._model.file))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return self._outputs

    @property
    def state(self) -> Mapping[str, Array]:
        """What is kept between calls, by name, as it is now; nothing before a call that decides what the inputs are."""
        return MappingProxyType(self._state)

    def reset(self) -> None:
        """Give the states the values that they started with."""
        if self.machine is not None:
            self.machine.reset()

    def shape_of(self, name: str) -> tuple[int | None, ...] | None:
        """The extents of an input, None for those that a call decides; None where nothing is known."""
        declared = self._declared.get(name)
        if declared is None:
            return None
        return tuple(extent if isinstance(extent, int) else None for extent in declared.shape)

    def type_of(self, name: str) -> str:
        """What an input is, as far as it is known: `f32[1, length]`."""
        declared = self._declared.get(name)
        if declared is None:
            return UNTYPED
        return f"{declared.element}[{', '.join(map(str, declared.shape))}]"

    def steers(self, name: str) -> bool:
        """Whether an input may be positions, lengths or a mask: what is not known to be real numbers."""
        declared = self._declared.get(name)
        return declared is None or not declared.element.is_float

    def __call__(self, /, *arrays: npt.ArrayLike, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once; inputs that are not given are random from the seed where that is wanted, else missing."""
        named = name_inputs(self.inputs, arrays, inputs)
        given = {name: np.asarray(value) for name, value in named.items()}
        if not self.draws and given.keys() <= set(self.inputs):
            refuse_missing({name: self.type_of(name) for name in self.inputs if name not in given})
        machine = self._prepare(given)
        machine.progress = self.progress
        outputs = machine(**given)
        self.drawn = machine.drawn
        self.findings = [*self._warnings, *machine.findings]
        return outputs

    def _prepare(self, given: Mapping[str, Array]) -> NacMachine:
        """The machine for the shapes of a call."""
        types = self._types(given)
        key = tuple(sorted(types.items(), key=lambda item: item[0]))
        if key not in self._machines:
            while len(self._machines) >= MOST_MACHINES:
                del self._machines[next(iter(self._machines))]
            self._machines[key] = self._compile(types)
        self.machine = self._machines[key]
        return self.machine

    def _compile(self, types: Mapping[str, InputType]) -> NacMachine:
        file, options = self._model.file, self._options
        found = self._translate(file, self._weights, types, options.limits)
        names = {item.id: item.name for item in file.parameters}
        tensors, method = self._weights.tensors, file.header.method

        data = found.model.data or {}

        def load(parameter: int) -> Array:
            name = names[parameter]
            return data[name] if name in data else read_weight(tensors[name], method)

        program = NacProgram(
            file,
            found.steps,
            found.results,
            found.model.graph.constants,
            found.model.library,
            load,
            tuple(_states(found)),
        )
        return compile_program(
            program, self.outputs, seed=options.start_seed, limits=options.limits, state=self._state
        )

    # --- what the inputs are --------------------------------------------------------------------------------

    def _types(self, given: Mapping[str, Array]) -> dict[str, InputType]:
        """What each input is in a call: as it is given, else as it is declared, with numbers for open extents."""
        extents = Extents(dict(self._options.shape))
        for name, array in given.items():
            if name in self._declared:
                with findings_at(name, None, self._model.file.span):
                    extents.bind(name, self._declared[name].shape, array.shape)
        found = {name: self._type(name, given, extents) for name in self.inputs}
        require_checks(self._checks, extents)
        return {name: item for name, item in found.items() if item is not None}

    def _type(self, name: str, given: Mapping[str, Array], extents: Extents) -> InputType | None:
        declared = self._declared.get(name)
        if declared is not None:
            return replace(declared, shape=tuple(choose_extent(extent, extents) for extent in declared.shape))
        element = element_type_of(given[name].dtype) if name in given else None
        return None if element is None else InputType(element, given[name].shape)


def _states(found: Translation) -> Iterator[ProgramState]:
    """What is kept between runs; the first numbers are read when a machine asks for them."""
    data = found.model.data or {}
    for state, variable in found.states:
        yield ProgramState(state.id, variable, state.update, partial(data.__getitem__, variable.name))


def _require_extents(declared: Mapping[str, InputType], options: Options) -> None:
    """Every extent that the user gives is one of an input, and in its range."""
    extents = (extent for item in declared.values() for extent in item.shape)
    known = {symbol.name: symbol for extent in extents for symbol in symbols(extent)}
    unknown = next((name for name in options.shape if name not in known), None)
    if unknown is not None:
        hint = list_known(unknown, sorted(known), "open extents are:")
        raise InputError(f"no input of the file has an open extent '{unknown[:80]}'", hint=hint)
    for name, value in options.shape.items():
        low, high = known[name].low, known[name].high
        if not low <= value <= high:
            finding = EXTENT_OUT_OF_BOUND.at(NOWHERE, name=name, value=value, low=low, high=high)
            raise LamellaError([finding])


def _is_open(declared: InputType | None) -> bool:
    """Whether only a call decides what an input is."""
    return declared is None or any(not isinstance(extent, int) for extent in declared.shape)


# --- steps of training from NAC files: each call computes the gradients, changes the parameters and ---------


STORE = ".safetensors"


class Keeping(languages.Executable, Protocol):
    """An executable that keeps states from call to call."""

    @property
    def state(self) -> Mapping[str, Array]:
        """What is kept, by name."""

    def reset(self) -> None:
        """Give the states the values that they started with."""


def compile_training(model: Model, backend: Backend | None, options: Options) -> Training:
    """Make the training graph of a file callable, on the virtual machine or on a backend for graphs."""
    if options.lr is not None and not math.isfinite(options.lr):
        raise InputError(f"the learning rate is {options.lr}", hint="give a finite number")
    if not has_training(model.file):
        raise no_training()
    weights = weights_of(model, options)
    return Training(model, step_of(model.file, weights, options.lr), weights, backend, options)


class Training:
    """A step of training: call it with inputs and targets by name, get the loss and the outputs before the step.

    `state` are the parameters that are trained, as they are now.
    """

    def __init__(
        self,
        model: Model,
        step: TrainingStep,
        weights: StoredWeights,
        backend: Backend | None,
        options: Options,
    ) -> None:
        self._model, self._step, self._weights, self._options = model, step, weights, options
        self._variables = {item.name: item.name for item in step.trained}
        """By the names of parameters those of their variables."""
        self._run = self._on_machine() if backend is None else self._on_graph(backend)

    def _on_machine(self) -> Keeping:
        file = replace(self._step.file, schedule=plan_memory(self._step.file))
        return compile_file(replace(self._model, file=file), self._options, self._translate)

    def _on_graph(self, backend: Backend) -> Keeping:
        known = read_types(self._options.types, self._step.file)
        found = self._translate(self._step.file, self._weights, known, self._options.limits)
        graph = with_extents(found.model, self._options)
        return cast(Keeping, backend.compile(graph, self._options))

    def _translate(
        self, file: File, weights: StoredWeights, inputs: Mapping[str, InputType], limits: Limits
    ) -> Translation:
        found = translate_step(replace(self._step, file=file), weights, inputs, limits)
        self._variables |= {state.name: variable.name for state, variable in found.states}
        return found

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, those of targets among them."""
        return self._run.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return self._run.outputs

    @property
    def targets(self) -> tuple[str, ...]:
        """The inputs that are targets, by their numbers."""
        return self._step.targets

    @property
    def loss(self) -> str:
        """The output that is the loss; empty where the training graph gives none."""
        return self._step.loss

    @property
    def findings(self) -> list[Diagnostic]:
        """What the last call found."""
        return self._run.findings

    @findings.setter
    def findings(self, value: list[Diagnostic]) -> None:
        self._run.findings = value

    @property
    def placement(self) -> list[OperationPlacement]:
        """Where each operation ran in the last step, on a backend that runs kernels."""
        return placement_of(self._run)

    @property
    def progress(self) -> Progress:
        """Wraps the steps of a call, for a progress bar."""
        return self._run.progress

    @progress.setter
    def progress(self, value: Progress) -> None:
        self._run.progress = value

    @property
    def draws(self) -> bool:
        """Whether inputs that a call does not give are random; where not, they are missing."""
        return self._run.draws

    @draws.setter
    def draws(self, value: bool) -> None:
        self._run.draws = value

    @property
    def drawn(self) -> Drawn:
        """What the last call drew."""
        return self._run.drawn

    @property
    def state(self) -> Mapping[str, Array]:
        """The parameters that are trained, by name, as they are now; nothing before a call that decides the inputs."""
        held = self._run.state
        pairs = ((item.name, self._variables[item.name]) for item in self._step.trained)
        return {name: held[variable] for name, variable in pairs if variable in held}

    def reset(self) -> None:
        """Give the parameters the values that they started with."""
        self._run.reset()

    def __call__(self, /, *arrays: npt.ArrayLike, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Do one step; one that fails changes nothing."""
        return self._run(*arrays, **inputs)

    def save(self, path: str | Path) -> None:
        """Write all weights as they are now (.safetensors), or a copy of the file with them (.nac, .nacs).

        They are stored as they were: in their element types, quantised where they were quantised.
        """
        path = Path(path)
        ending = path.suffix.lower()
        if ending != STORE and ENDINGS.get(ending) != "nac":
            hint = f"weights are written as {STORE}, files as .nac or .nacs"
            raise InputError(f"'{path.name}' is no ending for trained weights", hint=hint)
        whole, _ = with_internal(self._model.file, dict(self._weights.tensors))
        file, _ = with_internal(whole, dict(self.state))
        if ending == STORE:
            with_external(file, path)
        else:
            save(replace(self._model, file=file), path, self._options)
