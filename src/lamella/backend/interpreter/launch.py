"""What a caller passes to a kernel: verified against the types and promises of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lamella.backend.interpreter.memory import Reference, References, make_reference, shift_reference
from lamella.backend.interpreter.numbers import Number, convert, dtype_of, is_complex, is_integer
from lamella.backend.interpreter.state import RunValue
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError, Rule
from lamella.lang.tensor import write_type
from lamella.lang.tensor.nodes import Dictionary, Function, Group, Memref, Parameter, Scalar
from lamella.lang.tensor.rules import running as rules


@dataclass(frozen=True, slots=True)
class Arrays:
    """The argument of a group whose offset is known only at launch: its arrays and the offset in elements."""

    items: Sequence[Array]
    offset: int = 0


def take_arguments(function: Function, arguments: Sequence[object]) -> dict[str, RunValue]:
    """The values of the parameters; what does not fit is told all at once."""
    if len(arguments) != len(function.parameters):
        raise LamellaError([_miscounted(function, len(arguments))])
    findings = [
        finding
        for parameter, argument in zip(function.parameters, arguments, strict=True)
        for finding in _verify(parameter, argument)
    ]
    if findings:
        raise LamellaError(findings)
    pairs = zip(function.parameters, arguments, strict=True)
    return {parameter.value.name: _take(parameter, argument) for parameter, argument in pairs}


def _miscounted(function: Function, given: int) -> Diagnostic:
    shown = ", ".join(f"%{item.value.name}: {write_type(item.type)}" for item in function.parameters)
    values = {"name": function.name, "wanted": len(function.parameters), "given": given}
    return rules.ARGUMENT_COUNT.at(function.span, hint=None, labels=(), parameters=shown or "none", **values)


# --- verify -------------------------------------------------------------------------------------------------


def _verify(parameter: Parameter, argument: object) -> Iterator[Diagnostic]:
    if isinstance(parameter.type, Scalar):
        yield from _verify_scalar(parameter, parameter.type, argument)
    elif isinstance(parameter.type, Memref):
        yield from _verify_array(parameter, parameter.type, argument)
    elif isinstance(parameter.type, Group):
        yield from _verify_group(parameter, parameter.type, argument)


def _find(rule: Rule, parameter: Parameter, **values: object) -> Diagnostic:
    return rule.at(parameter.span, hint=None, labels=(), name=parameter.value.name, **values)


def _wrong_kind(parameter: Parameter, argument: object) -> Diagnostic:
    given = f"of Python type {type(argument).__name__}"
    return _find(rules.ARGUMENT_KIND, parameter, given=given, type=write_type(parameter.type))


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
    if is_integer(dtype):
        bounds = np.iinfo(dtype)
        return isinstance(argument, int | np.integer) and bounds.min <= int(argument) <= bounds.max
    if isinstance(argument, int):
        return abs(argument) < 1 << 1023
    complex_given = isinstance(argument, complex | np.complexfloating)
    return is_complex(dtype) or not complex_given


def _verify_array(parameter: Parameter, kind: Memref, argument: object) -> Iterator[Diagnostic]:
    if not isinstance(argument, np.ndarray):
        yield _wrong_kind(parameter, argument)
    elif argument.dtype != dtype_of(kind.element):
        yield _find(rules.ARGUMENT_ELEMENT, parameter, given=argument.dtype, element=kind.element)
    elif argument.ndim != kind.order:
        yield _find(rules.ARGUMENT_ORDER, parameter, given=argument.ndim, wanted=kind.order)
    else:
        layout = [*_verify_sizes(parameter, kind, argument), *_verify_strides(parameter, kind, argument)]
        yield from layout or _verify_promises(parameter, kind, argument)


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


def _verify_promises(parameter: Parameter, kind: Memref, array: Array) -> Iterator[Diagnostic]:
    alignment = _attribute(parameter.attributes, "alignment")
    for divisor in alignment:
        rest = array.ctypes.data % divisor if array.size else 0
        if rest:
            yield _find(rules.BROKEN_ALIGNMENT, parameter, rest=rest, alignment=divisor)
    for mode, (divisor, given) in enumerate(
        zip(_attribute(parameter.attributes, "shape_gcd"), array.shape, strict=False)
    ):
        if given % divisor:
            yield _find(rules.BROKEN_SHAPE_GCD, parameter, mode=mode, given=given, divisor=divisor)
    strides = _strides(kind, array)
    for mode, (divisor, given) in enumerate(
        zip(_attribute(parameter.attributes, "stride_gcd"), strides, strict=False)
    ):
        if given % divisor and array.shape[mode] > 1:
            yield _find(rules.BROKEN_STRIDE_GCD, parameter, mode=mode, given=given, divisor=divisor)


def _attribute(attributes: Dictionary | None, key: str) -> list[int]:
    """The positive integers of an attribute: one, a list, or none."""
    found = None if attributes is None else attributes.find(key)
    items = found if isinstance(found, tuple) else (found,)
    return [item for item in items if isinstance(item, int) and item > 0]


def _verify_group(parameter: Parameter, kind: Group, argument: object) -> Iterator[Diagnostic]:
    items, offset = (
        (argument.items, argument.offset) if isinstance(argument, Arrays) else (argument, kind.offset or 0)
    )
    if not isinstance(items, list | tuple):
        yield _wrong_kind(parameter, argument)
        return
    if kind.size is not None and len(items) != kind.size:
        yield _find(rules.ARGUMENT_GROUP, parameter, given=len(items), wanted=kind.size)
    if offset < 0 or offset != (kind.offset if kind.offset is not None else offset):
        wanted = "?" if kind.offset is None else kind.offset
        yield _find(rules.ARGUMENT_OFFSET, parameter, given=offset, wanted=wanted)
    for item in items:
        yield from _verify_array(parameter, kind.memref, item)


# --- take ---------------------------------------------------------------------------------------------------


def _take(parameter: Parameter, argument: object) -> RunValue:
    name, kind = parameter.value.name, parameter.type
    if isinstance(kind, Memref) and isinstance(argument, np.ndarray):
        return _refer(name, kind, argument)
    if isinstance(kind, Group):
        given = argument if isinstance(argument, Arrays) else Arrays(_list(argument), kind.offset or 0)
        return References(name, tuple(_refer(name, kind.memref, item, given.offset) for item in given.items))
    return _take_scalar(kind, argument)


def _list(argument: object) -> list[Array]:
    return list(argument) if isinstance(argument, list | tuple) else []


def _take_scalar(kind: object, argument: object) -> Number:
    element = str(kind)
    if isinstance(argument, int) and dtype_of(element).kind not in "ib":
        argument = float(argument)
    return convert(argument if isinstance(argument, np.generic) else np.asarray(argument)[()], element)


def _refer(name: str, kind: Memref, array: Array, offset: int = 0) -> Reference:
    """A reference to an array; the declared strides stand where the array's own are never used."""
    plain = replace(make_reference(name, array), stride=_strides(kind, array))
    return shift_reference(plain, array, offset) if offset else plain


def _strides(kind: Memref, array: Array) -> tuple[int, ...]:
    pairs = zip(array.strides, kind.stride, strict=True)
    return tuple(max(0, given) // array.itemsize if wanted is None else wanted for given, wanted in pairs)
