"""The operators of `aten` on single elements that need more than one case, judged by torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.aten import agree, judge, tensor_of, torch
from tests.support.judges.draws import Array, arrays, shapes
from tests.support.judges.harness import one
from tests.support.judges.registry import judged

Data = st.DataObject
Shape = tuple[int, ...]
EDGES = np.asarray([0.0, -0.0, 1.0, -2.5, 0.5, np.inf, -np.inf, np.nan], np.float32)
SIGNED = EDGES[:-1]


def pairs() -> tuple[Array, Array]:
    """Each edge with each other, zeros and infinities of both signs among them."""
    return SIGNED[:, None], SIGNED


@judged("torch", "aten.atan2", "aten.hypot", "aten.copysign")
@pytest.mark.parametrize("name", ["atan2", "hypot", "copysign"])
@given(shapes(0, 3, 1), st.data())
def test_pairs(name: str, shape: Shape, data: Data) -> None:
    cut = tuple(1 if data.draw(st.booleans()) else extent for extent in shape)
    dtype = (data.draw(st.sampled_from(("float32", "float64"))),)
    x, y = data.draw(arrays(cut, dtype)), data.draw(arrays(shape, dtype))
    judge(name, x, y)
    judge(name, y, x)


@pytest.mark.parametrize("name", ["atan2", "copysign", "hypot"])
def test_zeros_and_infinities_in_pairs(name: str) -> None:
    judge(name, *pairs())


@pytest.mark.parametrize("name", ["atan2", "copysign"])
def test_zeros_keep_their_signs(name: str) -> None:
    left, right = pairs()
    expected = np.signbit(np.asarray(getattr(torch, name)(tensor_of(left), tensor_of(right))))
    np.testing.assert_array_equal(np.signbit(one(f"aten.{name}", left, right)), expected)


@judged("torch", "aten.isfinite", "aten.erfc", "aten.sinc", "aten.frac", "aten.logit")
@judged("torch", "aten.hardshrink", "aten.softshrink", "aten.softsign", "aten.nan_to_num")
@given(shapes(0, 4), st.sampled_from((0.25, 0.5, 1.0)), st.data())
def test_shapes_of_elements(shape: Shape, cut: float, data: Data) -> None:
    x = data.draw(arrays(shape))
    for name in ("isfinite", "frac"):
        agree(name, [x], {}, getattr(torch, name)(tensor_of(x)))
    quarters = np.asarray(x / 4, x.dtype)
    for name in ("erfc", "sinc"):
        agree(name, [quarters], {}, getattr(torch, name)(tensor_of(quarters)), tolerance=1e-6)
    for name in ("hardshrink", "softshrink"):
        judge(name, x, lambd=cut)
    agree("softsign", [x], {}, torch.nn.functional.softsign(tensor_of(x)))
    judge("nan_to_num", x, nan=cut)
    unit = np.asarray((np.abs(x) + 1) / 11, x.dtype)
    judge("logit", unit)
    judge("logit", unit, eps=cut / 4)


@judged("torch", "aten.lgamma", "aten.digamma", "aten.erfinv", "aten.signbit")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(shapes(1, 2, 1, 9), st.integers(0, 2**32 - 1))
def test_functions_of_statistics(dtype: str, shape: Shape, seed: int) -> None:
    drawn = np.random.default_rng(seed).uniform(-5, 9, shape)
    # Near poles and zeros the last digit of a number decides: they are kept away from.
    x = np.asarray(np.floor(drawn) + 0.1 + 0.8 * np.abs(drawn % 1), dtype)
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    for name in ("lgamma", "digamma"):
        agree(name, [x], {}, getattr(torch, name)(tensor_of(x)), tolerance=tolerance)
    agree("signbit", [x], {}, torch.signbit(tensor_of(x)))
    unit = np.asarray(drawn / 10, dtype)
    agree("erfinv", [unit], {}, torch.erfinv(tensor_of(unit)), tolerance=tolerance)


BESSEL = {
    "i0": torch.special.i0,
    "special_i0e": torch.special.i0e,
    "special_i1": torch.special.i1,
    "special_i1e": torch.special.i1e,
}


@judged("torch", *(f"aten.{name}" for name in BESSEL))
@given(shapes(1, 2, 1, 9), st.integers(0, 2**32 - 1))
def test_bessel_functions(shape: Shape, seed: int) -> None:
    x = np.random.default_rng(seed).uniform(-20, 20, shape).astype(np.float32)
    edges = np.asarray([0.0, 8.0, -8.0, 8.000001, 80.0, np.nan], np.float32)
    for name, function in BESSEL.items():
        for given_ in (x, edges):
            agree(name, [given_], {}, function(tensor_of(given_)), tolerance=3e-6)


@pytest.mark.parametrize("name", ["lgamma", "digamma", "erfinv", "signbit"])
def test_edges_of_statistics(name: str) -> None:
    x = np.asarray([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, -3.5, 1e8, np.inf, -np.inf, np.nan], np.float32)
    agree(name, [x], {}, getattr(torch, name)(tensor_of(x)), tolerance=2e-6)


@pytest.mark.parametrize("name", ["isfinite", "nan_to_num", "softsign", "frac"])
def test_edges(name: str) -> None:
    x = EDGES if name != "frac" else EDGES[:5]
    found = torch.nn.functional.softsign if name == "softsign" else getattr(torch, name)
    agree(name, [x], {}, found(tensor_of(x)))


def test_what_is_infinite_is_replaced() -> None:
    judge("nan_to_num", EDGES, nan=1.0, posinf=7.0, neginf=-8.0)
