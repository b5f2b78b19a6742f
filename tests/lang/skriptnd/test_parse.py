"""SkriptND text to nodes: precedence, the rules for what the specification leaves open, what is said, and comments."""

from __future__ import annotations

import pytest

from lamella.base.diagnostic import errors
from lamella.base.source import NO_TRIVIA, Source, Trivia
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.parse import ParsedSkriptnd, parse
from lamella.lang.skriptnd.rules import syntax

A, B, C, D, X = (n.Name(name) for name in "abcdx")
ONE, TWO, THREE = (n.Integer(value) for value in (1, 2, 3))


def read(text: str) -> ParsedSkriptnd:
    """Parse a text."""
    return parse(Source("text.sknd", text))


def right(text: str) -> n.Document:
    """The document of a text without errors."""
    parsed = read(text)
    assert not errors(parsed.findings), "\n".join(map(str, parsed.findings))
    return parsed.document


def codes(text: str) -> list[str]:
    """The codes of the findings."""
    return [finding.code for finding in read(text).findings]


def statement(block: str, text: str) -> n.Statement:
    """The only statement of a block."""
    (found,) = right(f"operator o {{ @{block} {{ {text} }} }}").declarations[0].items(block)
    return found


def value(text: str) -> n.Expr:
    """The value of a helper symbol."""
    found = statement("using", f"s = {text};")
    assert isinstance(found, n.Using)
    return found.value


def lowering(text: str) -> n.Lowering:
    """A formula."""
    found = statement("lower", text)
    assert isinstance(found, n.Lowering)
    return found


def component(text: str) -> n.Callee | n.Branch | n.Loop:
    """What a component computes."""
    found = statement("compose", f"y = {text};")
    assert isinstance(found, n.Component)
    return found.value


def chain(first: n.Expr, *rest: str | n.Expr) -> n.Chain:
    """A chain of signs and operands in turn."""
    pairs = tuple(zip(rest[::2], rest[1::2], strict=True))
    return n.Chain(
        first, tuple((str(sign), operand) for sign, operand in pairs if not isinstance(operand, str))
    )


