"""What machine code takes for granted about sizes, verified at launch.

Sizes are followed from the arrays through views: to the collective instructions, whose shapes must agree, and to the
places where the number of a work-group is an index, which bound how many work-groups there may be. What depends on
anything else than the shapes of the arguments, or stands in a branch, is not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.backend.arguments.shapes import SHAPES, describe_shapes
from lamella.base.diagnostic import Diagnostic, Rule
from lamella.lang.tensor.nodes import (
    Alloca,
    Blas,
    Builtin,
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
    Store,
    Subview,
    Value,
)
from lamella.lang.tensor.rules import running as rules

Shape = tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What a launch knows: shapes of arrays; lengths of groups with what their arrays have in common."""

    shapes: Mapping[str, Shape]
    groups: Mapping[str, tuple[int, Shape]]


@dataclass(frozen=True, slots=True)
class Bound:
    """How many work-groups there may be, and what is wrong where there are more."""

    most: int
    finding: Diagnostic


def verify_shapes(function: Function, known: Known) -> list[Diagnostic]:
    """What cannot run with arrays of these shapes."""
    return [item for item in _Tracing(known).look(function.body) if isinstance(item, Diagnostic)]


def bound_groups(function: Function, known: Known) -> list[Bound]:
    """What bounds the number of work-groups."""
    return [item for item in _Tracing(known).look(function.body) if isinstance(item, Bound)]


class _Tracing:
    """What is known of memrefs and integers on the way through a kernel."""

    def __init__(self, known: Known) -> None:
        self.shapes = dict(known.shapes)
        self.groups = known.groups
        self.numbers: dict[str, int] = {}
        self.ids: set[str] = set()

    def look(self, region: Region) -> Iterator[Diagnostic | Bound]:
        """The findings and bounds of a kernel; its loops run at least once, its branches may not."""
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
                if not any(isinstance(item.instruction, For) for item in outer):
                    yield from self._bound(statement)
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
            self.ids.discard(result.name)
        if len(statement.results) == 1:
            self._note_result(statement.results[0].name, statement.instruction)

    def _note_result(self, name: str, instruction: Instruction) -> None:
        shape, number = self._shape(instruction), self._number(instruction)
        if shape is not None:
            self.shapes[name] = shape
        if number is not None:
            self.numbers[name] = number
        if isinstance(instruction, Builtin) and instruction.name == "group_id":
            self.ids.add(name)

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

    # --- bounds ---------------------------------------------------------------------------------------------

    def _bound(self, statement: Statement) -> Iterator[Bound]:
        instruction = statement.instruction
        if isinstance(instruction, Load) and instruction.operand.name in self.groups:
            name, size = instruction.operand.name, self.groups[instruction.operand.name][0]
            if instruction.indices[0].name in self.ids:
                yield _make_bound(
                    size, rules.GROUP_OUT_OF_BOUNDS, statement, index=size, name=name, size=size
                )
        elif isinstance(instruction, Load | Store):
            for mode, index in enumerate(instruction.indices):
                yield from self._bound_mode(statement, instruction.operand, mode, index)
        elif isinstance(instruction, Subview):
            for mode, item in enumerate(instruction.slices):
                yield from self._bound_slice(statement, instruction, mode, self._value(item.size))

    def _bound_mode(self, statement: Statement, operand: Value, mode: int, index: Value) -> Iterator[Bound]:
        size = _at(self.shapes.get(operand.name, ()), mode)
        if index.name in self.ids and size is not None:
            values = {"index": size, "mode": mode, "name": operand.name, "size": size}
            yield _make_bound(size, rules.OUT_OF_BOUNDS, statement, **values)

    def _bound_slice(self, statement: Statement, view: Subview, mode: int, taken: Size) -> Iterator[Bound]:
        offset, size = view.slices[mode].offset, _at(self.shapes.get(view.operand.name, ()), mode)
        if isinstance(offset, Value) and offset.name in self.ids and size is not None and taken is not None:
            most, last = size - max(1, taken) + 1, size
            values = {"offset": most, "last": last, "mode": mode, "name": view.operand.name, "size": size}
            yield _make_bound(most, rules.VIEW_OUT_OF_BOUNDS, statement, **values)

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


def _make_bound(most: int, rule: Rule, statement: Statement, **values: object) -> Bound:
    return Bound(most, rule.at(statement.span, hint=None, labels=(), place="", **values))


def _at(shape: Shape, mode: int) -> Size:
    return shape[mode] if mode < len(shape) else None


def _product(sizes: Shape) -> Size:
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None
