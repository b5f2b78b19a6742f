"""What the language has beyond its specification: where it may stand, its types, and its notes."""

from __future__ import annotations

import pytest

from lamella.base.diagnostic import ERROR, Diagnostic
from lamella.base.source import Source
from lamella.lang.tensor import check, parse, write
from lamella.lang.tensor.nodes import Arith, Math, Scalar, Value
from lamella.lang.tensor.words import EXTRA_MATH, SCALARS

PARAMETERS = ", ".join(
    ["%c: bool", "%p: bool", "%i: index", *(f"%{name}: {name}, %{name}b: {name}" for name in SCALARS)]
)


def findings_of(text: str) -> list[Diagnostic]:
    """What the parser and the checker find."""
    program, found = parse(Source("k.tensor", text))
    return list(found) if any(item.severity == ERROR for item in found) else [*found, *check(program)]


def codes(*lines: str) -> list[str]:
    """The codes of what is found in the body of a kernel."""
    return [item.code for item in findings_of(f"func @k({PARAMETERS}) {{ {' '.join(lines)} }}")]


@pytest.mark.parametrize("type_", SCALARS)
def test_select_takes_all_scalars(type_: str) -> None:
    assert codes(f"%r = arith.select %c, %{type_}, %{type_}b : {type_}") == ["TEN035"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%r = arith.select %c, %p, %c : bool", ["TEN035"]),
        ("%r = arith.select %i32, %f32, %f32b : f32", ["TEN035", "TEN100"]),
        ("%r = arith.select %c, %f32, %f64 : f32", ["TEN035", "TEN102"]),
        ("%r = arith.select %c, %f32, %f32b : f64", ["TEN035", "TEN101"]),
        ("%r = arith.select %c, %f32 : f32", ["TEN001"]),
        ("%r = select %c, %f32, %f32b : f32", ["TEN003"]),
        ("%r = math.pow %f32, %f32b : f32", ["TEN035"]),
        ("%r = math.pow %f32 : f32", ["TEN001"]),
        ("%r = math.tanh %f32, %f32b : f32", ["TEN001"]),
        ("%r = math.pow %f32, %f64 : f32", ["TEN035", "TEN102"]),
        ("%r = math.pow %i32, %i32b : i32", ["TEN035", "TEN103"]),
        ("%r = math.asin %c32 : c32", ["TEN035", "TEN103"]),
        ("%r = math.exp2 %c32 : c32", ["TEN035"]),
        ("%r = math.exp %f32 : f32", []),
        ("%r = math.native_exp %c64 : c64", []),
    ],
)
def test_operands_of_extensions(line: str, expected: list[str]) -> None:
    assert codes(line) == expected


@pytest.mark.parametrize(
    ("element", "expected"), [("i8", ["TEN035"]), ("i32", ["TEN035"]), ("f32", ["TEN035", "TEN103"])]
)
@pytest.mark.parametrize("function", ["shl", "shr"])
def test_matrices_of_integers_are_shifted(function: str, element: str, expected: list[str]) -> None:
    matrix = f"coopmatrix<{element}x4x4,matrix_a>"
    one = "1.0" if element == "f32" else "1"
    lines = [f"%m = constant {one} : {matrix}", f"%r = arith.{function} %m, %m : {matrix}"]
    assert codes(*lines) == expected


@pytest.mark.parametrize(
    ("function", "element", "result", "expected"),
    [
        ("rem", "f32", "f32", ["TEN035"]),
        ("rem", "c32", "c32", ["TEN035", "TEN103"]),
        ("xor", "i8", "i8", ["TEN035"]),
        ("and", "f32", "f32", ["TEN035", "TEN103"]),
        ("not", "i32", "i32", ["TEN035"]),
        ("abs", "f16", "f16", ["TEN035"]),
        ("abs", "c32", "f32", ["TEN035"]),
        ("abs", "c32", "c32", ["TEN035", "TEN101"]),
        ("conj", "c64", "c64", ["TEN035"]),
        ("im", "c64", "f64", ["TEN035"]),
        ("re", "f32", "f32", ["TEN035", "TEN103"]),
    ],
)
def test_functions_of_scalars_take_the_components_of_matrices(
    function: str, element: str, result: str, expected: list[str]
) -> None:
    one = {"f": "1.0", "c": "[1.0,0.0]"}.get(element[0], "1")
    operands = "%m, %m" if function in ("rem", "and", "xor") else "%m"
    lines = [f"%m = constant {one} : coopmatrix<{element}x4x4,matrix_a>"]
    assert codes(*lines, f"%r = arith.{function} {operands} : coopmatrix<{result}x4x4,matrix_a>") == expected


