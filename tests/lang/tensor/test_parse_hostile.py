"""Texts that mean harm: clean findings, in time and memory that grow as the text does."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from lamella.base.diagnostic import errors
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.tensor.parse import ParsedTensor, parse
from lamella.lang.tensor.parse.tokens import DEEPEST
from lamella.lang.tensor.rules import syntax
from lamella.lang.tensor.write import write
from tests.support.strategies.mutation import NASTY, mutants

GOOD = sorted((Path(__file__).parent / "good").rglob("*.tensor"))
MANY = 20_000
OWN_NASTY = ("%", "@", "%%", ";", "->", ".n", "{", "}", "0x", "memref<", "func", ":", "x", "?", "$a", "else")


def read(text: str, limits: Limits | None = None) -> ParsedTensor:
    """A text, read."""
    return parse(Source("text.tensor", text), limits or Limits())


def codes(parsed: ParsedTensor) -> list[str]:
    """The codes of the errors."""
    return [finding.code for finding in errors(parsed.findings)]


def in_body(text: str) -> str:
    """A function with some statements, and a right one behind them."""
    return f"func @f() {{\n{text}\nbarrier\n}}\nfunc @g() {{}}\n"


NESTED = {
    "regions": "parallel {\n" * MANY + "}\n" * MANY,
    "regions on one line": "parallel { " * MANY + "}" * MANY,
    "loops": "for %i=%a,%b {\n" * MANY + "}\n" * MANY,
    "branches": "if %a {\n" * MANY + "}\n" * MANY,
    "else branches": "if %a { } else {\n" * MANY + "}\n" * MANY,
    "arrays": "%a = alloca {unroll=" + "[" * MANY + "]" * MANY + "} : memref<f32>",
    "dictionaries": "%a = alloca " + "{unroll=" * MANY + "1" + "}" * MANY + " : memref<f32>",
    "open arrays": "%a = alloca {unroll=" + "[" * MANY,
}


@pytest.mark.parametrize("what", NESTED)
def test_deep_nesting_is_one_finding(what: str) -> None:
    parsed = read(in_body(NESTED[what]))
    assert codes(parsed) == [syntax.LIMIT.code]
    assert [function.name for function in parsed.program.functions] == ["f", "g"]
    assert parsed.program.functions[0].body.statements[-1].span.text == "barrier"


@pytest.mark.parametrize("opening", ["parallel {\n", "if %a { } else {\n", "foreach (%i)=(%a),(%b) {\n"])
def test_deep_nesting_without_an_end_is_one_finding(opening: str) -> None:
    assert codes(read("func @f() {" + opening * MANY)) == [syntax.LIMIT.code]


def test_the_deepest_nesting_is_read_written_and_compared() -> None:
    text = "func @f() {\n" + "parallel {\n" * (DEEPEST - 1) + "}\n" * DEEPEST
    parsed = read(text)
    assert not parsed.findings
    assert read(write(parsed.program)).program == parsed.program


def test_the_nesting_limit_can_be_lowered() -> None:
    (finding,) = read(in_body("parallel {\nparallel {\n}\n}"), Limits(max_depth=2)).findings
    assert finding.code == syntax.LIMIT.code
    assert finding.hint == "raise it with --limit max_depth=N"


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("func @f(%a: memref<f32" + "x9223372036854775807" * MANY + ">) {}", Limits()),
        (f"func @f(%{'a' * 1001}: f32) {{}}", Limits()),
        ("func @f() {" + "barrier " * 11 + "}", Limits(max_statements=10)),
    ],
    ids=["modes", "name", "statements"],
)
def test_limits(text: str, limits: Limits) -> None:
    assert codes(read(text, limits)) == [syntax.LIMIT.code]


GROWING: dict[str, Callable[[int], str]] = {
    "instructions": lambda count: in_body("%a = arith.add %b, %c : f32\n" * count),
    "one line": lambda count: in_body("barrier " * count),
    "wrong instructions": lambda count: in_body("%a = arith.ad %b %c : f32\n" * count),
    "wrong loops": lambda count: in_body("for %i=%a {\nbarrier\n}\n" * count),
    "wrong functions": lambda count: "func f( {\n}\n" * count,
    "wrong loops in loops": lambda count: in_body("for %i=%a {\n" * count + "}\n" * count),
    "wrong ends of loops": lambda count: in_body(
        "for %i=%a,%b {\n" * 90 + "barrier\n" * count + "} {x}\n" * 90
    ),
    "literals": lambda count: in_body("%a = load %b[1,2] : f32\n" * count),
    "braces": lambda count: in_body("{ " * count),
    "closing braces": lambda count: in_body("} " * count),
    "unreadable": lambda count: "\x01" * count,
    "quotes": lambda count: '"' * count,
    "dots": lambda count: in_body("." * count),
    "zeros": lambda count: in_body(f"%a = constant {'0' * count}x : i32"),
    "exponents": lambda count: in_body("%a = constant " + "1e" * count),
    "results": lambda count: in_body("%a, " * count),
    "result lines": lambda count: in_body("%a,\n" * count),
    "comments": lambda count: in_body(";\n" * count),
    "parameters": lambda count: f"func @f({'%a: f32, ' * count}%b: f32) {{}}",
    "keys": lambda count: in_body("%a = alloca {" + "unroll=1, " * count + "unroll=1} : memref<f32>"),
    "modifiers": lambda count: in_body("gemm" + ".n" * count),
    "signs": lambda count: in_body("-" * count),
    "else": lambda count: in_body("if %a {}" + " else {}" * count),
}


def calls(work: Callable[[], object]) -> int:
    """How many calls a piece of work takes: a measure that no other process disturbs."""
    total = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal total
        total += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return total


@pytest.mark.parametrize("what", GROWING)
def test_the_work_grows_as_the_text_does(what: str) -> None:
    texts = [GROWING[what](count) for count in (400, 1600)]
    small, large = (calls(partial(read, text)) for text in texts)
    # suggestions cost the same for the first words of any text
    assert large < 4.5 * small + 1000


@pytest.mark.parametrize("what", GROWING)
def test_long_texts_are_read(what: str) -> None:
    read(GROWING[what](MANY))


def test_mutated_programs_give_findings_and_no_exceptions() -> None:
    texts = [path.read_text(encoding="utf-8") for path in GOOD]
    for text in mutants(texts, 400, seed=3):
        parsed = read(text)
        if not errors(parsed.findings):
            written = write(parsed.program)
            assert read(written).program == parsed.program
            assert write(read(written).program) == written


def test_rubbish_gives_findings_and_no_exceptions() -> None:
    chance = random.Random(9)
    pieces = (*NASTY, *OWN_NASTY)
    for _ in range(300):
        text = "".join(chance.choice(pieces) for _ in range(chance.randint(1, 40)))
        assert read(text).findings
        assert read(in_body(text)).program is not None
