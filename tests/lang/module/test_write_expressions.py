"""Module DSL literals, expressions and types to canonical text; Python itself is the judge."""

from __future__ import annotations

import ast

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lamella.lang.module import nodes as n
from lamella.lang.module.write import document_lines, write_expression, write_path, write_type
from lamella.lang.module.write.expressions import quote, write_real
from tests.support.strategies.module_expressions import strings

A, B, C, D = map(n.Name, "abcd")


# --- literals -----------------------------------------------------------------------------------------------


@given(st.floats(0.0, allow_infinity=False))
def test_floats_are_shortest_and_read_back(value: float) -> None:
    text = write_real(value)
    assert float(text) == value
    assert "." in text or "e" in text
    assert "+" not in text
    assert len(text) <= len(repr(value))


@pytest.mark.parametrize(("value", "text"), [(1e-6, "1e-6"), (1e16, "1e16"), (0.5, "0.5"), (3.0, "3.0")])
def test_floats_as_people_write_them(value: float, text: str) -> None:
    assert write_real(value) == text


@given(strings())
def test_strings_read_back(text: str) -> None:
    written = quote(text)
    assert ast.literal_eval(written) == text
    assert "\n" not in written


@given(st.lists(st.text("ab \"'#-", max_size=6).map(str.rstrip), min_size=1, max_size=4))
def test_docstrings_end_where_they_end(lines: list[str]) -> None:
    text = "\n".join(lines)
    assume('"""' not in text and text == text.strip())
    (written,) = ast.literal_eval(f"[{chr(10).join(document_lines(text, '  '))}]")
    assert [line.removeprefix("  ") for line in written.strip("\n").split("\n") if line.strip()] == [
        line for line in lines if line
    ]


# --- expressions --------------------------------------------------------------------------------------------


def chained(inner: st.SearchStrategy[n.Expr], signs: str, most: int) -> st.SearchStrategy[n.Expr]:
    """Chains of one level."""
    rest = st.lists(st.tuples(st.sampled_from(signs.split()), inner), min_size=1, max_size=most)
    return st.builds(n.Chain, inner, rest.map(tuple))


NUMBERS = st.recursive(
    st.builds(n.Integer, st.integers(0, 3)),
    lambda inner: st.one_of(
        st.builds(n.Unary, st.sampled_from(("-", "not")), inner),
        *(chained(inner, signs, 3) for signs in ("+ -", "*", "or", "and")),
        chained(inner, "< == >=", 1),
        st.builds(n.Chain, inner, st.integers(0, 3).map(lambda power: (("**", n.Integer(power)),))),
        st.builds(n.Select, inner, inner, inner),
    ),
    max_leaves=8,
)


def fully_parenthesised(node: n.Expr) -> str:
    """A text that leaves nothing to precedence."""
    if isinstance(node, n.Unary):
        return f"({node.sign} {fully_parenthesised(node.operand)})"
    if isinstance(node, n.Select):
        parts = (node.value, node.condition, node.otherwise)
        value, condition, otherwise = map(fully_parenthesised, parts)
        return f"({value} if {condition} else {otherwise})"
    if isinstance(node, n.Chain):
        text = fully_parenthesised(node.first)
        for sign, operand in node.rest:
            text = f"({text} {sign} {fully_parenthesised(operand)})"
        return text
    return write_expression(node)


@given(NUMBERS)
def test_python_reads_the_same_tree(node: n.Expr) -> None:
    """`or` and `and` are flat in Python's own trees, so values are compared for them and trees for the rest."""
    written, plain = write_expression(node), fully_parenthesised(node)
    if " or " not in written and " and " not in written:
        assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(plain))
    assume("**" not in written or len(written) < 40)
    assert eval(written) == eval(plain)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (n.Chain(n.Unary("-", A), (("**", n.Unary("-", B)),)), "(-a) ** -b"),
        (n.Unary("-", n.Chain(A, (("**", n.Chain(B, (("**", C),))),))), "-a ** b ** c"),
        (n.Unary("-", n.Unary("-", A)), "-(-a)"),
        (n.Unary("!", n.Call(A, ())), "!a()"),
        (n.Unary("!", n.Chain(A, (("==", B),))), "!(a == b)"),
        (n.Chain(n.Unary("not", A), (("not in", n.List((B, C))),)), "(not a) not in [b, c]"),
        (n.Select(n.Select(A, B, C), D, n.Select(A, B, C)), "(a if b else c) if d else a if b else c"),
        (n.Index(n.Member(A, "in"), (n.Slice(None, B), n.Rest(), n.Slice(C, None))), "a.in[:b, ..., c:]"),
        (n.Member(n.Chain(A, (("+", B),)), "x"), "(a + b).x"),
        (n.Call(A, (n.Argument("k", n.Null()), n.Argument(None, n.Text("\\")))), 'a(k=None, "\\\\")'),
        (n.Chain(n.Integer(-2), (("**", n.Integer(2)),)), "(-2) ** 2"),
    ],
)
def test_no_more_parentheses_than_needed(node: n.Expr, text: str) -> None:
    assert write_expression(node) == text


def test_long_postfix_chains_need_no_stack() -> None:
    node: n.Expr = A
    for _ in range(5000):
        node = n.Member(node, "b")
    assert write_expression(node) == "a" + ".b" * 5000


def test_types_and_paths_alone() -> None:
    assert write_type(n.ConfigType("int", listed=True, optional=True)) == "[int]?"
    assert write_type(n.ConfigType("enum", ("NN", "NT"))) == "enum(NN, NT)"
    assert write_type(n.TupleType((n.TensorType((B,)), n.TensorType((), "fp32")))) == "([b], [fp32])"
    assert write_type(n.ScalarType("int", True)) == "int?"
    assert write_path(n.Path((n.PathPart("a", ("i", 3)), n.PathPart("w")))) == "a[{i}][3].w"
