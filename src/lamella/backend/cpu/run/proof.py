"""Proofs at launch: every access is proved with the sizes, strides, work-groups and integers of the call.

What leaves its memory for certain is refused before machine code runs; what is neither proved nor refuted, data decide,
and runs with bounds checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TypeAlias

import numpy as np

from lamella.base.diagnostic import Diagnostic
from lamella.base.gc import gc_paused
from lamella.base.records import dataclass
from lamella.kernels.sizes import Sizes
from lamella.lang.tensor.check.memory import Launch, Proof, SubgroupSizes, check_memory, prove_launch
from lamella.lang.tensor.nodes import (
    Constant,
    Function,
    Group,
    Memref,
    Parameter,
    Scalar,
    Size,
    Statement,
    Type,
)
from lamella.lang.tensor.nodes.types import INTEGERS
from lamella.lang.tensor.rules import memory as rules

ACCESSES = (rules.LEAVES, rules.CAN_LEAVE, rules.UNPROVED, rules.WRONG_EXPANSION)
OPEN = frozenset(rule.code for rule in (*ACCESSES, rules.MAY_NOT_END))
"""Findings about accesses of which it is not proved that they stay inside, and loops that may have no end."""


Shape: TypeAlias = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """What a launch knows: shapes and strides of arrays; lengths of groups with what their arrays have in common."""

    shapes: Mapping[str, Shape]
    groups: Mapping[str, tuple[int, Shape]]
    strides: Mapping[str, Shape] = field(default_factory=dict)
    """In elements; of a group those that all its arrays have."""
    ends: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """For each group the least and the largest size of each mode."""


def find_open(function: Function) -> list[Diagnostic]:
    """The accesses of a text that are not proved to stay inside their memory, and the loops not proved to end."""
    with gc_paused():
        return [item for item in check_memory(function) if item.code in OPEN]


def prove(
    function: Function, known: LaunchFacts, arguments: Sequence[object] | None, groups: int, sizes: Sizes
) -> Proof:
    """What is proved of a launch; without arguments, for every value of its integers."""
    rows, columns = sizes.work_group_size
    items = SubgroupSizes(sizes.subgroup_size, rows // sizes.subgroup_size * columns)
    with gc_paused():
        return prove_launch(specialise(function, known, arguments), items, Launch(groups, known.ends))


def specialise(function: Function, known: LaunchFacts, arguments: Sequence[object] | None) -> Function:
    """The kernel with the sizes of a launch in its types and, where arguments are given, with its integers known."""
    kept: list[Parameter] = []
    numbers: list[Statement] = []
    for place, parameter in enumerate(function.parameters):
        argument = None if arguments is None else arguments[place]
        if _is_integer(parameter.type) and isinstance(argument, int | np.integer):
            node = Constant(int(argument), parameter.type)
            numbers.append(Statement((parameter.value,), node, parameter.span))
        else:
            kept.append(replace(parameter, type=_known_type(parameter, known)))
    body = replace(function.body, statements=(*numbers, *function.body.statements))
    return replace(function, parameters=tuple(kept), body=body)


def integers_of(function: Function) -> tuple[int, ...]:
    """The places of the integers that the host gives a kernel, which may be positions."""
    return tuple(place for place, item in enumerate(function.parameters) if _is_integer(item.type))


def _is_integer(kind: Type) -> bool:
    return isinstance(kind, Scalar) and kind.name in INTEGERS


def _known_type(parameter: Parameter, known: LaunchFacts) -> Type:
    name, kind = parameter.value.name, parameter.type
    strides = known.strides.get(name)
    if isinstance(kind, Memref) and name in known.shapes:
        return _with_layout(kind, known.shapes[name], strides)
    if isinstance(kind, Group) and name in known.groups:
        count, shape = known.groups[name]
        return replace(kind, memref=_with_layout(kind.memref, shape, strides), size=count)
    return kind


def _with_layout(kind: Memref, shape: Sequence[Size], strides: Sequence[Size] | None) -> Memref:
    return replace(kind, shape=tuple(shape), stride=kind.stride if strides is None else tuple(strides))