# --- precedence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("a || b && c", chain(A, "||", B, "&&", C)),
        ("a + b * c", chain(A, "+", chain(B, "*", C))),
        ("a * b + c", chain(chain(A, "*", B), "+", C)),
        ("a - b + c", chain(A, "-", B, "+", C)),
        ("a << b + c", chain(A, "<<", chain(B, "+", C))),
        ("a << b < c", chain(chain(A, "<<", B), "<", C)),
        ("a => b || c", chain(A, "=>", chain(B, "||", C))),
        ("a is b && c in d", chain(chain(A, "is", B), "&&", chain(C, "in", D))),
        ("2 ** 3 ** 2", chain(TWO, "**", THREE, "**", TWO)),
        ("-2 ** 2", n.Unary("-", chain(TWO, "**", TWO))),
        ("2 ** -a ** b", chain(TWO, "**", n.Unary("-", A), "**", B)),
        ("-a * b", chain(n.Unary("-", A), "*", B)),
        ("!-a", n.Unary("!", n.Unary("-", A))),
        ("a ?? b ? c : d", n.Coalesce(A, n.Select(B, C, D))),
        ("a ? b : c ?? d", n.Select(A, B, n.Coalesce(C, D))),
        ("a << b ?? c", n.Coalesce(chain(A, "<<", B), C)),
        ("a ? b ? c : d", n.Select(A, n.Select(B, C, D))),
        ("a ? b", n.Select(A, B)),
        ("?x ? x : 1", n.Select(n.NullTest("x"), X, ONE)),
        ("a[b] <- c + d", n.Substitute(n.Index(A, B), chain(C, "+", D))),
        ("x + a[b] <- c", chain(X, "+", n.Substitute(n.Index(A, B), C))),
    ],
)
def test_precedence(text: str, node: n.Expr) -> None:
    assert value(text) == node


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("a + ..", n.Fold(A, "+")),
        ("a + ...", n.Fold(A, "+", cumulative=True)),
        ("a * b + ..", n.Fold(chain(A, "*", B), "+")),
        ("a + b * ..", chain(A, "+", n.Fold(B, "*"))),
        ("a + b + ..", n.Fold(chain(A, "+", B), "+")),
        ("a * .. * b", chain(n.Fold(A, "*"), "*", B)),
        ("a * .. + b", chain(n.Fold(A, "*"), "+", B)),
        ("a + b * .. + c", chain(A, "+", n.Fold(B, "*"), "+", C)),
        ("a == b || ..", n.Fold(chain(A, "==", B), "||")),
        ("a := ..", n.Fold(A, ":=")),
        ("a <? ..", n.Fold(A, "<<")),
        ("a != .. && b", chain(n.Fold(A, "!="), "&&", B)),
    ],
)
def test_folds(text: str, node: n.Expr) -> None:
    assert value(text) == node


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("a[1]", n.Index(A, ONE)),
        ("a[1][2]", n.Index(n.Index(A, ONE), TWO)),
        ("a[1,]", n.Access("a", None, (ONE,))),
        ("a[1, 2]", n.Access("a", None, (ONE, TWO))),
        ("a[b..]", n.Access("a", None, (n.Expand(B),))),
        ("a[]", n.Access("a", None, ())),
        ("a[1][2,]", n.Access("a", ONE, (TWO,))),
        ("a[1][]", n.Access("a", ONE, ())),
        ("a[1,][2]", n.Index(n.Access("a", None, (ONE,)), TWO)),
        ("a[b[]][c..]", n.Access("a", n.Access("b", None, ()), (n.Expand(C),))),
        ("a[:]", n.Index(A, n.Range(None, None))),
        ("a[1:]", n.Index(A, n.Range(ONE, None))),
        ("a[::2]", n.Index(A, n.Range(None, None, TWO))),
        ("a[|b|,]", n.Access("a", None, (n.Bounded(B),))),
        ("a[|b <> 1 : 2|..]", n.Access("a", None, (n.Expand(n.Bounded(B, ONE, TWO)),))),
        ("a[b ? c : d]", n.Index(A, n.Select(B, C, D))),
        ("x.shape[1]", n.Index(n.Member("x", "shape"), ONE)),
        ("[1 ..(2)]", n.List((n.Expand(ONE, TWO),))),
        ("[(a)..]", n.List((n.Expand(A),))),
        ("[(a, b)..]", n.List((n.Zip((A, B)),))),
        ("[a:b:c, d]", n.List((n.Range(A, B, C), D))),
        ("[a + ..]", n.List((n.Fold(A, "+"),))),
        ("1.", n.Real(1.0)),
        ("1.e2", n.Real(100.0)),
        ("1e2", n.Real(100.0)),
        ("123456789012345678901234567890", n.Integer(123456789012345678901234567890)),
        ("T(a)", n.Cast("T", A)),
        ("int()", n.Cast("int")),
        ("bf16(a)", n.Cast("bf16", A)),
        ("`exp`(a)", n.Call("exp", A)),
        ("exp(a)", n.Call("exp", A)),
        ("exp", n.Name("exp")),
        ("'a' \"b\"", n.Text("ab")),
        ("'a\\'b'", n.Text("a\\'b")),
        ("'\\{a\\}'", n.Text("\\{a\\}")),
        ("'{a}'", n.Format((A,))),
        ("'a{b + 1}c' '{d}'", n.Format(("a", chain(B, "+", ONE), "c", D))),
    ],
)
def test_values(text: str, node: n.Expr) -> None:
    assert value(text) == node


def test_spans_reach_into_the_holes_of_strings() -> None:
    text = 'operator o { @using { s = "the sum is {a + b}"; } }'
    (using,) = right(text).declarations[0].items("using")
    assert isinstance(using, n.Using)
    assert isinstance(using.value, n.Format)
    hole = using.value.parts[1]
    assert not isinstance(hole, str)
    assert hole.span.text == "a + b"


