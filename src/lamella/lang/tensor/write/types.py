"""Types, attributes and numbers as text."""

from __future__ import annotations

import math
from collections.abc import Iterable

from lamella.lang.tensor.nodes import (
    Attribute,
    Coopmatrix,
    Dictionary,
    Group,
    Memref,
    Number,
    Scalar,
    Size,
    Text,
    Type,
    packed_stride,
)
from lamella.lang.tensor.nodes.attributes import KEYS


def write_type(type_: Type) -> str:
    """A type; strides that are packed and the global address space go without saying."""
    if isinstance(type_, Scalar):
        return type_.name
    if isinstance(type_, Memref):
        return _memref(type_)
    if isinstance(type_, Group):
        offset = "" if type_.offset == 0 else f", offset: {write_size(type_.offset)}"
        return f"group<{_memref(type_.memref)}x{write_size(type_.size)}{offset}>"
    return _coopmatrix(type_)


def write_types(types: Iterable[Type]) -> str:
    """The types of results: `(i64,f32)`."""
    return f"({','.join(map(write_type, types))})"


def _memref(type_: Memref) -> str:
    shape = "".join(f"x{write_size(size)}" for size in type_.shape)
    is_packed = type_.stride == packed_stride(type_.shape)
    stride = "" if is_packed else f",strided<{','.join(map(write_size, type_.stride))}>"
    return f"memref<{type_.element}{shape}{stride}{',local' * type_.local}>"


def _coopmatrix(type_: Coopmatrix) -> str:
    return f"coopmatrix<{type_.element}x{type_.rows}x{type_.columns},{type_.use}>"


def write_size(size: Size) -> str:
    """A size or stride; one that only the run knows is `?`."""
    return "?" if size is None else str(size)


def write_number(value: Number) -> str:
    """A constant; floating-point numbers are written in hexadecimal, so that nothing of them is lost."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{_real(value[0])},{_real(value[1])}]"
    return str(value) if isinstance(value, int) else _real(value)


def _real(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    mantissa, _, exponent = value.hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"


def write_dictionary(node: Dictionary) -> str:
    """`{key=value, …}`."""
    entries = (f"{_key(item.key)}={write_attribute(item.value)}" for item in node.entries)
    return f"{{{', '.join(entries)}}}"


def _key(key: str) -> str:
    return key if key in KEYS else f'"{key}"'


def write_attribute(value: Attribute) -> str:
    """The value of an attribute."""
    if isinstance(value, Dictionary):
        return write_dictionary(value)
    if isinstance(value, Text):
        return f'"{value.value}"'
    if isinstance(value, tuple):
        return f"[{','.join(map(write_attribute, value))}]"
    return write_number(value)
