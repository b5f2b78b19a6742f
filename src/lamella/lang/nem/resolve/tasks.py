"""Task statements: operands, attributes, placement and unit requests."""

from __future__ import annotations

from lamella.base.suggest import nearest
from lamella.lang.nem import nodes
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.registry import Opcode, load_registry
from lamella.lang.nem.resolve.attributes import GENERIC, resolve_attributes
from lamella.lang.nem.resolve.decorators import MOVE, TASK, Decorators
from lamella.lang.nem.resolve.expressions import Expressions, Failed
from lamella.lang.nem.resolve.regions import resolve_operand
from lamella.lang.nem.resolve.scope import Poison, Token
from lamella.lang.nem.resolved import Region, Resource, Task
from lamella.lang.nem.rules import (
    CROSS_ENGINE,
    ENGINE_CONFLICT,
    NO_UNIT,
    READ_WRITEONLY,
    RESOURCE_UNIT,
    UNKNOWN_OPCODE,
    WRITE_READONLY,
)

MOVES = ("transfer", "store")


def resolve_task(values: Expressions, node: nodes.Task, number: int, device: ResolvedDevice | None) -> Task:
    """A task with everything looked up; Failed when a part of it is in error."""
    opcode = load_registry().get(node.opcode.id)
    if opcode is None:
        resolve_deps(values, node.deps)
        close = nearest(node.opcode.id, load_registry())
        hint = f"did you mean '{close[0]}'?" if close else None
        raise values.fail(UNKNOWN_OPCODE.at(node.opcode.span, name=node.opcode.id, hint=hint))
    marks = Decorators(values, MOVE if opcode.name in MOVES else TASK, node.decorators)
    attributes = resolve_attributes(values, node, opcode)
    deps = resolve_deps(values, node.deps)
    inputs, outputs = _operands(values, node.inputs), _operands(values, node.outputs)
    resource = marks.resource()
    if len(inputs) != len(node.inputs) or len(outputs) != len(node.outputs):
        raise Failed
    _check_access(values, node, inputs, outputs)
    task = Task(
        number,
        node.token.id if node.token else "",
        opcode.name,
        node.form == "sync",
        inputs,
        outputs,
        attributes,
        deps,
        _engine(values, node, (*inputs, *outputs), marks, device),
        resource,
        node,
        memmove=marks.has("memmove"),
        deterministic=marks.has("deterministic"),
        debug=marks.word("debug"),
        profile=marks.word("profile"),
    )
    _check_unit(values, task, opcode, device)
    return task


def resolve_deps(values: Expressions, names: tuple[nodes.Name, ...]) -> tuple[int, ...]:
    """The tasks whose tokens are named; unknown ones are reported and left out."""
    found: list[int] = []
    for name in names:
        meaning = values.meaning(name)
        if isinstance(meaning, Token):
            found.append(meaning.task)
        elif not isinstance(meaning, Poison):
            values.wrong(name, meaning, "a token")
    return tuple(dict.fromkeys(found))


def _operands(values: Expressions, operands: tuple[nodes.Operand, ...]) -> tuple[Region, ...]:
    found: list[Region] = []
    for operand in operands:
        try:
            found.append(resolve_operand(values, operand))
        except Failed:
            continue
    return tuple(found)


def _check_access(
    values: Expressions, node: nodes.Task, inputs: tuple[Region, ...], outputs: tuple[Region, ...]
) -> None:
    for operand, region in zip(node.inputs, inputs, strict=True):
        if region.writeonly:
            values.findings.append(READ_WRITEONLY.at(operand.span, opcode=node.opcode.id))
    for operand, region in zip(node.outputs, outputs, strict=True):
        if region.readonly:
            values.findings.append(WRITE_READONLY.at(operand.span, opcode=node.opcode.id))


def _engine(
    values: Expressions,
    node: nodes.Task,
    regions: tuple[Region, ...],
    marks: Decorators,
    device: ResolvedDevice | None,
) -> int | None:
    """The engine a task is bound to by its L1 operands or @seq_engine; None where it is free."""
    engines = sorted({region.buffer.engine for region in regions if region.buffer.memory == "L1"})
    if len(engines) > 1:
        finding = CROSS_ENGINE.at(node.span, opcode=node.opcode.id, first=engines[0], second=engines[1])
        raise values.fail(finding)
    wanted = marks.integer("seq_engine")
    if wanted is None:
        return engines[0] if engines else None
    problem = ""
    if engines and engines[0] != wanted:
        problem = f"contradicts an operand in L1[{engines[0]}]"
    elif wanted < 0:
        problem = "is negative"
    elif device is not None and device.topology is not None and wanted >= device.topology.num_engines:
        problem = f"is beyond device '{device.name}', which has {device.topology.num_engines} engine(s)"
    if problem:
        finding = ENGINE_CONFLICT.at(marks.span("seq_engine"), engine=wanted, problem=problem)
        values.findings.append(finding)
    return wanted


def eligible_units(task: Task, opcode: Opcode) -> tuple[str, ...]:
    """Where a task may run, the default first; a VPU runs everything, a move that touches DDR takes the system DMA."""
    if opcode.name == GENERIC:
        return ("VPU", "CSTL", "NMU", "DMA")
    units = opcode.units
    if opcode.name == "transfer":
        in_ddr = any(region.buffer.memory == "DDR" for region in (*task.inputs, *task.outputs))
        units = ("sDMA",) if in_ddr else ("DMA",)
    return (*units, *(() if "VPU" in units else ("VPU",)))


def _check_unit(values: Expressions, task: Task, opcode: Opcode, device: ResolvedDevice | None) -> None:
    eligible = eligible_units(task, opcode)
    wanted: Resource | None = task.resource
    if wanted is not None and wanted.unit not in eligible:
        finding = RESOURCE_UNIT.at(
            wanted.span, opcode=opcode.name, unit=wanted.unit, eligible=" or ".join(eligible)
        )
        values.findings.append(finding)
    if device is None or device.topology is None or any(device.units(unit) for unit in eligible):
        return
    finding = NO_UNIT.at(task.node.opcode.span, device=device.name, unit=eligible[0], opcode=opcode.name)
    values.findings.append(finding)