# --- statements ---------------------------------------------------------------------------------------------


def test_types() -> None:
    found = statement(
        "input", "x: optional dynamic real^(r)[..s, ~|10 ..(3), static n, c..(f)]..(dynamic k|5) = 0.0;"
    )
    three = n.Pack(THREE)
    shape = (
        n.Extent(n.Name("s"), spread=True),
        n.Extent(n.Omitted(), n.Integer(10), three),
        n.Extent(n.Name("n"), static=True),
        n.Extent(C, pack=n.Pack(n.Name("f"))),
    )
    pack = n.Pack(n.Name("k"), n.Integer(5), "dynamic")
    assert found == n.Parameter("x", n.TypeSpec("real", True, True, "r", shape, pack), n.Real(0.0))


def test_constants_have_index_symbols() -> None:
    found = statement("constant", "I: real[n, n] = i == j ? 1.0 : 0.0, i < n, j < n;")
    assert isinstance(found, n.Parameter)
    assert [(bound.index, bound.limit) for bound in found.bounds] == [("i", n.Name("n")), ("j", n.Name("n"))]


def test_assertions() -> None:
    found = statement("assert", "a > 1: 'a is {a}', a, 'the ' 'other': b;")
    printed = (n.Printed(A), n.Printed(B, "the other"))
    assert found == n.Assertion(chain(A, ">", ONE), n.Format(("a is ", A)), printed)


def test_both_forms_of_local_values() -> None:
    ours = lowering("z = a, w = z * z, y[i..] += w, i < s | c;")
    assert ours == lowering("with z = a, w = z * z: y[i..] += w, i < s | c;")
    assert [local.name for local in ours.locals] == ["z", "w"]
    assert ours.condition == C


@pytest.mark.parametrize(("newer", "sign"), [("<?=", "<="), (">?=", ">=")])
def test_newer_accumulations(newer: str, sign: str) -> None:
    assert lowering(f"y[] {newer} a;") == lowering(f"y[] {sign} a;")


def test_unrolled_formulas() -> None:
    found = lowering("unroll..(k -> n) y[k][i,] = x[k][i,], i < m;")
    assert found.unroll == n.Iteration("k", n.Name("n"))
    assert found.target == n.Access("y", n.Name("k"), (n.Name("i"),))


def test_results_that_are_thrown_away() -> None:
    found = statement("compose", "_, [a, ~, (b, c: real[n])..(2)], d: int[] = f(x);")
    assert isinstance(found, n.Component)
    unzip = n.Unzip(
        (n.Result("b"), n.Result("c", n.TypeSpec("real", shape=(n.Extent(n.Name("n")),)))), n.Pack(TWO)
    )
    last = n.Result("d", n.TypeSpec("int", shape=()))
    assert found.results == (n.Omitted(), n.ListPattern((n.Result("a"), n.Omitted(), unzip)), last)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("f(x)", n.Invocation("f", (), (), (X,))),
        ("exp(x)", n.Invocation("exp", (), (), (X,))),
        (
            "l: a.b<T, f16>{c=1,}(x, ~)",
            n.Invocation("a.b", ("T", "f16"), (n.Attribute("c", ONE),), (X, n.Omitted()), "l"),
        ),
        ("f{}()", n.Invocation("f")),
        ("layout.shape(x)", n.Invocation("layout.shape", (), (), (X,))),
        ("a < 3", chain(A, "<", THREE)),
        ("a < b", chain(A, "<", B)),
        ("a < b > c", chain(A, "<", B, ">", C)),
        ("a<b>(c)", n.Invocation("a", ("b",), (), (C,))),
        ("x.shape[1]", n.Index(n.Member("x", "shape"), ONE)),
        ("int(x)", n.Cast("int", X)),
        ("l: { yield x; }", n.Block((), (X,), "l")),
        ("if a < 3 then b else c", n.Branch(((chain(A, "<", THREE), B),), C)),
        ("if a then b elif c then d else x", n.Branch(((A, B), (C, D)), X)),
        (
            "with a = 1 do f(a) while b",
            n.Loop(n.Invocation("f", (), (), (A,)), (n.Carried("a", ONE),), after=B),
        ),
        (
            "for a : b unroll..(i ->) a",
            n.Loop(A, scans=(n.Scan("a", B),), iteration=n.Iteration("i"), unroll=True),
        ),
    ],
)
def test_components(text: str, node: n.Callee | n.Branch | n.Loop) -> None:
    assert component(text) == node


