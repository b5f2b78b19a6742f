"""Definitions and calls made to hang or to fill the memory: each ends soon, with a value or a finding."""

from __future__ import annotations

import pytest

from lamella.base.dim import Dim, symbol
from tests.support.ops.engine.calls import bind, problem_of, refusal, shapes, tensor, value_of

MANY = 2000


def test_many_symbols_with_many_assertions() -> None:
    usings = "".join(f"x{k + 1} = x{k} + 1; " for k in range(MANY))
    asserts = "".join(f"x{k} > {k}: 'm'; " for k in range(MANY))
    inner = f"@attrib {{ x0: int; }} @using {{ {usings} }} @assert {{ {asserts} }}"
    text = f"operator o {{ {inner} @output {{ y: real[x5]; }} }}"
    assert shapes(bind(text, x0=1)) == [(6,)]
    assert refusal(text, x0=0).startswith("SKR283: main.o: m")


def test_attributes_in_the_wrong_order() -> None:
    attributes = "".join(f"a{k}: int = a{k + 1} + 1; " for k in range(MANY))
    text = f"operator o {{ @attrib {{ {attributes} a{MANY}: int; }} @output {{ y: real[a0]; }} }}"
    assert shapes(bind(text, **{f"a{MANY}": 1})) == [(MANY + 1,)]


def test_attributes_that_wait_for_each_other() -> None:
    text = "operator o { @attrib { a: int = b; b: int = a; } @output { y: real[a]; } }"
    assert refusal(text).startswith("SKR264: ")


def test_packs_that_wait_for_the_lengths_of_others() -> None:
    attributes = "".join(f"p{k}: int..(n{k + 1}) = [0:n{k}]; " for k in range(MANY))
    text = f"operator o {{ @attrib {{ {attributes} }} @input {{ x: real[n0]; }} @output {{ y: real[n{MANY}]; }} }}"
    assert shapes(bind(text, tensor(3))) == [(3,)]


def test_inputs_in_the_wrong_order() -> None:
    count = 300
    inputs = "".join(f"x{k}: real[s{k}..(d{k}), t{k}..(d{k + 1})]; " for k in range(count))
    text = f"operator o {{ @input {{ {inputs} x: real[s..(d{count})]; }} @output {{ y: real[d0]; }} }}"
    assert shapes(bind(text, *[tensor(1, 2)] * count, tensor(1))) == [(1,)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("([0:10 ** 5] in [0:10 ** 5]) && ..", True),
        ("[0:10 ** 5] != ..", True),
        ("[0:10 ** 5][[0:10 ** 5]] < ..", True),
        ("([0 ..(10 ** 5)][[0:10 ** 5]] <- 1) + ..", 100_000),
        ("1" + " + 1" * 30_000, 30_001),
        ("true" + " && true" * 30_000, True),
        ("'a'" + " + 'a'" * 1000 + " == 'a'", False),
    ],
)
def test_long_packs_and_chains(text: str, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "[n ..(10 ** 5)] * ...",
        "[n ..(10 ** 5)] * ..",
        "n ** 10 ** 10 ** 10",
        "([n, m, n + m] * [n, m, 1] + ..) ** 16 ** 2",
    ],
)
def test_symbolic_values_are_bounded(text: str) -> None:
    assert problem_of(text, n=symbol("n", 9), m=symbol("m", 9))[:6] in ("SKR263", "SKR071", "SKR261")


def test_symbols_in_long_packs() -> None:
    found = value_of("[n ..(10 ** 4)] + ..", n=symbol("n", 9))
    assert isinstance(found, Dim)
    assert str(found) == "10000 * n"
    assert problem_of("[n ..(2000)] != ..", n=symbol("n", 9)).startswith("SKR261")


def test_messages_with_many_values() -> None:
    text = f"operator o {{ @attrib {{ a: int; }} @assert {{ a > 0: 'm'{', a' * 5000}; }} @output {{ y: real[]; }} }}"
    assert len(refusal(text, a=0)) < 2100
