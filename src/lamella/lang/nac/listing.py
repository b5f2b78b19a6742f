"""The code of a file as a person reads it: pseudo-code, with the memory commands behind each instruction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lamella.lang.nac.assembly.describe import CodeDescriber
from lamella.lang.nac.assembly.nodes import Argument, Line, OperationCall, Raw, System
from lamella.lang.nac.assembly.words import DTYPES
from lamella.lang.nac.assembly.write import write_operand
from lamella.lang.nac.nodes import Action, Command, File, Instruction, Tensor, Tick

WIDEST = 64
"""Columns that an instruction may take before its commands follow it directly."""
GAP = "   "
_ACTIONS: Mapping[int, str] = MappingProxyType({int(action): action.name for action in Action})


_NOTHING: Mapping[int, str] = MappingProxyType({})


def listing(file: File, types: Mapping[int, str] = _NOTHING) -> str:
    """The instructions, one on a line, with what each parameter holds and what the coprocessor does meanwhile.

    `types` says what instructions give, where somebody knows it.
    """
    lister = _Lister(file, types)
    lines = lister.lines(file.instructions, file.schedule)
    if file.training:
        lines += ["", "training:", *_Lister(file, _NOTHING).lines(file.training, ())]
    return "".join(f"{line.rstrip()}\n" for line in lines)


class _Lister:
    """Knows what the ids of a file stand for."""

    def __init__(self, file: File, types: Mapping[int, str]) -> None:
        self._code = CodeDescriber(file)
        self._types = types
        self._inputs = {item.index: item.name for item in file.inputs}
        names = {item.id: item.name for item in file.parameters}
        self._tensors = {names.get(item.parameter, item.parameter): item for item in file.tensors}

    def lines(self, instructions: Sequence[Instruction], schedule: Sequence[Tick]) -> list[str]:
        """The lines of one sequence of instructions."""
        commands: dict[int, list[Command]] = {}
        for tick in schedule:
            commands.setdefault(tick.index, []).extend(tick.commands)
        texts = [
            f"v{line.label.name} = {self._body(line)}{self._typed(index, line)}"
            for index, line in enumerate(self._code.lines(instructions))
        ]
        width = max((len(text) for text in texts if len(text) <= WIDEST), default=0)
        return [
            f"{text:{width}}{GAP}{_commands(commands.get(index, []))}" for index, text in enumerate(texts)
        ]

    def _body(self, line: Line) -> str:
        match line.body:
            case Raw(operation, variant, constants, offsets):
                return f"<{operation}> B={variant} C={list(constants)} D={list(offsets)}"
            case OperationCall(operation, _, arguments):
                return f"{write_operand(operation)}({_joined(arguments)})"
            case System() as system:
                return self._system(system, int(line.label.name))

    def _typed(self, index: int, line: Line) -> str:
        """What an instruction gives; the line of a parameter has it already."""
        typed = isinstance(line.body, System) and line.body.word == "parameter"
        return f": {self._types[index]}" if index in self._types and not typed else ""

    def _system(self, body: System, index: int) -> str:
        if body.word == "input":
            return f"input {write_operand(self._inputs[index])}" if index in self._inputs else "input"
        if body.word == "parameter":
            name = body.operands[0]
            return f"parameter {write_operand(name)}{_described(self._tensors, name)}"
        return f"{body.word}({_joined([*body.labels, *body.operands])})"


def _described(tensors: Mapping[int | str, Tensor], name: object) -> str:
    tensor = tensors.get(name) if isinstance(name, int | str) else None
    if tensor is None:
        return ""
    dtype = DTYPES[tensor.dtype] if 0 <= tensor.dtype < len(DTYPES) else f"#{tensor.dtype}"
    return f": {dtype}{list(tensor.shape)}"


def _commands(commands: Sequence[Command]) -> str:
    return ",  ".join(f"{_ACTIONS.get(item.action, item.action)} -> {item.target}" for item in commands)


def _joined(operands: Sequence[Argument | int | str]) -> str:
    return ", ".join(write_operand(operand, "v") for operand in operands)
