"""Constant expressions: Python's own evaluation is the judge."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.dim import symbol
from lamella.base.errors import Found
from lamella.base.limits import in_range
from lamella.lang.module.instantiate.evaluate import (
    EvaluationContext,
    evaluate,
    evaluate_bool,
    evaluate_constant,
    evaluate_int,
)
from lamella.lang.module.instantiate.messages import format_values
from lamella.lang.module.instantiate.nodes import Known, Value
from lamella.lang.module.nodes import (
    Argument,
    Bool,
    Call,
    Chain,
    Expr,
    Index,
    Integer,
    List,
    Member,
    Name,
    Null,
    Real,
    Select,
    Slice,
    Text,
    Unary,
    names_in,
)

NAMES: dict[str, Value] = {
    "a": 7,
    "b": -3,
    "c": 64,
    "zero": 0,
    "half": 0.5,
    "yes": True,
    "word": "silu",
    "items": (4, 8, 15),
}
KNOWN: dict[str, Known] = {name: Known(value, "let") for name, value in NAMES.items()}
B, T = symbol("B", 1 << 31), symbol("T", 1 << 31)

Pair = tuple[Expr, str]
"""An expression as our nodes and as Python writes it."""


def code_of(function: Callable[[], object]) -> str:
    """The code of the finding that a computation ends with."""
    with pytest.raises(Found) as caught:
        function()
    return caught.value.finding.code


def join(signs: list[str], operands: list[Pair]) -> Pair:
    """A chain of one level, in parentheses for Python."""
    text = f"({operands[0][1]}"
    for sign, operand in zip(signs, operands[1:], strict=False):
        text += f" {sign} {operand[1]}"
    rest = tuple((sign, item[0]) for sign, item in zip(signs, operands[1:], strict=False))
    return Chain(operands[0][0], rest), f"{text})"


def chains(signs: list[str], operand: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    """Chains of some operators."""
    return st.lists(st.tuples(st.sampled_from(signs), operand), min_size=1, max_size=4).flatmap(
        lambda rest: operand.map(
            lambda first: join([sign for sign, _ in rest], [first, *(item for _, item in rest)])
        )
    )


LEAVES: st.SearchStrategy[Pair] = st.one_of(
    st.integers(0, 2**63 - 1).map(lambda value: (Integer(value), str(value))),
    st.integers(0, 40).map(lambda value: (Integer(value), str(value))),
    st.floats(0, 1e300).map(lambda value: (Real(value), repr(value))),
    st.sampled_from(["a", "b", "c", "zero", "half"]).map(lambda name: (Name(name), name)),
)


def grow(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    """Numbers made of numbers."""
    truths = chains(["<", "<=", ">", ">=", "==", "!="], inner)
    logic = st.one_of(truths, chains(["and"], truths), chains(["or"], truths))
    return st.one_of(
        chains(["+", "-"], inner),
        chains(["*", "/", "//", "%"], inner),
        st.tuples(inner, inner).map(lambda pair: join(["**"], list(pair))),
        inner.map(lambda pair: (Unary("-", pair[0]), f"(-{pair[1]})")),
        st.tuples(inner, logic, inner).map(
            lambda three: (
                Select(three[0][0], three[1][0], three[2][0]),
                f"({three[0][1]} if {three[1][1]} else {three[2][1]})",
            )
        ),
        st.tuples(st.sampled_from(["min", "max"]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda call: (
                Call(Name(call[0]), tuple(Argument(None, item[0]) for item in call[1])),
                f"{call[0]}({', '.join(item[1] for item in call[1])})",
            )
        ),
        st.tuples(st.sampled_from(["abs", "int", "sqrt", "log2"]), inner).map(
            lambda call: (Call(Name(call[0]), (Argument(None, call[1][0]),)), f"{call[0]}({call[1][1]})")
        ),
    )


class Bounded(Exception):
    """Python left what our numbers may be."""


class Number:
    """A number of Python that refuses every step beyond 64 bits, beyond the reals, or to infinity."""

    def __init__(self, value: float) -> None:
        whole = isinstance(value, int)
        if isinstance(value, complex) or not (in_range(int(value)) if whole else math.isfinite(value)):
            raise Bounded
        self.value = value

    def _with(self, other: Number, function: Callable[[float, float], float]) -> Number:
        try:
            return Number(function(self.value, other.value))
        except (ZeroDivisionError, OverflowError):
            raise Bounded from None

    def __add__(self, other: Number) -> Number:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Number) -> Number:
        return self._with(other, lambda a, b: a - b)

    def __mul__(self, other: Number) -> Number:
        return self._with(other, lambda a, b: a * b)

    def __truediv__(self, other: Number) -> Number:
        return self._with(other, lambda a, b: a / b)

    def __floordiv__(self, other: Number) -> Number:
        return self._with(other, lambda a, b: a // b)

    def __mod__(self, other: Number) -> Number:
        return self._with(other, lambda a, b: a % b)

    def __pow__(self, other: Number) -> Number:
        whole = isinstance(self.value, int) and isinstance(other.value, int)
        if whole and abs(self.value) > 1 and other.value > 64:
            raise Bounded
        return self._with(other, lambda a, b: a**b)

    def __neg__(self) -> Number:
        return Number(-self.value)

    def __abs__(self) -> Number:
        return Number(abs(self.value))

    def __lt__(self, other: Number) -> bool:
        return self.value < other.value

    def __le__(self, other: Number) -> bool:
        return self.value <= other.value

    def __gt__(self, other: Number) -> bool:
        return self.value > other.value

    def __ge__(self, other: Number) -> bool:
        return self.value >= other.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def of_real(function: Callable[[float], float]) -> Callable[[Number], Number]:
    """A function of the standard library on bounded numbers."""

    def apply(number: Number) -> Number:
        try:
            return Number(function(number.value))
        except (ValueError, OverflowError):
            raise Bounded from None

    return apply


def wrap_literals(text: str) -> str:
    """The same Python text with every literal as a bounded number."""
    words = text.replace("(", "( ").replace(")", " )").replace(",", " , ").replace("(-", "( - ").split()
    return " ".join(f"Number({word})" if word[0].isdigit() else word for word in words)


def judge(text: str) -> object:
    """What Python makes of a text in bounded numbers."""
    functions = {
        "Number": Number,
        "int": of_real(int),
        "sqrt": of_real(math.sqrt),
        "log2": of_real(math.log2),
        "min": min,
        "max": max,
        "abs": abs,
    }
    numbers = {name: Number(value) for name, value in NAMES.items() if isinstance(value, int | float)}
    found = eval(wrap_literals(text.replace("(-", "( - ")), {"__builtins__": {}}, functions | numbers)
    return found.value if isinstance(found, Number) else found


@given(st.recursive(LEAVES, grow, max_leaves=12))
def test_numbers_are_those_of_python(pair: Pair) -> None:
    expr, text = pair
    try:
        wanted = judge(text)
    except Bounded:
        assert code_of(lambda: evaluate(expr, KNOWN)) == "E003"
        return
    found = evaluate(expr, KNOWN)
    assert found == wanted
    assert type(found) is type(wanted)


@given(st.lists(st.integers(-5, 5)), st.integers(-7, 7), st.integers(-7, 7))
def test_lists_are_indexed_as_in_python(items: list[int], low: int, high: int) -> None:
    names = {"items": Known(tuple(items)), "low": Known(low), "high": Known(high)}
    taken = Index(Name("items"), (Slice(Name("low"), Name("high")),))
    assert evaluate(taken, names) == tuple(items[low:high])
    one = Index(Name("items"), (Name("low"),))
    if -len(items) <= low < len(items):
        assert evaluate(one, names) == items[low]
    else:
        assert code_of(lambda: evaluate(one, names)) == "E003"
    assert evaluate(Chain(Name("low"), (("in", Name("items")),)), names) == (low in items)
    assert evaluate(Chain(Name("low"), (("not in", Name("items")),)), names) == (low not in items)
    assert evaluate(Call(Name("len"), (Argument(None, Name("items")),)), names) == len(items)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_ceiling_division_is_exact(left: int, right: int) -> None:
    call = Call(Name("ceil_div"), (Argument(None, Name("p")), Argument(None, Name("q"))))
    names = {"p": Known(left), "q": Known(right)}
    if right == 0 or not in_range(-(-left // right)):
        assert code_of(lambda: evaluate(call, names)) == "E003"
    else:
        assert evaluate(call, names) == -(-left // right)


@given(st.integers(1, 99), st.integers(1, 99))
def test_runtime_dimensions_stay_formulas(b: int, t: int) -> None:
    names = {"B": Known(B), "T": Known(T)}
    product = Chain(Chain(Name("B"), (("*", Name("T")),)), (("+", Integer(3)),))
    assert evaluate(product, {"B": Known(b), "T": Known(t)}) == b * t + 3
    assert str(evaluate(product, names)) == "B * T + 3"
    assert code_of(lambda: evaluate_constant(product, names, "the size")) == "E016"
    assert evaluate(Chain(product, (("//", product),)), names) == 1
    assert code_of(lambda: evaluate(Chain(Real(1.0), (("/", Name("B")),)), names)) == "E016"


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (Null(), None),
        (Text("x"), "x"),
        (Chain(Null(), (("==", Name("a")),)), False),
        (Chain(Name("word"), (("==", Name("silu")),)), True),
        (Chain(Name("word"), (("!=", Name("silu")),)), False),
        (Chain(Name("gelu"), (("==", Name("word")),)), False),
        (Chain(Name("word"), (("in", List((Name("silu"), Name("gelu")))),)), True),
        (Chain(Name("word"), (("not in", List((Name("relu"),))),)), True),
        (Chain(Text("il"), (("in", Name("word")),)), True),
        (Index(Name("word"), (Integer(0),)), "s"),
        (Unary("not", Name("yes")), False),
        (Chain(Bool(False), (("and", Name("nothing")),)), False),
        (Chain(Chain(Name("zero"), (("!=", Integer(0)),)), (("and", Name("nothing")),)), False),
        (Chain(Integer(1), (("<", Integer(2)), ("<", Integer(2)))), False),
        (Select(Integer(1), Name("yes"), Name("nothing")), 1),
        (List((Name("a"), List((Null(),)))), (7, (None,))),
    ],
)
def test_values(expr: Expr, value: Value) -> None:
    assert evaluate(expr, KNOWN) == value


@pytest.mark.parametrize(
    ("expr", "code"),
    [
        (Name("nothing"), "E002"),
        (List((Name("nothing"),)), "E002"),
        (Chain(Name("nothing"), (("==", Integer(1)),)), "E002"),
        (Chain(Name("nothing"), (("+", Integer(1)),)), "E002"),
        (Call(Name("min"), (Argument("x", Integer(1)),)), "E002"),
        (Call(Name("has_nan"), (Argument(None, Name("x")),)), "E016"),
        (Index(Member(Name("x"), "shape"), (Integer(0),)), "E016"),
        (Name("x"), "E016"),
        (Chain(Bool(True), (("+", Integer(1)),)), "E003"),
        (Chain(Text("a"), (("+", Text("b")),)), "E003"),
        (Chain(List(()), (("*", Integer(3)),)), "E003"),
        (Chain(Name("yes"), (("==", Integer(1)),)), "E003"),
        (Chain(Name("word"), (("==", Integer(1)),)), "E003"),
        (Chain(Name("a"), (("and", Name("yes")),)), "E003"),
        (Chain(Name("word"), (("<", Integer(1)),)), "E003"),
        (Chain(Integer(1), (("in", Integer(1)),)), "E003"),
        (Chain(Integer(2), (("**", Integer(10**18)),)), "E003"),
        (Chain(Integer(2), (("**", Integer(63)),)), "E003"),
        (Chain(Real(1e300), (("*", Real(1e300)),)), "E003"),
        (Chain(Unary("-", Integer(2)), (("**", Real(0.5)),)), "E003"),
        (Integer(2**63), "E003"),
        (Real(math.inf), "E003"),
        (Unary("-", Text("a")), "E003"),
        (Unary("not", Integer(1)), "E003"),
        (Select(Integer(1), Integer(1), Integer(2)), "E003"),
        (Index(Integer(1), (Integer(0),)), "E003"),
        (Index(Name("items"), (Name("yes"),)), "E003"),
        (Call(Name("min"), ()), "E003"),
        (Call(Name("min"), (Argument(None, List(())),)), "E003"),
        (Call(Name("sqrt"), (Argument(None, Integer(1)), Argument(None, Integer(1)))), "E003"),
        (Call(Name("len"), (Argument(None, Integer(1)),)), "E003"),
        (Call(Name("ceil_div"), (Argument(None, Integer(1)), Argument(None, Integer(0)))), "E003"),
    ],
)
def test_mistakes(expr: Expr, code: str) -> None:
    assert code_of(lambda: evaluate(expr, KNOWN, EvaluationContext(tensors={"x"}))) == code


def test_a_word_must_be_a_choice_of_the_other_side() -> None:
    names = {"act": Known("silu", "default", choices=("silu", "gelu"))}
    with pytest.raises(Found) as caught:
        evaluate(Chain(Name("act"), (("==", Name("sliu")),)), names)
    assert caught.value.finding.hint == "did you mean 'silu'?"
    assert evaluate(Chain(Name("act"), (("in", List((Name("gelu"), Name("silu")))),)), names) is True


def test_words_are_strings_where_words_are_asked_for() -> None:
    around = EvaluationContext(words=True)
    assert evaluate(Name("q"), KNOWN, around) == "q"
    assert evaluate(List((Name("q"), Name("a"))), KNOWN, around) == ("q", 7)
    assert evaluate(Select(Name("q"), Name("yes"), Name("k")), KNOWN, around) == "q"


def test_deep_and_long_expressions_have_values() -> None:
    deep: Expr = Integer(1)
    for _ in range(20_000):
        deep = Unary("-", deep)
    assert evaluate(deep, {}) == 1
    long = Chain(Integer(0), tuple(("+", Integer(1)) for _ in range(20_000)))
    assert evaluate(long, {}) == 20_000


def test_sizes_and_guards_name_their_place() -> None:
    assert evaluate_int(Chain(Name("c"), (("//", Integer(8)),)), KNOWN, "the size") == 8
    with pytest.raises(Found) as caught:
        evaluate_int(Chain(Name("c"), (("/", Integer(8)),)), KNOWN, "the size of 'blocks'")
    assert caught.value.finding.message == "the size of 'blocks' is the number 8.0, an integer is needed"
    assert caught.value.finding.hint == "'//' divides whole numbers"
    assert evaluate_bool(Name("yes"), KNOWN, "the guard") is True
    assert code_of(lambda: evaluate_bool(Name("a"), KNOWN, "the guard")) == "E003"


def test_values_are_told_with_their_sources() -> None:
    known = {
        "d_model": Known(64, "default"),
        "H": Known(6, "let"),
        "D": Known(10),
        "n": Known(2, "config.json 'num_layers'"),
    }
    expr = Chain(Name("d_model"), (("%", Name("H")), ("*", Name("D"))))
    assert format_values(names_in(expr), known) == " (d_model = 64 by default, H = 6 from let, D = 10)"
    assert format_values(["n", "n", "other"], known) == " (n = 2 from config.json 'num_layers')"
    assert format_values(["other"], known) == ""
