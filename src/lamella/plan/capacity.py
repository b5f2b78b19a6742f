"""Buffers fit into the memories of the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.base.arena import aligned
from lamella.base.diagnostic import Diagnostic
from lamella.lang.nem.device import ResolvedTopology
from lamella.lang.nem.resolved import Buffer, Plan
from lamella.lang.nem.rules import CAPACITY, PADDING


def check_capacity(plan: Plan) -> Iterator[Diagnostic]:
    """The declared sizes of each memory fit; alignment that alone breaks the limit is a warning. DDR has no limit."""
    topology = plan.device.topology if plan.device else None
    if plan.device is None or topology is None:
        return
    levels: dict[str, list[Buffer]] = {}
    for buffer in plan.buffers:
        if buffer.memory == "L2" or (buffer.memory == "L1" and buffer.engine < topology.num_engines):
            levels.setdefault(buffer.level, []).append(buffer)
    for level, buffers in levels.items():
        available = _size(topology, buffers[0].memory)
        yield from _check_level(level, buffers, available, plan.device.name)


def _size(topology: ResolvedTopology, memory: str) -> int:
    return topology.l1_size_bytes if memory == "L1" else topology.l2_size_bytes


def _check_level(level: str, buffers: Sequence[Buffer], available: int, device: str) -> Iterator[Diagnostic]:
    needed = sum(buffer.size for buffer in buffers)
    if needed > available:
        yield CAPACITY.at(
            _first_beyond(buffers, available, padded=False).span,
            level=level,
            needed=needed,
            device=device,
            available=available,
            excess=needed - available,
            hint=f"the largest are {_largest(buffers)}",
        )
        return
    # A binder may place buffers in any order: only when the best simple one overflows too is it worth a word.
    orders = [buffers, sorted(buffers, key=lambda buffer: -buffer.align)]
    best = min(orders, key=_padded)
    if _padded(best) > available:
        span = _first_beyond(best, available, padded=True).span
        yield PADDING.at(span, level=level, needed=_padded(best), available=available)


def _largest(buffers: Sequence[Buffer]) -> str:
    first = sorted(buffers, key=lambda buffer: -buffer.size)[:3]
    return ", ".join(f"'{buffer.name}' with {buffer.size}" for buffer in first)


def _padded(buffers: Sequence[Buffer]) -> int:
    """The end of the last buffer when each starts at the next multiple of its alignment."""
    end = 0
    for buffer in buffers:
        end = aligned(end, buffer.align) + buffer.size
    return end


def _first_beyond(buffers: Sequence[Buffer], available: int, padded: bool) -> Buffer:
    """The buffer that does not fit behind those before it."""
    end = 0
    for buffer in buffers:
        end = (aligned(end, buffer.align) if padded else end) + buffer.size
        if end > available:
            return buffer
    return buffers[-1]
