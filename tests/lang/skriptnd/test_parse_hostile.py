"""Texts that mean harm: clean findings, in time and memory that grow as the text does."""

from __future__ import annotations

import random

import pytest

from lamella.base.diagnostic import Rule, errors
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.parse import ParsedSkriptnd, outline, parse, parse_operator
from lamella.lang.skriptnd.parse.tokens import DEEPEST
from lamella.lang.skriptnd.rules import syntax
from lamella.lang.skriptnd.write import write
from tests.support.strategies.mutation import NASTY

MANY = 100_000
USING = "graph g {{ @using {{ a = {}; b = 1; }} }}"
COMPOSE = "graph g {{ @compose {{ {} }} }}"

NESTED = {
    "parentheses": "(" * MANY + "x" + ")" * MANY,
    "open parentheses": "(" * MANY,
    "lists": "[" * MANY + "x" + "]" * MANY,
    "indices": "x" + "[0]" * MANY,
    "indices in indices": "x[" * MANY + "0" + "]" * MANY,
    "signs": "-" * MANY + "x",
    "selections": "a ? b : " * MANY + "x",
    "halves of selections": "a ? " * MANY + "x",
    "defaults": "a ?? " * MANY + "x",
    "substitutions": "a[0] <- " * MANY + "x",
    "bars": "| " * MANY + "x",
    "zips": "[(" * MANY + "x",
    "functions": "`exp`(" * MANY + "x" + ")" * MANY,
    "casts": "T(" * MANY + "x" + ")" * MANY,
    "folds": "x" + " + .." * MANY,
    "folds and more": "x" + " + .. + 1" * MANY,
}


def read(text: str, limits: Limits | None = None) -> ParsedSkriptnd:
    """Parse a text, and find its outline on the way."""
    source = Source("text.sknd", text)
    outline(source)
    return parse(source, limits or Limits())


def codes(parsed: ParsedSkriptnd) -> list[str]:
    """The codes of the errors."""
    return [finding.code for finding in errors(parsed.findings)]


@pytest.mark.parametrize("what", NESTED)
def test_deep_nesting_is_one_finding(what: str) -> None:
    parsed = read(USING.format(NESTED[what]))
    assert codes(parsed) == [syntax.LIMIT.code]
    (operator,) = parsed.document.declarations
    (left,) = operator.items("using")
    assert isinstance(left, n.Using)
    assert left.value == n.Integer(1)


@pytest.mark.parametrize(
    "text",
    [
        "y = { " * MANY + "yield x; };" * MANY,
        "y = { " * MANY,
        "y = if f(x) then { " * MANY,
        "y = do { " * MANY,
    ],
    ids=["blocks", "open blocks", "branches", "loops"],
)
def test_deep_blocks_are_one_finding(text: str) -> None:
    assert codes(read(COMPOSE.format(text))) == [syntax.LIMIT.code]


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("(1 + ", ")"),
        ("[", "]"),
        ("x[", "]"),
        ("-", ""),
        ("a ? b : ", ""),
        ("`exp`(1 + ", ")"),
        ("[1, T(1 + ", ")]"),
    ],
)
def test_the_deepest_nesting_can_be_read_and_written(opening: str, closing: str) -> None:
    depth = DEEPEST
    while codes(read(text := USING.format(opening * depth + "x" + closing * depth))):
        depth -= 1
    assert depth >= DEEPEST // 2
    assert read(write(read(text).document)).document == read(text).document


@pytest.mark.parametrize(
    ("sign", "count"), [("+", MANY), ("<<", 9999), ("**", 9999), ("is", 9999), ("=>", 9999)]
)
def test_long_chains_are_flat(sign: str, count: int) -> None:
    parsed = read(USING.format(f" {sign} ".join(["x"] * count)))
    assert not parsed.findings
    using = parsed.document.declarations[0].items("using")[0]
    assert isinstance(using, n.Using)
    assert isinstance(using.value, n.Chain)
    assert len(using.value.rest) == count - 1
    assert read(write(parsed.document)).document == parsed.document


