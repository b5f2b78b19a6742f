"""What a caller passes to a kernel: verified, then taken as the values of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lamella.backend.arguments import dtype_of, group_items, layout_strides, verify_arguments
from lamella.backend.interpreter.memory import Reference, References, make_reference, shift_reference
from lamella.backend.interpreter.numbers import Number, convert
from lamella.backend.interpreter.state import RunValue
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.lang.tensor.nodes import Function, Group, Memref, Parameter


def take_arguments(function: Function, arguments: Sequence[object]) -> dict[str, RunValue]:
    """The values of the parameters; what does not fit is told all at once."""
    findings = verify_arguments(function, arguments)
    if findings:
        raise LamellaError(findings)
    pairs = zip(function.parameters, arguments, strict=True)
    return {parameter.value.name: _take(parameter, argument) for parameter, argument in pairs}


def _take(parameter: Parameter, argument: object) -> RunValue:
    name, kind = parameter.value.name, parameter.type
    if isinstance(kind, Memref) and isinstance(argument, np.ndarray):
        return _refer(name, kind, argument)
    if isinstance(kind, Group):
        given = group_items(kind, argument)
        return References(name, tuple(_refer(name, kind.memref, item, given.offset) for item in given.items))
    return _take_scalar(kind, argument)


def _take_scalar(kind: object, argument: object) -> Number:
    element = str(kind)
    if isinstance(argument, int) and dtype_of(element).kind not in "ib":
        argument = float(argument)
    return convert(argument if isinstance(argument, np.generic) else np.asarray(argument)[()], element)


def _refer(name: str, kind: Memref, array: Array, offset: int = 0) -> Reference:
    """A reference to an array; the declared strides stand where the array's own are never used."""
    plain = replace(make_reference(name, array), stride=layout_strides(kind, array))
    return shift_reference(plain, array, offset) if offset else plain
