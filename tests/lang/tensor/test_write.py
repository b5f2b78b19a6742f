"""Canonical text: what is written is read back equal, and written again the same."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.tensor import nodes as n
from lamella.lang.tensor.parse import parse
from lamella.lang.tensor.parse.tokens import LEXER
from lamella.lang.tensor.write import write, write_number, write_type
from tests.support.strategies.tensor import programs
from tests.support.strategies.tensor_types import reals, types

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").rglob("*.tensor"))


def read(text: str) -> n.Program:
    """The program of a text without errors."""
    parsed = parse(Source("text.tensor", text))
    assert not errors(parsed.findings), "\n".join(map(str, parsed.findings))
    return parsed.program


def comments(text: str) -> list[str]:
    """The comments of a text, in no order."""
    return sorted(comment.text.rstrip() for comment in LEXER.cut(Source("text.tensor", text)).comments)


def in_body(text: str) -> str:
    """A function with one instruction or more."""
    return f"func @f() {{\n{text}\n}}\n"


@given(programs())
def test_a_written_program_is_read_back_equal(program: n.Program) -> None:
    text = write(program)
    again = read(text)
    assert again == program
    assert write(again) == text


@given(programs())
def test_a_written_program_keeps_its_comments(program: n.Program) -> None:
    text = write(program)
    assert comments(write(read(text))) == comments(text)


@given(types())
def test_a_written_type_is_read_back_equal(node: n.Type) -> None:
    (function,) = read(f"func @f(%a: {write_type(node)}) {{}}").functions
    assert function.parameters[0].type == node


@given(reals())
def test_a_written_double_keeps_all_its_bits(value: float) -> None:
    text = write_number(value)
    (function,) = read(in_body(f"%a = constant {text} : f64")).functions
    constant = function.body.statements[0].instruction
    assert isinstance(constant, n.Constant)
    assert isinstance(constant.value, float)
    assert struct.pack("d", constant.value) == struct.pack("d", value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((1.0, "0x1p+0"), (-3.0, "-0x1.8p+1"), (0.0, "0x0p+0"), (-0.0, "-0x0p+0")),
        *((5e-324, "0x0.0000000000001p-1022"),),
        *((True, "true"), (-7, "-7"), ((1.0, 0.0), "[0x1p+0,0x0p+0]"), (float("inf"), "inf"), (-float("inf"), "-inf")),
    ],
)  # fmt: skip
def test_canonical_numbers(value: n.Number, text: str) -> None:
    assert write_number(value) == text


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_examples_are_canonical(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    parsed = parse(Source(path.name, text))
    assert not parsed.findings
    assert write(parsed.program) == text


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_every_comment_survives(path: Path) -> None:
    chance = random.Random(path.stem)
    text = path.read_text(encoding="utf-8")
    tokens = LEXER.cut(Source("text.tensor", text))
    places = sorted(chance.sample(range(tokens.end), min(40, tokens.end)), reverse=True)
    for number, token in enumerate(places):
        start = tokens.starts[token]
        text = f"{text[:start]}; comment {number}\n{chance.choice(('', chr(10)))}{text[start:]}"
    written = write(read(text))
    assert comments(written) == comments(text)
    assert read(written) == read(text)
    assert write(read(written)) == written


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("memref<f32x5x6x7,strided<1,5,30>>", "memref<f32x5x6x7>"),
        ("memref<i64x5x?x6,strided<1,5,?>>", "memref<i64x5x?x6>"),
        ("memref<i64x5x?x6,strided<1,5,35>>", "memref<i64x5x?x6,strided<1,5,35>>"),
        ("memref < f32 , strided < > , global >", "memref<f32>"),
        ("memref<f32 x 4, local>", "memref<f32x4,local>"),
        ("group<memref<f32x4>x?, offset: 0>", "group<memref<f32x4>x?>"),
        ("group<memref<f32x4> x 8,offset:?>", "group<memref<f32x4>x8, offset: ?>"),
        ("coopmatrix<f32 x 8 x 16, matrix_acc>", "coopmatrix<f32x8x16,matrix_acc>"),
    ],
)
def test_canonical_types(text: str, canonical: str) -> None:
    (function,) = read(f"func @f(%a: {text}) {{}}").functions
    assert write_type(function.parameters[0].type) == canonical


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("%01 = constant +1.5 : f32", "%1 = constant 0x1.8p+0 : f32"),
        ("%a=alloca{alignment = 64}:memref<f32x4,local>", "%a = alloca {alignment=64} : memref<f32x4,local>"),
        ("hadamard_product .atomic %a,%b,%c,%d,%e", "hadamard.atomic %a, %b, %c, %d, %e"),
        ("barrier .local .global", "barrier.global.local"),
        ("gemm.atomic.t %a,%b,%c,%d,%e", "gemm.t.n.atomic %a, %b, %c, %d, %e"),
        ("%a = subview %b[%1:0, 3 : %2] : memref<f32x?>", "%a = subview %b[%1,3:%2] : memref<f32x?>"),
        ("%a = expand %b[1 -> %1x2x%n] : memref<f32>", "%a = expand %b[1->%1 x 2 x %n] : memref<f32>"),
        ("store %v, %t[ ]", "store %v, %t[]"),
    ],
)
def test_canonical_instructions(text: str, canonical: str) -> None:
    assert write(read(in_body(text))) == in_body(f"  {canonical}")


def test_a_function_is_written_with_its_parameters_aligned() -> None:
    text = (
        "func @f(%a: f32,  ; first\n"
        "        ; about the second\n"
        '        %b: memref<f32x4> {alignment=64, "mine"=[1,{unroll=true}]}  ; second\n'
        "       ) attributes{subgroup_size=16, work_group_size=[16,1]} {  ; open\n"
        "  for %i:index=%0,%1,%2 init(%x=%a) -> (f32) {  ; loop\n"
        "    yield (%x)\n"
        "  } {unroll=true}  ; done\n"
        "}\n"
    )
    assert write(read(text)) == text
