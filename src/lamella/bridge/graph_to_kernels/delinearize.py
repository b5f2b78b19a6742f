"""Delinearization: the loop indices that the linear number of a work-group stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lamella.base.open_extent import is_open
from lamella.kernels.build import Builder
from lamella.lang.tensor.nodes import Value
from lamella.lang.tensor.nodes.types import INDEX


def delinearize_group(builder: Builder, loops: Sequence[str], sizes: Mapping[str, int]) -> dict[str, Value]:
    """The indices of loops from the linear work-group number, the last loop fastest."""
    return delinearize(builder, loops, sizes, lambda: builder.builtin("group_id", INDEX))


def delinearize(
    builder: Builder, loops: Sequence[str], sizes: Mapping[str, int], number: Callable[[], Value]
) -> dict[str, Value]:
    """The indices of loops from one linear number, which is only computed where a loop has several steps."""
    counted = [name for name in loops if sizes[name] > 1 or is_open(sizes[name])]
    values = {name: builder.constant(0) for name in loops}
    rest = number() if counted else None
    for name in reversed(counted):
        if rest is None:
            break
        if name == counted[0]:
            values[name], rest = rest, None
        else:
            extent = builder.constant(sizes[name])
            values[name], rest = builder.arith("rem", rest, extent), builder.arith("div", rest, extent)
    return values
