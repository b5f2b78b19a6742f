"""Transform functions: each does what it says, and its inverse undoes it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lamella.base.arrays import Array
from lamella.bridge.hf_to_module.weights import FUNCTIONS, STACK, function_names

SHAPES = {
    **{"squeeze_1": (4, 1, 3), "unsqueeze_1": (4, 3), "transpose": (4, 3)},
    **{"half_to_interleaved": (8, 3), "interleaved_to_half": (8,)},
}
EXACT = sorted(name for name, item in FUNCTIONS.items() if not item.computes or name == "neg")
HEAD = 4


def test_every_function_has_an_inverse_whose_inverse_it_is() -> None:
    for name, function in FUNCTIONS.items():
        assert FUNCTIONS[function.inverse].inverse == name
    assert set(function_names()) == {*FUNCTIONS, STACK}


@pytest.mark.parametrize("name", EXACT)
@given(data=st.data())
def test_moving_numbers_is_undone_to_the_bit(name: str, data: st.DataObject) -> None:
    shape = SHAPES.get(name, (3, 2))
    bits = data.draw(arrays.arrays(np.uint32, shape))
    for values in (bits.view(np.float32), bits.astype(np.uint16).view(ml_dtypes.bfloat16)):
        function = FUNCTIONS[name]
        there = function.apply(values, HEAD)
        back = FUNCTIONS[function.inverse].apply(there, HEAD)
        assert there.shape == function.shape(shape, HEAD)
        assert there.dtype == values.dtype
        assert back.tobytes() == values.tobytes()


JUDGES = {
    "negate_exp": lambda x: -torch.exp(x),
    "log_negate": lambda x: torch.log(-x),
    "exp": torch.exp,
    "log": torch.log,
    "neg": torch.neg,
    "transpose": lambda x: x.transpose(-1, -2),
}


@pytest.mark.parametrize("name", JUDGES)
@given(values=arrays.arrays(np.float32, (3, 2), elements=st.floats(-5, 5, width=32)))
def test_computed_numbers_are_those_of_torch(name: str, values: Array) -> None:
    found = FUNCTIONS[name].apply(values, HEAD)
    wanted = JUDGES[name](torch.from_numpy(values).double()).float().numpy()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-6, equal_nan=True)


def test_bfloat16_is_computed_in_double_precision_and_rounded_once() -> None:
    values = np.linspace(-4, 4, 1000).astype(ml_dtypes.bfloat16)
    wanted = torch.from_numpy(values.astype(np.float64)).exp().to(torch.bfloat16)
    assert FUNCTIONS["exp"].apply(values, 0).tobytes() == wanted.view(torch.uint8).numpy().tobytes()


WRONG = [
    *(("transpose", (3,)), ("squeeze_1", (3, 2)), ("squeeze_1", (1,)), ("unsqueeze_1", ())),
    *(("half_to_interleaved", (6, 2)), ("interleaved_to_half", ())),
]


@pytest.mark.parametrize(("name", "shape"), WRONG)
def test_shapes_that_cannot_be_taken_are_said(name: str, shape: tuple[int, ...]) -> None:
    assert isinstance(FUNCTIONS[name].shape(shape, HEAD), str)


@pytest.mark.parametrize("head", [0, 3, -2])
def test_heads_have_an_even_number_of_rows(head: int) -> None:
    assert isinstance(FUNCTIONS["half_to_interleaved"].shape((12,), head), str)
