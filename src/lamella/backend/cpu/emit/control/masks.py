"""Masks: which lanes of a subgroup run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.integers import spread
from lamella.backend.cpu.emit.values import Lanes, llvm


def kind(here: Here) -> str:
    """The LLVM type of a mask."""
    return f"<{here.lanes} x i1>"


def both(here: Here, left: str | None, right: str) -> str:
    """The lanes that are in two masks; None has all."""
    return right if left is None else here.out.value(f"and {kind(here)} {left}, {right}")


def others(here: Here, mask: str) -> str:
    """The lanes that are not in a mask."""
    return here.out.value(f"xor {kind(here)} {mask}, splat (i1 true)")


def any_lane(here: Here, mask: str) -> str:
    """Whether a mask has a lane, as an i1."""
    bits = here.out.value(f"bitcast {kind(here)} {mask} to i{here.lanes}")
    return here.out.value(f"icmp ne i{here.lanes} {bits}, 0")


def less(here: Here, left: Lanes, right: Lanes) -> str:
    """The lanes in which one integer is less than another."""
    first, second = (spread(here, item).operand for item in (left, right))
    return here.out.value(f"icmp slt {llvm(left.element, here.lanes)} {first}, {second}")


@contextmanager
def masked(here: Here, mask: str | None) -> Iterator[None]:
    """Run some lanes only."""
    before, here.mask = here.mask, mask
    yield
    here.mask = before
