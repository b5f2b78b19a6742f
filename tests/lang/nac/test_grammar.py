"""The page that shows the grammar and the parser that reads the assembly text judge alike."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from lark import Lark
from lark.exceptions import UnexpectedInput

from lamella.base.diagnostic import Rule, errors
from lamella.base.source import Source
from lamella.lang import nac
from lamella.lang.nac.assembly import disassemble, parse_assembly
from lamella.lang.nac.assembly.programs import MANIFEST_NAMES, PLAN_NAMES
from lamella.lang.nac.assembly.words import ACTIONS, DTYPES, FIELDS, METHODS, SECTIONS, SYSTEM, VERSIONS
from lamella.lang.nac.nodes import File
from lamella.lang.nac.rules import assembly as rules
from tests.support.strategies.mutation import mutants
from tests.support.strategies.nac import files

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").rglob("*.nacs"))
BAD_SYNTAX = sorted((HERE / "bad").glob("nac1[89]*.nacs"))
GRAMMAR = (Path(str(nac.__file__)).parent / "grammar.lark").read_text(encoding="utf-8")

UNGRAMMATICAL = {
    rules.OUT_OF_RANGE: ".constants 2 = 9223372036854775808",
    rules.REPEATED: ".signatures .code .signatures",
    rules.BAD_DATA: '.manifest hex("0")',
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
    codes = {finding.code for finding in errors(parse_assembly(Source("text.nacs", text)).findings)}
    return None if codes & {rule.code for rule in UNGRAMMATICAL} else not codes


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
    text = f"nac 1.6 {UNGRAMMATICAL[rule]}"
    assert derives(text)
    assert {finding.code for finding in parse_assembly(Source("text.nacs", text)).findings} == {rule.code}


def test_the_grammar_takes_every_escape() -> None:
    assert derives('nac 1.6 .constants 2 = "\\u{110000}"')
    assert judge('nac 1.6 .constants 2 = "\\u{110000}"') is False


@given(files())
def test_both_take_what_is_written(file: File) -> None:
    text = disassemble(file)
    assert judge(text)
    assert derives(text)


def test_both_judge_mutated_programs_alike() -> None:
    texts = [read(path) for path in GOOD]
    found = [(judge(text), derives(text), text) for text in mutants(texts, 400, seed=7)]
    assert {one for one, _, _ in found} >= {True, False}
    assert not [text for one, other, text in found if one not in (None, other)]


HEADS = [
    *(
        "",
        "nac",
        "nac 1.6",
        "nac 1.5",
        "nac 1.9",
        "nac 1.60",
        "nac 1.6.1",
        "nac 1",
        "nac1.6",
        "NAC 1.6",
        "1.6",
    ),
    *(
        "nac 1.6 nac 1.6",
        "weights internal",
        "nac 1.6 weights",
        "nac 1.6 weights inside",
        "nac 1.6 d_model x",
    ),
    *(
        "nac 1.6 d_model 5 inputs 1",
        "nac 1.6 inputs 1.0",
        "nac 1.6 quantization none",
        "nac 1.6 quantization int4",
    ),
    *(
        "nac 1.6 x",
        "nac 1.6 5",
        "nac 1.6 .",
        "nac 1.6 .codes",
        "nac 1.6 .code.code",
        "nac 1.6 .code .schedule",
    ),
    *("nac 1.6 inputs 1.code", "nac 1.6 weights internal.code", "nac 1.6\0.x", "\ufeffnac 1.6", "nac\v1.6"),
    *("nac\r\n1.6", "nac 1.6;", "nac 1.6 # x", "nac 1.6 .code ; %0", "nac 1.6 inputs -1", "nac nan"),
]


@pytest.mark.parametrize("text", HEADS)
def test_both_judge_heads_alike(text: str) -> None:
    assert judge(text) in (None, derives(text))


ROWS = [
    *(".manifest LOWERCASE()", ".manifest LOWERCASE", ".manifest lowercase()", ".manifest EXEC_HALT()"),
    *('.manifest PREPEND("a", 1, [], [1, "b"]) LOWERCASE()', ".manifest PREPEND(a)", ".manifest PREPEND([[1]])"),
    *(".manifest PREPEND(1.0)", '.manifest LOWERCASE() hex("")', ".manifest PREPEND(,)"),
    *('.manifest hex("") LOWERCASE()',),
    *(".orchestrator EXEC_HALT() EXEC_HALT() 1 = null", ".orchestrator 1 = null EXEC_HALT()", ".orchestrator X()"),
    *(".orchestrator SYS_COPY(0, -1)", ".orchestrator SYS_COPY(%0)", ".orchestrator SYS_COPY(null)"),
    *(".manifest LOWERCASE() 1 = null", ".manifest LOWERCASE.x()", ".manifest LOWERCASEx()"),
    *(".operations 1 = a.b", ".operations 1 = a.", ".operations 1 = .b", ".operations 1 = a.5", ".operations a = b"),
    *(".operations 1 = inf", ".operations 1 = inf.x", ".operations 1 = -inf", ".operations 1 = nan", ".operations 1 ="),
    *(".operations 1 = true", ".operations 1 = input 2 = output", ".signatures 1 = ''", '.signatures 1 = ""'),
    *('.operations 1 = "a" "b"', ".operations 1 = a b", ".operations 1 a", ".operations = a", ".inputs 0 = 5"),
    *(".constants 1 = null 2 = true", ".constants 1 = None", ".constants 1 = [1, 2.0]", ".constants 1 = [1,]"),
    *(".constants 1 = [1.0, 2]", ".constants 1 = []", ".constants 1 = floats[]", ".constants 1 = floats[1.0]"),
    *(".constants 1 = floats", ".constants 1 = +1", ".constants 1 = 1e5", ".constants 1 = 1.", ".constants 1 = .5"),
    *(".constants 1 = 0x10", ".constants 1 = --1", ".constants 1 = - 1", ".constants 1 = 1_0", ".constants 1 = -inf"),
    *(".constants 1 = infinity", ".constants 1 = -nan", ".constants 1 = [nan]", ".constants 1 = [[1]]"),
    *('.constants 1 = "\\u{41}"', '.constants 1 = "\\u41"', '.constants 1 = "\\x41"', '.constants 1 = "a\nb"'),
    *('.constants 1 = "', '.constants 1 = "\t"', '.constants 1 = "é\u202e"', ".constants 1 = #5", ".constants 1 = a"),
    *(".schedule 1 =", ".schedule 1 = 2 = @free(%0)", ".schedule 1 = @free()", ".schedule 1 = @free(%0,)"),
    *(".schedule %1 = @free(1)", ".schedule 1 = @lose(1)", ".schedule 1 = @77(1)", ".schedule 1 = free(1)"),
    *('.tensors 1 = int8[] hex("")', ".tensors 1 = int8[] hex()", '.tensors 1 = int4[] hex("")', ".tensors 1 = int8[]"),
    *('.tensors 1 = #9[1] hex("")', '.tensors 1 = int8 hex("")', '.tensors 1 = int8[1] none hex("")'),
    *('.tensors 1 = int8[1] fp16 hex("")', '.tensors 1 = int8[1] fp16() hex("")', ".tensors 1 = int8[1] zeros()"),
    *('.tensors 1 = int8[1] int8_tensor(1) hex("")', '.tensors 1 = int8[1] int8_tensor(1.0) hex("")'),
    *(".tensors 1 = int8[1] int8_channel(0, []) zeros(1)", ".tensors 1 = int8[1] int8_channel(0, [1]) zeros(1)"),
    *(".tensors 1 = int8[1] int8_channel(0, zeros(4)) zeros(1)", ".tensors 1 = int8[1] block_fp8(1, []) zeros(1)"),
    *(".tensors 1 = int8[1] block_fp8(1, [1], [1.0]) zeros(1)", '.tensors a = int8[1] hex("")'),
    *('.tensors 1 = int8[1] file("a", 0, 1)', ".tensors 1 = int8[1] file(a, 0, 1)", '.tensors 1 = int8[1] file("a")'),
    *('.arrays a = int8[1] hex("")', '.arrays 1 = int8[1] hex("")', '.arrays "a b" = int8[1] fp16 hex("")'),
    *('.manifest', '.manifest hex("")', '.manifest hex("") hex("")', ".manifest 5", ".manifest zeros(3).code"),
    *('.orchestrator', '.orchestrator hex("") 1 = null', ".orchestrator 1 = null", '.orchestrator hex("") hex("")'),
    *('.resources a = text("x", "y") b.c = zeros(1)', '.resources a text("x")', ".resources a = text(x)"),
]  # fmt: skip


@pytest.mark.parametrize("text", ROWS)
def test_both_judge_rows_alike(text: str) -> None:
    assert judge(f"nac 1.6 {text}") in (None, derives(f"nac 1.6 {text}"))


LINES = [
    *("%0 = input()", "%0 = input", "%0 = input(1)", "0 = input()", "% = input()", "%a.b = input()", "%0 input()"),
    *("%0 = parameter(1)", "%0 = parameter(a.b)", '%0 = parameter("a")', "%0 = parameter()", "%0 = parameter(1.0)"),
    *("%0 = parameter(nan)", "%0 = state(1)", "%0 = state(a)", "%0 = saved(1)", "%0 = target(1, 2)"),
    *("%0 = constant(1)", "%0 = constant(#1)", "%0 = constant(%1)", "%0 = constant()", "%0 = constant(# 1)"),
    *("%0 = output()", "%0 = output(%1)", "%0 = output(%1, %2)", "%0 = output(1)", "%0 = finish(%1)"),
    *("%0 = update(a, %1)", "%0 = update(1)", "%0 = update(%1)", "%0 = update(a %1)", "%0 = branch(%1, 2, 3)"),
    *("%0 = branch(%1)", "%0 = branch(2, 3, %1)", "%0 = raw(1, 2, [], [])", "%0 = raw(1, 2)", "%0 = raw(1,2,[1.0],[])"),
    *("%0 = a()", "%0 = a", "%0 = a:T(%1)", "%0 = a:T", "%0 = a:(%1)", '%0 = "a":"T T"(%1)', "%0 = #5:T(%1)"),
    *("%0 = #a()", "%0 = a:#5(%1)", "%0 = a:5(%1)", "%0 = a(%1, 2, null, #3, [1])", "%0 = a(,)", "%0 = a(b)"),
    *("%0 = a() @free(%1)", "%0 = a() @free(%1) @5(6)", "%0 = a() @free", "%0 = a() free(%1)", "%0 = a() @ free (%1)"),
    *("%0 = a() %1 = b()", "%0 = a()%1 = b()", "%0 = a(); x", "%0 = inputs()", "%0 = input.x()", "%0 = inf()"),
    *("%0 = true()", "%0 = null()", "%0 = free()", "%0 = nac.add::TT(%1)", "%0 = 5()", "%0 = %1", "%0 = @free(%1)"),
    *("%é = a()", "%0 = é()", "%0 = a(%1", "%0 = a)", "%0 == a()", "%0 = a() @free(%1,)", "%0 = a(- 1)", "%0 = a(-1)"),
]  # fmt: skip


@pytest.mark.parametrize("text", LINES)
def test_both_judge_lines_alike(text: str) -> None:
    whole = f"nac 1.6 .code {text}"
    assert judge(whole) in (None, derives(whole))


def test_both_know_the_same_words() -> None:
    texts = [
        *(f"nac {version}" for version in VERSIONS),
        *(f"nac 1.6 quantization {method}" for method in METHODS),
        *(f'nac 1.6 .tensors 1 = {dtype}[] hex("")' for dtype in DTYPES),
        *(f"nac 1.6 .manifest {name}()" for name in MANIFEST_NAMES),
        *(f"nac 1.6 .orchestrator {name}()" for name in PLAN_NAMES),
        *(f"nac 1.6 .schedule 1 = @{action}(1)" for action in ACTIONS),
        *(f"nac 1.6 .{section}" for section in SECTIONS if section != "manifest"),
    ]
    assert all(map(judge, texts))
    assert all(map(derives, texts))
    for word in (*FIELDS, *SYSTEM):
        forms = ("nac 1.6 {} 1", "nac 1.6 {} internal", "nac 1.6 {} none", "nac 1.6 .code %0 = {}()")
        more = ("nac 1.6 .code %0 = {}(1)", "nac 1.6 .code %0 = {}(%1, 1, 1)")
        taken = [form.format(word) for form in (*forms, *more)]
        assert [judge(text) for text in taken] == [derives(text) for text in taken]
        assert any(map(judge, taken))
