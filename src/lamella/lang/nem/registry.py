"""The opcode registry: operands, attributes, type families, units and status of the 49 opcodes.

It is data, `opcodes.json`, and `opcodes.schema.json` says what such data looks like.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import NotRequired, TypedDict

from lamella.base.paths import read_shipped


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of an opcode; `rank_min` and `rank` are 0 where free."""

    name: str
    optional: bool = False
    variadic: bool = False
    rank: int = 0
    rank_min: int = 0
    layout: str = ""


@dataclass(frozen=True, slots=True)
class AttributeSpec:
    """One attribute of an opcode."""

    name: str
    type: str
    required: bool
    default: object = None


@dataclass(frozen=True, slots=True)
class Opcode:
    """The signature of an opcode; `units[0]` is the default unit."""

    name: str
    inputs: tuple[OperandSpec, ...]
    outputs: tuple[OperandSpec, ...]
    attributes: Mapping[str, AttributeSpec]
    families: tuple[str, ...]
    units: tuple[str, ...]
    hardware: str
    status: str


class _Operand(TypedDict):
    name: str
    optional: bool
    rank: NotRequired[int]
    rank_min: NotRequired[int]
    layout: NotRequired[str]


class _Attribute(TypedDict):
    type: str
    required: bool
    default: NotRequired[object]


class _OpcodeEntry(TypedDict):
    inputs: list[_Operand]
    outputs: list[_Operand]
    attributes: dict[str, _Attribute]
    families: list[str]
    unit: list[str]
    hardware: str
    status: str
    variadic_inputs: NotRequired[bool]
    variadic_outputs: NotRequired[bool]


@cache
def load_registry() -> Mapping[str, Opcode]:
    """All opcodes by name, in the order of the registry; read once."""
    entries: dict[str, _OpcodeEntry] = json.loads(read_shipped("lang/nem/opcodes.json"))["opcodes"]
    return MappingProxyType({name: _opcode(name, entry) for name, entry in entries.items()})


def opcode(name: str) -> Opcode | None:
    """The signature of an opcode."""
    return load_registry().get(name)


def _opcode(name: str, entry: _OpcodeEntry) -> Opcode:
    attributes = {key: AttributeSpec(name=key, **item) for key, item in entry["attributes"].items()}
    return Opcode(
        name=name,
        inputs=_operands(entry["inputs"], entry.get("variadic_inputs", False)),
        outputs=_operands(entry["outputs"], entry.get("variadic_outputs", False)),
        attributes=MappingProxyType(attributes),
        families=tuple(entry["families"]),
        units=tuple(entry["unit"]),
        hardware=entry["hardware"],
        status=entry["status"],
    )


def _operands(items: Sequence[_Operand], variadic: bool) -> tuple[OperandSpec, ...]:
    """The operands in their order; of a variadic list the last one may be repeated."""
    # Only the last operand of a list may repeat: positions decide which operand is which.
    *first, last = (OperandSpec(**item) for item in items)
    return (*first, replace(last, variadic=variadic))
