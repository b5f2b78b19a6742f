"""The operands of one task: how many, typed, of which rank and layout, and what a move may copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import find_in
from lamella.base.source import Span
from lamella.lang.nem.nodes import Operand
from lamella.lang.nem.registry import Opcode, OperandSpec
from lamella.lang.nem.resolved import AttributeValue, Region, Task, TensorType
from lamella.lang.nem.rules import (
    ATTRIBUTE_VALUE,
    INPUT_COUNT,
    OPERAND_LAYOUT,
    OPERAND_RANK,
    OUTPUT_COUNT,
    UNTYPED_OPERAND,
)

NAMING_LAYOUTS = ("NHWC", "NCHW", "HWIO")
"""Layouts that say which axis is which; every other one is row-major over the shape as written."""

WINDOWED = ("conv2d", "depthwise_conv2d", "maxpool", "avgpool")
"""Opcodes whose tensors have named axes: images are NHWC, kernels HWIO."""


@dataclass(frozen=True, slots=True)
class TaskCall:
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


def read_call(task: Task, opcode: Opcode) -> tuple[TaskCall | None, list[Diagnostic]]:
    """The task with its operand types by name, or findings where an operand has no type."""
    inputs, outputs = named_inputs(task, opcode), named_outputs(task, opcode)
    span = task.node.opcode.span
    places = {name: place_of_operand(task.node.inputs, i, span) for i, name in enumerate(inputs)}
    places |= {name: place_of_operand(task.node.outputs, i, span) for i, name in enumerate(outputs)}
    untyped = [name for name, region in (inputs | outputs).items() if region.type is None]
    if untyped:
        return None, [UNTYPED_OPERAND.at(places[n], operand=n, opcode=opcode.name) for n in untyped]
    return TaskCall(task, opcode, _types(inputs), _types(outputs), places), []


def check_ranks(call: TaskCall) -> Iterator[Diagnostic]:
    """Operands have the rank that the registry asks for."""
    for name, spec, kind in _operands(call):
        rank = len(kind.shape)
        if (spec.rank and rank != spec.rank) or rank < spec.rank_min:
            wanted = spec.rank or f"at least {spec.rank_min}"
            yield OPERAND_RANK.at(
                call.places[name], operand=name, opcode=call.opcode.name, found=rank, wanted=wanted
            )


def check_layouts(call: TaskCall) -> Iterator[Diagnostic]:
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


def _operands(call: TaskCall) -> Iterator[tuple[str, OperandSpec, TensorType]]:
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


def place_of_operand(operands: Sequence[Operand], index: int, otherwise: Span) -> Span:
    """Where an operand stands, or another place where the task has none of that index."""
    return operands[index].span if index < len(operands) else otherwise


# --- the values of one task's attributes: counts, ranges and axes that fit its operands ---------------------


PAD_MODES = ("constant", "edge", "reflect")
SHOWN = 12


def check_attributes(call: TaskCall) -> Iterator[Diagnostic]:
    """Attribute values make sense for the operands of the task; each wrong one is one finding."""
    for name in call.opcode.attributes:
        if name not in _WANTS or call.value(name) is None:
            continue
        wanted = _WANTS[name](call, name)
        if wanted:
            yield ATTRIBUTE_VALUE.at(
                call.place_of(name),
                name=name,
                opcode=call.opcode.name,
                found=_shown(call, name),
                wanted=wanted,
            )


def count_axis(axis: int, rank: int) -> int:
    """An axis counted from the front; negative ones count from the back."""
    return axis + rank if axis < 0 else axis


def show_shape(values: Sequence[int]) -> str:
    """A list of numbers as the text writes it; a long one is cut."""
    more = f", … ({len(values)} values)" if len(values) > SHOWN else ""
    return f"[{', '.join(map(str, values[:SHOWN]))}{more}]"


def _shown(call: TaskCall, name: str) -> str:
    value = call.value(name)
    return show_shape(value) if isinstance(value, tuple) else str(value)


# Each function says what an attribute must be, or nothing where it is that.


def _axis(call: TaskCall, name: str) -> str:
    rank = _rank(call)
    return "" if -rank <= call.integer(name) < rank else f"it must lie between {-rank} and {rank - 1}"


def _axes(call: TaskCall, name: str) -> str:
    rank, axes = _rank(call), call.integers(name)
    if not axes:
        return "it must name at least one axis"
    if not all(-rank <= axis < rank for axis in axes):
        return f"its values must lie between {-rank} and {rank - 1}"
    return _distinct([count_axis(axis, rank) for axis in axes])


def _distinct(axes: Sequence[int]) -> str:
    return "" if len(set(axes)) == len(axes) else "it names an axis twice"


def _per_axis(call: TaskCall, name: str) -> str:
    """One positive number for each spatial axis."""
    values = call.integers(name)
    return _counted(values, _rank(call) - 2) or _at_least(values, 1)


def _pads(call: TaskCall, name: str) -> str:
    """All begins, then all ends: over the spatial axes of a window; over all axes of pad, where -1 cuts off."""
    values = call.integers(name)
    axes = _rank(call) if call.opcode.name == "pad" else _rank(call) - 2
    wrong = _counted(values, 2 * axes)
    if not wrong and (call.opcode.name != "pad" or call.value("mode") == "reflect"):
        wrong = _at_least(values, 0)
    if wrong:
        return wrong
    if "kernel_shape" in call.opcode.attributes:
        return _inside_kernel(call, values)
    return _reflectable(call, values) if call.value("mode") == "reflect" else ""


def _inside_kernel(call: TaskCall, pads: Sequence[int]) -> str:
    """Every window of a pool holds at least one real element."""
    kernel = call.integers("kernel_shape")
    outside = [size for pad, size in zip(pads, (*kernel, *kernel), strict=False) if pad >= size > 0]
    return f"each pad must be smaller than the kernel's {outside[0]}" if outside else ""


def _reflectable(call: TaskCall, pads: Sequence[int]) -> str:
    shape = call.inputs["X"].shape
    beyond = [size for pad, size in zip(pads, (*shape, *shape), strict=True) if pad >= size]
    return f"reflect reaches at most {beyond[0] - 1} of {beyond[0]} elements" if beyond else ""


def _groups(call: TaskCall, name: str) -> str:
    return "" if call.integer(name) >= 1 else "it must be at least 1"


def _perm(call: TaskCall, name: str) -> str:
    rank = _rank(call)
    if sorted(call.integers(name)) == list(range(rank)):
        return ""
    return f"it must name each axis from 0 to {rank - 1} once"


def _target_shape(call: TaskCall, name: str) -> str:
    values = call.integers(name)
    if not values:
        return "it needs at least one dimension"
    if any(size < 1 and size != -1 for size in values):
        return "dimensions must be positive; one may be -1"
    return "" if values.count(-1) <= 1 else "only one dimension may be -1"


def _bounds_of_slice(call: TaskCall, name: str) -> str:
    """Starts, ends and steps go with the axes, one each."""
    values, axes = call.integers(name), call.value("axes")
    wrong = _counted(values, len(axes)) if isinstance(axes, tuple) else ""
    if not wrong and name == "steps" and 0 in values:
        return "a step must not be 0"
    return wrong


def _split_sizes(call: TaskCall, name: str) -> str:
    values, axis = call.integers(name), call.value("axis")
    wrong = _counted(values, len(call.outputs)) or _at_least(values, 1)
    shape = call.inputs["X"].shape
    if wrong or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return wrong
    total = sum(values)
    return "" if total == shape[axis] else f"its sum {total} must be the {shape[axis]} of axis {axis}"


def _mode(call: TaskCall, name: str) -> str:
    return (
        "" if call.value(name) in PAD_MODES else f"it must be {', '.join(PAD_MODES[:-1])} or {PAD_MODES[-1]}"
    )


def _constant_value(call: TaskCall, name: str) -> str:
    """What fills an unquantised integer tensor is one of its integers."""
    value, kind = call.value(name), call.inputs["X"]
    element = find_in("nem", kind.elem)
    if not isinstance(value, int | float) or element is None or not element.is_integer or kind.quant:
        return ""
    if math.isfinite(value) and value == int(value) and element.minimum <= value <= element.maximum:
        return ""
    return f"{kind.elem} holds integers from {element.minimum} to {element.maximum}"


def _epsilon(call: TaskCall, name: str) -> str:
    value = call.value(name)
    return "it must not be negative" if isinstance(value, int | float) and value < 0 else ""


def _min_val(call: TaskCall, name: str) -> str:
    low, high = call.value(name), call.value("max_val")
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        return f"it must not exceed max_val {high}"
    return ""


def _rank(call: TaskCall) -> int:
    """The rank of the first input, which attributes speak of."""
    return len(next(iter(call.inputs.values())).shape)


def _counted(values: Sequence[int], count: int) -> str:
    return "" if len(values) == count else f"it needs {count} value{'' if count == 1 else 's'}"


def _at_least(values: Sequence[int], least: int) -> str:
    return "" if all(value >= least for value in values) else f"its values must be at least {least}"


_WANTS: Mapping[str, Callable[[TaskCall, str], str]] = MappingProxyType(
    {
        **{"axis": _axis, "axes": _axes, "perm": _perm, "target_shape": _target_shape},
        **{"kernel_shape": _per_axis, "strides": _per_axis, "dilations": _per_axis, "pads": _pads},
        **{"starts": _bounds_of_slice, "ends": _bounds_of_slice, "steps": _bounds_of_slice},
        **{"groups": _groups, "split_sizes": _split_sizes, "mode": _mode},
        **{"constant_value": _constant_value, "epsilon": _epsilon, "min_val": _min_val},
    }
)
