"""Texts that mean harm: clean findings, in time and memory that grow as the text does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import errors
from lamella.base.limits import Limits
from lamella.lang.module import nodes as n
from lamella.lang.module.parse.tokens import DEEPEST
from tests.support.lang.module.parsed import GOOD, SHAPES, codes, places, read, right
from tests.support.strategies.mutation import NASTY, mutants

MANY = 30_000
LET = "module M():\n  let:\n    a = {}\n    b = 1\n"
GRAPH = "module M():\n  forward:\n    graph:\n      {}\n      x -> y\n"
PARAMS = "module M():\n  params:\n    w: {}\n    v: [1]\n"
TEXTS = [path.read_bytes().decode("utf-8") for path in (*GOOD, *SHAPES)]

NESTED = {
    "parentheses": "(" * MANY + "x" + ")" * MANY,
    "lists": "[" * MANY + "x" + "]" * MANY,
    "calls": "f(" * MANY + "x" + ")" * MANY,
    "calls of calls": "f" + "()" * MANY,
    "named arguments": "f(a=" * MANY + "x" + ")" * MANY,
    "indices": "x" + "[0]" * MANY,
    "indices in indices": "x[" * MANY + "0" + "]" * MANY,
    "members": "x" + ".y" * MANY,
    "signs": "- " * MANY + "x",
    "nots": "not " * MANY + "x",
    "powers": "x ** " * MANY + "x",
    "choices": "a if b else " * MANY + "x",
    "choices in choices": "a if (" * MANY + "x" + ") else b" * MANY,
}


@pytest.mark.parametrize("what", NESTED)
def test_deep_nesting_is_one_finding(what: str) -> None:
    parsed = read(LET.format(NESTED[what]))
    assert [item.code for item in parsed.findings] == ["E101"]
    (found,) = parsed.document.items
    assert isinstance(found, n.Module)
    assert found.bindings == (n.Let("b", n.Integer(1)),)
    repr(found)


@pytest.mark.parametrize(
    "text",
    [
        GRAPH.format("x -> " + "f(" * MANY + ")" * MANY + " -> y"),
        GRAPH.format("x -> y @a(" + "[" * MANY + "]" * MANY + ")"),
        GRAPH.format("(" * MANY + "x" + ")" * MANY + " -> y"),
        PARAMS.format("[" + "(" * MANY + "1" + ")" * MANY + "]"),
        PARAMS.format("[1] if " + "not " * MANY + "a"),
        "module M(a=" + "[" * MANY + "]" * MANY + "):\n",
    ],
    ids=["steps", "annotations", "sources", "dimensions", "conditions", "defaults"],
)
def test_deep_nesting_anywhere_is_one_finding(text: str) -> None:
    assert codes(text) == ["E101"]


@pytest.mark.parametrize("opening", ["(", "[", "{", "f(", "x[", "[("])
def test_open_brackets_are_one_finding(opening: str) -> None:
    assert len(codes(LET.format(opening * MANY))) == 1


@pytest.mark.parametrize("depth", [1, 7, 60])
def test_the_limit_of_depth_can_be_lowered(depth: int) -> None:
    inner = depth - 2
    limits = Limits(max_depth=depth)
    text = LET.format("(" * max(inner, 0) + "x" + ")" * max(inner, 0))
    assert codes(text, limits) == ([] if inner >= 0 else ["E101"])
    text = LET.format("(" * (depth + 1) + "x" + ")" * (depth + 1))
    assert codes(text, limits) == ["E101"]


def test_the_deepest_nesting_can_be_compared_and_shown() -> None:
    limits = Limits(max_depth=10**6)
    text = LET.format("(1 + " * (DEEPEST - 2) + "x" + ")" * (DEEPEST - 2))
    assert not read(text, limits).findings
    assert read(text, limits).document == read(text, limits).document
    assert repr(read(text, limits).document)


def test_deep_guards_are_one_finding() -> None:
    deep = "".join(" " * width + "if a:\n" for width in range(6, 3_000))
    text = "module M():\n  forward:\n    graph:\n" + deep + " " * 3_000 + "x -> y\n      x -> y\n"
    assert codes(text) == ["E101"]
    assert codes(GRAPH.format("if a: " * MANY + "x -> y")) == ["E101"]
    assert codes(GRAPH.format("recompute: " * MANY + "x -> y")) == ["E101"]


def test_deep_fields_are_one_finding() -> None:
    deep = "".join(" " * width + "a:\n" for width in range(2, 3_000))
    assert codes("recipe R:\n" + deep) == ["E101"]
    assert codes("primitive p:\n" + deep) == ["E101"]


@pytest.mark.parametrize(
    ("sign", "count"),
    [("+", MANY), ("*", 9_999), ("and", MANY), ("==", 9_999), ("not in", 9_999), ("||", 9_999)],
)
def test_long_chains_are_flat(sign: str, count: int) -> None:
    (found,) = right(LET.format(f" {sign} ".join(["x"] * count))).items
    assert isinstance(found, n.Module)
    let = found.bindings[0]
    assert isinstance(let, n.Let)
    assert isinstance(let.value, n.Chain)
    assert len(let.value.rest) == count - 1


@pytest.mark.parametrize(
    "text",
    [
        LET.format("[" + "(x), " * MANY + "x]"),
        LET.format("x * y + " * MANY + "z"),
        GRAPH.format("x" + " -> f()" * MANY + " -> y"),
        GRAPH.format("x\n" + "-> f()\n" * MANY + "-> y"),
        GRAPH.format("x -> y" + " @a" * MANY),
        GRAPH.format("x -> (" + "y, " * MANY + ")"),
        GRAPH.format("if a: x -> y\n" + "      elif b: x -> y\n" * 20_000),
        "module M(" + "a,\n" * MANY + "):",
        "import a\n" * MANY,
        "import a" + ".b" * MANY,
        "# comment\n" * MANY + "module M():\n" + "          # comment\n" * MANY,
        "\n" * 10 * MANY,
        " \n" * 10 * MANY + "module M():",
        "module M():\n" + "  # c\n  constraint: # d\n" * 30_000,
        'module M():\n  """' + '"" ' * MANY + '"""',
    ],
    ids=[
        "lists", "sums", "steps", "broken steps", "annotations", "targets", "guards", "parameters", "imports",
        "long paths", "comments", "newlines", "blank lines", "empty sections", "quotes",
    ],
)  # fmt: skip
def test_much_of_what_is_right_is_right(text: str) -> None:
    assert not read(text).findings


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"module {'a' * 10**6}():", ["E101"]),
        (LET.format("a" * 10**6), ["E101"]),
        (LET.format("9" * 10**6), ["E001"]),
        (LET.format("9." * 10**6), ["E001"]),
        (LET.format("1e" + "9" * 10**6), ["E001"]),
        (LET.format('"' + '\\"' * MANY), ["E001"]),
        (LET.format("$" * MANY), ["E001"]),
        (LET.format(")" * MANY), ["E001"]),
        ('"""' + '"' * MANY, ["E001"]),
        ("\ufeffmodule M():", ["E001"]),
        ("module M():\0", ["E001"]),
        ("module M\u0430():", ["E001"]),
        ("module \ud800():", ["E001"]),
        ("import a.v" + "9" * 10**4, ["E101", "E001"]),
    ],
    ids=[
        "name", "use", "digits", "points", "exponent", "quotes", "signs", "closers", "docstring", "mark", "zero",
        "look-alike", "surrogate", "version",
    ],
)  # fmt: skip
def test_one_long_or_odd_thing_is_one_finding(text: str, wanted: list[str]) -> None:
    assert codes(text) == wanted


