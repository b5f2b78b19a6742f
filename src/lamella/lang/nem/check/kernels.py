"""The kernels of `compute` tasks: the name exists, and regions and attributes are what the parameters ask for.

A kernel is one function of the tensor language. Its memrefs are the inputs of the task, then its outputs, in order; the
last dimension of a region is the first mode of its memref, so that what lies row by row in a region is a packed memref.
Its scalars are attributes of the task by their names; `groups` is the number of work-groups, 1 where it is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import find_in
from lamella.base.shape import element_count, row_major_strides
from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.lang.nem.check.operands import place_of_operand, show_shape
from lamella.lang.nem.resolved import AttributeValue, ComputeKernel, KernelParameter, Region, Task, TensorType
from lamella.lang.nem.rules import (
    GENERIC_OPERATION,
    KERNEL_ELEMENT,
    KERNEL_OPERANDS,
    KERNEL_SCALAR,
    KERNEL_SHAPE,
    KERNEL_UNFIT,
    UNKNOWN_KERNEL,
)

COMPUTE = "compute"
GROUPS = "groups"
MOST_GROUPS = 1 << 24
BITS_OF = MappingProxyType({"u8": "i8", "u16": "i16", "u32": "i32"})
"""Unsigned elements, which the tensor language has not, and what their bits are handed over as."""
RESERVED = ("op", GROUPS)
"""Attributes of a task that are no scalars of its kernel."""


def kernel_name(task: Task) -> str:
    """The operation that a `compute` task asks for."""
    return str(task.attributes.get("op", ""))


def check_kernels(
    tasks: Iterable[Task], kernels: Mapping[str, ComputeKernel] | None, file: str
) -> Iterator[Diagnostic]:
    """Every `compute` task against its kernel; without a file of kernels each of them is pointed out."""
    for task in tasks:
        if task.opcode != COMPUTE or "op" not in task.attributes:
            continue
        name, span = kernel_name(task), task.node.opcode.span
        if kernels is None:
            yield GENERIC_OPERATION.at(span, name=name)
        elif name not in kernels:
            close = nearest(name, kernels)
            hint = f"did you mean '{close[0]}'?" if close else f"its kernels are: {', '.join(kernels)}"
            yield UNKNOWN_KERNEL.at(span, file=file, name=name, hint=hint if kernels else None)
        else:
            yield from check_kernel(task, kernels[name])


def check_kernel(task: Task, kernel: ComputeKernel) -> Iterator[Diagnostic]:
    """The operands and attributes of one task."""
    span = task.node.opcode.span
    if kernel.problem:
        yield KERNEL_UNFIT.at(span, name=kernel.name, problem=kernel.problem)
        return
    memrefs = [item for item in kernel.parameters if item.shape is not None]
    regions = (*task.inputs, *task.outputs)
    if len(memrefs) != len(regions):
        yield KERNEL_OPERANDS.at(span, name=kernel.name, wanted=len(memrefs), found=len(regions))
        return
    places = [place_of_operand(task.node.inputs, i, span) for i in range(len(task.inputs))]
    places += [place_of_operand(task.node.outputs, i, span) for i in range(len(task.outputs))]
    for number, (parameter, region, place) in enumerate(zip(memrefs, regions, places, strict=True)):
        if parameter.written and number < len(task.inputs):
            problem = f"it writes %{parameter.name}, which is an input of the task"
            yield KERNEL_UNFIT.at(place, name=kernel.name, problem=problem)
        yield from _check_operand(kernel, parameter, region, place)
    yield from _check_scalars(task, kernel, span)


def _check_operand(
    kernel: ComputeKernel, parameter: KernelParameter, region: Region, place: Span
) -> Iterator[Diagnostic]:
    kind = region.type
    if kind is None:
        return
    if BITS_OF.get(kind.elem, kind.elem) != parameter.elem:
        yield KERNEL_ELEMENT.at(
            place, name=kernel.name, parameter=parameter.name, wanted=parameter.elem, found=kind.elem
        )
    elif fit(parameter, kind) is None:
        wanted = f"shape {_show(parameter.shape or ())} and strides {_show(parameter.strides)}"
        shape, strides = kind.shape[::-1], kind.strides[::-1]
        found = f"{show_shape(shape)} and {show_shape(strides)}, its last dimension first"
        yield KERNEL_SHAPE.at(place, name=kernel.name, parameter=parameter.name, wanted=wanted, found=found)


def fit(parameter: KernelParameter, kind: TensorType) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and strides that a region has as a memref, its modes in their order; None where it does not fit.

    A region without gaps may have its elements counted otherwise: neighbouring dimensions may be one mode, where
    the memref has no gaps and says all its sizes.
    """
    wanted, strides = parameter.shape or (), parameter.strides
    shape, steps = kind.shape[::-1], kind.strides[::-1]
    if len(shape) == len(wanted) and _agree(wanted, shape) and _strides_agree(strides, steps, shape):
        return shape, steps
    known = tuple(size for size in wanted if size is not None)
    packed = row_major_strides(known[::-1])[::-1]
    if len(known) < len(wanted) or kind.strides != row_major_strides(kind.shape) or strides != packed:
        return None
    return (known, packed) if element_count(known) == element_count(kind.shape) else None


def _agree(wanted: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    return all(one in (None, other) for one, other in zip(wanted, found, strict=True))


def _strides_agree(wanted: tuple[int | None, ...], found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """The stride of a mode of one element is never used."""
    pairs = zip(wanted, found, shape, strict=True)
    return all(size == 1 or one in (None, other) for one, other, size in pairs)


def _check_scalars(task: Task, kernel: ComputeKernel, span: Span) -> Iterator[Diagnostic]:
    scalars = {item.name: item for item in kernel.parameters if item.shape is None}
    places = {item.name.id: item.span for item in task.node.attributes}
    for name, value in task.attributes.items():
        place = places.get(name, span)
        if name == GROUPS and not (type(value) is int and 1 <= value <= MOST_GROUPS):
            problem = f"runs with 1 to {MOST_GROUPS} work-groups, not {value}"
            yield KERNEL_SCALAR.at(place, name=kernel.name, problem=problem)
        elif name not in RESERVED and name not in scalars:
            yield KERNEL_SCALAR.at(place, name=kernel.name, problem=f"has no scalar %{name}")
        elif name in scalars and not takes(scalars[name], value):
            problem = f"takes {scalars[name].elem} for %{name}, not {str(value)[:40]}"
            yield KERNEL_SCALAR.at(place, name=kernel.name, problem=problem)
    for name in scalars:
        if name not in task.attributes:
            yield KERNEL_SCALAR.at(span, name=kernel.name, problem=f"needs the scalar %{name}: {name}=…")


def takes(parameter: KernelParameter, value: AttributeValue) -> bool:
    """Whether a scalar parameter takes the value of an attribute."""
    element = find_in("tensor", parameter.elem)
    if element is None or not isinstance(value, int | float):
        return False
    if element.is_float:
        return not isinstance(value, bool)
    if element.name == "bool":
        return value in (0, 1)
    return type(value) is int and element.minimum <= value <= element.maximum


def _show(values: tuple[int | None, ...]) -> str:
    return f"[{', '.join('?' if value is None else str(value) for value in values)}]"