def test_quantised_names_are_scoped() -> None:
    found = statement("quantize", "a.b.c: q.f<T>{bits=1};")
    assert found == n.Quantization("a.b.c", "q.f", ("T",), (n.Attribute("bits", ONE),))


def test_documents() -> None:
    document = right("import a, b.c; import d; public operator o {} graph G {} operator p {}")
    assert document.modules == ("a", "b.c", "d")
    assert [(item.name, item.public, item.graph) for item in document.declarations] == [
        ("o", True, False),
        ("G", False, True),
        ("p", False, False),
    ]


# --- what is said -------------------------------------------------------------------------------------------


def test_newer_spellings_are_noted_once_each() -> None:
    text = "y[i, :] <?= exp(a) >? tanh(b), i < n; with z = a: x[:, i] >?= z <? b, i < n;"
    whole = f"operator o {{ @attrib {{ d: dynamic int; e: dynamic int; }} @lower {{ {text} {text} }} }}"
    wanted = [
        syntax.NEWER_FUNCTION,
        syntax.NEWER_EXTREME,
        syntax.NEWER_LOCALS,
        syntax.NEWER_CONTROL,
        syntax.NEWER_RANGE,
    ]
    assert sorted(codes(whole)) == [rule.code for rule in wanted]
    assert not errors(read(whole).findings)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[1..(5)]", "write '1 ..': the point of a number is greedy"),
        ("`sqr`(x)", "did you mean sqrt?"),
        ("nn.relu(x)", "give the result a name in a component of its own, and use the name"),
        ("x - ..", "these do: && || < <= > >= == != := << >> + *"),
        ("a := b", "':=' only folds a pack to its uniform value"),
    ],
)
def test_hints(text: str, hint: str) -> None:
    (finding,) = read(f"operator o {{ @using {{ s = {text}; }} }}").findings
    assert finding.hint == hint


def test_a_single_index_on_the_left_is_explained() -> None:
    (finding,) = read("operator o { @lower { y[i] = 1; } }").findings
    assert finding.code == syntax.NO_ACCESS.code
    assert "y[i,]" in finding.hint


# --- comments -----------------------------------------------------------------------------------------------


def test_comments_stay_with_their_nodes() -> None:
    text = """# above import
import a;  # behind import

# above operator
operator o {  # behind brace
    # above section
    @compose {
        # above component
        y = if c then {

            # above inner
            z = f(x);  # behind inner
            # above yield
            yield z;  # behind yield
            # last of block
        } else x;  # behind component
        # last of section
    }  # behind section
    # last of operator
}
# the end
"""
    document = right(text)
    (operator,) = document.declarations
    (section,) = operator.sections
    (found,) = section.items
    assert document.imports[0].notes == Trivia(("# above import",), "# behind import")
    assert operator.notes == Trivia(("# above operator",), "# behind brace", blank=True)
    assert operator.end.above == ("# last of operator",)
    assert section.notes.above == ("# above section",)
    assert (section.end.above, section.end.behind) == (("# last of section",), "# behind section")
    assert isinstance(found, n.Component)
    assert found.notes == Trivia(("# above component",), "# behind component")
    assert isinstance(found.value, n.Branch)
    block = found.value.cases[0][1]
    assert isinstance(block, n.Block)
    assert block.components[0].notes == Trivia(("# above inner",), "# behind inner", blank=True)
    assert block.end == Trivia(("# above yield",), "# behind yield", last=("# last of block",))
    assert document.end.above == ("# the end",)
    assert document.declarations[0].sections[0].items[0].notes is not NO_TRIVIA
