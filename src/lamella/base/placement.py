"""Where the operations of a model run: as kernels of a backend, or on the reference, and then why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from lamella.base.diagnostic import printable

KERNEL, REFERENCE = "kernel", "reference"


class OperationPlacement(NamedTuple):
    """Where an operation runs: its operator, `kernel` or `reference`, and why it is no kernel."""

    operation: str
    where: str
    reason: str


def placement_of(thing: object) -> list[OperationPlacement]:
    """Where the operations of an executable or of lowered kernels run; nothing of one that has no kernels."""
    return list(getattr(thing, "placement", ()))


def count_kernels(placement: Sequence[OperationPlacement]) -> str:
    """`22 of 23 operations`: those that run as kernels."""
    return f"{sum(item.where == KERNEL for item in placement)} of {len(placement)} operations"


def placement_line(placement: Sequence[OperationPlacement]) -> str | None:
    """How many operations run as kernels, and which do not and why; None where all do."""
    left = _left(placement)
    if not left:
        return None
    words = [
        f"{printable(name)} ({printable(reason, 200)})" + (f" × {count}" if count > 1 else "")
        for (name, reason), count in left.items()
    ]
    rest = f"{sum(left.values())} on the reference: {', '.join(words)}"
    return f"{count_kernels(placement)} as kernels; {rest}"


def placement_to_json(placement: Sequence[OperationPlacement]) -> dict[str, object]:
    """How many operations run as kernels of how many, and each that does not."""
    left = _left(placement)
    rest = [{"operation": name, "reason": reason, "count": count} for (name, reason), count in left.items()]
    return {
        "operations": len(placement),
        "kernels": len(placement) - sum(left.values()),
        REFERENCE: rest,
    }


def _left(placement: Sequence[OperationPlacement]) -> Counter[tuple[str, str]]:
    return Counter((item.operation, item.reason) for item in placement if item.where != KERNEL)
