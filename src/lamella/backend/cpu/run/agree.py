"""Shapes of collective instructions and of expanded modes, verified at launch in the words of the instruction.

Sizes are followed from the arrays through views. What depends on anything else than the shapes of the arguments, or
stands in a branch, is not looked at here: whatever a proof of the launch leaves open is tested when it runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lamella.backend.arguments.shapes import SHAPES, describe_shapes
from lamella.base.diagnostic import Diagnostic
from lamella.lang.tensor.nodes import (
    Alloca,
    Blas,
    Constant,
    Expand,
    For,
    Function,
    Fuse,
    IndexOrSize,
    Instruction,
    Load,
    Memref,
    Parallel,
    Region,
    Size,
    SizeOf,
    Statement,
    Subview,
    Value,
)
from lamella.lang.tensor.rules import running as rules

Shape = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What a launch knows: shapes and strides of arrays; lengths of groups with what their arrays have in common."""

    shapes: Mapping[str, Shape]
    groups: Mapping[str, tuple[int, Shape]]
    strides: Mapping[str, Shape] = field(default_factory=dict)
    """In elements; of a group those that all its arrays have."""
    ends: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """For each group the least and the largest size of each mode."""


def verify_shapes(function: Function, known: Known) -> list[Diagnostic]:
    """What cannot run with arrays of these shapes."""
    return list(_Tracing(known).look(function.body))


class _Tracing:
    """What is known of memrefs and integers on the way through a kernel."""

    def __init__(self, known: Known) -> None:
        self.shapes = dict(known.shapes)
        self.groups = known.groups
        self.numbers: dict[str, int] = {}

    def look(self, region: Region) -> Iterator[Diagnostic]:
        """The findings of a kernel; its loops run at least once, its branches may not."""
        waiting, outer = [iter(region.statements)], list[Statement]()
        while waiting:
            statement = next(waiting[-1], None)
            if statement is None:
                waiting.pop()
                self._note(outer.pop() if outer else None)
            elif isinstance(statement.instruction, For | Parallel):
                outer.append(statement)
                waiting.append(iter(statement.instruction.body.statements))
            else:
                yield from self._judge(statement)
                self._note(statement)

    def _judge(self, statement: Statement) -> Iterator[Diagnostic]:
        if isinstance(statement.instruction, Blas):
            yield from self._compare(statement, statement.instruction)
        elif isinstance(statement.instruction, Expand):
            yield from self._expand(statement, statement.instruction)

    def _note(self, statement: Statement | None) -> None:
        """Keep what is known of results, once they are visible."""
        if statement is None:
            return
        for result in statement.results:
            self.shapes.pop(result.name, None)
            self.numbers.pop(result.name, None)
        if len(statement.results) == 1:
            self._note_result(statement.results[0].name, statement.instruction)

    def _note_result(self, name: str, instruction: Instruction) -> None:
        shape, number = self._shape(instruction), self._number(instruction)
        if shape is not None:
            self.shapes[name] = shape
        if number is not None:
            self.numbers[name] = number

    def _number(self, instruction: Instruction) -> int | None:
        if isinstance(instruction, Constant):
            is_integer = isinstance(instruction.value, int) and not isinstance(instruction.value, bool)
            return int(instruction.value) if is_integer and not isinstance(instruction.value, tuple) else None
        if isinstance(instruction, SizeOf):
            name = instruction.operand.name
            return (
                self.groups[name][0]
                if name in self.groups
                else _at(self.shapes.get(name, ()), instruction.mode)
            )
        return None

    def _shape(self, instruction: Instruction) -> Shape | None:
        if isinstance(instruction, Alloca):
            return instruction.type.shape
        if isinstance(instruction, Load) and isinstance(instruction.type, Memref):
            return self.groups.get(instruction.operand.name, (0, instruction.type.shape))[1]
        if not isinstance(instruction, Subview | Expand | Fuse):
            return None
        source = self.shapes.get(instruction.operand.name)
        return instruction.type.shape if source is None else self._view(instruction, source)

    def _view(self, view: Subview | Expand | Fuse, source: Shape) -> Shape:
        if isinstance(view, Subview):
            return tuple(self._value(item.size) for item in view.slices if item.size != 0)
        if isinstance(view, Expand):
            sizes = tuple(self._value(item) for item in view.sizes)
            return (*source[: view.mode], *sizes, *source[view.mode + 1 :])
        fused = _product(source[view.first : view.last + 1])
        return (*source[: view.first], fused, *source[view.last + 1 :])

    def _value(self, size: IndexOrSize) -> Size:
        return self.numbers.get(size.name) if isinstance(size, Value) else size

    # --- shapes ---------------------------------------------------------------------------------------------

    def _expand(self, statement: Statement, expand: Expand) -> Iterator[Diagnostic]:
        source = self.shapes.get(expand.operand.name, ())
        sizes = [self._value(item) for item in expand.sizes]
        whole, found = _at(source, expand.mode), _product(tuple(sizes))
        if whole is not None and found is not None and whole != found:
            shown = "x".join(map(str, sizes))
            values = {"mode": expand.mode, "name": expand.operand.name, "size": whole, "sizes": shown}
            yield rules.WRONG_EXPANSION.at(statement.span, hint=None, labels=(), place="", **values)

    def _compare(self, statement: Statement, blas: Blas) -> Iterator[Diagnostic]:
        shapes = [self.shapes[item.name] for item in blas.operands if item.name in self.shapes]
        if len(shapes) != OPERANDS[blas.function]:
            return
        known = [tuple(size for size in shape if size is not None) for shape in shapes]
        if [len(item) for item in known] != [len(item) for item in shapes]:
            return
        *sources, target = known
        flags = (*blas.transposes, *[False] * len(sources))
        turned = [item[::-1] if flag else item for item, flag in zip(sources, flags, strict=False)]
        if not SHAPES[blas.function](turned, target):
            values = {"function": blas.function, "shapes": describe_shapes([*turned, target])}
            yield rules.SHAPES_DISAGREE.at(statement.span, hint=None, labels=(), place="", **values)


OPERANDS = MappingProxyType(
    {"axpby": 2, "cumsum": 2, "sum": 2, "gemm": 3, "gemv": 3, "ger": 3, "hadamard": 3}
)
"""How many memrefs each collective instruction has."""


def _at(shape: Shape, mode: int) -> Size:
    return shape[mode] if mode < len(shape) else None


def _product(sizes: Shape) -> Size:
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None