@pytest.mark.parametrize(
    "text",
    [
        USING.format("x * y + " * MANY + "z"),
        USING.format("x ** -" * MANY + "x"),
        USING.format("[" + "(x), " * MANY + "x]"),
        USING.format("'a'" * MANY),
        USING.format("'" + "{x}" * MANY + "'"),
        COMPOSE.format("y = if a then b " + "elif a then b " * MANY + "else c;"),
        "import a;\n" * MANY,
        "# comment\n" * 10 * MANY + "graph g {}",
        "graph g { @using {" + "# comment\n" * 10 * MANY + "} }",
    ],
    ids=["sums", "powers", "lists", "strings", "holes", "branches", "imports", "comments", "inner comments"],
)
def test_much_of_what_is_right_is_right(text: str) -> None:
    assert not read(text).findings


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"graph {'a' * 10**6} {{}}", syntax.LIMIT),
        (USING.format("a" * 10**6), syntax.LIMIT),
        (USING.format("9" * 10**6), syntax.LITERAL_RANGE),
        (USING.format("9." * 10**6), syntax.NUMBER_FORM),
        (USING.format("1e" + "9" * 10**6), syntax.LITERAL_RANGE),
        ('"' + '\\"' * MANY, syntax.OPEN_STRING),
        ("\ufeffgraph g {}", syntax.BAD_CHARACTER),
        ("graph g {}\0", syntax.BAD_CHARACTER),
        ("graph \ud800 {}", syntax.BAD_CHARACTER),
        ("graph g\u0430 {}", syntax.BAD_CHARACTER),
    ],
    ids=["name", "use", "digits", "points", "exponent", "quotes", "mark", "zero", "surrogate", "look-alike"],
)
def test_one_long_or_odd_thing_is_one_finding(text: str, code: Rule) -> None:
    assert codes(read(text)) == [code.code]


@pytest.mark.parametrize(
    "text",
    [
        ";",
        "}",
        "{",
        "@input {",
        "@x {} ",
        "operator ",
        "graph g {",
        "$ ; ",
        "'\"",
        '\\"\n\\"',
        "yield ",
        "|",
        "<",
        "import ",
    ],
)
def test_rubbish_ends(text: str) -> None:
    for whole in (
        text * 4_000,
        "graph g { @compose { " + text * 4_000,
        "graph g { @using { x = " + text * 4_000,
    ):
        assert errors(read(whole).findings)


def test_line_ends_mean_nothing() -> None:
    lines = ["graph g {", "# comment", "@using {", "a = 1;", "}", "}"]
    documents = [read(end.join(lines)).document for end in ("\n", "\r\n", "\r")]
    assert documents[0] == documents[1] == documents[2]
    assert [item.name for item in documents[0].declarations] == ["g"]


def test_any_nasty_mixture_is_read_to_its_end() -> None:
    chance = random.Random(5)
    words = [
        *NASTY,
        "graph g {",
        "@using {",
        "a = ",
        ";",
        "}",
        "'{",
        "}'",
        "@compose {",
        "yield",
        "x",
        "..",
        "|",
        "1",
    ]
    for _ in range(500):
        text = " ".join(chance.choices(words, k=chance.randint(1, 30)))
        source = Source("text.sknd", text)
        parse(source)
        for entry in outline(source).entries:
            parse_operator(source, entry)


@pytest.mark.parametrize("depth", [1, 7, 60])
def test_the_limit_of_depth_can_be_lowered(depth: int) -> None:
    limits = Limits(max_depth=depth)
    assert not read(USING.format("(" * depth + "x" + ")" * depth), limits).findings
    assert codes(read(USING.format("(" * (depth + 1) + "x" + ")" * (depth + 1)), limits)) == [
        syntax.LIMIT.code
    ]


@pytest.mark.parametrize(
    ("bits", "limit", "is_right"), [(64, 64, True), (65, 64, False), (20_000, 10**6, False)]
)
def test_the_limit_of_integers_is_exact(bits: int, limit: int, is_right: bool) -> None:
    digits = "9" * 6000 if bits > 10_000 else str(2**bits - 1)
    assert (not codes(read(USING.format(digits), Limits(max_integer_bits=limit)))) == is_right
