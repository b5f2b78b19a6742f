"""Expressions: what Python says of the same text, and the forms that Python does not have."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.lang.module import nodes as n
from tests.support.lang.module.parsed import codes, value

SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.And: "and",
    ast.Or: "or",
    ast.USub: "-",
    ast.Not: "not",
}
LEVEL = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2}


def by_python(node: ast.expr) -> n.Expr:
    """The node that Python's own parser gives for the same text, in our words."""
    match node:
        case ast.Constant(value=bool(found)):
            return n.Bool(found)
        case ast.Constant(value=int(found)):
            return n.Integer(found)
        case ast.Constant(value=float(found)):
            return n.Real(found)
        case ast.Name(id=found):
            return n.Bool(found == "true") if found in ("true", "false") else n.Name(found)
        case ast.Attribute(value=operand, attr=field):
            return n.Member(by_python(operand), field)
        case ast.Subscript(value=operand, slice=index):
            return n.Index(by_python(operand), (by_python(index),))
        case ast.Call(func=callee, args=arguments):
            return n.Call(by_python(callee), tuple(n.Argument(None, by_python(item)) for item in arguments))
        case ast.List(elts=items):
            return n.List(tuple(map(by_python, items)))
        case ast.IfExp(test=test, body=one, orelse=other):
            return n.Select(by_python(one), by_python(test), by_python(other))
        case ast.UnaryOp(op=op, operand=operand):
            return n.Unary(SIGNS[type(op)], by_python(operand))
    return chained(node)


def chained(node: ast.expr) -> n.Expr:
    """Python's operators as flat chains."""
    match node:
        case ast.BoolOp(op=op, values=values):
            first, *rest = map(by_python, values)
            return n.Chain(first, tuple((SIGNS[type(op)], item) for item in rest))
        case ast.Compare(left=left, ops=ops, comparators=others):
            pairs = zip(ops, others, strict=True)
            return n.Chain(by_python(left), tuple((SIGNS[type(op)], by_python(item)) for op, item in pairs))
        case ast.BinOp(left=left, op=op, right=right):
            return arithmetic(left, SIGNS[type(op)], right)
    raise AssertionError(ast.dump(node))


def arithmetic(left: ast.expr, sign: str, right: ast.expr) -> n.Expr:
    """A sum, a product or a power; the left side goes on with the same chain if it is of the same level."""
    last = (sign, by_python(right))
    if sign != "**" and isinstance(left, ast.BinOp):
        before = SIGNS[type(left.op)]
        if LEVEL.get(before) == LEVEL[sign]:
            found = by_python(left)
            assert isinstance(found, n.Chain)
            return n.Chain(found.first, (*found.rest, last))
    return n.Chain(by_python(left), (last,))


NAMES = st.sampled_from(["a", "b", "width", "x", "out", "split", "model", "true"])
LEAVES = st.one_of(
    NAMES,
    st.integers(0, 2**63 - 1).map(str),
    st.floats(0, 1e300, allow_nan=False).map(repr).filter(lambda text: "inf" not in text),
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger texts from smaller ones; parentheses stand only where both languages keep the same tree."""
    sign = st.sampled_from(
        ["+", "-", "*", "/", "//", "%", "**", "==", "<", ">=", "in", "not in", "and", "or"]
    )
    return st.one_of(
        st.tuples(inner, sign, inner).map(" ".join),
        inner.map(lambda text: f"not {text}"),
        inner.map(lambda text: f"f(({text}), a)"),
        inner.map(lambda text: f"[{text}, b]"),
        inner.map(lambda text: f"a.b[{text}]"),
        st.tuples(inner, inner).map(lambda pair: f"{pair[0]} if {pair[1]} else c"),
        inner.map(lambda text: f"- g({text})"),
    )


@given(st.recursive(LEAVES, grown, max_leaves=12))
def test_expressions_are_read_as_python_reads_them(text: str) -> None:
    try:
        judge = ast.parse(text, mode="eval").body
    except SyntaxError:
        assert codes(f"module M():\n  let:\n    a = {text}")
    else:
        assert value(text) == by_python(judge)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("None", n.Null()),
        ("25_000_000", n.Integer(25_000_000)),
        ("1e-6", n.Real(1e-6)),
        ("1E+3", n.Real(1000.0)),
        ("1_0.5_0e2", n.Real(1050.0)),
        (r'"a\n\t\"\\\u00e9"', n.Text('a\n\t"\\é')),
        ('""', n.Text("")),
        ("(a, b)", n.List((n.Name("a"), n.Name("b")))),
        ("()", n.List(())),
        ("(a,)", n.List((n.Name("a"),))),
        ("[a, b,]", n.List((n.Name("a"), n.Name("b")))),
        ("(a)", n.Name("a")),
        ("!a", n.Unary("!", n.Name("a"))),
        ("a && b || c", n.Chain(n.Chain(n.Name("a"), (("&&", n.Name("b")),)), (("||", n.Name("c")),))),
        ("x[:]", n.Index(n.Name("x"), (n.Slice(None, None),))),
        ("x[1:, ...]", n.Index(n.Name("x"), (n.Slice(n.Integer(1), None), n.Rest()))),
        ("x[:n, -1]", n.Index(n.Name("x"), (n.Slice(None, n.Name("n")), n.Unary("-", n.Integer(1))))),
        ("f(a=1)", n.Call(n.Name("f"), (n.Argument("a", n.Integer(1)),))),
        ("x.shape[0]", n.Index(n.Member(n.Name("x"), "shape"), (n.Integer(0),))),
        ("in in [in]", n.Chain(n.Name("in"), (("in", n.List((n.Name("in"),))),))),
    ],
)
def test_forms_of_our_own(text: str, node: n.Expr) -> None:
    assert value(text) == node


def test_an_expression_knows_its_place() -> None:
    found = value("min(aa, b) + c")
    assert isinstance(found, n.Chain)
    assert found.span.text == "min(aa, b) + c"
    assert isinstance(found.first, n.Call)
    assert [item.span.text for item in found.first.arguments] == ["aa", "b"]
    assert (found.span.line, found.span.column) == (3, 9)
