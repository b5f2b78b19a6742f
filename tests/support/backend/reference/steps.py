"""The obvious judge of contractions: nested loops, one step at a time, Python numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array
from lamella.ops.formula import Apply, Contraction, Counter, Element, Guard, Index, Lookup, Scalar

Number: TypeAlias = int | float | bool
Tensors: TypeAlias = Mapping[str, "Array | tuple[Array, ...]"]
WORD = 1 << 64


class Refused(Exception):
    """A step reads or divides where there is nothing."""


def run_slowly(contraction: Contraction, tensors: Tensors) -> None:
    """Execute a contraction by its definition; an integer `+ - *` wraps around at 64 bits."""
    extents = [range(int(str(loop.extent))) for loop in contraction.loops]
    names = [loop.index for loop in contraction.loops]
    count = 0
    for place in itertools.product(*extents):
        count += _Step(tensors, dict(zip(names, place, strict=True)), count).run(contraction)


class _Step:
    """One step: the indices have values."""

    def __init__(self, tensors: Tensors, indices: Mapping[str, int], count: int) -> None:
        self.tensors, self.indices, self.count = tensors, indices, count

    def run(self, contraction: Contraction) -> int:
        """Guards, then the condition, then the assignment; how many assignments were executed."""
        roots = [*contraction.targets, *contraction.values]
        roots += [] if contraction.condition is None else [contraction.condition]
        tested = [verdict for root in roots for verdict in self.guards(root)]
        if False in tested:
            return 0
        if None in tested:
            raise Refused
        if contraction.condition is not None and not self.value(contraction.condition):
            return 0
        values = [self.value(value) for value in contraction.values]
        places = [self.place(target) for target in contraction.targets]
        for (tensor, place), value in zip(places, values, strict=True):
            tensor[place] = _SIGNS[contraction.sign](tensor[place].item(), value)
        return 1

    def guards(self, term: Scalar) -> Iterator[bool | None]:
        """Whether each guard inside a term lets the step happen; None where the index it tests has no value."""
        for part in _parts(term):
            yield from self.guards(part)
        if isinstance(term, Element):
            for dimension, index in enumerate(term.indices):
                if isinstance(index, Guard) and (index.below is None or index.above is None):
                    yield self.test(term, dimension, index)

    def test(self, element: Element, dimension: int, guard: Guard) -> bool | None:
        """Whether a guard lets the step happen."""
        try:
            at, extent = self.value(guard.index), self.extent(element, dimension)
        except Refused:
            return None
        return not ((at < 0 and guard.below is None) or (at >= extent and guard.above is None))

    def tensor(self, element: Element) -> Array:
        """The tensor of an access."""
        found = self.tensors[element.tensor]
        if not isinstance(found, tuple):
            return found
        item = 0 if element.item is None else int(self.value(element.item))
        if not 0 <= item < len(found):
            raise Refused
        return found[item]

    def extent(self, element: Element, dimension: int) -> int:
        """The extent of a dimension."""
        return int(self.tensor(element).shape[dimension])

    def place(self, element: Element) -> tuple[Array, tuple[int, ...]]:
        """The tensor and the indices of an access, which must be inside."""
        tensor = self.tensor(element)
        found = tuple(
            self.index(item, size) for item, size in zip(element.indices, tensor.shape, strict=True)
        )
        if any(not 0 <= item < size for item, size in zip(found, tensor.shape, strict=True)):
            raise Refused
        return tensor, found

    def index(self, index: Scalar | Guard, extent: int) -> int:
        """An index, replaced where its guard says so."""
        if not isinstance(index, Guard):
            return int(self.value(index))
        found = int(self.value(index.index))
        if found < 0 and index.below is not None:
            return int(self.value(index.below))
        if found >= extent and index.above is not None:
            return int(self.value(index.above))
        return found

    def value(self, term: Scalar) -> Number:
        """The value of a term; what is not needed is not looked at."""
        if isinstance(term, Index):
            return self.indices[term.name]
        if isinstance(term, Counter):
            return self.count
        if isinstance(term, Element):
            tensor, place = self.place(term)
            found: Number = tensor[place].item()
            return found
        if isinstance(term, Lookup):
            index = int(self.value(term.index))
            if not 0 <= index < len(term.table):
                raise Refused
            return self.value(term.table[index])
        if isinstance(term, Apply):
            return self.apply(term)
        assert isinstance(term, int | float)
        return term

    def apply(self, term: Apply) -> Number:
        """A function of scalars."""
        first = self.value(term.operands[0])
        if term.function == "?:":
            return self.value(term.operands[1 if first else 2])
        if term.function in ("&&", "=>") and not first:
            return term.function == "=>"
        if term.function == "||" and first:
            return True
        return _apply(term, [first, *(self.value(item) for item in term.operands[1:])])


def _parts(term: Scalar) -> Iterator[Scalar]:
    if isinstance(term, Apply):
        yield from term.operands
    if isinstance(term, Lookup):
        yield from (term.index, *term.table)
    if isinstance(term, Element):
        if term.item is not None:
            yield term.item
        for index in term.indices:
            sides = (index.index, index.below, index.above) if isinstance(index, Guard) else (index,)
            yield from (side for side in sides if side is not None)


def _wrap(value: Number) -> Number:
    return (value + WORD // 2) % WORD - WORD // 2 if type(value) is int else value


def _apply(term: Apply, operands: list[Number]) -> Number:
    if term.function == "cast":
        return _cast(operands[0], term.type)
    whole = all(type(item) is int for item in operands)
    if term.function in _DIVISIONS and whole:
        if operands[1] == 0:
            raise Refused
        return _wrap(_DIVISIONS[term.function](int(operands[0]), int(operands[1])))
    if term.function == "**" and whole:
        return _power(int(operands[0]), int(operands[1]))
    return _wrap(_FUNCTIONS[term.function](*operands))


def _power(base: int, exponent: int) -> Number:
    if exponent >= 0:
        return _wrap(base**exponent)
    if base == 0:
        raise Refused
    return base ** (-exponent % 2) if abs(base) == 1 else 0


def _cast(value: Number, kind: str) -> Number:
    if kind == "real":
        return float(value)
    if kind == "bool":
        return value != 0
    if isinstance(value, float) and not math.isfinite(value):
        return 0 if math.isnan(value) else (WORD // 2 - 1 if value > 0 else -WORD // 2)
    return max(min(int(value), WORD // 2 - 1), -WORD // 2)


def _extreme(choose: Callable[[Number, Number], Number]) -> Callable[[Number, Number], Number]:
    """The smaller or the larger; not a number as soon as one of them is not."""

    def find(left: Number, right: Number) -> Number:
        return math.nan if math.isnan(left) or math.isnan(right) else choose(left, right)

    return find


def _divide(left: Number, right: Number) -> Number:
    if right == 0:
        return (
            math.nan
            if left == 0 or math.isnan(left)
            else math.copysign(math.inf, left) * math.copysign(1, right)
        )
    return left / right


_DIVISIONS: Mapping[str, Callable[[int, int], int]] = {
    "/": lambda left, right: left // right,
    "\\": lambda left, right: -(-left // right),
    "%": lambda left, right: left % right,
}
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    **{"+": lambda left, right: left + right, "-": lambda left, right: left - right},
    **{"*": lambda left, right: left * right, "/": _divide},
    **{"<<": _extreme(min), ">>": _extreme(max), "neg": lambda item: -item, "abs": abs},
    **{"<": lambda left, right: left < right, "<=": lambda left, right: left <= right},
    **{">": lambda left, right: left > right, ">=": lambda left, right: left >= right},
    **{"==": lambda left, right: left == right, "!=": lambda left, right: left != right},
    **{"&&": lambda left, right: right, "||": lambda left, right: right, "=>": lambda left, right: right},
    **{"^": lambda left, right: left != right, "!": lambda item: not item},
}
_SIGNS: Mapping[str, Callable[[Number, Number], Number]] = {
    "=": lambda old, new: new,
    ":=": lambda old, new: new,
    "+=": lambda old, new: _wrap(old + new),
    "*=": lambda old, new: _wrap(old * new),
    "<=": _extreme(min),
    ">=": _extreme(max),
    "&=": lambda old, new: old and new,
    "|=": lambda old, new: old or new,
}


def copy_tensors(tensors: Tensors) -> dict[str, Array | tuple[Array, ...]]:
    """The tensors with their own memory."""
    return {
        name: tuple(np.array(item) for item in found) if isinstance(found, tuple) else np.array(found)
        for name, found in tensors.items()
    }
