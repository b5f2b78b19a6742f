"""Masks: which lanes of a subgroup run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.integers import spread
from lamella.backend.cpu.emit.values import ScalarValue, llvm


def kind(context: EmitContext) -> str:
    """The LLVM type of a mask."""
    return f"<{context.lanes} x i1>"


def both(context: EmitContext, left: str | None, right: str) -> str:
    """The lanes that are in two masks; None has all."""
    return right if left is None else context.out.value(f"and {kind(context)} {left}, {right}")


def others(context: EmitContext, mask: str) -> str:
    """The lanes that are not in a mask."""
    return context.out.value(f"xor {kind(context)} {mask}, splat (i1 true)")


def any_lane(context: EmitContext, mask: str) -> str:
    """Whether a mask has a lane, as an i1."""
    bits = context.out.value(f"bitcast {kind(context)} {mask} to i{context.lanes}")
    return context.out.value(f"icmp ne i{context.lanes} {bits}, 0")


def less(context: EmitContext, left: ScalarValue, right: ScalarValue) -> str:
    """The lanes in which one integer is less than another."""
    first, second = (spread(context, item).operand for item in (left, right))
    return context.out.value(f"icmp slt {llvm(left.element, context.lanes)} {first}, {second}")


@contextmanager
def masked(context: EmitContext, mask: str | None) -> Iterator[None]:
    """Run some lanes only."""
    before, context.mask = context.mask, mask
    yield
    context.mask = before
