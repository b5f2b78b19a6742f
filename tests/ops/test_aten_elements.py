"""The operators of `aten` that work element by element, judged by torch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.aten import agree, judge, tensor_of, torch
from tests.support.judges.draws import FLOATS, Array, arrays, shapes
from tests.support.judges.harness import one
from tests.support.judges.registry import Given, judged

Data = st.DataObject
Pair = tuple[tuple[int, ...], tuple[int, ...]]
REALS = FLOATS[:2]
NUMBERS = (*REALS, "int64", "int32", "int8")
SMALL = ("asin", "acos", "atanh", "log1p", "expm1")
POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal")
WIDE = (
    *("exp", "exp2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "atan", "asinh", "erf", "sigmoid", "silu"),
    *("relu", "floor", "ceil", "trunc", "round", "relu6", "hardsigmoid", "hardswish", "mish", "log_sigmoid"),
    *("selu", "gelu", "hardtanh", "leaky_relu", "elu", "celu", "softplus", "square", "alias", "detach"),
)
ANY = ("neg", "abs", "sign", "square", "clone")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")
NAMED = {"min_other": "min", "max_other": "max"}


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Two shapes that broadcast to one another."""
    whole = draw(shapes(0, 4, 0, 3))
    found = []
    for _ in range(2):
        kept = draw(st.integers(0, len(whole)))
        found.append(tuple(1 if draw(st.integers(0, 3)) == 0 else item for item in whole[kept:]))
    return found[0], found[1]


def both(data: Data, given_: Pair, dtypes: tuple[str, ...], low: int = -9, high: int = 9) -> list[Array]:
    """Two arrays of one type."""
    dtype = (data.draw(st.sampled_from(dtypes)),)
    return [data.draw(arrays(shape, dtype, low, high)) for shape in given_]


@judged("torch", *(f"aten.{name}" for name in (*WIDE, *POSITIVE, *SMALL, "acosh")))
@pytest.mark.parametrize("name", [*WIDE, *POSITIVE, *SMALL, "acosh"])
@given(shapes(), st.sampled_from(REALS), st.integers(0, 2**32 - 1))
def test_reals(name: str, shape: tuple[int, ...], dtype: str, seed: int) -> None:
    low, high = (-0.95, 0.95) if name in SMALL else (0.05, 9) if name in POSITIVE else (-9, 9)
    low, high = (1, 9) if name == "acosh" else (low, high)
    drawn = np.asarray(np.random.default_rng(seed).uniform(low, high, shape))
    judge(name, np.asarray(np.round(drawn * 4) / 4 if low == -9 else drawn, dtype))


@judged("torch", *(f"aten.{name}" for name in ANY))
@pytest.mark.parametrize("name", ANY)
@given(shapes(), st.data())
def test_numbers(name: str, shape: tuple[int, ...], data: Data) -> None:
    judge(name, data.draw(arrays(shape, NUMBERS)))


@pytest.mark.parametrize("name", ["log1p", "expm1"])
@pytest.mark.parametrize("dtype", REALS)
def test_small_numbers_keep_their_digits(name: str, dtype: str) -> None:
    small = np.asarray([1e-12, -1e-9, 3e-7, 1e-4, -2e-3, 0.3, 0.0, np.inf, 80.0], dtype)
    expected = getattr(torch.ops.aten, name)(torch.tensor(small)).numpy()
    np.testing.assert_allclose(
        one(f"aten.{name}", small), expected, rtol=1e-14 if dtype == "float64" else 1e-6
    )


@judged("torch", "aten.round", "aten.isnan", "aten.isinf")
def test_halves_and_what_is_no_number() -> None:
    values = np.asarray([0.5, 1.5, 2.5, -0.5, -1.5, 8388609.0, 1e30, np.inf, -np.inf, np.nan], np.float32)
    judge("round", values)
    judge("isnan", values)
    judge("isinf", values)


