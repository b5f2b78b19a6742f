"""Types on their own: sizes, strides and how far they reach."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import LARGEST
from lamella.base.source import Span
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Coopmatrix, Group, Memref, Type
from lamella.lang.tensor.rules import types as rules
from lamella.lang.tensor.write.types import write_type


def check_type(type_: Type, span: Span) -> Iterator[Diagnostic]:
    """What makes a type impossible."""
    if isinstance(type_, Memref):
        yield from _check_memref(type_, span)
    elif isinstance(type_, Group):
        yield from _check_memref(type_.memref, span)
        if type_.size is not None and type_.size < 0:
            yield rules.GROUP_SIZE.at(span, type=write_type(type_), size=type_.size)
    elif isinstance(type_, Coopmatrix) and (type_.rows < 1 or type_.columns < 1):
        yield rules.COOPMATRIX_SIZE.at(span, type=write_type(type_), rows=type_.rows, columns=type_.columns)


def _check_memref(type_: Memref, span: Span) -> Iterator[Diagnostic]:
    if len(type_.stride) == type_.order and _reach(type_) > LARGEST:
        # such numbers may be too long to be written
        yield rules.TYPE_TOO_LARGE.at(span, order=type_.order)
        return
    text = write_type(type_)
    if len(type_.stride) != type_.order:
        yield rules.STRIDE_COUNT.at(span, type=text, strides=len(type_.stride), order=type_.order)
        return
    sizes = [(mode, size) for mode, size in enumerate(type_.shape) if size is not None and size < 0]
    if sizes:
        yield rules.NEGATIVE_SIZE.at(span, type=text, mode=sizes[0][0], size=sizes[0][1])
        return
    strides = [(mode, step) for mode, step in enumerate(type_.stride) if step is not None and step < 0]
    if strides:
        yield rules.NEGATIVE_STRIDE.at(span, type=text, mode=strides[0][0], stride=strides[0][1])


def _reach(type_: Memref) -> int:
    """The bytes from the first to the last element, at least; modes of unknown size count as one element."""
    pairs = [
        (1 if size is None else size, stride or 0)
        for size, stride in zip(type_.shape, type_.stride, strict=True)
    ]
    elements = sum((size - 1) * stride for size, stride in pairs if size > 0) + 1
    return max(elements * BYTES[type_.element], *(abs(stride) for _, stride in pairs), 0)


def warn_of_layout(type_: Type, span: Span) -> Iterator[Diagnostic]:
    """What is odd about the layout of memory that a program is given or makes."""
    memref = type_.memref if isinstance(type_, Group) else type_
    if not isinstance(memref, Memref):
        return
    if 0 in memref.shape:
        yield rules.ZERO_SIZE.at(span, type=write_type(memref), mode=memref.shape.index(0))
        return
    for mode, stride in enumerate(memref.stride):
        least = _least_stride(memref, mode)
        if stride is not None and least is not None and stride < least:
            yield rules.OVERLAPPING_STRIDE.at(
                span, type=write_type(memref), mode=mode, stride=stride, least=least
            )
            return


def _least_stride(memref: Memref, mode: int) -> int | None:
    """The stride from which on a mode does not overlap the one before it; None where that is unknown."""
    if mode == 0:
        return 1
    size, stride = memref.shape[mode - 1], memref.stride[mode - 1]
    return None if size is None or stride is None else size * stride
