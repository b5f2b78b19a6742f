"""Arguments against the types and promises of the parameters: what does not fit is told all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lamella.backend.arguments.elements import dtype_of
from lamella.backend.arguments.overlap import Block, find_folded, find_overlap, overlap_finding
from lamella.backend.arguments.written import written_parameters
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, Rule
from lamella.lang.tensor import write_type
from lamella.lang.tensor.nodes import Dictionary, Function, Group, Memref, Parameter, Scalar
from lamella.lang.tensor.rules import running as rules


@dataclass(frozen=True, slots=True)
class Arrays:
    """The argument of a group whose offset is known only at launch: its arrays and the offset in elements."""

    items: Sequence[Array]
    offset: int = 0


def verify_arguments(function: Function, arguments: Sequence[object]) -> list[Diagnostic]:
    """All that is wrong with the arguments of a launch."""
    if len(arguments) != len(function.parameters):
        return [miscounted(function, len(arguments))]
    pairs = list(zip(function.parameters, arguments, strict=True))
    findings = [finding for pair in pairs for finding in verify_argument(*pair)]
    return findings or _verify_apart(function, pairs)


def miscounted(function: Function, given: int) -> Diagnostic:
    """The finding that a kernel gets too many or too few arguments."""
    shown = ", ".join(f"%{item.value.name}: {write_type(item.type)}" for item in function.parameters)
    values = {"name": function.name, "wanted": len(function.parameters), "given": given}
    return rules.ARGUMENT_COUNT.at(function.span, hint=None, labels=(), parameters=shown or "none", **values)


def verify_argument(parameter: Parameter, argument: object) -> Iterator[Diagnostic]:
    """What is wrong with one argument."""
    if isinstance(parameter.type, Scalar):
        yield from _verify_scalar(parameter, parameter.type, argument)
    elif isinstance(parameter.type, Memref):
        yield from _verify_array(parameter, parameter.type, argument)
    elif isinstance(parameter.type, Group):
        yield from _verify_group(parameter, parameter.type, argument)


def group_items(kind: Group, argument: object) -> Arrays:
    """The arrays and the offset of the argument of a group."""
    if isinstance(argument, Arrays):
        return argument
    return Arrays(argument if isinstance(argument, list | tuple) else (), kind.offset or 0)


def layout_strides(kind: Memref, array: Array) -> tuple[int, ...]:
    """Strides in elements; the declared ones stand where the array's own are never used."""
    pairs = zip(array.strides, kind.stride, strict=True)
    return tuple(max(0, given) // array.itemsize if wanted is None else wanted for given, wanted in pairs)


def promised(attributes: Dictionary | None, key: str) -> list[int]:
    """The positive integers of an attribute: one, a list, or none."""
    found = None if attributes is None else attributes.find(key)
    items = found if isinstance(found, tuple) else (found,)
    return [item for item in items if isinstance(item, int) and item > 0]


def _verify_apart(function: Function, pairs: Sequence[tuple[Parameter, object]]) -> list[Diagnostic]:
    written = written_parameters(function)
    blocks = [block for parameter, argument in pairs for block in _blocks(parameter, argument)]
    folded = find_folded(blocks, written)
    names = find_overlap(blocks, written) if folded is None else (folded, folded)
    return [] if names is None else [overlap_finding(function, names, written)]


def _blocks(parameter: Parameter, argument: object) -> Iterator[Block]:
    if isinstance(argument, np.ndarray):
        items, offset = Arrays([argument]), 0
    elif isinstance(parameter.type, Group):
        items = group_items(parameter.type, argument)
        offset = items.offset
    else:
        return
    for item in items.items:
        low = item.ctypes.data + offset * item.itemsize
        yield Block(parameter.value.name, low, item.shape, item.strides, item.itemsize)


def _find(rule: Rule, parameter: Parameter, **values: object) -> Diagnostic:
    return rule.at(parameter.span, hint=None, labels=(), name=parameter.value.name, **values)


def _wrong_kind(parameter: Parameter, argument: object) -> Diagnostic:
    given = f"of Python type {type(argument).__name__}"
    return _find(rules.ARGUMENT_KIND, parameter, given=given, type=write_type(parameter.type))


# --- scalars ------------------------------------------------------------------------------------------------


def _verify_scalar(parameter: Parameter, kind: Scalar, argument: object) -> Iterator[Diagnostic]:
    if not isinstance(argument, bool | int | float | complex | np.generic):
        yield _wrong_kind(parameter, argument)
    elif not _fits(kind, argument):
        yield _find(rules.ARGUMENT_VALUE, parameter, value=argument, type=kind)


def _fits(kind: Scalar, argument: complex | np.generic) -> bool:
    """Whether a number is a value of a type; floating-point types round it."""
    if kind.name == "bool" or isinstance(argument, bool | np.bool_):
        return kind.name == "bool" and isinstance(argument, bool | np.bool_)
    dtype = dtype_of(kind.name)
    if dtype.kind == "i":
        bounds = np.iinfo(dtype)
        return isinstance(argument, int | np.integer) and bounds.min <= int(argument) <= bounds.max
    if isinstance(argument, int):
        return abs(argument) < 1 << 1023
    complex_given = isinstance(argument, complex | np.complexfloating)
    return dtype.kind == "c" or not complex_given


# --- arrays -------------------------------------------------------------------------------------------------


def _verify_array(
    parameter: Parameter, kind: Memref, argument: object, offset: int = 0
) -> Iterator[Diagnostic]:
    if not isinstance(argument, np.ndarray):
        yield _wrong_kind(parameter, argument)
    elif argument.dtype != dtype_of(kind.element):
        yield _find(rules.ARGUMENT_ELEMENT, parameter, given=argument.dtype, element=kind.element)
    elif argument.ndim != kind.order:
        yield _find(rules.ARGUMENT_ORDER, parameter, given=argument.ndim, wanted=kind.order)
    else:
        layout = [*_verify_sizes(parameter, kind, argument), *_verify_strides(parameter, kind, argument)]
        yield from layout or _verify_promises(parameter, kind, argument, offset)


def _verify_sizes(parameter: Parameter, kind: Memref, array: Array) -> Iterator[Diagnostic]:
    for mode, (given, wanted) in enumerate(zip(array.shape, kind.shape, strict=True)):
        if wanted is not None and given != wanted:
            yield _find(rules.ARGUMENT_SIZE, parameter, mode=mode, given=given, wanted=wanted)


def _verify_strides(parameter: Parameter, kind: Memref, array: Array) -> Iterator[Diagnostic]:
    """The stride of a mode that has at most one element is never used and may be anything."""
    used = [mode for mode, size in enumerate(array.shape) if size > 1 and array.size]
    width = array.itemsize
    odd = next((mode for mode in used if array.strides[mode] < 0 or array.strides[mode] % width), None)
    if odd is not None:
        yield _find(rules.ARGUMENT_LAYOUT, parameter, mode=odd, given=array.strides[odd], size=width)
    elif any(kind.stride[mode] not in (None, array.strides[mode] // width) for mode in used):
        given = ",".join(str(step // width) for step in array.strides)
        wanted = ",".join("?" if step is None else str(step) for step in kind.stride)
        yield _find(rules.ARGUMENT_STRIDE, parameter, given=given, wanted=wanted)


def _verify_promises(parameter: Parameter, kind: Memref, array: Array, offset: int) -> Iterator[Diagnostic]:
    first = array.ctypes.data + offset * array.itemsize
    for divisor in promised(parameter.attributes, "alignment"):
        rest = first % divisor if array.size else 0
        if rest:
            yield _find(rules.BROKEN_ALIGNMENT, parameter, rest=rest, alignment=divisor)
    for mode, (divisor, given) in enumerate(
        zip(promised(parameter.attributes, "shape_gcd"), array.shape, strict=False)
    ):
        if given % divisor:
            yield _find(rules.BROKEN_SHAPE_GCD, parameter, mode=mode, given=given, divisor=divisor)
    strides = layout_strides(kind, array)
    for mode, (divisor, given) in enumerate(
        zip(promised(parameter.attributes, "stride_gcd"), strides, strict=False)
    ):
        if given % divisor and array.shape[mode] > 1 and array.size:
            yield _find(rules.BROKEN_STRIDE_GCD, parameter, mode=mode, given=given, divisor=divisor)


# --- groups -------------------------------------------------------------------------------------------------


def _verify_group(parameter: Parameter, kind: Group, argument: object) -> Iterator[Diagnostic]:
    items, offset = (
        (argument.items, argument.offset) if isinstance(argument, Arrays) else (argument, kind.offset or 0)
    )
    if not isinstance(items, list | tuple):
        yield _wrong_kind(parameter, argument)
        return
    if kind.size is not None and len(items) != kind.size:
        yield _find(rules.ARGUMENT_GROUP, parameter, given=len(items), wanted=kind.size)
    is_number = isinstance(offset, int | np.integer)
    if not is_number or offset < 0 or offset != (kind.offset if kind.offset is not None else offset):
        wanted = "?" if kind.offset is None else kind.offset
        yield _find(rules.ARGUMENT_OFFSET, parameter, given=offset, wanted=wanted)
        return
    for item in items:
        yield from _verify_array(parameter, kind.memref, item, offset)