GIVEN: tuple[tuple[str, dict[str, Given]], ...] = (
    ("gelu", {"approximate": "tanh"}),
    ("gelu", {"approximate": "none"}),
    ("hardtanh", {"min_val": -2.5, "max_val": 0.5}),
    ("leaky_relu", {"negative_slope": 1.5}),
    ("elu", {"alpha": 0.5, "scale": 2.0, "input_scale": 0.25}),
    ("celu", {"alpha": 0.5}),
    ("softplus", {"beta": 2.0, "threshold": 5.0}),
    ("threshold", {"threshold": 0.5, "value": -3.0}),
)


@judged("torch", *(f"aten.{name}" for name, _ in GIVEN))
@pytest.mark.parametrize(("name", "attributes"), GIVEN)
@given(shapes(), st.data())
def test_activations(name: str, attributes: dict[str, Given], shape: tuple[int, ...], data: Data) -> None:
    judge(name, data.draw(arrays(shape)), **attributes)


@judged("torch", "aten.prelu")
@given(shapes(2, 4), st.booleans(), st.data())
def test_prelu(shape: tuple[int, ...], shared: bool, data: Data) -> None:
    weight = data.draw(arrays((1 if shared else shape[1],), REALS[:1]))
    judge("prelu", data.draw(arrays(shape, REALS[:1])), weight)


@judged("torch", "aten.glu")
@given(shapes(1, 4), st.data())
def test_glu(shape: tuple[int, ...], data: Data) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    doubled = list(shape)
    doubled[dim] *= 2
    judge("glu", data.draw(arrays(tuple(doubled))), dim=dim)


@judged("torch", "aten.add", "aten.sub", "aten.rsub")
@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
@given(pairs(), st.integers(-2, 2), st.data())
def test_sums(name: str, given_: Pair, alpha: int, data: Data) -> None:
    x, y = both(data, given_, NUMBERS)
    scaled = float(alpha) if x.dtype.kind == "f" else alpha
    expected = getattr(torch.ops.aten, name)(tensor_of(x), tensor_of(y), alpha=scaled)
    agree(name, [x, y], {"alpha": scaled}, expected)
    judge(name, x, y)


@judged("torch", "aten.mul", "aten.minimum", "aten.maximum", "aten.min_other", "aten.max_other")
@pytest.mark.parametrize("name", ["mul", "minimum", "maximum", "min_other", "max_other"])
@given(pairs(), st.data())
def test_pairs_of_numbers(name: str, given_: Pair, data: Data) -> None:
    x, y = both(data, given_, NUMBERS)
    function = getattr(torch.ops.aten, NAMED.get(name, name))
    agree(name, [x, y], {}, function(tensor_of(x), tensor_of(y)))


@judged("torch", "aten.floor_divide", "aten.remainder", "aten.fmod")
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
@given(pairs(), st.data())
def test_divisions(name: str, given_: Pair, data: Data) -> None:
    x, y = both(data, given_, NUMBERS)
    judge(name, x, np.where(y == 0, y.dtype.type(3), y))


@given(st.integers(-20, 20), st.sampled_from((0.1, -0.1, 0.3, 0.7)))
def test_division_rounded_down_does_not_round_twice(count: int, divisor: float) -> None:
    x, y = np.asarray([count * divisor, count], np.float64), np.asarray([divisor, divisor])
    judge("floor_divide", x, y)
    judge("remainder", x, y)


@judged("torch", "aten.div")
@given(pairs(), st.sampled_from((None, "trunc", "floor")), st.data())
def test_div(given_: Pair, mode: str | None, data: Data) -> None:
    x, y = both(data, given_, REALS)
    y = np.where(y == 0, y.dtype.type(3), y)
    expected = torch.div(tensor_of(x), tensor_of(y), rounding_mode=mode)
    agree("div", [x, y], {} if mode is None else {"rounding_mode": mode}, expected)


