"""Wrong programs of the machine as text: instructions, the commands of their ticks, what a caller gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lamella.backend.nacvm import compile_program
from lamella.base import dtype
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import ElementType
from lamella.graph.build import Builder
from lamella.graph.nodes import Operation, Tensor
from lamella.lang.nac.nodes import Action
from tests.support.backend.nacvm.assembling import Assembly
from tests.support.backend.nacvm.chains import LIBRARY

TYPE = re.compile(r"(\w+)\[([\d, ]*)\]")


def read_type(text: str) -> tuple[ElementType, tuple[int, ...]]:
    """`f32[2, 3]`."""
    found = TYPE.fullmatch(text)
    element = None if found is None else dtype.find(found[1])
    assert found is not None
    assert element is not None, text
    return element, tuple(int(word) for word in found[2].split(",") if word.strip())


def array_of(text: str) -> Array:
    """An array of a type that is told in words."""
    element, shape = read_type(text)
    return np.ones(shape, numpy_dtype(element))


@dataclass
class Text:
    """A program while its text is read."""

    builder: Builder = field(default_factory=lambda: Builder(LIBRARY, "G"))
    assembly: Assembly = field(default_factory=lambda: Assembly(LIBRARY))
    tensors: dict[str, Tensor] = field(default_factory=dict)
    indices: dict[str, int] = field(default_factory=dict)
    commands: dict[int, list[tuple[Action, int]]] = field(default_factory=dict)
    given: dict[str, Array] = field(default_factory=dict)
    weights: dict[int, Array] = field(default_factory=dict)

    def read(self, line: str) -> None:
        """One line."""
        code, _, commands = line.partition("|")
        words = code.split(maxsplit=2)
        if words[1] == "=":
            self._define(words[0], words[2].split(maxsplit=1))
        else:
            self._say(words)
        last = len(self.assembly.instructions) - 1
        for command in filter(None, commands.split(",")):
            action, target = command.split()
            self.commands.setdefault(last, []).append((Action[action], self.indices[target]))

    def _define(self, label: str, words: list[str]) -> None:
        kind, rest = words
        if kind in ("input", "load"):
            tensor = self.builder.input(label, *read_type(rest))
            enter: Callable[[Tensor], int] = self.assembly.input if kind == "input" else self._load
            self.indices[label] = enter(tensor)
        else:
            tensor = self.builder.call(f"aten.{kind}", *(self.tensors[name] for name in rest.split()))
            self.indices[label] = self.assembly.call(self._operation(tensor))
        self.tensors[label] = tensor

    def _load(self, tensor: Tensor) -> int:
        parameter = len(self.weights) + 1
        self.weights[parameter] = np.ones([int(str(extent)) for extent in tensor.shape], np.float32)
        return self.assembly.load(tensor, parameter)

    def _operation(self, tensor: Tensor) -> Operation:
        made = self.builder.finish().operations()
        return next(item for item in made if tensor in item.outputs)

    def _say(self, words: list[str]) -> None:
        if words[0] == "output":
            self.assembly.output(*(self.indices[name] for name in words[1:]))
        elif words[0] == "give":
            self.given[words[1]] = array_of(words[2])
        else:
            assert words[0] == "weights", words
            instruction = self.assembly.instructions[self.indices[words[1]]]
            self.weights[instruction.constants[0]] = array_of(words[2])


def findings_of(text: str) -> list[Diagnostic]:
    """What a run of the program finds."""
    read = Text()
    for line in text.splitlines():
        code = line.partition(";")[0].strip()
        if code:
            read.read(code)
    program = read.assembly.finish(load=lambda parameter: read.weights[parameter], schedule=read.commands)
    try:
        compile_program(program)(**read.given)
    except LamellaError as problem:
        return list(problem.findings)
    return []
