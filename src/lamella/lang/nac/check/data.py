"""Parameters and inputs have names, and parameters have tensors."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic, Label
from lamella.lang.nac.check.instructions import is_user_input
from lamella.lang.nac.check.tables import LAST_CONSTANT, Tables
from lamella.lang.nac.check.tensors import check_array, check_tensor
from lamella.lang.nac.nodes import File, Input, Parameter, Tensor
from lamella.lang.nac.rules import data as rules
from lamella.lang.nac.rules import sections


def check_parameters(file: File, tables: Tables) -> Iterator[Diagnostic]:
    """Each parameter has one id and one name, and its tensor in the file where the header says so."""
    names: dict[str, Parameter] = {}
    stored = {item.parameter for item in file.tensors}
    for item in file.parameters:
        first, named = tables.parameters[item.id], names.setdefault(item.name, item)
        if item.id > LAST_CONSTANT:
            yield rules.PARAMETER_UNREACHABLE.at(item.span, id=item.id)
        if not item.name:
            yield rules.NAME_EMPTY.at(item.span, what="parameter", id=item.id)
        elif named.id != item.id:
            labels = [Label(named.span, "named here first")]
            yield rules.PARAMETER_NAME_TWICE.at(
                item.span, name=item.name, first=named.id, id=item.id, labels=labels
            )
        if first is not item:
            labels = [Label(first.span, "named here first")]
            yield rules.PARAMETER_TWICE.at(
                item.span, id=item.id, first=first.name, name=item.name, labels=labels
            )
        elif file.header.internal and item.id not in stored:
            yield rules.TENSOR_MISSING.at(item.span, name=item.name)


def check_inputs(file: File) -> Iterator[Diagnostic]:
    """Each name of an input belongs to one instruction that takes one."""
    places: dict[int, Input] = {}
    names: dict[str, Input] = {}
    for item in file.inputs:
        first, named = places.setdefault(item.index, item), names.setdefault(item.name, item)
        if first is not item:
            labels = [Label(first.span, "named here first")]
            yield rules.INPUT_TWICE.at(
                item.span, index=item.index, first=first.name, name=item.name, labels=labels
            )
        if not item.name:
            yield rules.NAME_EMPTY.at(item.span, what="the input of instruction", id=item.index)
        elif named.index != item.index:
            labels = [Label(named.span, "named here first")]
            yield rules.INPUT_NAME_TWICE.at(
                item.span, first=named.index, index=item.index, name=item.name, labels=labels
            )
        if not _takes_input(file, item.index):
            yield rules.INPUT_NOT_USER.at(item.span, name=item.name, index=item.index)


def _takes_input(file: File, index: int) -> bool:
    return index < len(file.instructions) and is_user_input(file.instructions[index])


def check_tensors(file: File, tables: Tables) -> Iterator[Diagnostic]:
    """Each tensor belongs to one parameter and is what its metadata says."""
    first: dict[int, Tensor] = {}
    for item in file.tensors:
        if first.setdefault(item.parameter, item) is not item:
            labels = [Label(first[item.parameter].span, "given here first")]
            yield rules.TENSOR_TWICE.at(item.span, id=item.parameter, labels=labels)
        name = tables.parameters.get(item.parameter)
        if name is None:
            yield rules.TENSOR_UNNAMED.at(item.span, id=item.parameter)
        what = f"the tensor of parameter {item.parameter}" if name is None else f"parameter '{name.name}'"
        yield from check_tensor(item, what, file.header.method)


def check_arrays(file: File) -> Iterator[Diagnostic]:
    """Arrays have names of their own and as many bytes as their shapes say."""
    names: set[str] = set()
    for item in file.arrays:
        if item.name in names:
            yield sections.ARRAY_TWICE.at(item.span, name=item.name)
        names.add(item.name)
        yield from check_array(item, f"array '{item.name}'")