def test_matrices_are_selected_by_one_condition() -> None:
    matrix = "coopmatrix<f32x4x4,matrix_acc>"
    lines = [f"%a = constant 0.0 : {matrix}", f"%b = constant 1.0 : {matrix}"]
    assert codes(*lines, f"%r = arith.select %c, %a, %b : {matrix}") == ["TEN035"]
    assert codes(*lines, f"%r = arith.select %a, %a, %b : {matrix}") == ["TEN035", "TEN100"]


def test_nodes_of_extensions() -> None:
    text = f"func @k({PARAMETERS}) {{ %r = arith.select %c, %f32, %f32b : f32 %s = math.pow %r, %f32 : f32 }}"
    program, _ = parse(Source("k.tensor", text))
    select, power = (item.instruction for item in program.functions[0].body.statements)
    f32 = Scalar("f32")
    assert select == Arith("select", (Value("c"), Value("f32"), Value("f32b")), f32)
    assert power == Math("pow", (Value("r"), Value("f32")), f32)
    assert parse(Source("k.tensor", write(program))).program == program


def test_each_function_notes_each_extension_once() -> None:
    body = "%1 = math.tanh %a : f32 %2 = math.tanh %1 : f32 %3 = math.erf %2 : f32 %4 = math.erf %3 : f32"
    text = "".join(f"func @k{number}(%a: f32) {{ {body} }}\n" for number in range(2))
    found = [(item.span.line, item.message.split()[0]) for item in findings_of(text)]
    assert found == [(1, "'math.tanh'"), (1, "'math.erf'"), (2, "'math.tanh'"), (2, "'math.erf'")]


@pytest.mark.parametrize("function", EXTRA_MATH)
def test_notes_name_the_function(function: str) -> None:
    operands = "%f32, %f32b" if function == "pow" else "%f32"
    (note,) = findings_of(f"func @k({PARAMETERS}) {{ %r = math.{function} {operands} : f32 }}")
    assert (note.code, note.severity) == ("TEN035", "note")
    assert note.message == f"'math.{function}' is an extension of Lamella"


# --- packed accesses ----------------------------------------------------------------------------------------


def access(memory: str, matrix: str, flag: str = ".n") -> tuple[list[str], list[str]]:
    """The codes of a load from a memref, and those of a store to it."""
    zero = "0" if matrix.startswith("i") else "0.0"
    load = f"%a = cooperative_matrix_load{flag} %A[%i,%i] : coopmatrix<{matrix}>"
    store = f"%a = constant {zero} : coopmatrix<{matrix}> cooperative_matrix_store %a, %A[%i,%i]"
    texts = [
        f"func @k(%A: memref<{memory}>, %i: index) {{ parallel {{ {line} }} }}" for line in (load, store)
    ]
    found = [[item.code for item in findings_of(text)] for text in texts]
    # what the proof of bounds says is of no concern here
    loaded, stored = ([code for code in item if not "TEN140" <= code <= "TEN199"] for item in found)
    return loaded, stored


@pytest.mark.parametrize("memory", ["bf16x2x?x?", "f16x2x64x16", "i8x4x?x8", "f16x2x?x?,strided<1,2,?>"])
def test_packed_accesses(memory: str) -> None:
    element = memory.partition("x")[0]
    assert access(memory, f"{element}x16x8,matrix_a") == (["TEN035"], ["TEN035"])


@pytest.mark.parametrize(
    ("memory", "use"),
    [
        ("f16x4x?x?", "matrix_a"),
        ("i8x2x?x?", "matrix_a"),
        ("f16x?x?x?", "matrix_a"),
        ("f32x1x?x?", "matrix_a"),
        ("i16x2x?x?", "matrix_a"),
        ("f16x2x?x?", "matrix_b"),
        ("f16x2x?x?", "matrix_acc"),
    ],
)
def test_packed_accesses_that_are_none(memory: str, use: str) -> None:
    wrong = ["TEN035", "TEN138"]
    assert access(memory, f"{memory.partition('x')[0]}x16x8,{use}") == (wrong, wrong)


def test_a_packed_matrix_is_not_transposed() -> None:
    assert access("f16x2x?x?", "f16x16x8,matrix_a", ".t")[0] == ["TEN035", "TEN138"]


def test_other_orders_are_wrong() -> None:
    assert access("f16x2x2x?x?", "f16x16x8,matrix_a") == (["TEN131"], ["TEN131"])


def test_the_specification_has_no_notes() -> None:
    text = """func @k(%a: f32, %A: memref<f32x8>, %B: memref<f32x8>, %C: memref<f32x8>) {
  hadamard_product %a, %A, %B, %a, %C
  hadamard %a, %A, %B, %a, %C
}"""
    assert not findings_of(text)
