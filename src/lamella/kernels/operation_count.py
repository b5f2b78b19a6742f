"""How many scalar operations a launch of a kernel takes, counted from its text with the sizes of its arguments.

An operation is one `cmp`, or one `arith` or `math` instruction on numbers that are no positions (`index`), executed
once; linear algebra counts a product and a sum for each pair of factors. Loads, stores and casts are not counted: they
go with the operations that use them. Of two branches the longer one counts. What depends on data, on the lane or on the
number of a work-group is not known, and neither is the count of a kernel whose loops depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from lamella.base.errors import Unsupported
from lamella.kernels.fold import fold_arith, wrap
from lamella.lang.tensor.nodes import (
    INDEX,
    Alloca,
    Arith,
    Barrier,
    Blas,
    Builtin,
    Cast,
    Compare,
    Constant,
    Expand,
    For,
    Foreach,
    Function,
    Fuse,
    If,
    Instruction,
    LifetimeStop,
    Load,
    Math,
    Memref,
    Number,
    Region,
    SizeOf,
    Statement,
    Store,
    Subview,
    Value,
    Yield,
)
from lamella.lang.tensor.nodes.types import INTEGERS

MOST_OPERATIONS = 1 << 62
"""Where counting stops: no simulation lasts so long."""
FREE = (Barrier, Builtin, Cast, Constant, LifetimeStop, Load, SizeOf, Store, Yield)
VIEWS = (Alloca, Expand, Fuse, Subview)


def count_operations(
    function: Function, shapes: Mapping[str, tuple[int, ...]], scalars: Mapping[str, int], groups: int = 1
) -> int | None:
    """The operations of a launch of so many work-groups; None where the text does not tell."""
    counting = _Counting(shapes, scalars)
    try:
        return min(groups * counting.region(function.body), MOST_OPERATIONS)
    except Unsupported:
        return None


class _Counting:
    """Goes through the text once, with the integers that are known."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], scalars: Mapping[str, int]) -> None:
        self.shapes = dict(shapes)
        self.known: dict[str, Number] = dict(scalars)

    def region(self, region: Region) -> int:
        """The operations of one pass through a region."""
        return sum(self._statement(item) for item in region.statements)

    def _statement(self, statement: Statement) -> int:
        item = statement.instruction
        if isinstance(item, VIEWS) and statement.results:
            self._look(statement.results[0], item.type)
        value = self._value(item)
        if value is not None and statement.results:
            self.known[statement.results[0].name] = value
        return self._count(item)

    def _look(self, value: Value, kind: Memref) -> None:
        """Remember the shape of a view that its type tells."""
        shape = tuple(size for size in kind.shape if size is not None)
        if len(shape) == len(kind.shape):
            self.shapes[value.name] = shape

    def _value(self, item: Instruction) -> Number | None:
        """An integer that the text tells."""
        if isinstance(item, Constant):
            return item.value if isinstance(item.value, int) else None
        if isinstance(item, SizeOf):
            shape = self.shapes.get(item.operand.name)
            return None if shape is None or item.mode >= len(shape) else shape[item.mode]
        if isinstance(item, Cast):
            found, element = self.known.get(item.operand.name), str(item.type)
            return wrap(found, element) if isinstance(found, int) and element in INTEGERS else None
        if isinstance(item, Arith):
            operands = [self.known.get(operand.name) for operand in item.operands]
            known = [operand for operand in operands if operand is not None]
            return fold_arith(item.function, known, item.type) if len(known) == len(operands) else None
        return None

    def _count(self, item: Instruction) -> int:
        if isinstance(item, Arith | Compare | Math):
            return int(item.type != INDEX)
        if isinstance(item, For):
            step = 1 if item.step is None else self._integer(item.step)
            distance = self._integer(item.end) - self._integer(item.begin)
            return self._times(max(0, -(-distance // max(step, 1))), item.body)
        if isinstance(item, Foreach):
            ends = zip(item.begins, item.ends, strict=True)
            return self._times(prod(max(0, self._integer(e) - self._integer(b)) for b, e in ends), item.body)
        if isinstance(item, If):
            other = 0 if item.otherwise is None else self.region(item.otherwise)
            return max(self.region(item.then), other)
        if isinstance(item, Blas):
            return self._blas(item)
        if isinstance(item, FREE + VIEWS):
            return 0
        raise Unsupported(f"{type(item).__name__} is not counted")

    def _times(self, trips: int, body: Region) -> int:
        return trips * self.region(body) if trips else 0

    def _integer(self, value: Value) -> int:
        found = self.known.get(value.name)
        if not isinstance(found, int):
            raise Unsupported(f"%{value.name} is not known")
        return found

    def _blas(self, item: Blas) -> int:
        """A product and a sum for each element of the output and each step of what is summed up."""
        shapes = [self.shapes[value.name] for value in item.operands if value.name in self.shapes]
        if len(shapes) < (2 if item.function in ("axpby", "cumsum", "sum") else 3):
            raise Unsupported("a view is not followed")
        if item.function in ("gemm", "gemv"):
            summed = shapes[0][0 if item.transposes[0] else 1]
            return 2 * prod(shapes[-1]) * summed
        return 2 * max(prod(shape) for shape in shapes)