@judged("torch", "aten.pow")
@given(pairs(), st.data())
def test_pow(given_: Pair, data: Data) -> None:
    x, y = both(data, given_, (*REALS, "int64"), 0, 4)
    judge("pow", x, y)
    judge("pow", x, 2.0 if x.dtype.kind == "f" else 2)


@judged("torch", *(f"aten.{name}" for name in COMPARED))
@pytest.mark.parametrize("name", COMPARED)
@given(pairs(), st.data())
def test_comparisons(name: str, given_: Pair, data: Data) -> None:
    x, y = both(data, given_, (*NUMBERS, "bool") if name in ("eq", "ne") else NUMBERS, -2, 2)
    judge(name, x, y)
    if x.dtype.kind != "b":
        judge(name, x, 1.0 if x.dtype.kind == "f" else 1)


@judged("torch", *(f"aten.{name}" for name in (*LOGICAL, "logical_not")))
@pytest.mark.parametrize("name", LOGICAL)
@given(pairs(), st.data())
def test_logic(name: str, given_: Pair, data: Data) -> None:
    x, y = (data.draw(arrays(shape, (*NUMBERS, "bool"), -1, 1)) for shape in given_)
    judge(name, x, y)
    judge("logical_not", x)


@judged("torch", *(f"aten.{name}" for name in (*BITWISE, "bitwise_not")))
@pytest.mark.parametrize("name", BITWISE)
@given(pairs(), st.data())
def test_truth_values(name: str, given_: Pair, data: Data) -> None:
    x, y = both(data, given_, ("bool",))
    judge(name, x, y)
    judge("bitwise_not", x)


@judged("torch", "aten.where", "aten.masked_fill")
@given(pairs(), st.data())
def test_where(given_: Pair, data: Data) -> None:
    x, y = both(data, given_, (*NUMBERS, "bool"))
    whole = np.broadcast_shapes(*given_)
    condition = data.draw(arrays(data.draw(st.sampled_from((whole, *given_))), ("bool",)))
    judge("where", condition, x, y)
    filled = np.asarray(2, x.dtype)
    expected = torch.where(tensor_of(condition), tensor_of(filled), tensor_of(x))
    agree("masked_fill", [x, condition, filled], {}, expected)


@judged("torch", "aten.clamp", "aten.clamp_min", "aten.clamp_max")
@given(shapes(), st.integers(-5, 5), st.integers(-5, 5), st.data())
def test_clamp(shape: tuple[int, ...], low: int, high: int, data: Data) -> None:
    x = data.draw(arrays(shape, NUMBERS))
    least, most = (float(low), float(high)) if x.dtype.kind == "f" else (low, high)
    judge("clamp", x, least, most)
    judge("clamp", x, None, most)
    judge("clamp", x, least)
    judge("clamp_min", x, least)
    judge("clamp_max", x, most)


@judged("torch", "aten.addcmul", "aten.addcdiv", "aten.lerp")
@given(shapes(), st.data())
def test_blends(shape: tuple[int, ...], data: Data) -> None:
    x, y, z = (data.draw(arrays(shape, REALS[:1], 1, 9)) for _ in range(3))
    judge("addcmul", x, y, z, value=0.5)
    judge("addcdiv", x, y, z, value=-2.0)
    agree("lerp", [x, y], {"weight": 0.25}, torch.lerp(tensor_of(x), tensor_of(y), 0.25))


@judged("torch", "aten.to_copy", "aten.type_as", "aten.dropout")
@given(shapes(), st.sampled_from((("f32", "float32"), ("i64", "int64"), ("bool", "bool"))), st.data())
def test_conversions(shape: tuple[int, ...], kind: tuple[str, str], data: Data) -> None:
    x = data.draw(arrays(shape, (*NUMBERS, "bool")))
    wanted = tensor_of(x).to(getattr(torch, kind[1]))
    agree("to_copy", [x], {}, wanted, types=(kind[0],))
    agree("type_as", [x, np.zeros((2,), kind[1])], {}, wanted)
    agree("dropout", [x], {}, torch.dropout(tensor_of(x), 0.5, False))
