"""The operands of one task: how many, typed, of which rank and layout, and what a move may copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic
from lamella.base.shape import element_count
from lamella.base.source import Span
from lamella.lang.nem.nodes import Operand
from lamella.lang.nem.registry import Opcode, OperandSpec
from lamella.lang.nem.resolved import AttributeValue, Region, Task, TensorType
from lamella.lang.nem.rules import (
    INPUT_COUNT,
    MOVE_SIZE,
    MOVE_TYPE,
    OPERAND_LAYOUT,
    OPERAND_RANK,
    OUTPUT_COUNT,
    UNTYPED_OPERAND,
)

MOVES = ("transfer", "store")
NAMING_LAYOUTS = ("NHWC", "NCHW", "HWIO")
"""Layouts that say which axis is which; every other one is row-major over the shape as written."""

WINDOWED = ("conv2d", "depthwise_conv2d", "maxpool", "avgpool")
"""Opcodes whose tensors have named axes: images are NHWC, kernels HWIO."""


@dataclass(frozen=True, slots=True)
class Call:
    """A task whose operands fit the signature of its opcode: types and places by operand name."""

    task: Task
    opcode: Opcode
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    places: Mapping[str, Span]

    @property
    def span(self) -> Span:
        """Where the opcode stands."""
        return self.task.node.opcode.span

    def value(self, attribute: str) -> AttributeValue | None:
        """The value of an attribute, or None where it was missing or wrong and already reported."""
        return self.task.attributes.get(attribute)

    def integer(self, attribute: str) -> int:
        """The value of an attribute that is known to be an integer."""
        value = self.value(attribute)
        return value if isinstance(value, int) else 0

    def integers(self, attribute: str) -> tuple[int, ...]:
        """The value of an attribute that is known to be a list of integers."""
        value = self.value(attribute)
        return value if isinstance(value, tuple) else ()

    def place_of(self, attribute: str) -> Span:
        """Where an attribute is written; a default stands at the opcode."""
        written = (item.span for item in self.task.node.attributes if item.name.id == attribute)
        return next(written, self.span)


def named_inputs(task: Task, opcode: Opcode) -> dict[str, Region]:
    """The inputs of a task by operand name; a variadic operand gives `X[0]`, `X[1]`, and so on."""
    return dict(zip(_names(opcode.inputs, len(task.inputs)), task.inputs, strict=False))


def named_outputs(task: Task, opcode: Opcode) -> dict[str, Region]:
    """The outputs of a task by operand name, like `named_inputs`."""
    return dict(zip(_names(opcode.outputs, len(task.outputs)), task.outputs, strict=False))


def check_counts(task: Task, opcode: Opcode) -> Iterator[Diagnostic]:
    """A task has the operands that its opcode takes."""
    span = task.node.opcode.span
    for rule, specs, found in (
        (INPUT_COUNT, opcode.inputs, len(task.inputs)),
        (OUTPUT_COUNT, opcode.outputs, len(task.outputs)),
    ):
        least, most = _bounds(specs)
        if found < least or (most is not None and found > most):
            yield rule.at(span, opcode=opcode.name, wanted=_span_of_counts(least, most), found=found)


def check_move(task: Task) -> Iterator[Diagnostic]:
    """The source of a transfer or store fits into its destination, and typed ends agree."""
    source, target = task.inputs[0], task.outputs[0]
    place = _place(task.node.outputs, 0, task.node.opcode.span)
    if target.extent < source.extent:
        yield MOVE_SIZE.at(place, opcode=task.opcode, source=source.extent, target=target.extent)
    elif source.type and target.type and not _same_elements(source.type, target.type):
        yield MOVE_TYPE.at(place, opcode=task.opcode, source=source.type, target=target.type)


def read_call(task: Task, opcode: Opcode) -> tuple[Call | None, list[Diagnostic]]:
    """The task with its operand types by name, or findings where an operand has no type."""
    inputs, outputs = named_inputs(task, opcode), named_outputs(task, opcode)
    span = task.node.opcode.span
    places = {name: _place(task.node.inputs, i, span) for i, name in enumerate(inputs)}
    places |= {name: _place(task.node.outputs, i, span) for i, name in enumerate(outputs)}
    untyped = [name for name, region in (inputs | outputs).items() if region.type is None]
    if untyped:
        return None, [UNTYPED_OPERAND.at(places[n], operand=n, opcode=opcode.name) for n in untyped]
    return Call(task, opcode, _types(inputs), _types(outputs), places), []


def check_ranks(call: Call) -> Iterator[Diagnostic]:
    """Operands have the rank that the registry asks for."""
    for name, spec, kind in _operands(call):
        rank = len(kind.shape)
        if (spec.rank and rank != spec.rank) or rank < spec.rank_min:
            wanted = spec.rank or f"at least {spec.rank_min}"
            yield OPERAND_RANK.at(
                call.places[name], operand=name, opcode=call.opcode.name, found=rank, wanted=wanted
            )


def check_layouts(call: Call) -> Iterator[Diagnostic]:
    """Convolutions and pools read NHWC images and HWIO kernels.

    A region with explicit strides names no layout and is accepted: its shape is written in that order, and the
    strides say where the elements lie. Where the registry asks for no layout (outputs, the kernel of
    depthwise_conv2d) a layout that names the axes in another order is refused all the same.
    """
    if call.opcode.name not in WINDOWED:
        return
    for name, spec, kind in _operands(call):
        wanted = "HWIO" if name == "W" else "NHWC"
        misnamed = kind.layout in NAMING_LAYOUTS if not spec.layout else kind.layout is not None
        if misnamed and kind.layout != wanted and len(kind.shape) == spec.rank == 4:
            yield OPERAND_LAYOUT.at(
                call.places[name], operand=name, opcode=call.opcode.name, found=kind.layout, wanted=wanted
            )


def spec_of(specs: Sequence[OperandSpec], operand: str) -> OperandSpec:
    """The signature of an operand by name, also of one of a variadic list."""
    name = operand.partition("[")[0]
    return next(spec for spec in specs if spec.name == name)


def _operands(call: Call) -> Iterator[tuple[str, OperandSpec, TensorType]]:
    """Every operand with its signature and type, inputs first."""
    for specs, types in ((call.opcode.inputs, call.inputs), (call.opcode.outputs, call.outputs)):
        for name, kind in types.items():
            yield name, spec_of(specs, name), kind


def _names(specs: Sequence[OperandSpec], count: int) -> Iterator[str]:
    for spec in specs:
        if not spec.variadic:
            yield spec.name
            continue
        yield from (f"{spec.name}[{index}]" for index in range(count))


def _types(regions: Mapping[str, Region]) -> dict[str, TensorType]:
    return {name: region.type for name, region in regions.items() if region.type is not None}


def _bounds(specs: Sequence[OperandSpec]) -> tuple[int, int | None]:
    """The least and the largest number of operands; None where there is no largest."""
    least = sum(not spec.optional for spec in specs)
    return least, None if any(spec.variadic for spec in specs) else len(specs)


def _span_of_counts(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least}"
    return str(least) if least == most else f"{least} {'or' if most == least + 1 else 'to'} {most}"


def _same_elements(source: TensorType, target: TensorType) -> bool:
    return source.elem == target.elem and element_count(source.shape) == element_count(target.shape)


def _place(operands: Sequence[Operand], index: int, otherwise: Span) -> Span:
    return operands[index].span if index < len(operands) else otherwise
