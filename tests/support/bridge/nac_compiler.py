"""Programs as the public compiler writes them: constants shared by equality, no names, no defaults, flat lists."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import element_type_of
from lamella.lang.nac import nodes as n
from lamella.lang.nac.nodes import ConstantType, Instruction
from lamella.lang.nac.operations import canonise, standard_operations

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Result:
    """What an instruction gives."""

    index: int


@dataclass(frozen=True)
class Word:
    """A dtype, a device or the like, which files hold as a string."""

    text: str


CODES: Mapping[type, str] = {
    bool: "b",
    int: "i",
    float: "f",
    str: "s",
    tuple: "S",
    Word: "c",
    type(None): "c",
}
TYPES: Mapping[type, ConstantType] = {
    **{bool: ConstantType.BOOL, int: ConstantType.INT64, float: ConstantType.FLOAT64},
    **{str: ConstantType.STRING, type(None): ConstantType.NULL},
}


class Compiler:
    """One program; results are numbered as their instructions are."""

    def __init__(self, version: str = n.V1_6) -> None:
        self.version = version
        self.arrays: dict[str, Array] = {}
        self.tensors: list[n.Tensor] = []
        self.parameters: list[n.Parameter] = []
        self._inputs: list[n.Input] = []
        self._instructions: list[Instruction] = []
        self._operations: dict[str, int] = {
            item.name: id_ for id_, item in standard_operations(version).items()
        }
        self._custom = len(self._operations) + 10
        self._signatures: dict[str, int] = {}
        self._constants: dict[Any, n.Constant] = {}

    def _add(self, instruction: Instruction) -> Result:
        self._instructions.append(instruction)
        return Result(len(self._instructions) - 1)

    def input(self, array: Array, name: str = "") -> Result:
        """A new input, with what it is given."""
        index = len(self._instructions)
        self._inputs.append(n.Input(index, name or f"x{index}"))
        self.arrays[self._inputs[-1].name] = array
        return self._add(Instruction(n.INPUT))

    def parameter(self, tensor: n.Tensor, name: str) -> Result:
        """A parameter with its weights."""
        self.tensors.append(tensor)
        self.parameters.append(n.Parameter(tensor.parameter, name))
        return self._add(Instruction(n.INPUT, 1, (tensor.parameter,)))

    def call(self, name: str, args: Sequence[Any], keywords: Mapping[str, Any] | None = None) -> Result:
        """An operation by its ATen name: what is given in order, then the values of keywords."""
        return self.write(name, [*args, *(keywords or {}).values()])

    def write(self, name: str, arguments: Sequence[Any]) -> Result:
        """An operation after its canonical form was found."""
        canonical = canonise(name, self.version)
        if canonical.order is not None:
            arguments = [arguments[place] for place in canonical.order]
        flat: list[Any] = []
        for item in arguments:
            nested = isinstance(item, list | tuple)
            held = nested and any(isinstance(part, Result) for part in item)
            flat += item if held else [tuple(item) if nested else item]
        return self.raw(canonical.name, flat)

    def raw(self, name: str, flat: Sequence[Any], codes: str = "") -> Result:
        """An operation by its name in the file; results may stand where codes of constants do."""
        codes = codes or "".join("T" if isinstance(item, Result) else CODES[type(item)] for item in flat)
        index = len(self._instructions)
        ids = [self._intern(item) for item in flat if not isinstance(item, Result)]
        offsets = [item.index - index if isinstance(item, Result) else 0 for item in flat]
        if name not in self._operations:
            self._operations[name] = self._custom
            self._custom += 1
        signature = self._signatures.setdefault(codes, len(self._signatures) + 1)
        return self._add(Instruction(self._operations[name], signature, tuple(ids), tuple(offsets)))

    def _intern(self, value: Any) -> int:
        """The id of a constant; True, 1 and 1.0 share one, whose type is that of the first."""
        plain = value.text if isinstance(value, Word) else value
        if plain not in self._constants:
            held = self._constant(len(self._constants) + 2, plain)
            self._constants[plain] = held
        return self._constants[plain].id

    def _constant(self, id_: int, value: Any) -> n.Constant:
        if not isinstance(value, tuple):
            return n.Constant(id_, TYPES[type(value)], value)
        if any(isinstance(item, float) for item in value):
            return n.Constant(
                id_, ConstantType.FLOAT32_LIST, tuple(float(np.float32(item)) for item in value)
            )
        return n.Constant(id_, ConstantType.INT32_LIST, tuple(int(item) for item in value))

    def finish(self, *outputs: Result, notes: Mapping[str, Any] | None = None) -> n.File:
        """The file; its inputs are described in its resource unless other notes are given."""
        index = len(self._instructions)
        self._add(Instruction(n.OUTPUT, 0, (), tuple(item.index - index for item in outputs)))
        standard = {item.name for item in standard_operations(self.version).values()}
        custom = {name: id_ for name, id_ in self._operations.items() if name not in standard}
        told = json.dumps(self.notes() if notes is None else notes).encode()
        return n.File(
            header=n.Header(self.version, internal=True, inputs=len(self._inputs), outputs=len(outputs)),
            operations=tuple(n.Operation(id_, name) for name, id_ in custom.items()),
            signatures=tuple(n.Signature(id_, codes) for codes, id_ in self._signatures.items()),
            constants=tuple(self._constants.values()),
            instructions=tuple(self._instructions),
            parameters=tuple(self.parameters),
            inputs=tuple(self._inputs),
            tensors=tuple(self.tensors),
            resources=(n.Resource("lamella.json", told),),
        )

    def notes(self) -> dict[str, Any]:
        """What the inputs are."""
        described = [
            {"name": name, "dtype": _dtype(array), "shape": list(array.shape)}
            for name, array in self.arrays.items()
        ]
        return {"format": 1, "inputs": described}


def _dtype(array: Array) -> str:
    element = element_type_of(array.dtype)
    assert element is not None
    return element.name
