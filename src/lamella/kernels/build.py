"""Statements of the tensor language, written by programs: each method adds one and gives its value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import cast

from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.base.source import NOWHERE, Span
from lamella.lang.tensor.check.context import defined_values
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopApply,
    For,
    Foreach,
    ForeachTile,
    Function,
    If,
    Instruction,
    Load,
    Memref,
    Number,
    Parallel,
    Region,
    Scalar,
    SizeOf,
    Slice,
    Statement,
    Store,
    Subview,
    Type,
    Value,
    Yield,
)
from lamella.lang.tensor.nodes.types import BOOL, INDEX, Dictionary


@dataclass(slots=True)
class FreshNames:
    """New names of values: numbers that the function does not use."""

    used: set[str]
    _next: int = 0

    def new(self) -> Value:
        """A value with a name of its own."""
        while str(self._next) in self.used:
            self._next += 1
        self.used.add(str(self._next))
        return Value(str(self._next))


@dataclass(slots=True)
class Builder:
    """A region that grows; statements of inner regions are written inside `with` blocks."""

    names: FreshNames
    span: Span = NOWHERE
    """Where new statements come from."""
    statements: list[Statement] = field(default_factory=list)
    _constants: dict[tuple[str, Type], Value] = field(default_factory=dict)

    def add_statement(self, statement: Statement) -> None:
        """Add a statement as it is."""
        self.statements.append(statement)

    def put(self, instruction: Instruction, results: Sequence[Value] = ()) -> None:
        """Add an instruction."""
        self.statements.append(Statement(tuple(results), instruction, self.span))

    def value(self, instruction: Instruction) -> Value:
        """Add an instruction with one result."""
        result = self.names.new()
        self.put(instruction, (result,))
        return result

    def constant(self, number: Number, type_: Type = INDEX) -> Value:
        """A constant; one that this region has already is used again.

        An open extent stands for itself: that it equals another number here says nothing of other calls.
        """
        if is_open(number):
            return self.value(Constant(number, type_))
        key = (repr(number), type_)
        found = self._constants.get(key)
        if found is None:
            found = self.value(Constant(number, type_))
            self._constants[key] = found
        return found

    def is_number(self, value: Value) -> bool:
        """Whether a value is a constant that this region has, and not NaN."""
        return any(found == value and word != "nan" for (word, _), found in self._constants.items())

    def arith(self, function: str, *operands: Value, type_: Type = INDEX) -> Value:
        """`arith.function`."""
        return self.value(Arith(function, operands, type_))

    def compare(self, function: str, left: Value, right: Value) -> Value:
        """`cmp.function`."""
        return self.value(Compare(function, left, right, BOOL))

    def cast(self, operand: Value, type_: Type) -> Value:
        """`cast`."""
        return self.value(Cast(operand, type_))

    def builtin(self, name: str, type_: Type) -> Value:
        """`builtin.name`."""
        return self.value(Builtin(name, type_))

    def load(self, operand: Value, indices: Sequence[Value], type_: Type) -> Value:
        """`load`."""
        return self.value(Load(operand, tuple(indices), type_))

    def store(self, value: Value, operand: Value, indices: Sequence[Value], flag: str = "") -> None:
        """`store`."""
        self.put(Store(value, operand, tuple(indices), flag))

    def size(self, operand: Value, mode: int) -> Value:
        """`size`."""
        return self.value(SizeOf(operand, mode))

    def subview(self, operand: Value, slices: Sequence[Slice], type_: Memref) -> Value:
        """`subview`."""
        return self.value(Subview(operand, tuple(slices), type_))

    def alloca(self, type_: Memref) -> Value:
        """`alloca`."""
        return self.value(Alloca(type_))

    @contextmanager
    def parallel(self) -> Iterator[Builder]:
        """`parallel { … }`."""
        inner = self._inner()
        yield inner
        self.put(Parallel(inner.region()))

    @contextmanager
    def foreach(
        self, ends: Sequence[Value], begins: Sequence[Value] = ()
    ) -> Iterator[tuple[Builder, list[Value]]]:
        """`foreach`; begins at 0 where nothing else is said."""
        zero = () if begins else (self.constant(0),) * len(ends)
        inner, variables = self._inner(), [self.names.new() for _ in ends]
        yield inner, variables
        self.put(Foreach(tuple(variables), tuple(begins) or zero, tuple(ends), inner.region()))

    @contextmanager
    def loop(
        self,
        begin: Value,
        end: Value,
        step: Value | None = None,
        carried: Sequence[tuple[Value, Type]] = (),
        attributes: Dictionary | None = None,
        type_: Scalar = INDEX,
    ) -> Iterator[LoopBuilder]:
        """`for`; the body ends with `give` where values are carried, and `results` are those after the loop."""
        found = LoopBuilder(
            self._inner(),
            self.names.new(),
            [self.names.new() for _ in carried],
            [self.names.new() for _ in carried],
        )
        yield found
        pairs = tuple(zip(found.carried, (value for value, _ in carried), strict=True))
        types = tuple(kind for _, kind in carried)
        node = For(found.variable, begin, end, found.body.region(), step, type_, pairs, types, attributes)
        self.put(node, found.results)

    @contextmanager
    def condition(self, condition: Value) -> Iterator[Builder]:
        """`if` without an else branch and without results."""
        inner = self._inner()
        yield inner
        self.put(If(condition, inner.region()))

    @contextmanager
    def choice(self, condition: Value) -> Iterator[tuple[Builder, Builder]]:
        """`if … else …` without results."""
        then, otherwise = self._inner(), self._inner()
        yield then, otherwise
        self.put(If(condition, then.region(), otherwise.region()))

    def give(self, *values: Value) -> None:
        """`yield`."""
        self.put(Yield(values))

    def region(self) -> Region:
        """The region that was built."""
        return Region(tuple(self.statements), self.span)

    def inner(self) -> Builder:
        """A builder for a region inside this one."""
        return self._inner()

    def _inner(self) -> Builder:
        return Builder(self.names, self.span, [], dict(self._constants))


@dataclass(slots=True)
class LoopBuilder:
    """The parts of a `for` while its body is written."""

    body: Builder
    variable: Value
    carried: list[Value]
    results: list[Value]


def names_of(function: Function) -> FreshNames:
    """The names that a function uses, to make new ones beside them."""
    used = {item.value.name for item in function.parameters}
    return FreshNames(used | {item.name for item in defined_values(function.body)})


HOLDERS: frozenset[type] = frozenset((For, Foreach, ForeachTile, Parallel, CoopApply, If))
"""The instructions that have regions: most have none, and every walk asks each of them."""


def regions(instruction: Instruction) -> tuple[Region, ...]:
    """The regions of an instruction."""
    if type(instruction) not in HOLDERS:
        return ()
    if isinstance(instruction, If):
        return tuple(item for item in (instruction.then, instruction.otherwise) if item is not None)
    return (cast(For, instruction).body,)
