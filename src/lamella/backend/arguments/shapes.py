"""Which shapes the collective instructions take together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

Shape: TypeAlias = tuple[int, ...]
Test: TypeAlias = Callable[[Sequence[Shape], Shape], bool]

SHAPES: Mapping[str, Test] = MappingProxyType(
    {
        "axpby": lambda shapes, result: shapes[0] == result,
        "cumsum": lambda shapes, result: shapes[0] == result,
        "sum": lambda shapes, result: shapes[0][:-1] == result,
        "gemm": lambda shapes, result: (
            shapes[0][1] == shapes[1][0] and result == (shapes[0][0], shapes[1][1])
        ),
        "gemv": lambda shapes, result: shapes[0][1:] == shapes[1] and result == shapes[0][:1],
        "ger": lambda shapes, result: result == (*shapes[0], *shapes[1]),
        "hadamard": lambda shapes, result: shapes[0] == shapes[1] == result,
    }
)
"""For each instruction, whether operands of these shapes, transposed already, give a result of that one."""


def describe_shapes(shapes: Sequence[Shape]) -> str:
    """Shapes of operands and result as a message shows them."""
    names = "ABC" if len(shapes) == 3 else "AB"
    shown = ("x".join(map(str, shape)) or "scalar" for shape in shapes)
    return ", ".join(f"{name}={shape}" for name, shape in zip(names, shown, strict=True))
