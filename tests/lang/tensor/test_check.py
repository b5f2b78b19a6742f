"""The checker on names, regions, placement and types; the judges are the specification's tables and plain loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import ERROR, Diagnostic
from lamella.base.source import Source
from lamella.lang.tensor import check, parse, result_types
from lamella.lang.tensor.check.kinds import is_promotable, promote
from lamella.lang.tensor.nodes import BOOL, Constant, For, If, Region, Scalar, Statement, Value

# sign bit not counted: digits, and the exponents of the least and greatest bit of floating types
DIGITS = {"i8": 7, "i16": 15, "i32": 31, "i64": 63, "index": 63}
FLOATING = {
    "bf16": (8, -133, 127),
    "f16": (11, -24, 15),
    "f32": (24, -149, 127),
    "f64": (53, -1074, 1023),
}
PARTS = {"c32": "f32", "c64": "f64"}
SCALARS = (*DIGITS, *FLOATING, *PARTS)


def findings_of(text: str) -> list[Diagnostic]:
    """What the checker finds in a text that can be read."""
    program, found = parse(Source("k.tensor", text))
    assert not [item for item in found if item.severity == ERROR], found
    return check(program)


def codes(text: str) -> list[str]:
    """The codes of what is found in the body of a kernel."""
    return [item.code for item in findings_of(text)]


def represents(source: str, target: str) -> bool:
    """Whether every value of a type is one of another, from the number of digits and the range of exponents."""
    if source == target:
        return True
    if target in DIGITS:
        return source in DIGITS and DIGITS[source] < DIGITS[target]
    digits, least, greatest = FLOATING[PARTS.get(target, target)]
    if source in DIGITS:
        return DIGITS[source] <= digits and DIGITS[source] <= greatest
    if source in PARTS and target not in PARTS:
        return False
    own_digits, own_least, own_greatest = FLOATING[PARTS.get(source, source)]
    return own_digits <= digits and own_least >= least and own_greatest <= greatest


@pytest.mark.parametrize("target", SCALARS)
@pytest.mark.parametrize("source", SCALARS)
def test_a_type_is_promotable_where_another_represents_all_its_values(source: str, target: str) -> None:
    assert is_promotable(source, target) == represents(source, target)


@pytest.mark.parametrize("right", SCALARS)
@pytest.mark.parametrize("left", SCALARS)
def test_the_promoted_type_represents_both(left: str, right: str) -> None:
    common = [name for name in (right, left) if represents(left, name) and represents(right, name)]
    assert promote(left, right) == (common[0] if common else None)


@pytest.mark.parametrize("target", SCALARS)
@pytest.mark.parametrize("source", SCALARS)
def test_axpby_takes_what_is_promotable(source: str, target: str) -> None:
    text = (
        f"func @k(%a: {source}, %b: {target}, %A: memref<{source}x4>, %B: memref<{target}x4>)"
        "{ axpby.n %a, %A, %b, %B }"
    )
    assert codes(text) == ([] if represents(source, target) else ["TEN129"])


@pytest.mark.parametrize("target", ["bool", *SCALARS])
@pytest.mark.parametrize("source", ["bool", *SCALARS])
def test_casts_lead_everywhere_but_from_complex_to_real_and_never_to_or_from_bool(
    source: str, target: str
) -> None:
    wrong = "bool" in (source, target) or (source in PARTS and target not in PARTS)
    assert bool(codes(f"func @k(%a: {source}) {{ %b = cast %a : {target} }}")) == wrong


ALLOWED = {
    **dict.fromkeys(("add", "sub", "mul", "div"), SCALARS),
    **dict.fromkeys(("rem", "min", "max"), (*DIGITS, *FLOATING)),
    **dict.fromkeys(("shl", "shr"), tuple(DIGITS)),
    **dict.fromkeys(("and", "or", "xor"), ("bool", *DIGITS)),
}


@pytest.mark.parametrize("name", ["bool", *SCALARS])
@pytest.mark.parametrize("function", ALLOWED)
def test_binary_arithmetic_takes_the_types_of_the_table(function: str, name: str) -> None:
    found = codes(f"func @k(%a: {name}) {{ %b = arith.{function} %a, %a : {name} }}")
    assert found == ([] if name in ALLOWED[function] else ["TEN103"])


UNARY = {
    "abs": {name: PARTS.get(name, name) for name in SCALARS},
    "neg": {name: name for name in SCALARS},
    "not": {name: name for name in ("bool", *DIGITS)},
    "conj": {name: name for name in PARTS},
    "im": PARTS,
    "re": PARTS,
}


@pytest.mark.parametrize("result", ["bool", *SCALARS])
@pytest.mark.parametrize("function", UNARY)
def test_unary_arithmetic_gives_the_types_of_the_table(function: str, result: str) -> None:
    for name in ("bool", *SCALARS):
        found = codes(f"func @k(%a: {name}) {{ %b = arith.{function} %a : {result} }}")
        allowed = UNARY[function].get(name)
        assert found == (["TEN103"] if allowed is None else [] if allowed == result else ["TEN101"]), name


@given(st.sampled_from(sorted(set(DIGITS) - {"index"})), st.integers(-(2**63) + 1, 2**63 - 1))
def test_integer_constants_are_warned_of_where_they_wrap(name: str, value: int) -> None:
    bits = DIGITS[name] + 1
    kept = int.from_bytes((value % 2**bits).to_bytes(bits // 8, "little"), "little", signed=True)
    found = findings_of(f"func @k() {{ %a = constant {value} : {name} }}")
    assert [item.code for item in found] == ([] if kept == value else ["TEN105"])
    assert all(str(kept) in item.message for item in found)


# --- names and regions --------------------------------------------------------------------------------------

Tree = list["str | Tree"]
trees: st.SearchStrategy[Tree] = st.recursive(
    st.lists(st.sampled_from(["def a", "def b", "use a", "use b"]), max_size=4),
    lambda inner: st.lists(st.sampled_from(["def a", "def b", "use a", "use b"]) | inner, max_size=4),
    max_leaves=12,
)


def write_tree(tree: Tree) -> Iterator[str]:
    """The lines of a program that defines and uses two names in regions."""
    for item in tree:
        if isinstance(item, list):
            yield "if %c {"
            yield from write_tree(item)
            yield "}"
        elif item.startswith("def"):
            yield f"%{item[4:]} = constant 1 : i32"
        else:
            yield f"for %i:i32=%{item[4:]},%{item[4:]} {{ }}"


def judge_tree(lines: list[str]) -> list[int]:
    """The lines that a plain reading of the rules finds wrong: each unknown name once, each second definition."""
    levels: list[set[str]] = [set()]
    wrong, unknown = [], set()
    for number, line in enumerate(lines):
        visible = set().union(*levels)
        if line == "if %c {":
            levels.append(set())
        elif line == "}":
            levels.pop()
        elif "constant" in line:
            name = line.split()[0]
            if name in visible:
                wrong.append(number)
            levels[-1].add(name)
        else:
            name = line.split("=")[1].split(",")[0]
            if name not in visible and name not in unknown:
                wrong.append(number)
                unknown.add(name)
    return wrong


@given(trees)
def test_names_are_visible_from_their_definition_to_the_end_of_the_region(tree: Tree) -> None:
    lines = list(write_tree(tree))
    found = findings_of("\n".join(["func @k(%c: bool) {", *lines, "}"]))
    assert [item.span.line - 2 for item in found] == judge_tree(lines)
    assert {item.code for item in found} <= {"TEN070", "TEN071", "TEN072", "TEN073"}


def test_one_undefined_value_is_one_finding_whatever_is_made_of_it() -> None:
    text = """func @k(%A: memref<f32x4>, %i: index) {
      %a = load %B[%i] : f32
      %b = arith.add %a, %missing : f32
      %c = arith.mul %b, %missing : f32
      axpby.n %c, %A, %b, %A
    }"""
    assert codes(text) == ["TEN070", "TEN070"]


def test_what_is_made_of_a_wrong_instruction_is_not_judged() -> None:
    text = """func @k(%a: f32, %b: f64) {
      %c = arith.add %a, %b : i32
      %d = arith.add %c, %a : f32
    }"""
    assert codes(text) == ["TEN102", "TEN102"]


def test_independent_errors_come_in_the_order_of_the_text() -> None:
    text = """func @k(%a: f32, %A: memref<f32x4x5>, %B: memref<f32x4x4>) {
      %x = constant 1 : f32
      gemm.n.n %a, %A, %B, %a, %B
      %i = builtin.subgroup_id : i32
    }
    func @k(%a: i32) attributes{subgroup_size=0} {
      if %a { yield (%a) }
    }"""
    found = findings_of(text)
    assert [item.code for item in found] == [
        "TEN104",
        "TEN132",
        "TEN076",
        "TEN074",
        "TEN060",
        "TEN087",
        "TEN081",
    ]
    assert "A=4x5, B=4x4, C=4x4" in found[1].message
    assert [item.span.line for item in found] == [2, 3, 4, 6, 6, 7, 7]


def test_findings_point_at_operands_and_types_and_at_definitions() -> None:
    text = """func @k(%a: f32, %D: memref<f32x4x?,strided<1,?>>) {
      %b = constant 1.0 : f64
      %c = arith.add %a, %b : f32
      %E = subview %D[0:4,0:2] : memref<f32x4x2>
    }"""
    operand, view = findings_of(text)
    assert operand.span.text == "%b"
    assert [(item.span.text, item.span.line) for item in operand.labels] == [("%b", 2)]
    assert view.span.text == "memref<f32x4x2>"
    assert "stride ?" in view.message
    assert view.labels[0].span.text == "%D"


def test_dynamic_sizes_are_shown_as_question_marks() -> None:
    text = "func @k(%a: f32, %A: memref<f32x4x?>, %B: memref<f32x4x4>) { gemm.n.n %a, %A, %B, %a, %B }"
    assert "A=4x?, B=4x4, C=4x4" in findings_of(text)[0].message


KINDS = {
    "alloca": ("%x = alloca : memref<f32x4,local>", "collective"),
    "axpby": ("axpby.n %a, %A, %a, %A", "collective"),
    "parallel": ("parallel { }", "collective"),
    "foreach": ("foreach (%i)=(%n),(%n) { }", "collective"),
    "local id": ("%x = builtin.subgroup_local_id : i32", "spmd"),
    "reduce": ("%x = subgroup_add.reduce %a : f32", "spmd"),
    "broadcast": ("%x = subgroup_broadcast %a, %l : f32", "spmd"),
    "matrix": (
        "%x = cooperative_matrix_load.n.both_checked %M[%n,%n] : coopmatrix<f32x8x8,matrix_a>",
        "spmd",
    ),
    "arith": ("%x = arith.neg %a : f32", "mixed"),
    "barrier": ("barrier.local", "mixed"),
    "size": ("%x = builtin.num_subgroups : i32", "mixed"),
}
REGIONS = {
    "function": ("{}", "collective"),
    "for": ("for %k=%n,%n {{ {} }}", "collective"),
    "if": ("if %c {{ {} }}", "collective"),
    "parallel": ("parallel {{ {} }}", "spmd"),
    "foreach": ("foreach (%j)=(%n),(%n) {{ {} }}", "spmd"),
    "if in parallel": ("parallel {{ if %c {{ {} }} }}", "spmd"),
    "for in foreach": ("foreach (%j)=(%n),(%n) {{ for %k=%n,%n {{ {} }} }}", "spmd"),
}


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_placement(kind: str, region: str) -> None:
    instruction, own = KINDS[kind]
    frame, around = REGIONS[region]
    head = "%a: f32, %l: i32, %n: index, %c: bool, %A: memref<f32x4>, %M: memref<f32x8x8>"
    found = codes(f"func @k({head}) {{ {frame.format(instruction)} }}")
    wrong = {("collective", "spmd"): ["TEN075"], ("spmd", "collective"): ["TEN076"]}
    assert found == wrong.get((own, around), [])


def test_result_types_are_those_that_the_program_writes() -> None:
    empty = Region(())
    assert result_types(Constant(1, Scalar("i8"))) == (Scalar("i8"),)
    assert result_types(If(Value("c"), empty, empty, (BOOL, Scalar("f32")))) == (BOOL, Scalar("f32"))
    assert result_types(For(Value("i"), Value("a"), Value("b"), empty)) == ()


def test_regions_nest_as_deep_as_memory_allows() -> None:
    program, _ = parse(Source("k.tensor", "func @k(%c: bool) { %x = arith.neg %c : bool }"))
    function = program.functions[0]
    region = function.body
    for _ in range(10_000):
        region = Region((Statement((), If(Value("c"), region)),))
    deep = type(function)(function.name, function.parameters, region)
    assert [item.code for item in check(type(program)((deep,)))] == ["TEN103"]


def test_findings_about_constants_point_at_the_number() -> None:
    text = "func @k() {\n  %c = constant 300 : i8\n  %d = constant\n    [1.0, 2.0] : f32\n}"
    found = findings_of(text)
    assert [(item.code, item.span.line, item.span.column, item.span.text) for item in found] == [
        ("TEN105", 2, 17, "300"),
        ("TEN104", 4, 5, "[1.0, 2.0]"),
    ]
