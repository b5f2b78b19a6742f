"""Arithmetic on sizes against Python's own on the numbers that they turn out to be."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lamella.base.dim import Dim, Extent, substitute, symbol
from lamella.base.dtype import F32
from lamella.base.errors import Found
from lamella.bridge.aten.nodes import Operand, Result
from lamella.bridge.aten.sizes import compute_size, is_size_operation
from lamella.graph.nodes import Tensor

PAIRS: dict[str, Callable[[int, int], int]] = {
    **{"add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv},
    **{"mod": operator.mod, "sym_max": max, "sym_min": min},
}
TESTS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
N, M = symbol("n", 64, 1), symbol("m", 64, 1)
X = Tensor("x", F32, (2,))


def value_of(extent: object, n: int, m: int) -> object:
    """What an extent is in a run."""
    return substitute(extent, {"n": n, "m": m}) if isinstance(extent, Dim) else extent


@st.composite
def extents(draw: st.DrawFn) -> tuple[Extent, Callable[[int, int], int]]:
    """A size with what it is for two numbers."""
    number = draw(st.integers(-9, 9))
    forms: list[tuple[Extent, Callable[[int, int], int]]] = [
        (number, lambda n, m: number),
        (N, lambda n, m: n),
        (M, lambda n, m: m),
    ]
    return draw(st.sampled_from(forms))


@given(st.data(), st.integers(1, 64), st.integers(1, 64))
def test_chains(data: st.DataObject, n: int, m: int) -> None:
    size, rule = data.draw(extents())
    expected = rule(n, m)
    found: object = size
    for _ in range(data.draw(st.integers(1, 3))):
        other, rule = data.draw(extents())
        name = data.draw(st.sampled_from(sorted(PAIRS)))
        assume(name not in ("floordiv", "mod") or (rule(n, m) != 0 and other != 0))
        assert isinstance(found, int | Dim)
        found = compute_size(name, [found, other])
        expected = PAIRS[name](expected, rule(n, m))
    assert value_of(found, n, m) == expected


@given(st.sampled_from(sorted(TESTS)), extents(), extents(), st.integers(1, 64), st.integers(1, 64))
def test_comparisons_are_decided_where_they_can_be(
    name: str,
    left: tuple[Extent, Callable[[int, int], int]],
    right: tuple[Extent, Callable[[int, int], int]],
    n: int,
    m: int,
) -> None:
    found = compute_size(name, [left[0], right[0]])
    assert found is None or found == TESTS[name](left[1](n, m), right[1](n, m))
    if isinstance(left[0], int) and isinstance(right[0], int):
        assert found is not None


@given(st.integers(1, 64), st.integers(0, 4))
def test_other_operations(n: int, exponent: int) -> None:
    assert value_of(compute_size("neg", [N]), n, 1) == -n
    assert value_of(compute_size("pow", [N, exponent]), n, 1) == n**exponent
    doubled = compute_size("mul", [N, 6])
    assert value_of(compute_size("truediv", [doubled, 2]), n, 1) == 3 * n
    assert compute_size("sym_float", [N]) == N


def test_results_are_picked() -> None:
    assert compute_size("getitem", [(X, N), 0]) == X
    assert compute_size("getitem", [(X, N), -1]) == N
    assert compute_size("getitem", [((X, 3), N), 0]) == (X, 3)


@pytest.mark.parametrize(
    ("name", "operands", "reason"),
    [
        ("floordiv", (N, 0), "a divisor is zero"),
        ("truediv", (N, 2), "fraction"),
        ("pow", (N, -1), "exponent is -1"),
        ("pow", (2, N), "exponent is n"),
        ("add", (N, 2.5), "2.5 is no integer"),
        ("add", (N, float("nan")), "nan is no integer"),
        ("add", (X, 1), "tensor x of f32[2] is no integer"),
        ("mul", (2**40, 2**40), "64 bits"),
        ("add", (N,), "so many"),
        ("matmul", (N, N), "no such operation"),
        ("getitem", ((X,), 1), "1 results"),
        ("getitem", ((X, None), 1), "not computed"),
        ("getitem", (X, 0), "takes a tuple"),
        ("getitem", ((X,),), "takes a tuple"),
        ("getitem", (("a",), 0), "neither a tensor nor a size"),
    ],
)
def test_refusals(name: str, operands: tuple[Operand | Result, ...], reason: str) -> None:
    with pytest.raises(Found) as caught:
        compute_size(name, operands)
    assert caught.value.findings[0].code == "SKR375"
    assert reason in caught.value.findings[0].message
    assert is_size_operation(name) == (name != "matmul")


def square(size: object, steps: int) -> object:
    """A size multiplied by itself again and again."""
    for _ in range(steps):
        assert isinstance(size, int | Dim)
        size = compute_size("mul", [size, size])
    return size


@pytest.mark.parametrize("size", [3, compute_size("add", [N, M])])
def test_sizes_that_grow_are_refused(size: object) -> None:
    with pytest.raises(Found, match="is no size"):
        square(size, 99)
