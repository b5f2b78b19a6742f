"""The slow and obvious meaning of a contraction: nested loops over plain Python numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup, Scalar

Array = NDArray[Any]
Tensors = Mapping[str, Array | Sequence[Array]]
INITIAL: Mapping[str, float] = {
    **{"+=": 0, "*=": 1, "&=": True, "|=": False, "<=": math.inf, ">=": -math.inf, "=": 0},
}


class Skipped(Exception):
    """A guard says that this step does nothing."""


class Interpreter:
    """Runs contractions one step after the other."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.loops: dict[str, int] = {}

    def run(self, contractions: Sequence[Contraction]) -> None:
        written: set[str] = set()
        for item in contractions:
            for target in item.targets:
                if f"{target.tensor}{target.item}" not in written:
                    self._tensor(target)[...] = INITIAL.get(item.sign, 0)
                    written.add(f"{target.tensor}{target.item}")
            names = [loop.index for loop in item.loops]
            extents = [loop.extent for loop in item.loops]
            assert all(isinstance(extent, int) for extent in extents)
            for row in product(*(range(extent) for extent in extents if isinstance(extent, int))):
                self.loops = dict(zip(names, row, strict=True))
                self._step(item)

    def _step(self, item: Contraction) -> None:
        try:
            places = [self._place(target) for target in item.targets]
            values = [self.value(value) for value in item.values]
            chosen = item.condition is None or self.value(item.condition)
        except Skipped:
            return
        if chosen:
            for target, place, value in zip(item.targets, places, values, strict=True):
                array = self._tensor(target)
                array[place] = ASSIGN[item.sign](array[place].item(), value)

    def _tensor(self, element: Element) -> Array:
        found = self.tensors[element.tensor]
        if element.item is None:
            assert isinstance(found, np.ndarray)
            return found
        picked = found[int(self.value(element.item))]
        assert isinstance(picked, np.ndarray)
        return picked

    def _place(self, element: Element) -> tuple[int, ...]:
        shape = self._tensor(element).shape
        assert len(shape) == len(element.indices)
        return tuple(self._index(index, extent) for index, extent in zip(element.indices, shape, strict=True))

    def _index(self, index: Scalar | Guard, extent: int) -> int:
        if not isinstance(index, Guard):
            found = int(self.value(index))
            assert 0 <= found < extent
            return found
        found = int(self.value(index.index))
        if 0 <= found < extent:
            return found
        replaced = index.below if found < 0 else index.above
        if replaced is None:
            raise Skipped
        return int(self.value(replaced))

    def value(self, term: Scalar) -> float:
        if isinstance(term, int | float):
            return term
        if isinstance(term, Index):
            return self.loops[term.name]
        if isinstance(term, Element):
            found: float = self._tensor(term)[self._place(term)].item()
            return found
        if isinstance(term, Lookup):
            return self.value(term.table[int(self.value(term.index))])
        assert isinstance(term, Apply)
        if term.function == "?:":
            condition, then, otherwise = term.operands
            return self.value(then if self.value(condition) else otherwise)
        operands = [self.value(item) for item in term.operands]
        if term.function == "cast":
            casts: Mapping[str, type[int] | type[float]] = {"int": int, "real": float, "bool": bool}
            return casts[term.type](operands[0])
        whole = term.type == "int"
        return APPLY[term.function if not (whole and term.function == "/") else "//"](*operands)


ASSIGN: Mapping[str, Callable[[float, float], float]] = {
    "=": lambda old, new: new,
    ":=": lambda old, new: new,
    "+=": lambda old, new: old + new,
    "*=": lambda old, new: old * new,
    "<=": min,
    ">=": max,
    "&=": lambda old, new: old and new,
    "|=": lambda old, new: old or new,
}
APPLY: Mapping[str, Callable[..., float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "\\": lambda a, b: -(-a // b),
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "<<": min,
    ">>": max,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "&&": lambda a, b: a and b,
    "||": lambda a, b: a or b,
    "^": lambda a, b: a != b,
    "=>": lambda a, b: not a or b,
    "!": lambda a: not a,
    "neg": lambda a: -a,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "frac": lambda a: math.fmod(a, 1.0),
}
