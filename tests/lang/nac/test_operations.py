"""The tables of operations and signature codes, and what constants become."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.errors import Malformed
from lamella.lang.nac.nodes import ConstantValue
from lamella.lang.nac.operations import (
    CONSTANT_CODES,
    READABLE_NAMES,
    TENSOR_CODES,
    Canonical,
    canonise,
    coerce,
    standard_operations,
)

FIRST = ["pass", "add", "sub", "gt", "neg", "where", "clone", "view", "le", "arange"]
NEWER = [
    "mul",
    "div",
    "matmul",
    "transpose",
    "zeros",
    "zeros_like",
    "new_zeros",
    "ones",
    "ones_like",
    "new_ones",
    "full",
    "full_like",
]


@pytest.mark.parametrize(
    ("version", "names"),
    [("1.5", FIRST), ("1.6", FIRST), ("1.7", [*FIRST, *NEWER]), ("1.8", [*FIRST, *NEWER])],
)
def test_standard_operations_begin_at_10(version: str, names: list[str]) -> None:
    found = standard_operations(version)
    assert [(id_, item.name) for id_, item in found.items()] == [
        (10 + place, f"nac.{name}") for place, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("name", "count", "takes"),
    [
        ("nac.neg", 1, True),
        ("nac.neg", 2, False),
        ("nac.add", 3, True),
        ("nac.add", 1, False),
        ("nac.pass", 5, True),
        ("nac.where", 2, False),
        ("nac.arange", 0, False),
        ("nac.arange", 6, True),
        ("nac.transpose", 1, True),
        ("nac.transpose", 4, False),
    ],
)
def test_operations_take_a_number_of_arguments(name: str, count: int, takes: bool) -> None:
    found = {item.name: item for item in standard_operations("1.8").values()}
    assert found[name].takes(count) is takes


@pytest.mark.parametrize(
    ("name", "first", "newest"),
    [
        ("aten::add.Tensor", Canonical("nac.add"), Canonical("nac.add")),
        ("aten.add_.Tensor", Canonical("nac.add"), Canonical("nac.add")),
        ("aten.sub.Scalar", Canonical("nac.sub"), Canonical("nac.sub")),
        ("aten.rsub.Scalar", Canonical("nac.sub", (1, 0)), Canonical("nac.sub", (1, 0))),
        ("aten.masked_fill.Scalar", Canonical("nac.where", (1, 2, 0)), Canonical("nac.where", (1, 2, 0))),
        ("aten.dropout.default", Canonical("nac.pass"), Canonical("nac.pass")),
        ("aten.squeeze.dim", Canonical("nac.view"), Canonical("nac.view")),
        ("aten._unsafe_view.default", Canonical("nac.view"), Canonical("nac.view")),
        ("aten.true_divide.Tensor", Canonical("nac.div"), Canonical("nac.div")),
        ("aten.mul.Tensor", Canonical("aten.mul.Tensor"), Canonical("nac.mul")),
        ("aten.mm.default", Canonical("aten.mm.default"), Canonical("nac.matmul")),
        ("aten.t.default", Canonical("aten.t.default"), Canonical("nac.transpose")),
        ("aten.copy.default", Canonical("aten.copy.default"), Canonical("nac.clone")),
        ("aten.relu.default", Canonical("aten.relu.default"), Canonical("aten.relu.default")),
        ("aten.squeeze.dims", Canonical("aten.squeeze.dims"), Canonical("aten.squeeze.dims")),
        ("aten.sym_size.int", Canonical("aten.sym_size.int"), Canonical("aten.sym_size.int")),
        ("getitem", Canonical("getitem"), Canonical("getitem")),
        ("add", Canonical("add"), Canonical("add")),
    ],
)
def test_names_become_canonical(name: str, first: Canonical, newest: Canonical) -> None:
    assert canonise(name, "1.6") == first
    assert canonise(name, "1.8") == newest


@given(st.text("aten._:xyz", max_size=20), st.sampled_from(["1.6", "1.8"]))
def test_canonical_names_stay(name: str, version: str) -> None:
    once = canonise(name, version).name
    assert canonise(once, version).name == once


@pytest.mark.parametrize("name", sorted(READABLE_NAMES))
def test_names_of_real_files_stay_or_become_standard(name: str) -> None:
    names = {item.name for item in standard_operations("1.8").values()}
    assert canonise(name, "1.8").name in {name, *names}
    assert canonise(name, "1.6").name in {name, *names}


def test_codes_are_those_of_the_specification() -> None:
    assert "".join(TENSOR_CODES) == "QKVMBWTP"
    assert "".join(CONSTANT_CODES) == "ASifbsc"


NUMBERS = st.one_of(st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats())
LISTS = st.one_of(
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=4).map(tuple),
    st.lists(st.floats(width=32), max_size=4).map(tuple),
)
VALUES: st.SearchStrategy[ConstantValue] = st.one_of(st.none(), NUMBERS, st.text(max_size=4), LISTS)


@given(st.sampled_from("Aifb"), NUMBERS)
def test_numbers_become_what_is_equal_to_them(code: str, value: float) -> None:
    """Constants that Python finds equal share a record in real files, so all of them must be accepted."""
    try:
        found = coerce(code, value)
    except Malformed:
        whole = math.isfinite(value) and value == int(value)
        assert not {"A": whole, "i": whole, "f": True, "b": value in (0, 1)}[code]
    else:
        assert type(found) is {"A": int, "i": int, "f": float, "b": bool}[code]
        assert isinstance(found, int | float)
        assert found == value or math.isnan(value) or (code == "f" and found == float(value))


@given(LISTS)
def test_shapes_are_integers_where_they_can_be(value: tuple[float, ...]) -> None:
    try:
        found = coerce("S", value)
    except Malformed:
        assert not all(map(math.isfinite, value))
    else:
        assert found == value
        assert isinstance(found, tuple)
        whole = all(item == int(item) for item in value)
        assert all(type(item) is int for item in found) or not whole


@given(st.sampled_from("ASifbs"), VALUES)
def test_other_constants_do_not_fit(code: str, value: ConstantValue) -> None:
    kinds = {"S": tuple, "s": str}
    if isinstance(value, kinds.get(code, int | float)):
        return
    with pytest.raises(Malformed):
        coerce(code, value)


@given(VALUES)
def test_any_constant_is_itself(value: ConstantValue) -> None:
    assert coerce("c", value) is value
