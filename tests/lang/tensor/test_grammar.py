"""The page that shows the grammar and the parser that reads the tensor language judge alike."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from lark import Lark
from lark.exceptions import UnexpectedInput

from lamella.base.diagnostic import Rule, errors
from lamella.base.source import Source
from lamella.lang import tensor
from lamella.lang.tensor import words
from lamella.lang.tensor.nodes import Program
from lamella.lang.tensor.parse import parse
from lamella.lang.tensor.rules import syntax
from lamella.lang.tensor.write import write
from tests.support.strategies.mutation import mutants
from tests.support.strategies.tensor import programs

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").rglob("*.tensor"))
BAD_SYNTAX = sorted((HERE / "bad").glob("ten0[0-3]*.tensor"))
GRAMMAR = (Path(str(tensor.__file__)).parent / "grammar.lark").read_text(encoding="utf-8")

UNGRAMMATICAL = {
    syntax.LITERAL_RANGE: "%a = constant 9223372036854775808 : i64",
    syntax.LIMIT: "parallel { " * 200 + "}" * 200,
    syntax.RESULTS: "%a, %b = cast %c : f32",
    syntax.MODIFIER: "gemm.n.n.n %a, %b, %c, %d, %e",
    syntax.NO_SIZE: "%a = subview %b[:] : memref<f32x4>",
}
"""What the parser rejects and a grammar does not, since it would have to count; with an example of each."""


@cache
def grammar() -> Lark:
    """The grammar as a parser."""
    return Lark(GRAMMAR, parser="lalr")


def derives(text: str) -> bool:
    """Whether the grammar derives a text up to its first NUL."""
    try:
        grammar().parse(text.partition("\0")[0])
    except UnexpectedInput:
        return False
    return True


def judge(text: str) -> bool | None:
    """Whether the parser takes a text; None where such things are wrong that a grammar does not see."""
    codes = {finding.code for finding in errors(parse(Source("text.tensor", text)).findings)}
    return None if codes & {rule.code for rule in UNGRAMMATICAL} else not codes


def in_body(text: str) -> str:
    """A function with some statements."""
    return f"func @f() {{ {text} }}"


def read(path: Path) -> str:
    """A text as it is, line ends and all."""
    return path.read_bytes().decode("utf-8")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_both_take_what_is_right(path: Path) -> None:
    assert derives(read(path))
    assert judge(read(path))


@pytest.mark.parametrize("path", BAD_SYNTAX, ids=lambda path: path.stem)
def test_both_judge_wrong_syntax_alike(path: Path) -> None:
    assert judge(read(path)) in (None, derives(read(path)))


@pytest.mark.parametrize("rule", UNGRAMMATICAL, ids=lambda rule: rule.code)
def test_the_grammar_does_not_count(rule: Rule) -> None:
    text = in_body(UNGRAMMATICAL[rule])
    assert derives(text)
    assert {finding.code for finding in parse(Source("text.tensor", text)).findings} == {rule.code}


@given(programs())
def test_both_take_what_is_written(program: Program) -> None:
    text = write(program)
    assert judge(text)
    assert derives(text)


def test_both_judge_mutated_programs_alike() -> None:
    texts = [read(path) for path in GOOD]
    found = [(judge(text), derives(text), text) for text in mutants(texts, 300, seed=5)]
    assert {one for one, _, _ in found} >= {True, False}
    assert not [text for one, other, text in found if one not in (None, other)]


@pytest.mark.parametrize("word", sorted(words.INSTRUCTIONS))
def test_both_know_the_same_instructions(word: str) -> None:
    """Whatever an instruction takes, one of these forms is its form, and none is that of a word without meaning."""
    forms = (
        *("%r = {} %a : f32", "%r = {} %a, %b : f32", "%r = {} : f32", "{} %a, %b[%c]", "{} %a, %b, %c, %d"),
        *("{} %a, %b, %c, %d, %e", "{} %a, %b, 1, %c, %d", "{}", "{} %a", "{} %a {{}}", "{} {{}}", "{} ()"),
        *("%r = {} 1 : i32", "%r = {} : memref<f32>", "%r = {} %a[] : memref<f32>", "%r = {} %a[0] : index"),
        *("%r = {} %a[0->1x1] : memref<f32>", "%r = {} %a[0,1] : memref<f32>", "{} %i=%a,%b {{}}"),
        *("%r = {} %a[%b,%c] : coopmatrix<f32x1x1,matrix_a>", "{} %a, %b[%c,%d]", "{} (%a)=(%b),(%c) {{}}"),
        *(
            "%r = {} %a, %b, %c : coopmatrix<f32x1x1,matrix_a>",
            "%r = {} %a, %b : coopmatrix<f32x1x1,matrix_a>",
            "%r = {} %a : coopmatrix<f32x1x1,matrix_a>",
            "%r = {} %a, %b[0] : coopmatrix<f32x1x1,matrix_a>",
            "%r = {} (%a,%b,%c)=%d -> coopmatrix<f32x1x1,matrix_a> {{}}",
            "%r = {}.column %a : coopmatrix<f32x1x1,matrix_acc>",
            "%r = {} %a, %b[%c] : f32",
            "{} (%a)=(%b),(%c) as (%d)<=(1) {{}}",
        ),
    )
    texts = [in_body(form.format(word)) for form in forms]
    assert not [text for text in texts if judge(text) not in (None, derives(text))]
    assert any(map(judge, texts)) == (word not in words.UNSUPPORTED)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1",
            "+1",
            "-1",
            "1.",
            ".5",
            "1.5e3",
            "1e3",
            "1E-3",
            "1e",
            "5e+",
            "1.0f",
            "0x1p4",
            "0x1.8",
            "0x.8p1",
            "0x1",
        ),
        *(
            "0X1p4",
            "0x1.p4",
            "0x.p1",
            "0xp1",
            "--1",
            "1_000",
            "inf",
            "-inf",
            "nan",
            "+nan",
            "infinity",
            "1..2",
            "..5",
        ),
        *(
            "true",
            "True",
            "[1.0,2.0]",
            "[ 1. , .5 ]",
            "[1,2]",
            "[1.0]",
            "[1.0,2.0,3.0]",
            "[nan,-inf]",
            "%a",
            '"1"',
        ),
    ],
)
def test_both_judge_numbers_alike(text: str) -> None:
    whole = in_body(f"%a = constant {text} : f32")
    assert judge(whole) == derives(whole)


@pytest.mark.parametrize(
    "text",
    [
        *("memref<f32>", "memref<f32x>", "memref<f32x4>", "memref<f32 x 4>", "memref<f32x 4 x8>", "memref<f32x0x8>"),
        *("memref<boolx4>", "memref<bool>", "memref<f32,strided<>>", "memref<f32,strided<1,?>>", "memref<f32,local>"),
        *("memref<f32,local,strided<1>>", "memref<f32x4,strided<1>,global>", "memref<f32y4>", "memref<f32x4x>"),
        *("memref<f32xx4>", "memref<f32x-4>", "memref<f32x4.0>", "memref<f32x0x1p4>", "memreff32", "void", "index"),
        *("group<memref<f32>x?>", "group<memref<f32>>", "group<f32x4>", "group<memref<f32>x4,offset:?>"),
        *("group<memref<f32>x4,4>", "coopmatrix<f32x1x2,matrix_a>", "coopmatrix<f32x1x2>"),
        *("coopmatrix<f32x1,matrix_a>",),
        *("coopmatrix<f32x?x2,matrix_b>", "coopmatrix<f32x1x2,matrix_c>", "memref<indexx3>", "f32x", "f32x4"),
    ],
)  # fmt: skip
def test_both_judge_types_alike(text: str) -> None:
    whole = f"func @f(%a: {text}) {{}}"
    assert judge(whole) == derives(whole)


@pytest.mark.parametrize(
    "text",
    [
        *("%a = expand %b[0->%nx2] : memref<f32>", "%a = expand %b[0->%n x2] : memref<f32>", "barrier.global .local"),
        *("%a = expand %b[0->%1x2] : memref<f32>", "%a = expand %b[0->2] : memref<f32>", "barrier. global"),
        *("%a = arith. add %b, %c : f32", "%a = arith .add %b, %c : f32", "%a.b = cast %c : f32", "%a = cast %c"),
        *("for %i:f32=%a,%b {}", "for %i=%a,%b {} {}", "for %i=%a {}", "for %i=%a,%b,%c,%d {}", "%a, = cast %b : f32"),
        *("for %i=%a,%b init(%x=%y) {}", "for %i=%a,%b init() -> () {}", "for %i=%a,%b {} attributes"),
        *("if %c -> () {}",),
        *("if %c {} else", "if %c {} else if %d {}", "if %c {} else {} else {}", "foreach ()=(),() {}"),
        *("{ }", "else {}"),
        *("parallel {} {}", "yield", "yield ()", "yield (%a,)", "store %a, %b", "store %a, %b[,]", "store 1, %b[]"),
        *("%a = load %b[1.0] : f32", "%a = load %b[+1] : f32", "%a = subview %b[] : memref<f32>", "; }"),
        *("%a = subview %b[1:] : memref<f32>", "%a = subview %b[1:2:3] : memref<f32>", "%a = subview %b[1] : f32"),
        *("%a = alloca {alignment=[{}]} : memref<f32>", "%a = alloca {alignement=1} : memref<f32>", "%a = %b"),
        *('%a = alloca {"x"="y",} : memref<f32>', "%a = alloca {} {} : memref<f32>", "%a = alloca : f32", "func"),
        *("%a = size %b[%c] : index", "%a = group_id.x : index", "%a = group_id.q : index", "%a = subgroup_id.x : i32"),
        *("atomic_add %a, %b[] : f32", "store.atomic_max %a, %b[]", "gemm.n.atomic.t %a, %b, %c, %d, %e", "@a = %b"),
    ],
)  # fmt: skip
def test_both_judge_pitfalls_alike(text: str) -> None:
    assert judge(in_body(text)) in (None, derives(in_body(text)))


@pytest.mark.parametrize(
    "text",
    [
        *("", ";", "func @f() {}", "func @f() {} func @g() {}", "func f() {}", "func %f() {}"),
        *("func @f {}", "func @1() {}"),
        *("func @f(,%a: f32) {}", "func @f(%a: f32,) {}", "func @f(%a) {}", "func @f() attributes {}"),
        *("func @f() {} }",),
        *("func @f() attributes {} {}", "func @f(%a: f32 {}) {}", "func @f() {", "\ufefffunc @f() {}"),
        *("func @f() {}\0x",),
        *("func\v@f()\t{\r}", "func @f() {}\f", "func @_f() {}", "func @f.g() {}", "Func @f() {}"),
    ],
)  # fmt: skip
def test_both_judge_programs_alike(text: str) -> None:
    assert judge(text) == derives(text)
