"""Proofs at launch: once sizes and numbers are known, most accesses that the text left open are decided.

What is decided to leave its memory is refused before machine code runs; what still depends on data is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lamella.backend.cpu.run.agree import Known
from lamella.base.collector import collector_paused
from lamella.base.diagnostic import Diagnostic
from lamella.lang.tensor.check.memory import check_memory
from lamella.lang.tensor.nodes import Constant, Function, Group, Memref, Parameter, Scalar, Statement, Type
from lamella.lang.tensor.nodes.types import INTEGERS
from lamella.lang.tensor.rules import memory as rules

ACCESSES = (rules.LEAVES, rules.CAN_LEAVE, rules.UNPROVED, rules.WRONG_EXPANSION)
OPEN = frozenset(rule.code for rule in (*ACCESSES, rules.MAY_NOT_END))
"""Findings about accesses of which it is not proved that they stay inside, and loops that may have no end."""


def find_open(function: Function) -> list[Diagnostic]:
    """The accesses of a kernel that are not proved to stay inside their memory, and the loops not proved to end."""
    with collector_paused():
        return [item for item in check_memory(function) if item.code in OPEN]


def specialise(function: Function, known: Known, arguments: Sequence[object] | None) -> Function:
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


def has_integers(function: Function) -> bool:
    """Whether the host gives a kernel integers, which may be positions."""
    return any(_is_integer(item.type) for item in function.parameters)


def _is_integer(kind: Type) -> bool:
    return isinstance(kind, Scalar) and kind.name in INTEGERS


def _known_type(parameter: Parameter, known: Known) -> Type:
    name, kind = parameter.value.name, parameter.type
    if isinstance(kind, Memref) and name in known.shapes:
        return _with_shape(kind, known.shapes[name])
    if isinstance(kind, Group) and name in known.groups:
        count, shape = known.groups[name]
        return replace(kind, memref=_with_shape(kind.memref, shape), size=count)
    return kind


def _with_shape(kind: Memref, shape: Sequence[int | None]) -> Memref:
    return replace(kind, shape=tuple(shape))
