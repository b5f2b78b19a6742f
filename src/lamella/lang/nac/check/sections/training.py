"""The training graph as a step: its end, its targets, which parameters it changes and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.lang.nac.check.arguments import show_value
from lamella.lang.nac.check.tables import Tables
from lamella.lang.nac.layout import fields_of
from lamella.lang.nac.nodes import INPUT, OUTPUT, Constant, ConstantValue, File, Instruction
from lamella.lang.nac.operations import FINAL, LIFTED, SUBGRAPH, TARGET, TRAINED, UPDATE
from lamella.lang.nac.rules import sections as rules
from lamella.lang.nac.rules.writing import FIELDS


def check_steps(file: File, tables: Tables) -> Iterator[Diagnostic]:
    """What of a training graph cannot be one step of training, whatever its instructions compute."""
    if not file.training:
        return
    if not file.instructions:
        yield rules.TRAINING_ALONE.at(file.training[0].span, count=len(file.training))
    yield from _check_fields(file)
    yield from _check_end(file)
    yield from _check_targets(file)
    yield from _check_updates(file, tables)


def _check_fields(file: File) -> Iterator[Diagnostic]:
    """Loads, updates and the end have the fields of their variants, which a text can give any number of."""
    for index, item in enumerate(file.training):
        fields = (
            fields_of(item.operation, item.variant, None, 0) if item.operation in (INPUT, OUTPUT) else None
        )
        if fields is None or (item.operation == OUTPUT and item.variant in (FINAL, SUBGRAPH)):
            continue
        wanted = {"C": fields.constants or 0, "D": fields.offsets}
        given = {"C": len(item.constants), "D": len(item.offsets)}
        for name, count in wanted.items():
            if given[name] != count:
                yield FIELDS.at(item.span, index=index, given=given[name], field=name, wanted=count)


def _check_end(file: File) -> Iterator[Diagnostic]:
    ends = [index for index, item in enumerate(file.training) if is_end(item)]
    if ends and ends[0] + 1 < len(file.training):
        behind = file.training[ends[0] + 1]
        yield rules.TRAINING_AFTER_END.at(behind.span, index=ends[0] + 1, end=ends[0])


def _check_targets(file: File) -> Iterator[Diagnostic]:
    """Targets are 0, 1, 2 …: the caller gives them by their numbers."""
    taken = {item.constants[0]: item for item in file.training if is_target(item) and item.constants}
    missing = next(number for number in range(len(taken) + 1) if number not in taken)
    for number, item in taken.items():
        if not 0 <= number < missing:
            yield rules.TRAINING_TARGETS.at(item.span, number=number, missing=missing)


def _check_updates(file: File, tables: Tables) -> Iterator[Diagnostic]:
    """Each parameter is changed once, by a rate that is a number where it is a constant."""
    changed: set[int] = set()
    for index, item in enumerate(file.training):
        if not is_update(item) or not item.constants:
            continue
        id_ = item.constants[0]
        parameter = tables.parameters.get(id_)
        if id_ in changed and parameter is not None:
            yield rules.TRAINING_PARAMETER.at(
                item.span, name=parameter.name, problem="two instructions change it"
            )
        changed.add(id_)
        constant = rate_constant(file, index, tables)
        if constant is not None and not is_rate(constant.value):
            yield rules.TRAINING_RATE.at(item.span, index=index, id=id_, found=show_value(constant))


def rate_constant(file: File, index: int, tables: Tables) -> Constant | None:
    """The constant that is the learning rate of an update; None where the rate is something else."""
    place = index + (*file.training[index].offsets, 0, 0)[1]
    item = file.training[place] if 0 <= place < index else None
    if item is None or (item.operation, item.variant) != (INPUT, LIFTED) or not item.constants:
        return None
    return tables.constants.get(item.constants[0])


def is_rate(value: ConstantValue) -> bool:
    """Whether a constant can be a learning rate."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_target(item: Instruction) -> bool:
    """Whether an instruction takes a target of the training."""
    return (item.operation, item.variant) == (INPUT, TARGET)


def is_update(item: Instruction) -> bool:
    """Whether an instruction changes a parameter."""
    return (item.operation, item.variant) == (OUTPUT, UPDATE)


def is_end(item: Instruction) -> bool:
    """Whether an instruction ends a training graph."""
    return (item.operation, item.variant) == (OUTPUT, TRAINED)
