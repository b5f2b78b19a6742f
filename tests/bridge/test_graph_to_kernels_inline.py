"""Groups with their maps inlined: few stages, and the numbers that the reference computes operation by operation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import find
from lamella.bridge.graph_to_kernels import flatten
from lamella.bridge.graph_to_kernels.inline import Stages, inline
from lamella.bridge.graph_to_kernels.terms import ROUND
from lamella.graph.model import Model
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index
from tests.support.bridge.groups import make_group, whole_group
from tests.support.bridge.operators.calls import Invocation, agree, build, by_reference, call

# --- an interpreter of stages that knows nothing of how they were made ---------------------------------------

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if isinstance(a, float) else a // b,
    "%": lambda a, b: math.fmod(a, b) if isinstance(a, float) else a % b,
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
    "!": lambda a: not a,
    "neg": lambda a: -a,
    "abs": abs,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "erf": math.erf,
}
JOINS = {"+=": "+", "*=": "*", "<=": "<<", ">=": ">>"}
STARTS = {"+=": 0, "*=": 1, "<=": math.inf, ">=": -math.inf}


class SkippedError(Exception):
    """A step that a tested index skips."""


class Interpreter:
    """Runs stages step by step with Python's numbers."""

    def __init__(self, stages: Stages, fed: Mapping[str, Array]) -> None:
        self.stages = stages
        self.arrays = {name: np.asarray(fed[name]) for name in stages.inputs}
        for name, value in stages.constants.items():
            held = stages.tensors[name]
            self.arrays[name] = np.asarray(value, numpy_dtype(held.element)).reshape(held.shape)
        self.indices: dict[str, int] = {}

    def run(self) -> dict[str, Array]:
        """What leaves the group."""
        for stage in self.stages.contractions:
            self._run(stage)
        return {name: self.arrays[name] for name in self.stages.outputs}

    def _run(self, stage: Contraction) -> None:
        values: dict[tuple[str, tuple[int, ...]], Any] = {}
        for target in stage.targets:
            self.arrays.setdefault(target.tensor, self._start(target.tensor, stage.sign))
        extents = [range(loop.extent) for loop in stage.loops if isinstance(loop.extent, int)]
        assert len(extents) == len(stage.loops)
        for steps in itertools.product(*extents):
            self.indices = {loop.index: step for loop, step in zip(stage.loops, steps, strict=True)}
            try:
                self._step(stage, values)
            except SkippedError:
                continue
        for (name, place), value in values.items():
            self.arrays[name][place] = self._held(value, name)

    def _start(self, name: str, sign: str) -> Array:
        held = self.stages.tensors[name]
        start: float = STARTS.get(sign, 0)
        if math.isinf(start) and not held.element.is_float:
            start = held.element.maximum if start > 0 else held.element.minimum
        return np.full(held.shape, start, numpy_dtype(held.element))

    def _step(self, stage: Contraction, values: dict[tuple[str, tuple[int, ...]], Any]) -> None:
        places = [(item.tensor, self._place(item)) for item in stage.targets]
        found = [self._value(item) for item in stage.values]
        if stage.condition is not None and not self._value(stage.condition):
            return
        for (name, place), value in zip(places, found, strict=True):
            if stage.sign in JOINS:
                # Accumulations are rounded once, at their end.
                before = values.get((name, place), self.arrays[name][place].item())
                value = FUNCTIONS[JOINS[stage.sign]](before, value)
            values[name, place] = value

    def _held(self, value: Any, name: str) -> Any:
        return _rounded(value, self.stages.tensors[name].element.name)

    def _place(self, element: Element) -> tuple[int, ...]:
        shape = self.stages.tensors[element.tensor].shape
        return tuple(self._index(index, size) for index, size in zip(element.indices, shape, strict=True))

    def _index(self, index: object, size: int) -> int:
        place = int(self._value(index.index if isinstance(index, Guard) else index))
        if isinstance(index, Guard) and not 0 <= place < size:
            side = index.below if place < 0 else index.above
            if side is None:
                raise SkippedError
            place = int(self._value(side))
        assert 0 <= place < size, "an index leaves its tensor"
        return place

    def _value(self, term: object) -> Any:
        if isinstance(term, Index):
            return self.indices[term.name]
        if isinstance(term, Element):
            return self.arrays[term.tensor][self._place(term)].item()
        if not isinstance(term, Apply):
            return term
        if term.function == "?:":
            condition, *sides = (self._value(item) for item in term.operands)
            return sides[0] if condition else sides[1]
        found = [self._value(item) for item in term.operands]
        if term.function == "cast":
            return {"int": int, "real": float, "bool": bool}[term.type](found[0])
        if term.function.startswith(ROUND):
            return _rounded(found[0], term.function.removeprefix(ROUND))
        return FUNCTIONS[term.function](*found)


