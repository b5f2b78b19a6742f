"""Rows of views, sums and products on the machine give what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.nacvm import compile_program
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import BF16, F16, F32, I8, I64, ElementType
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.ops.library import Library
from tests.support.backend.nacvm.assembling import assemble

LIBRARY = Library()


@dataclass
class Pair:
    """A tensor of a graph, and the array that NumPy has for it."""

    builder: Builder
    tensor: Tensor
    array: Array

    def call(self, operator: str, array: Array, *others: Tensor, **attributes: Any) -> None:
        """Apply an operator on one side, its result on the other."""
        self.tensor = self.builder.call(f"aten.{operator}", self.tensor, *others, **attributes)
        self.array = array


def turn(pair: Pair, data: st.DataObject) -> None:
    """Any order of the dimensions."""
    order = tuple(data.draw(st.permutations(range(pair.array.ndim))))
    pair.call("permute", pair.array.transpose(order), dims=order)


def merge(pair: Pair, data: st.DataObject) -> None:
    """Two neighbours become one dimension, or one is split."""
    shape = list(pair.array.shape)
    place = data.draw(st.integers(0, len(shape) - 1))
    if place + 1 < len(shape) and data.draw(st.booleans()):
        shape[place : place + 2] = [shape[place] * shape[place + 1]]
    else:
        factor = data.draw(st.sampled_from([n for n in range(1, shape[place] + 1) if shape[place] % n == 0]))
        shape[place : place + 1] = [factor, shape[place] // factor]
    pair.call("view", pair.array.reshape(shape), size=tuple(shape))


def cut(pair: Pair, data: st.DataObject) -> None:
    """A part along one dimension."""
    dim = data.draw(st.integers(0, pair.array.ndim - 1))
    length = pair.array.shape[dim]
    start, step = data.draw(st.integers(0, length - 1)), data.draw(st.integers(1, 3))
    place = (slice(None),) * dim + (slice(start, length, step),)
    pair.call("slice", pair.array[place], dim=dim, start=start, end=length, step=step)


def turn_sign(pair: Pair, data: st.DataObject) -> None:
    """The negative."""
    pair.call("neg", -pair.array)


def join(pair: Pair, data: st.DataObject) -> None:
    """The sum along one dimension, which stays."""
    dim = data.draw(st.integers(0, pair.array.ndim - 1))
    pair.call("sum", pair.array.sum(dim, keepdims=True), dim=(dim,), keepdim=True)


def multiply(pair: Pair) -> None:
    """A product with its own transpose."""
    other = pair.builder.call("aten.transpose", pair.tensor, dim0=-1, dim1=-2)
    pair.call("matmul", pair.array @ pair.array.swapaxes(-1, -2), other)


STEPS: tuple[Callable[[Pair, st.DataObject], None], ...] = (turn, merge, cut, turn_sign, join)


@given(data=st.data())
def test_rows_of_operations_give_what_numpy_gives(data: st.DataObject) -> None:
    """The numbers are small integers, so that every order of a sum gives the same."""
    builder = Builder(LIBRARY, "G")
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    start = data.draw(st.integers(0, 9))
    array = (np.arange(np.prod(shape)) % 7 - 3 + start).astype(np.float32).reshape(shape)
    pair = Pair(builder, builder.input("x", F32, shape), array)
    for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=6)):
        step(pair, data)
    if pair.array.ndim > 1 and data.draw(st.booleans()):
        multiply(pair)
    model = Model(builder.finish(pair.tensor), LIBRARY)
    machine = compile_program(assemble(model))
    (found,) = machine(x=array).values()
    assert found.shape == pair.array.shape
    np.testing.assert_array_equal(found, pair.array)


@given(
    st.sampled_from([F16, BF16]),
    st.lists(st.floats(-4, 4, width=16), min_size=3, max_size=3),
    st.integers(1, 9),
)
def test_narrow_reals_are_rounded_once(element: ElementType, numbers: list[float], factor: int) -> None:
    builder = Builder(LIBRARY, "G")
    x = builder.input("x", element, (3,))
    model = Model(builder.finish(builder.call("aten.mul", x, float(factor) / 8)), LIBRARY)
    values = np.array(numbers, np.float32).astype(numpy_dtype(element))
    (found,) = compile_program(assemble(model))(x=values.astype(np.float32)).values()
    wanted = (values.astype(np.float32) * np.float32(factor / 8)).astype(numpy_dtype(element))
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


@given(st.lists(st.integers(-128, 127), min_size=4, max_size=4))
def test_integers_wrap_around_at_their_own_width(numbers: list[int]) -> None:
    builder = Builder(LIBRARY, "G")
    x, y = builder.input("x", I8, (4,)), builder.input("y", I64, (4,))
    sums = builder.call("aten.add", x, x), builder.call("aten.mul", y, y)
    model = Model(builder.finish(*sums), LIBRARY)
    narrow, wide = np.array(numbers, np.int8), np.array(numbers, np.int64)
    found = list(compile_program(assemble(model))(x=narrow, y=wide).values())
    np.testing.assert_array_equal(found[0], narrow + narrow)
    np.testing.assert_array_equal(found[1], wide * wide)
