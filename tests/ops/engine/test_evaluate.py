"""The value of expressions, judged by plain Python."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base import dim
from lamella.base.dim import Dim, symbol
from lamella.base.dtype import F32, I64
from lamella.base.limits import DEFAULT, LARGEST, SMALLEST
from lamella.ops.formula import Apply
from tests.support.ops.engine import expressions
from tests.support.ops.engine.calls import problem_of, problem_within, refusal, tensor, value_of, value_within

# --- generated ----------------------------------------------------------------------------------------------


@given(expressions.integers())
def test_integers(pair: expressions.Pair) -> None:
    assert value_of(pair[0]) == pair[1], pair[0]


@given(expressions.packs())
def test_packs(pair: expressions.Pack) -> None:
    assert value_of(pair[0]) == pair[1], pair[0]


@given(expressions.truths(3))
def test_truths(pair: expressions.Truth) -> None:
    assert value_of(pair[0]) is pair[1], pair[0]


REALS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9).map(
    lambda x: round(x, 6)
)


@given(REALS, REALS, st.sampled_from(("+", "-", "*", "/", "%", "<<", ">>", "<", ">=", "==")))
def test_real_operators(left: float, right: float, sign: str) -> None:
    rules = {
        "+": left + right,
        "-": left - right,
        "*": left * right,
        "<<": min(left, right),
        ">>": max(left, right),
        "<": left < right,
        ">=": left >= right,
        "==": left == right,
    }
    found = value_of(f"x {sign} y", x=left, y=right)
    if sign == "/" and right != 0:
        assert found == left / right
    elif sign == "%" and right != 0:
        assert found == math.fmod(left, right)
    elif sign in rules:
        assert found == rules[sign]


FUNCTIONS = (
    *("sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "floor", "ceil"),
)


@given(st.sampled_from(FUNCTIONS), st.floats(-30, 30))
def test_functions(name: str, x: float) -> None:
    found = value_of(f"`{name}`(x)", x=x)
    assert isinstance(found, float)
    try:
        expected = float(getattr(math, name)(x))
    except ValueError:
        assert math.isnan(found) or math.isinf(found)
    else:
        assert found == expected


@given(st.integers(-(10**6), 10**6), st.sampled_from((0.0, 0.25, 0.5, 0.75, 0.49999999999999994)))
def test_round_takes_halves_away_from_zero(whole: int, part: float) -> None:
    x = whole + part if whole >= 0 else whole - part
    expected = math.floor(abs(x)) + (1 if abs(x) - math.floor(abs(x)) >= 0.5 else 0)
    assert value_of("`round`(x)", x=x) == math.copysign(expected, x)


# --- picked -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-7 / 2", -4),
        ("-7 \\ 2", -3),
        ("-7 % 3", 2),
        ("7 % -3", -2),
        ("-7 \\ -2", 4),
        ("2 ** 3 ** 2", 64),
        ("-2 ** 2", -4),
        ("true || true && false", False),
        ("[5:0:-2]", (5, 3, 1)),
        ("[5:0]", ()),
        ("[] + ..", 0),
        ("[] * ..", 1),
        ("[] && ..", True),
        ("[] || ..", False),
        ("[] < ..", True),
        ("[] != ..", True),
        ("[] == ..", True),
        ("[] := ..", None),
        ("[] << ..", None),
        ("[] >> ..", None),
        ("[] + ...", ()),
        ("[1, 1] < ..", False),
        ("[1, 2, 1] != ..", False),
        ("[3, 3, 3] := ..", 3),
        ("[3, 4] := ..", None),
        ("[7 ..(3)] := ..", 7),
        ("[1, 2, 3] * .. * 2", 12),
        ("[1, 2, 3][[true, false, true]]", (1, 3)),
        ("[1, 2, 3][[2, 0]]", (3, 1)),
        ("[1, 2, 3, 4][1:-1]", (2, 3)),
        ("[1, 2, 3, 4][:2]", (1, 2)),
        ("[1, 2, 3, 4][::-1]", (4, 3, 2, 1)),
        ("[1, 2, 3, 4][2::-1]", (3, 2, 1)),
        ("[0 ..(3)][[0, 2]] <- [4, 5]", (4, 0, 5)),
        ("[0, 1, 2][1:] <- 9", (0, 9, 9)),
        ("[1, 2 ..(true), 3 ..(false)]", (1, 2)),
        ("[1, 5] in [5, 6]", (False, True)),
        ("'a' in ['b', 'a']", True),
        ("[1, 2, 3] is 2", (False, True, False)),
        ("int(2.9)", 2),
        ("int(-2.9)", -2),
        ("int(inf)", LARGEST),
        ("int(-inf)", SMALLEST),
        ("real(3)", 3.0),
        ("bool(0.0)", False),
        ("int()", 0),
        ("real()", 0.0),
        ("str()", ""),
        ("`frac`(-1.25)", -0.25),
        ("`abs`(-3)", 3),
        ("`sign`(-2.5)", -1.0),
        ("1.0 / 0.0", math.inf),
        ("-1.0 / 0.0", -math.inf),
        ("7.5 \\ 2.0", 4.0),
        ("pi", math.pi),
        ("'a' + 'b'", "ab"),
        ("false && 1 / 0 > 0", False),
        ("true || 1 / 0 > 0", True),
        ("false => 1 / 0 > 0", True),
        ("true ? 1 : 1 / 0", 1),
        ("[true, true] ? [1, 2] : 1 / 0", (1, 2)),
        ("`exp`(1000.0)", math.inf),
        ("(-8.0) ** 2.0", 64.0),
        ("`log`(0.0)", -math.inf),
    ],
)
def test_values(text: str, value: object) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + 1", None),
        ("a ?? 4", 4),
        ("?a", False),
        ("?b", True),
        ("?a ? a : 0", 0),
        ("?a && a > 0 ? a : 7", 7),
        ("[1, a]", None),
        ("[b.., 1]", (1, 2, 1)),
        ("b[:a]", None),
        ("a[0] ?? 5", 5),
        ("(a < 0 ? 1 : 2) ?? 3", 3),
        ("true ? b", (1, 2)),
        ("false ? b", None),
        ("a && false", None),
        ("false && a", False),
        ("a in b", None),
        ("int(a) ?? 1", 1),
        ("-a ?? 6", 6),
        ("[9 ..(a)]", None),
        ("a + ..", None),
        ("b[a] <- 1", None),
    ],
)
def test_null_propagates(text: str, value: object) -> None:
    assert value_of(text, a=None, b=(1, 2)) == value


def test_strings() -> None:
    names = {"name": "NCX", "n": 40, "pack": (1, 2), "none": None, "flag": True}
    assert value_of("name[1]", **names) == "C"
    assert value_of("name[[2, 0]]", **names) == "XN"
    assert value_of("name[1:]", **names) == "CX"
    assert value_of("name[::-1]", **names) == "XCN"
    assert value_of('"a = {n + 2}, {pack}, {none}, {flag}, {name}, \\{n\\}"', **names) == (
        "a = 42, [1, 2], null, true, NCX, {n}"
    )


def test_empty_packs_of_reals_fold_to_reals() -> None:
    assert value_of("real(p) * ..", p=()) == 1.0
    assert type(value_of("real(p) * ..", p=())) is float
    assert type(value_of("(1.0 - real(p)) + ..", p=())) is float
    assert type(value_of("(p * 2) + ..", p=())) is int


def test_generic_casts() -> None:
    assert value_of("T(3)", T=F32) == 3.0
    assert value_of("T(3.5)", T=I64) == 3
    assert value_of("T()", T=F32) == 0.0


def test_tensors_are_opaque() -> None:
    x, y = tensor(2, 3, name="x"), tensor(2, 3, name="x")
    assert value_of("x.shape", x=x) == (2, 3)
    assert value_of("x.rank", x=x) == 2
    assert value_of("x.size", x=(x, y)) == 2
    assert value_of("x is y", x=x, y=y) is False
    assert value_of("x is x", x=x) is True
    assert value_of("[x, y][1]", x=x, y=y) is y
    assert value_of("true ? x : y", x=x, y=y) is x
    assert value_of("x ?? y", x=None, y=y) is y
    assert value_of("[p[::-1].., x]", p=(x, y), x=x) == (y, x, x)


# --- symbolic -----------------------------------------------------------------------------------------------

SYMBOLIC = st.sampled_from(
    (
        "n + m * 2 - 1",
        "(n + 3) / 2 * m",
        "(n \\ 2) % 3",
        "n << m << 3",
        "n >> m",
        "n < m ? n : m + 1",
        "n * n ** 2",
        "`abs`(n - m)",
        "`sign`(n - m)",
        "[n, m, 2] + ..",
        "[n, m] * ..",
        "[n, m, 1] << ..",
        "int(n == m)",
        "n in [m, 1, 2] ? 1 : 0",
        "[n, m, n] != .. ? 1 : 0",
        "[n, m, 4] < .. ? 1 : 0",
        "[n, m] == .. || n > 3 ? 1 : 0",
        "!(n < m && m < 4 ^ n == 2) ? 5 : 6",
        "(n > 1 => m > 1) ? n : -n",
    )
)


@given(SYMBOLIC, st.integers(0, 5), st.integers(1, 6))
def test_symbolic_values_agree_with_numbers(text: str, n: int, m: int) -> None:
    symbolic = value_of(text, n=symbol("n", 5), m=symbol("m", 6, 1))
    number = value_of(text, n=n, m=m)
    found = dim.substitute(cast(Dim, symbolic), {"n": n, "m": m})
    assert found == number


def test_identity_is_decided_by_form() -> None:
    n, m = symbol("n", 5), symbol("m", 5)
    assert value_of("n + m is m + n", n=n, m=m) is True
    assert value_of("n is m", n=n, m=m) is False
    assert value_of("[n, m, 1] is 1", n=n, m=m) == (False, False, True)
    assert value_of("[n + m, m + n] := ..", n=n, m=m) == dim.add(n, m)


def test_reals_of_symbols_are_left_to_the_run() -> None:
    n = symbol("n", 5)
    assert value_of("real(n)", n=n) == Apply("cast", (cast(Dim, n),), "real")
    half = value_of("real(n) * 0.5", n=n)
    assert isinstance(half, Apply)
    assert half.function == "*"
    assert half.type == "real"


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 + 2.0", "SKR070: '+' takes two operands of one type, not int and real"),
        ("true + true", "SKR071: '+' is not defined for bool"),
        ("'a' < 1", "SKR070: '<' takes two operands of one type, not str and int"),
        ("`sqrt`(4)", "SKR071: 'sqrt' is not defined for int"),
        ("1 / 0", "SKR100: '/' divides by zero"),
        ("1 \\ 0", "SKR100: '\\' divides by zero"),
        ("1 % 0", "SKR100: '%' divides by zero"),
        ("2 ** -1", "SKR260: 2 ** -1 has no value: the exponent of an integer is negative"),
        ("int(0.0 / 0.0)", "SKR260: int(nan) has no value: it is no number"),
        ("[1, 2] + [1]", "SKR095: '+' joins packs of lengths 2 and 1"),
        ("[1, 2][2]", "SKR098: index 2 is out of the range of a pack of length 2"),
        ("[1, 2][-3]", "SKR098: index -3 is out of the range of a pack of length 2"),
        ("[1, 2][:3]", "SKR098: index 3 is out of the range of a pack of length 2"),
        ("[0:5:0]", "SKR099: the step of a range is zero"),
        ("[1, 2][[true]]", "SKR096: a mask of length 1 is put on a pack of length 2"),
        ("[1 ..(-1)]", "SKR260: a pack of -1 items has no value: the length is negative"),
        ("int('a')", "SKR075: str cannot be cast to int"),
        ("missing", "SKR264: 'missing' has no value here"),
        ("[0:n]", "SKR262: the bounds of a range must be known before the run, and n is not"),
        ("[1 ..(2)][n - n]", ""),
    ],
)
def test_refusals(text: str, sentence: str) -> None:
    if sentence:
        assert problem_of(text, n=symbol("n", 5)) == sentence
    else:
        assert value_of(text, n=symbol("n", 5)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "9 ** (9 ** 9)",
        "2 ** 1000000000000",
        "(2 ** 4000) * (2 ** 4000)",
        "[0:10 ** 12]",
        "[1 ..(10 ** 12)]",
        "[1 ..(10 ** 30)]",
        "[[1 ..(10 ** 6)].., 1]",
        "[2 ..(10 ** 5)] * ..",
        "[2 ..(10 ** 5)] * ...",
    ],
)
def test_budgets_are_kept_before_anything_is_computed(text: str) -> None:
    sentence = problem_of(text)
    assert sentence.startswith("SKR261: ")
    assert "the limit max_" in sentence


def test_limits_can_be_raised() -> None:
    assert value_within(replace(DEFAULT, max_integer_bits=6000), "2 ** 5000") == 2**5000
    assert problem_within(replace(DEFAULT, max_pack=10), "[0:11]").startswith("SKR261: a pack of 11 items")


def test_strings_do_not_double_without_end() -> None:
    text = "a + a"
    value: object = "x" * 600_000
    assert problem_of(text, a=value).startswith("SKR261")


def test_long_chains_and_deep_nesting() -> None:
    assert value_of("1" + " + 1" * 20_000) == 20_001
    assert value_of("[" + ", ".join("1" for _ in range(10_000)) + "] + ..") == 10_000
    deep = "1"
    for _ in range(90):
        deep = f"({deep} > 0 ? 1 : 2)"
    assert value_of(deep) == 1


def test_symbolic_growth_is_stopped() -> None:
    lines = "".join(f"x{k + 1} = x{k} / 2 + x{k} / 3; " for k in range(60))
    text = f"operator o {{ @input {{ t: real[x0]; }} @using {{ {lines} }} @output {{ y: real[x60]; }} }}"
    assert refusal(text, tensor(symbol("n", 10**9))).startswith("SKR263: a symbolic value of more than")