def test_terminal_escapes_are_shown_as_text() -> None:
    text = 'module M():\n  """\x1b[2J\u202e"""\n  \x1b[31mred\n'
    (finding,) = read(text).findings
    assert "\x1b" not in str(finding)
    assert finding.message == r"the text '\x1b' has no meaning here"


def test_lines_are_counted() -> None:
    assert codes("import a\n" * 12, Limits(max_statements=10)) == ["E101"]
    assert not codes("import a\n" * 11, Limits(max_statements=11))
    assert places("import a\n" * 3) == []


@pytest.mark.parametrize(
    "text", [":", ")", "(", "@a ", "x:\n", "graph:\n", "-> ", "...", "module ", "$ ", '"""', "\n ", "\n\t"]
)
def test_rubbish_ends(text: str) -> None:
    for whole in (
        text * 4_000,
        GRAPH.format(text * 4_000),
        PARAMS.format(text * 4_000),
        f"primitive p:\n  {text * 4_000}",
    ):
        read(whole)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_to_their_end(data: bytes) -> None:
    parsed = read(data.decode("utf-8", "replace"))
    assert parsed.document.span.end == len(data.decode("utf-8", "replace"))


@given(st.text(alphabet=st.sampled_from('abx:=-> \n\t"#@.,()[]{}+*?19'), max_size=120))
def test_any_signs_are_read_to_their_end(text: str) -> None:
    read(text)
    read(GRAPH.format(text))


def test_mutants_of_right_files_never_raise() -> None:
    for text in mutants(TEXTS, 400, seed=7):
        parsed = read(text)
        for finding in parsed.findings:
            assert finding.span.start <= finding.span.end <= len(text)
            assert str(finding)


def test_any_nasty_mixture_is_read_to_its_end() -> None:
    chance = random.Random(5)
    words = [
        *NASTY, "module M():", "\n", "\n  ", "\n    ", "\n      ", "forward:", "graph:", "params:", "x -> ", "f()", "y",
        "if a:", "else:", "[", "]", "in:", "save:", "@a", "...", "primitive p:", "hf_mapping:", "fuse(", "let:", "1",
    ]  # fmt: skip
    for _ in range(150):
        read(" ".join(chance.choices(words, k=chance.randint(1, 40))))


def test_findings_are_bounded_by_lines() -> None:
    text = GRAPH.format("\n      ".join(["x ->"] * 1_000))
    assert len(errors(read(text).findings)) == 1_000
