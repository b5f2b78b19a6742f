"""Programs made by hand: instructions around graph operations, with a schedule where a test wants one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lamella.backend.nacvm.program import NacProgram, Result
from lamella.base.arrays import Array
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Constant, Operation, Tensor, tensors
from lamella.lang.nac.nodes import (
    INPUT,
    OUTPUT,
    Action,
    Command,
    File,
    Header,
    Input,
    Instruction,
    Parameter,
    Tick,
)
from lamella.lang.nac.operations import FINAL, PARAMETER, USER
from lamella.ops.library import Library

REGULAR = 201


@dataclass
class Assembly:
    """A program under construction; every method gives the index of an instruction."""

    library: Library
    instructions: list[Instruction] = field(default_factory=list)
    steps: list[tuple[Operation, ...]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    """The instruction that gives a tensor."""

    def put(self, instruction: Instruction, steps: tuple[Operation, ...], result: Result) -> int:
        """Any instruction."""
        self.instructions.append(instruction)
        self.steps.append(steps)
        self.results.append(result)
        index = len(self.instructions) - 1
        if isinstance(result, Tensor):
            self.places.setdefault(result.name, index)
        return index

    def input(self, tensor: Tensor) -> int:
        """A user input."""
        self.inputs.append(Input(len(self.instructions), tensor.name))
        return self.put(Instruction(INPUT, USER), (), tensor)

    def load(self, tensor: Tensor, parameter: int) -> int:
        """A parameter load."""
        if parameter not in {item.id for item in self.parameters}:
            self.parameters.append(Parameter(parameter, tensor.name))
        return self.put(Instruction(INPUT, PARAMETER, (parameter,)), (), tensor)

    def call(self, operation: Operation, offsets: Sequence[int] | None = None) -> int:
        """An operation, and for each tensor of several results the instruction that selects it."""
        here = len(self.instructions)
        names = [item.name for argument in operation.inputs for item in tensors(argument)]
        back = tuple(dict.fromkeys(self.places[name] - here for name in names if name in self.places))
        flat = tuple(item for output in operation.outputs for item in tensors(output))
        single = len(operation.outputs) == 1 and isinstance(operation.outputs[0], Tensor)
        result: Result = flat[0] if single else flat
        index = self.put(Instruction(REGULAR, 1, (), tuple(offsets or back)), (operation,), result)
        if not single:
            for item in flat:
                self.put(Instruction(REGULAR, 1, (), (index - len(self.instructions),)), (), item)
        return index

    def output(self, *indices: int) -> int:
        """The final output."""
        here = len(self.instructions)
        return self.put(Instruction(OUTPUT, FINAL, (), tuple(index - here for index in indices)), (), None)

    def finish(
        self,
        constants: Sequence[Constant] = (),
        load: Callable[[int], Array] | None = None,
        schedule: Mapping[int, Sequence[tuple[Action, int]]] | None = None,
    ) -> NacProgram:
        """The program, with commands by tick."""
        ticks = tuple(
            Tick(index, tuple(Command(action, target) for action, target in commands))
            for index, commands in sorted((schedule or {}).items())
        )
        last = self.instructions[-1]
        header = Header(inputs=len(self.inputs), outputs=len(last.offsets))
        file = File(
            header=header,
            instructions=tuple(self.instructions),
            schedule=ticks,
            parameters=tuple(self.parameters),
            inputs=tuple(self.inputs),
        )
        return NacProgram(
            file, tuple(self.steps), tuple(self.results), tuple(constants), self.library, load or _nothing
        )


def _nothing(parameter: int) -> Array:
    return np.zeros(0)


def assemble(model: Model, load: Callable[[int], Array] | None = None) -> NacProgram:
    """A graph of plain operations as a program: inputs, then each operation, weights in front of their first user."""
    assembly = Assembly(model.library)
    for argument in model.graph.inputs:
        for tensor in tensors(argument):
            assembly.input(tensor)
    numbers = {item.name: number for number, item in enumerate(model.graph.variables, 1)}
    for operation in model.graph.operations():
        for argument in operation.inputs:
            for item in tensors(argument):
                if item.name in numbers and item.name not in assembly.places:
                    assembly.load(item, numbers[item.name])
        assembly.call(operation)
    assembly.output(*(assembly.places[item.name] for item in _flat(model.graph.outputs)))
    return assembly.finish(model.graph.constants, load)


def _flat(arguments: Sequence[Argument]) -> list[Tensor]:
    return [item for argument in arguments for item in tensors(argument)]


def with_schedule(program: NacProgram, schedule: Sequence[Tick]) -> NacProgram:
    """The program under another schedule."""
    return replace(program, file=replace(program.file, schedule=tuple(schedule)))
