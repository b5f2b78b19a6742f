"""Places and unit indices in an iteration, where a checked plan has them; anything else is an error at its place."""

from __future__ import annotations

from collections.abc import Mapping

from lamella.base.diagnostic import LamellaError
from lamella.base.source import Span
from lamella.lang.nem.resolved import Index, Region
from lamella.lang.nem.rules import DIVISION_BY_ZERO, OUT_OF_BOUNDS


def offset_of(region: Region, iteration: Mapping[int, int]) -> int:
    """Where a region begins in its buffer."""
    offset = value_of(region.offset, region.span, iteration)
    buffer, end = region.buffer, offset + region.extent
    if offset < 0 or end > buffer.size:
        place = {"first": offset, "end": end, "buffer": buffer.name, "size": buffer.size, "iteration": ""}
        raise LamellaError([OUT_OF_BOUNDS.at(region.span, hint=None, labels=(), **place)])
    return offset


def value_of(index: Index, span: Span, iteration: Mapping[int, int]) -> int:
    """An expression in loop variables."""
    try:
        return index.at(iteration)
    except ZeroDivisionError:
        raise LamellaError([DIVISION_BY_ZERO.at(span, text=span.text)]) from None
