"""NEM text to nodes: the rule for each gap of the specification, and what an error costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lamella.base.diagnostic import errors
from lamella.base.limits import Limits
from lamella.base.source import Source, Trivia
from lamella.lang.nem import nodes as n
from lamella.lang.nem.parse import ParsedNem, parse
from lamella.lang.nem.parse.tokens import LEXER

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").glob("*.nem"))
BAD_SYNTAX = sorted((HERE / "bad").glob("syntax_*.nem"))
EXPECT = re.compile(r"#\s*expect\s+((?:NEM\d{3}[ ,]*)+)")


def read(text: str, limits: Limits | None = None) -> ParsedNem:
    """Parse a text."""
    return parse(Source("text.nem", text), limits or Limits())


def right(text: str) -> n.Document:
    """The document of a text without errors."""
    parsed = read(text)
    assert not errors(parsed.findings), "\n".join(map(str, parsed.findings))
    return parsed.document


def codes(text: str, limits: Limits | None = None) -> list[str]:
    """The codes of the findings."""
    return [finding.code for finding in read(text, limits).findings]


def statement(text: str) -> n.Statement:
    """The only statement of a text."""
    (found,) = right(text).statements
    return found


def task(text: str) -> n.Task:
    """The only task of a text."""
    found = statement(text)
    assert isinstance(found, n.Task)
    return found


def value(text: str) -> n.Value:
    """The value of a let."""
    found = statement(f"let a = {text}")
    assert isinstance(found, n.Let)
    return found.value


def names(*ids: str) -> tuple[n.Name, ...]:
    """Names as nodes."""
    return tuple(n.Name(id_) for id_ in ids)


def decorator_names(decorators: tuple[n.Decorator, ...]) -> list[str]:
    """The names of decorators."""
    return [item.name for item in decorators]


# --- what is wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", BAD_SYNTAX, ids=lambda path: path.stem)
def test_wrong_syntax_has_exactly_the_findings_it_announces(path: Path) -> None:
    text = path.read_bytes().decode("utf-8")
    wanted = [
        (number, code)
        for number, line in enumerate(text.split("\n"), 1)
        for match in EXPECT.finditer(line)
        for code in re.findall(r"NEM\d{3}", match[1])
    ]
    found = parse(Source(path.name, text)).findings
    assert sorted((item.span.line, item.code) for item in found) == wanted, "\n".join(map(str, found))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_one_wrong_word_makes_one_finding(path: Path) -> None:
    text = path.read_bytes().decode("utf-8")[:1500]
    if errors(read(text).findings):
        return  # cut within a statement
    tokens = LEXER.cut(Source("", text))
    for index in range(len(path.stem) % 3, tokens.end, 3):
        start, word = tokens.starts[index], tokens.texts[index]
        before, after = text[:start], text[start + len(word) :]
        for other in ("", f"{word} {word}", "$", " 7 "):
            found = errors(read(before + other + after).findings)
            assert len(found) <= 1, (other, *map(str, found))


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("const a = )", ["a"]),
        ("t = relu.async in x, out y", ["t"]),
        ("x = 5", ["x"]),
        ("const a = $, b = 2", ["a", "b"]),
        ("t = transfer.async(dst=x)", ["t"]),
        ("wait()", []),
        ("t relu.async in x out y", ["t"]),
    ],
)
def test_a_broken_statement_keeps_its_names(text: str, declared: list[str]) -> None:
    parsed = read(text + "\nconst next = 1")
    broken = parsed.document.statements[0]
    assert isinstance(broken, n.Broken)
    assert [name.id for name in broken.names] == declared
    assert isinstance(parsed.document.statements[-1], n.Const)
    assert len(parsed.findings) == 1


def test_a_broken_header_keeps_the_body() -> None:
    parsed = read("loop i in [0 3]:\n  const a = )\n  wait(t)\nendloop\nwait(u)")
    bound, loop, last = parsed.document.statements
    assert isinstance(bound, n.Broken)
    assert isinstance(loop, n.Loop)
    assert loop.variable == n.Name("i")
    assert (loop.first, loop.last) == (bound.names[0], bound.names[0])
    assert [type(item) for item in loop.body] == [n.Broken, n.Wait]
    assert last == n.Wait(names("u"))
    assert [finding.code for finding in parsed.findings] == ["NEM001", "NEM001"]


def test_messages_repair_floats() -> None:
    hints = {text: read(f"let a = {text}").findings[0].hint for text in ("1e-5", ".5", "1.", "2.e3", ".5E+1")}
    assert hints == {
        "1e-5": "write 1.0e-5",
        ".5": "write 0.5",
        "1.": "write 1.0",
        "2.e3": "write 2.0e3",
        ".5E+1": "write 0.5e+1",
    }


# --- the rules for the gaps of the specification ------------------------------------------------------------


def test_type_attributes_inside_and_outside_are_the_same() -> None:
    outside = statement("a = region(B, 0, 4) elem=i8, shape=[4], layout=C")
    assert outside == statement("a = region(B, 0, 4, layout=C, elem=i8, shape=[4])")
    assert outside == statement("a = region(B, 0, 4, shape=[4]) layout=C, elem=i8")


def test_let_and_plain_regions() -> None:
    plain = statement("a = region(B, 0, 4) elem=i8, shape=[4], layout=C @materialized")
    let = statement("let a = region(B, 0, 4) elem=i8, shape=[4], layout=C @materialized")
    assert isinstance(plain, n.RegionDef)
    assert isinstance(let, n.RegionDef)
    assert (plain.let, let.let) == (False, True)
    assert plain.region == let.region
    assert decorator_names(let.decorators) == ["materialized"]


def test_attribute_lists_end_before_definitions() -> None:
    first, region, second, third = right(
        "t = pad.async in x out y mode=constant pads=[1] r = region(B, 0, 4) u = relu.sync in x out y"
        " exp.sync in x out y"
    ).statements
    assert isinstance(first, n.Task)
    assert [item.name.id for item in first.attributes] == ["mode", "pads"]
    assert isinstance(region, n.RegionDef)
    assert isinstance(second, n.Task)
    assert isinstance(third, n.Task)
    assert third.token is None


def test_decorators_behind_the_last_operand_go_by_kind() -> None:
    found = task(
        "relu.async in x @debug out y @resource(CSTL[0]) @materialized @fast @deterministic @debug @memmove"
        " @seq_engine(1)"
    )
    assert decorator_names(found.inputs[0].decorators) == ["debug"]
    assert decorator_names(found.outputs[0].decorators) == ["materialized", "fast"]
    assert decorator_names(found.decorators) == [
        "resource",
        "deterministic",
        "debug",
        "memmove",
        "seq_engine",
    ]


def test_notes_before_attributes_stay_on_the_operand() -> None:
    found = task('relu.async in x out y @debug("y") @resource(CSTL[0]) deps=[] @profile("t") @readonly')
    assert decorator_names(found.outputs[0].decorators) == ["debug"]
    assert decorator_names(found.decorators) == ["resource", "profile", "readonly"]


def test_operands_of_moves_keep_their_decorators() -> None:
    found = task("transfer.sync(src=x @readonly, dst=y @resource(DMA[0])) @memmove")
    assert found.inputs == (n.Operand(n.Name("x"), (n.Decorator("readonly"),)),)
    assert decorator_names(found.outputs[0].decorators) == ["resource"]
    assert decorator_names(found.decorators) == ["memmove"]


def test_precedence_and_unary_minus() -> None:
    one, two, three = n.Integer(1), n.Integer(2), n.Integer(3)
    product = n.Chain(two, (("*", three),))
    assert value("1 + 2 * 3 - 1") == n.Chain(one, (("+", product), ("-", one)))
    assert value("(1 + 2) * 3") == n.Chain(n.Chain(one, (("+", two),)), (("*", three),))
    assert value("1 - 2 - 3") == n.Chain(one, (("-", two), ("-", three)))
    assert value("2 / 3 mod 1") == n.Chain(two, (("/", three), ("mod", one)))
    assert value("--1") == n.Negate(n.Negate(one))
    assert value("-1 * 2") == n.Chain(n.Negate(one), (("*", two),))
    assert value("1 - -(2 * 3)") == n.Chain(one, (("-", n.Negate(product)),))


def test_the_precedence_note_says_how_it_is_read() -> None:
    (finding,) = read("const a = b + c * d - (e * f)").findings
    assert finding.message == "'b + c * d - (e * f)' is read as b + (c * d) - (e * f), not from left to right"
    assert finding.severity == "note"


def test_ranges_are_not_floats() -> None:
    loop = statement("loop i in [0..3]: endloop")
    assert isinstance(loop, n.Loop)
    assert (loop.first, loop.last) == (n.Integer(0), n.Integer(3))
    loop = statement("loop i in [1.5..2.5]: endloop")
    assert isinstance(loop, n.Loop)
    assert (loop.first, loop.last) == (n.Real(1.5), n.Real(2.5))


def test_the_escape_hatch_is_folded() -> None:
    hatch = task('compute.async(op="x", attrs={k=1, m: [2], strides=[3]}) in a out b l=4')
    assert hatch == task('compute.async in a out b op="x" k=1 m=[2] strides=[3] l=4')


def test_dependencies_stand_anywhere() -> None:
    wanted = names("t", "u")
    assert task("softmax.async in a out b deps=[t, u] axis=1").deps == wanted
    assert task("softmax.async in a out b axis=1 deps=[t, u]").deps == wanted
    assert task("transfer.async(deps=[t, u], dst=a, src=b)").deps == wanted
    assert task("softmax.async in a out b axis=1 deps=[]").deps == ()


def test_strides_belong_to_the_region_or_the_task() -> None:
    of_region = task("f.sync in a out region(B, 0, 4) strides=[1]")
    of_task = task("f.sync in a out region(B, 0, 4) layout=C strides=[1]")
    region, other = of_region.outputs[0].value, of_task.outputs[0].value
    assert isinstance(region, n.Region)
    assert isinstance(other, n.Region)
    assert region.type == n.TypeAttributes(strides=(n.Integer(1),))
    assert other.type == n.TypeAttributes(layout=n.Name("C"))
    assert of_task.attributes == (n.Attribute(n.Name("strides"), n.Items((n.Integer(1),))),)


def test_buffers() -> None:
    size = n.Integer(8)
    assert statement("buffer A : L1 (size=8)") == n.Buffer(n.Name("A"), "L1", None, size)
    assert statement("buffer A : L1[2] (import, size=8, align=8)") == n.Buffer(
        n.Name("A"), "L1", n.Integer(2), size, size, True
    )


def test_parts_of_a_document() -> None:
    text = 'include "a.nem" device d { spec_version = "1" } type_family f { variants: } device d program p: const a = 1'
    document = right(text)
    assert [item.path.value for item in document.includes] == ["a.nem"]
    assert [type(item) for item in document.declarations] == [n.Device, n.TypeFamily]
    assert document.device == n.DeviceRef(n.Name("d"))
    assert document.name == n.Name("p")
    assert len(document.statements) == 1
    assert document.is_program
    assert not right("type_family f { variants: }").is_program


def test_late_parts_count_all_the_same() -> None:
    parsed = read('const a = 1 include "a.nem" device d {} device d')
    assert [item.path.value for item in parsed.document.includes] == ["a.nem"]
    assert [type(item) for item in parsed.document.declarations] == [n.Device]
    assert parsed.document.device == n.DeviceRef(n.Name("d"))
    assert [item.code for item in parsed.findings] == ["NEM010", "NEM001", "NEM001"]
    late = "expected the device directive before the program, found 'device'"
    assert parsed.findings[-1].message == late


def test_variant_references() -> None:
    (device,) = right("device d { opcode.extended { a.b a.b.c a<i8>.b a.b<i8, f16>.c } }").declarations
    assert isinstance(device, n.Device)
    assert device.extended == (
        n.VariantRef("a", (), "b"),
        n.VariantRef("a.b", (), "c"),
        n.VariantRef("a", ("i8",), "b"),
        n.VariantRef("a.b", ("i8", "f16"), "c"),
    )


def test_strings() -> None:
    assert value(r'"a\"b\\c\n\r\t\u{41}\u{1F600}é"') == n.Text('a"b\\c\n\r\tA😀é')
    assert value('"#"') == n.Text("#")


# --- places and comments ------------------------------------------------------------------------------------


def test_spans_cover_what_they_say() -> None:
    document = right("const a = 1\nt = relu.async in x out region(B, 0, (a + 1)) layout=C k=2 # c")
    const, last = document.statements
    assert const.span.text == "const a = 1"
    assert isinstance(last, n.Task)
    assert last.span.text == "t = relu.async in x out region(B, 0, (a + 1)) layout=C k=2"
    region = last.outputs[0].value
    assert isinstance(region, n.Region)
    assert region.span.text == "region(B, 0, (a + 1)) layout=C"
    assert region.extent.span.text == "(a + 1)"
    assert last.attributes[0].span.text == "k=2"
    assert (last.span.line, last.span.column) == (2, 1)


def test_comments_stay_beside_their_statements() -> None:
    text = "# 1\n\n# 2\n\nconst a = # 3\n  1 # 4\n\n\nwait(a); # 5\nloop i in [0..1]: # 6\n# 7\nendloop # 8\n# 9\n"
    document = right(text)
    const, wait, loop = document.statements
    assert const.notes == Trivia(("# 1", "", "# 2", "", "# 3"), "# 4")
    assert wait.notes == Trivia((), "# 5", True)
    assert isinstance(loop, n.Loop)
    assert (loop.notes, loop.end_notes) == (Trivia((), "# 6"), Trivia(("# 7",), "# 8"))
    assert document.end_notes == Trivia(("# 9",))


# --- large and hostile --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("opening", "closing"), [("(", ")"), ("[", "]"), ("-", "")])
def test_nesting_is_limited(opening: str, closing: str) -> None:
    inner = "" if opening == "[" else "1"
    for depth, wanted in ((200, []), (201, ["NEM018"]), (100_000, ["NEM018"])):
        assert codes(f"let a = {opening * depth}{inner}{closing * depth}\nconst b = 1") == wanted


def test_nested_loops_are_limited() -> None:
    for depth, wanted in ((200, []), (201, ["NEM018"]), (20_000, ["NEM018"])):
        assert codes("loop i in [0..1]:\n" * depth + "endloop\n" * depth + "const b = 1") == wanted


def test_limits_can_be_changed() -> None:
    assert codes("let a = [[1]]", Limits(max_depth=1)) == ["NEM018"]
    assert codes("const abc = 1", Limits(max_name=2)) == ["NEM018"]
    parsed = read("const a = 1\n" * 100, Limits(max_statements=10))
    assert [finding.code for finding in parsed.findings] == ["NEM018"]
    assert len(parsed.document.statements) == 11


def test_long_chains_are_flat() -> None:
    found = value("+".join(["1"] * 100_000))
    assert isinstance(found, n.Chain)
    assert len(found.rest) == 99_999


@pytest.mark.parametrize(
    "text",
    [
        *("9" * 100_000, "0." + "9" * 100_000, "a" * 100_000, "$" * 10_000, "\0" * 10_000, '"' * 9_999),
        *("1e" * 10_000, "." * 10_001, "=" * 10_000, "@" * 10_000, ";" * 10_000, "\r" * 10_000, "\ufeff"),
        *("endloop\n" * 100, "device d {" * 1000, "}" * 10_000, "a.b" * 1000, "#" * 10_000, "a=" * 10_000),
    ],
    ids=lambda text: repr(text[:10]),
)
def test_long_nonsense_is_judged(text: str) -> None:
    for before in ("", "const a = ", "relu.async in ", "type_family f { ", "device d { topology { a = "):
        assert read(f"{before}{text}\nconst b = 1").document.statements[-1] == n.Const(
            n.Name("b"), n.Integer(1)
        )


def test_line_ends_of_every_kind() -> None:
    wanted = right("const a = 1\n# c\nconst b = 2\n")
    for end in ("\r\n", "\r"):
        found = right(f"const a = 1{end}# c{end}const b = 2{end}")
        assert found == wanted
        assert [item.notes for item in found.statements] == [item.notes for item in wanted.statements]


def told(text: str) -> list[tuple[int, int, str]]:
    """Line, column and hint of what is wrong in a text."""
    return [(item.span.line, item.span.column, item.hint or "") for item in read(text).findings]


def test_brackets_that_are_not_closed_are_shown() -> None:
    assert told("buffer X : L2 (size=512\nbuffer Y : L2 (size=512)\n") == [(1, 15, "")]
    assert told("device d {\n    topology {\n    }\n") == [(1, 10, "")]
    taken = "the '}' in line 4 is taken for it; by its column it closes another"
    assert told("device d {\n    topology {\n        num_engines = 1\n}\nbuffer Y : L2 (size=512)\n") == [
        (2, 14, taken)
    ]


def test_two_misspelt_words_are_two_findings() -> None:
    text = """\
bufer X : L2 (size=512)
buffer Y : L2 (sise=512)
loop i in [0..3]:
    a = transfr.async(dst=X, src=Y)
endlop
"""
    meant = ["buffer", "size", "transfer", "endloop"]
    assert [(line, hint) for line, _, hint in told(text)] == [
        (line, f"did you mean {word}?") for line, word in zip((1, 2, 4, 5), meant, strict=True)
    ]