def _rounded(value: Any, name: str) -> Any:
    element = find(name)
    assert element is not None
    if element.is_integer:
        low = (int(value) - element.minimum) & ((1 << element.bits) - 1)
        return low + element.minimum
    return np.asarray(value).astype(numpy_dtype(element)).item()


# --- stages -------------------------------------------------------------------------------------------------


def stages_of(item: Invocation) -> tuple[Model, Mapping[str, Array], Stages]:
    """One call as a group."""
    model, fed = build([item])
    flat = flatten(model)
    return flat, fed, inline(flat.library, whole_group(flat))


GROUPS = {
    "softmax": (call("nn.softmax", "f32 2 3 8", axes=(2,)), [">=", "=", "+=", "="]),
    "softmax of f16": (call("nn.softmax", "f16 2 3 4 -2..2", axes=(1,)), [">=", "=", "+=", "="]),
    "layer norm": (
        call("aten.layer_norm", "f32 2 3 8", "f32 8", "f32 8", normalized_shape=(8,)),
        ["+=", "+=", "="],
    ),
    "RMS norm": (call("aten.rms_norm", "f32 2 3 8", "f32 8", normalized_shape=(8,)), ["+=", "="]),
    "group norm": (call("aten.group_norm", "f32 2 8 3", "f32 8", "f32 8", num_groups=4), ["+=", "+=", "="]),
    "convolution": (
        call("aten.conv2d", "f32 1 2 4 4", "f32 3 2 3 3", "f32 3", padding=(1, 1)),
        ["+=", "="],
    ),
    "reshape": (call("layout.reshape", "f32 2 3 8 8", shape=(6, 64)), ["="]),
    "reshape across": (call("layout.reshape", "f32 6 10", shape=(4, 15)), ["=", "="]),
    "gelu": (call("aten.gelu", "f32 2 7"), ["="]),
    "batch norm": (
        call("nn.batch_norm", "f32 2 3 4 4", "f32 3", "f32 3 1..2", "f32 3", "f32 3"),
        ["="],
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_known_groups_become_few_stages_with_the_same_numbers(name: str) -> None:
    item, signs = GROUPS[name]
    model, fed, stages = stages_of(item)
    assert [stage.sign for stage in stages.contractions] == signs
    agree(Interpreter(stages, fed).run(), by_reference(model)(**fed))


def test_what_is_dear_is_computed_once_where_it_is_read_twice() -> None:
    _, _, stages = stages_of(GROUPS["softmax"][0])
    functions = [
        term.function for stage in stages.contractions for term in stage.values if isinstance(term, Apply)
    ]
    assert functions.count("exp") == 1
    assert "output.exped" in stages.temporaries


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@given(st.integers(0, 10_000), st.integers(1, 9))
def test_random_groups_keep_their_numbers(seed: int, steps: int) -> None:
    model, fed = make_group(seed, steps)
    stages = inline(model.library, whole_group(model))
    assert set(stages.inputs) <= set(fed)
    assert len(stages.contractions) <= 3 * len(model.graph.nodes)
    try:
        found = Interpreter(stages, fed).run()
    except OverflowError:
        return
    agree(found, by_reference(model)(**fed))
