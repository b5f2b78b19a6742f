"""What the parser makes of a text: nodes with their places, and notes where a spelling is not the specification's."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamella.base.diagnostic import NOTE, Rule, errors
from lamella.base.source import Source
from lamella.lang.tensor import nodes as n
from lamella.lang.tensor.parse import ParsedTensor, parse
from lamella.lang.tensor.rules import syntax
from lamella.lang.tensor.words import NEWER, OTHER_NAMES, WORDS
from lamella.lang.tensor.write import write

GOOD = sorted((Path(__file__).parent / "good").rglob("*.tensor"))
HEAD = "func @f(%a: i32, %x: f64, %D: memref<f32x16x?>, %i: index) {\n"
D, INDEX_VALUE = n.Value("D"), n.Value("i")


def read(text: str) -> ParsedTensor:
    """A text, read."""
    return parse(Source("text.tensor", text))


def body(text: str) -> tuple[n.Statement, ...]:
    """The statements of a function, without errors."""
    parsed = read(f"{HEAD}{text}\n}}")
    assert not errors(parsed.findings), "\n".join(map(str, parsed.findings))
    return parsed.program.functions[0].body.statements


def noted(text: str) -> list[str]:
    """The codes of the notes on a function with some statements."""
    findings = read(f"{HEAD}{text}\n}}").findings
    assert {finding.severity for finding in findings} <= {NOTE}, "\n".join(map(str, findings))
    return [finding.code for finding in findings]


# --- lenient and newer spellings ----------------------------------------------------------------------------


LENIENT = [
    (syntax.CONSTANT_ARROW, "%c = constant 2 -> i32", "%c = constant 2 : i32"),
    (syntax.BARE_GROUP_ID, "%g = group_id : index", "%g = builtin.group_id : index"),
    (syntax.BARE_GROUP_ID, "%g = group_id.x : index", "%g = builtin.group_id : index"),
    (
        syntax.LONE_COLON,
        "%d = subview %D[:,%i] : memref<f32x16>",
        "%d = subview %D[0:16,%i] : memref<f32x16>",
    ),
    (syntax.ALLOCA_SPACE, "%t = alloca : memref<f32x4>", "%t = alloca : memref<f32x4,local>"),
    (syntax.COMPARE_TYPE, "%c = cmp.eq %a, %a : i32", "%c = cmp.eq %a, %a : bool"),
    (syntax.MODIFIER_ORDER, "ger.atomic %x,%D,%D,%x,%D", "ger.atomic %x,%D,%D,%x,%D"),
    (syntax.MODIFIER_ORDER, "gemv.atomic.t %x,%D,%D,%x,%D", "gemv.t.atomic %x,%D,%D,%x,%D"),
    (syntax.MODIFIER_ORDER, "barrier.local.global", "barrier.global.local"),
    (
        syntax.MODIFIER_ORDER,
        "cooperative_matrix_store.atomic.rows_checked %x, %D[%i,%i]",
        "cooperative_matrix_store.rows_checked.atomic %x, %D[%i,%i]",
    ),
    (
        syntax.MODIFIER_ORDER,
        "%m = cooperative_matrix_load.rows_checked.t %D[%i,%i] : coopmatrix<f32x8x8,matrix_a>",
        "%m = cooperative_matrix_load.t.rows_checked %D[%i,%i] : coopmatrix<f32x8x8,matrix_a>",
    ),
    (syntax.NO_TRANSPOSE, "gemm.atomic %x,%D,%D,%x,%D", "gemm.n.n.atomic %x,%D,%D,%x,%D"),
    (syntax.NO_TRANSPOSE, "sum %x,%D,%x,%D", "sum.n %x,%D,%x,%D"),
    (
        syntax.NO_TRANSPOSE,
        "%m = cooperative_matrix_load %D[%i,%i] : coopmatrix<f32x8x8,matrix_a>",
        "%m = cooperative_matrix_load.n %D[%i,%i] : coopmatrix<f32x8x8,matrix_a>",
    ),
    (syntax.BARE_GROUP_ID, "%g = group_id.y : index", "%g = builtin.group_id.y : index"),
    (syntax.NEWER_ATTRIBUTES, "for %k=%i,%i { } attributes{unroll=4}", "for %k=%i,%i { } {unroll=4}"),
    (syntax.NEWER_NAME, "%g = num_groups.x : index", "%g = builtin.group_size : index"),
    (syntax.NEWER_NAME, "%s = subgroup_linear_id : i32", "%s = builtin.subgroup_id : i32"),
    (syntax.NEWER_NAME, "atomic_store %x, %D[%i,%i]", "store.atomic %x, %D[%i,%i]"),
    (syntax.NEWER_NAME, "atomic_add %x, %D[%i,%i] : f64", "store.atomic_add %x, %D[%i,%i]"),
    (
        syntax.NEWER_NAME,
        "cooperative_matrix_atomic_add.both_checked %x, %D[%i,%i]",
        "cooperative_matrix_store.both_checked.atomic_add %x, %D[%i,%i]",
    ),
]


@pytest.mark.parametrize(("rule", "text", "specified"), LENIENT)
def test_other_spellings_are_read_alike(rule: Rule, text: str, specified: str) -> None:
    assert body(text) == body(specified)
    assert noted(text) == ([] if text == specified else [rule.code])
    assert noted(specified) == []


def test_a_type_behind_a_comparison_is_read_only_where_it_is_that_of_the_operands() -> None:
    (compared,) = body("%c = cmp.eq %a, %a : f64")
    assert isinstance(compared.instruction, n.Compare)
    assert compared.instruction.type == n.Scalar("f64"), "an error of the checker"
    assert noted("%c = cmp.eq %a, %a : f64") == []


def test_the_type_behind_a_newer_atomic_is_that_of_the_value() -> None:
    (finding,) = errors(read(f"{HEAD}atomic_add %x, %D[%i,%i] : f32\n}}").findings)
    assert finding.message == "expected 'f64' as the type of '%x', found 'f32'"


@pytest.mark.parametrize("word", sorted(NEWER))
def test_newer_names_are_read_alike(word: str) -> None:
    specified = NEWER[word]
    forms = ("%r = {} %x : f64", "%r = {} %x, %x : f64", "%r = {} : index", "{} %x, %D[%i,%i]")
    pairs = [(form.format(word), form.format(specified)) for form in forms]
    found = [pair for pair in pairs if not errors(read(f"{HEAD}{pair[1]}\n}}").findings)]
    assert found
    for newer, older in found:
        assert body(newer) == body(older)
        assert noted(newer)[:1] == [(syntax.BARE_GROUP_ID if word == "group_id" else syntax.NEWER_NAME).code]


def test_the_specification_s_long_name_gets_no_note() -> None:
    text = "hadamard_product %x, %D, %D, %x, %D"
    assert noted(text) == []
    assert body(text) == body(text.replace("_product", ""))


def test_the_specification_s_sample_is_read_as_it_stands() -> None:
    specified = next(path for path in GOOD if path.stem == "sample").read_text(encoding="utf-8")
    slips = {
        "builtin.group_id": "group_id",
        "0:16,0:16": ":,:",
        ",local": "",
        "0x0p+0": "0.0",
        "0x1p+0": "1.0",
    }
    sample = specified
    for right, slip in slips.items():
        assert right in sample
        sample = sample.replace(right, slip)
    parsed = read(sample)
    assert [finding.severity for finding in parsed.findings] == [NOTE] * 3
    assert parsed.program == read(specified).program
    assert write(parsed.program) == specified


def test_each_kind_of_note_is_given_once() -> None:
    text = "%b = constant 1 -> i32\n%c = constant 2 -> i32\n%d = add %b, %c : i32\n%e = sub %b, %c : i32"
    assert noted(text) == [syntax.CONSTANT_ARROW.code, syntax.NEWER_NAME.code]


def test_a_number_in_an_index_list_is_a_constant_before() -> None:
    constant, load = body("%c0 = load %D[5,%i] : f32")
    (value,) = constant.results
    assert value.name not in ("a", "x", "D", "i", "c0")
    assert constant.instruction == n.Constant(5, n.INDEX)
    assert load.instruction == n.Load(D, (value, INDEX_VALUE), n.Scalar("f32"))
    assert value.span.text == "5"


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("%c = cmp.lt %a, 16 : i32", [n.Constant(16, n.Scalar("i32"))]),
        ("%c = cmp.lt 16, %a : bool", [n.Constant(16, n.Scalar("i32"))]),
        ("%c = cmp.lt %x, 16 : bool", [n.Constant(16.0, n.Scalar("f64"))]),
        ("%c = cmp.lt %x, -1.5 : f64", [n.Constant(-1.5, n.Scalar("f64"))]),
        ("%c = cmp.lt 1, 2 : i8", [n.Constant(1, n.Scalar("i8")), n.Constant(2, n.Scalar("i8"))]),
        ("%c = cmp.lt 1, 2 : bool", [n.Constant(1, n.INDEX), n.Constant(2, n.INDEX)]),
    ],
)
def test_a_number_that_is_compared_has_the_type_of_the_other(text: str, constants: list[n.Constant]) -> None:
    *before, compare = body(text)
    assert [item.instruction for item in before] == constants
    assert [str(item.instruction) for item in before] == list(map(str, constants))
    assert isinstance(compare.instruction, n.Compare)
    assert compare.instruction.type == n.BOOL
    names = {item.results[0].name for item in before}
    assert len(names) == len(constants)
    assert names <= {compare.instruction.left.name, compare.instruction.right.name}


def test_a_lone_colon_takes_the_size_of_the_run() -> None:
    size, view = body("%d = subview %D[%i,:] : memref<f32x?,strided<16>>")
    assert size.instruction == n.SizeOf(D, 1)
    assert isinstance(view.instruction, n.Subview)
    assert view.instruction.slices == (n.Slice(INDEX_VALUE), n.Slice(0, size.results[0]))


def test_a_lone_colon_knows_the_views_and_loops_before_it() -> None:
    text = "%d = subview %D[0:4,%i] : memref<f32x4>\nfor %k=%i,%i {\n%e = subview %d[:] : memref<f32x4>\n}"
    loop = body(text)[1].instruction
    assert isinstance(loop, n.For)
    view = loop.body.statements[0].instruction
    assert isinstance(view, n.Subview)
    assert view.slices == (n.Slice(0, 4),)


def test_comments_stand_above_what_was_put_before() -> None:
    text = f"{HEAD}  barrier\n\n  ; about the load\n  %b = load %D[5,%i] : f32  ; behind it\n}}"
    lines = write(read(text).program).splitlines()[4:]
    assert lines == [
        *("  barrier", "", "  ; about the load", "  %c0 = constant 5 : index"),
        *("  %b = load %D[%c0,%i] : f32  ; behind it", "}"),
    ]


# --- tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("123.4", 123.4), (".5", 0.5), ("42.", 42.0), ("1e3", 1000.0), ("1E3", 1000.0)),
        *(("+1.5", 1.5), ("-0.0", -0.0)),
        *(("0x1.8p3", 12.0), ("0x.8p1", 1.0), ("0x1p4", 16.0), ("0x1.8", 1.5), ("-0x1p-1074", -5e-324), ("0e999", 0.0)),
        *(("7", 7), ("-9223372036854775807", -(2**63) + 1), ("+0012", 12), ("0" * 9000 + "5", 5), ("0x0p9", 0.0)),
        *(("true", True), ("false", False), ("[ 1.0 , -2. ]", (1.0, -2.0)), ("-inf", float("-inf")), ("1e39", 1e39)),
    ],
)  # fmt: skip
def test_constants(text: str, value: n.Number) -> None:
    constant = body(f"%c = constant {text} : f64")[0].instruction
    assert isinstance(constant, n.Constant)
    assert (constant.value, type(constant.value)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        *("9223372036854775808", "-9223372036854775808", "9" * 9000, "1e400", "-1e400", "1e-400", "0x1p1024"),
        *("0x1p-1100", "0x.0001p-1080", f"1e{'9' * 5000}", f"0x1p{'9' * 5000}", f"0x1p-{'9' * 5000}", "9" * 5000 + "."),
    ],
)  # fmt: skip
def test_constants_out_of_range(text: str) -> None:
    (finding,) = read(f"{HEAD}%c = constant {text} : f64\n}}").findings
    assert finding.code == syntax.LITERAL_RANGE.code
    assert finding.span.text == text


def test_numbered_values_are_compared_as_numbers() -> None:
    assert body("%01 = cast %a : f32") == body("%1 = cast %a : f32")
    assert read("func @007() {}").program.functions[0].name == "7"


def test_white_space_is_free() -> None:
    text = "func\t@f(\v%a\r\n:f32){%b=arith.neg %a:f32 %c=arith.neg\n%b\n:\nf32 barrier .global}"
    (function,) = read(text).program.functions
    assert [len(item.results) for item in function.body.statements] == [1, 1, 0]


def test_a_nul_ends_the_program() -> None:
    parsed = read("func @f() {}\0 func @g( rubbish")
    assert [finding.severity for finding in parsed.findings] == ["warning"]
    assert [function.name for function in parsed.program.functions] == ["f"]


# --- places -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_statements_know_their_places(path: Path) -> None:
    """The text of each statement, read alone, is that statement."""
    program = read(path.read_text(encoding="utf-8")).program
    for function in program.functions:
        assert function.span.text.startswith(f"func @{function.name}(")
        assert function.body.span.text[0] + function.body.span.text[-1] == "{}"
        for statement in function.body.statements:
            (again,) = read(f"func @f() {{ {statement.span.text} }}").program.functions
            assert again.body.statements == (statement,)
            assert [value.span.text for value in statement.results] == [
                f"%{v.name}" for v in statement.results
            ]


def test_attributes_know_their_places_and_stand_by_key() -> None:
    (function,) = read(
        'func @f() attributes{work_group_size=[16, 1], "a"={}, subgroup_size=16} {}'
    ).program.functions
    assert function.attributes is not None
    entries = function.attributes.entries
    assert [entry.key for entry in entries] == ["a", "subgroup_size", "work_group_size"]
    assert [entry.span.text for entry in entries] == ['"a"={}', "subgroup_size=16", "work_group_size=[16, 1]"]
    assert function.attributes.find("work_group_size") == (16, 1)


# --- several errors -----------------------------------------------------------------------------------------


def places(text: str) -> list[tuple[int, str]]:
    """Lines and codes of the errors."""
    return [(finding.span.line, finding.code) for finding in errors(read(text).findings)]


def test_an_empty_program_is_wrong() -> None:
    assert places("") == places("; nothing")[:1] == [(1, "TEN001")]


def test_every_wrong_statement_is_one_finding() -> None:
    text = (
        "func @f(%a: f32) {\n"
        "  %b = arith.plus %a : f32\n"
        "  %c = arith.neg %a : f32\n"
        "  for %i=%a %b {\n"
        "    %d = arith.neg %a\n"
        "    gemm %a\n"
        "  }\n"
        "  if %c -> f32 {\n"
        "    yield %a\n"
        "  } else {\n"
        "    %e = load %a : f32\n"
        "  }\n"
        "  %f = alloca {alignement=64} : memref<f32x4,local>\n"
        "  parallel {\n"
        "    barrier\n"
        "  } barrier barrier )\n"
        "  %g = arith.neg %a : f32\n"
        "}\n"
        "func g() {\n"
        "  %a = cast\n"
        "}\n"
        "func @h() {}\n"
    )
    # what is missing at the end of a line is missed at the beginning of the next
    lines = [2, 4, 6, 7, 8, 9, 11, 13, 16, 19, 21]
    assert [line for line, _ in places(text)] == lines
    assert [line for line, code in places(text) if code == "TEN003"] == [2, 13, 19]
    assert [function.name for function in read(text).program.functions] == ["f", "h"]


def test_what_is_right_among_what_is_wrong_is_read() -> None:
    text = "func @f(%a: f32) {\n  %b = arith.neg 7\n  %c = arith.neg %a : f32\n}"
    (function,) = read(text).program.functions
    assert [statement.results[0].name for statement in function.body.statements] == ["c"]
    assert places(text) == [(2, "TEN001")]


def test_findings_come_in_the_order_of_the_text() -> None:
    starts = [
        finding.span.start
        for finding in read(f"{HEAD}%b = add %a\n%c = $\n%d = constant 1 -> i32\n}}").findings
    ]
    assert starts == sorted(starts)
    assert len(starts) > 2


def told(text: str) -> list[tuple[int, int, str]]:
    """Line, column and hint of what is wrong in a text."""
    found = parse(Source("k.tensor", text)).findings
    return [(item.span.line, item.span.column, item.hint or "") for item in found]


def test_a_brace_that_is_not_closed_is_shown() -> None:
    assert told("func @f() {\n  parallel {\n  }\n") == [(1, 11, "")]
    taken = "the '}' in line 4 is taken for it; by its column it closes another"
    assert told("func @f() {\n  parallel {\n    barrier\n}\n") == [(2, 12, taken)]
    assert told("func @f() {\nfunc @g() {\n}\n") == [(1, 11, "")]
    assert told("func @f() {" + "parallel { } " * 20_000) == [(1, 11, "")]


@pytest.mark.parametrize(
    "body",
    [
        "%a = laod %x[%i] : f32\nforech (%k)=(%i),(%i) { }",
        "scf.if %c { }\nfro %k=%i,%i { }",
        "bariere\nbarrrier\n",
    ],
)
def test_two_misspelt_words_are_two_findings(body: str) -> None:
    found = parse(Source("k.tensor", f"func @f() {{\n{body}\n}}")).findings
    assert [(item.code, item.span.line) for item in found] == [("TEN003", 2), ("TEN003", 3)]
    assert all("did you mean" in item.hint or "in this language" in item.hint for item in found)


@pytest.mark.parametrize(("name", "word"), sorted(OTHER_NAMES.items()))
def test_words_of_mlir_are_told_in_words_of_this_language(name: str, word: str) -> None:
    assert word.partition(".")[0] in WORDS or word in WORDS
    for text in (f"%r = {name} %x : f32", f"{name} %x"):
        (finding, *_) = parse(Source("k.tensor", f"func @f() {{\n  {text}\n}}")).findings
        assert (finding.code, finding.span.text, finding.hint) == (
            "TEN003",
            name,
            f"in this language it is '{word}'",
        )
