"""The assembly text: the identical file comes back, canonical text stays as it is, comments survive."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from lamella.base.source import Source
from lamella.lang.nac import nodes as n
from lamella.lang.nac.assembly import (
    assemble,
    describe,
    disassemble,
    disassemble_apart,
    parse_assembly,
    write_assembly,
)
from lamella.lang.nac.assembly.parse import LEXER
from lamella.lang.nac.assembly.words import (
    read_string,
    single,
    write_double,
    write_single,
    write_string,
    write_value,
)
from lamella.lang.nac.check import check
from lamella.lang.nac.parse import parse
from lamella.lang.nac.write import write
from tests.support.strategies.nac import files, sound_files, texts

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").rglob("*.nacs"))
WEIGHTS = bytes(range(4))


def read_companion(name: str) -> bytes:
    """The bytes of the one companion file that the examples name."""
    assert name == "weights.bin"
    return WEIGHTS


def read(text: str) -> n.File:
    """The file of a text without findings."""
    file, found = assemble(Source("text.nacs", text), read_companion)
    assert not found, "\n".join(map(str, found))
    return file


def canonical(text: str) -> str:
    """A text as the writer puts it."""
    assembly, found = parse_assembly(Source("text.nacs", text))
    assert not found, "\n".join(map(str, found))
    return write_assembly(assembly)


def comments(text: str) -> list[str]:
    """The comments of a text, in no order."""
    return sorted(comment.text.rstrip() for comment in LEXER.cut(Source("text.nacs", text)).comments)


def program(code: str, tables: str = "") -> n.File:
    """A file with some lines of code."""
    return read(f"nac 1.6\n{tables}\n.code\n{code}\n")


# --- files --------------------------------------------------------------------------------------------------


@given(files())
def test_the_identical_file_comes_back(file: n.File) -> None:
    text = disassemble(file)
    again = read(text)
    assert again == file
    assert disassemble(again) == text


@given(sound_files())
def test_sound_files_come_back_to_the_byte(file: n.File) -> None:
    assert write(read(disassemble(file))) == write(file)


@given(files())
def test_large_data_lies_apart(file: n.File) -> None:
    text, parts = disassemble_apart(file, "weights.bin")
    data = b"".join(parts)
    again = assemble(Source("text.nacs", text), lambda name: {"weights.bin": data}[name])
    assert again == (file, ())
    assert max(map(len, text.splitlines())) < 10_000


@given(files())
def test_written_nodes_are_read_back_equal(file: n.File) -> None:
    assembly = describe(file)
    assert parse_assembly(Source("text.nacs", write_assembly(assembly))) == (assembly, ())


@st.composite
def newer_files(draw: DrawFn) -> n.File:
    """Files with the sections that only newer versions have."""
    variants = (
        (2, 4, 1, 0),
        (2, 5, 1, 0),
        (3, 3, 1, 2),
        (3, 4, 0, 1),
        (3, 2, 1, 1),
        (2, 6, 0, 0),
        (6, 0, 2, 1),
    )
    training = []
    for operation, variant, constants, offsets in draw(st.lists(st.sampled_from(variants), max_size=6)):
        ids = tuple(draw(st.integers(0, 4)) for _ in range(constants))
        places = tuple(draw(st.integers(-4, 2)) for _ in range(offsets))
        training.append(n.Instruction(operation, variant, ids, places))
    arrays = st.builds(
        n.Array, texts(), st.integers(0, 255), st.tuples(st.integers(0, 9)), st.binary(max_size=99)
    )
    file = draw(files())
    return replace(
        file,
        header=replace(file.header, version=draw(st.sampled_from([n.V1_5, n.V1_7, n.V1_8]))),
        training=tuple(training),
        arrays=tuple(draw(st.lists(arrays, max_size=3))),
    )


@given(newer_files())
def test_files_of_other_versions_come_back(file: n.File) -> None:
    text = disassemble(file)
    assert read(text) == file
    assert disassemble(read(text)) == text


# --- texts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_the_examples_are_canonical(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert canonical(text) == text
    plain = "".join(f"{line}\n" for line in text.splitlines() if not line.lstrip().startswith(";"))
    assert read(plain) == read(text)


def test_nothing_is_wrong_with_the_network() -> None:
    file = read((HERE / "good" / "mlp.nacs").read_text(encoding="utf-8"))
    assert not check(file)
    assert parse(write(file)) == (file, ())


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_every_comment_survives(path: Path) -> None:
    chance = random.Random(path.stem)
    text = path.read_text(encoding="utf-8")
    tokens = LEXER.cut(Source("text.nacs", text))
    places = sorted(chance.sample(range(tokens.end), min(60, tokens.end)), reverse=True)
    for number, token in enumerate(places):
        start = tokens.starts[token]
        text = f"{text[:start]}; comment {number}\n{chance.choice(('', chr(10)))}{text[start:]}"
    written = canonical(text)
    assert comments(written) == comments(text)
    assert read(written) == read(text)
    assert canonical(written) == written


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nac   1.6 weights\nexternal", "nac 1.6\nweights external\n"),
        ("nac 1.6 .signatures 1=TT 2 = \"T\"", "nac 1.6\n\n.signatures\n    1 = TT\n    2 = T\n"),
        ("nac 1.6 .constants 1=[1,2] 2=[.5,1e3]", "nac 1.6\n\n.constants\n    1 = [1, 2]\n    2 = [0.5, 1000.0]\n"),
        (
            "nac 1.6 .code %a=input()%b=nac.add(%a,%a)@ free(%a)@free(%b)",
            "nac 1.6\n\n.code\n    %a = input()\n    %b = nac.add(%a, %a) @free(%a) @free(%b)\n",
        ),
        ('nac 1.6 .manifest hex("AB cd", "ef")', 'nac 1.6\n\n.manifest\n    hex("abcdef")\n'),
        ("nac 1.6 .schedule 3 = 4 = @free(2)", "nac 1.6\n\n.schedule\n    3 =\n    4 = @free(2)\n"),
    ],
)  # fmt: skip
def test_canonical_text(text: str, wanted: str) -> None:
    assert canonical(text) == wanted


# --- what may be left out -----------------------------------------------------------------------------------


def test_tables_that_are_left_out_are_made_from_the_code() -> None:
    file = program(
        "%0 = input()\n%w = parameter(fc.weight)\n%1x = aten.mul(%0, %w, 2, null)\n%3 = nac.neg(%1x)\n%4 = output(%3)"
    )
    assert file.header == n.Header(inputs=1, outputs=1)
    assert file.operations == (n.Operation(201, "aten.mul"),)
    assert file.signatures == (n.Signature(1, "TTic"), n.Signature(2, "T"))
    assert file.constants == (
        n.Constant(1, n.ConstantType.NULL, None),
        n.Constant(2, n.ConstantType.INT64, 2),
    )
    assert file.parameters == (n.Parameter(1, "fc.weight"),)
    assert file.instructions == (
        n.Instruction(n.INPUT),
        n.Instruction(n.INPUT, 1, (1,)),
        n.Instruction(201, 1, (2, 1), (-2, -1, 0, 0)),
        n.Instruction(14, 2, (), (-1,)),
        n.Instruction(n.OUTPUT, 0, (), (-1,)),
    )


def test_equal_numbers_of_different_types_are_different_constants() -> None:
    file = program("%0 = nac.arange(1, 1.0, true, 0.0, -0.0, [1], [1.0], 1)")
    assert [item.value for item in file.constants] == [1, 1.0, True, 0.0, -0.0, (1,), (1.0,)]
    assert file.instructions[0].constants == (2, 3, 4, 5, 6, 7, 8, 2)


def test_ids_that_a_table_takes_are_not_given_again() -> None:
    tables = ".operations 201 = a.b\n.signatures 1 = T\n.constants 1 = 5 3 = 6"
    file = program("%0 = input()\n%1 = c.d(%0, null, 7, 8)", tables)
    assert file.operations == (n.Operation(201, "a.b"), n.Operation(202, "c.d"))
    assert [item.id for item in file.constants] == [1, 3, 2, 4, 5]
    assert file.instructions[1] == n.Instruction(202, 2, (2, 4, 5), (-1, 0, 0, 0))


def test_the_file_s_own_names_are_stronger_than_the_standard_ones() -> None:
    file = program(
        "%0 = input()\n%1 = nac.neg(%0)\n%2 = nac.add(%1, %1)", ".operations 11 = other 40 = nac.neg"
    )
    assert [item.operation for item in file.instructions] == [n.INPUT, 40, 201]
    text = disassemble(file)
    assert "nac.neg:T(%0)" in text
    assert read(text) == file


def test_offsets_that_lead_nowhere_are_shown_as_they_are() -> None:
    file = n.File(
        signatures=(n.Signature(1, "T"), n.Signature(2, "T")),
        instructions=(n.Instruction(14, 1, (), (-5,)), n.Instruction(14, 2, (), (-1,)), n.Instruction(2, 9)),
    )
    text = disassemble(file)
    for line in ("%0 = raw(14, 1, [], [-5])", "%1 = raw(14, 2, [], [-1])", "%2 = raw(2, 9, [], [])"):
        assert line in text
    assert read(text) == file


def test_spans_lead_to_the_lines_of_the_text() -> None:
    file = program("%0 = input() @free(%0)\n%1 = output(%0)", ".operations\n201 = a.b")
    assert [item.span.line for item in file.instructions] == [5, 6]
    assert file.operations[0].span.text == "201 = a.b"
    assert file.schedule[0].commands[0].span.text == "%0"


# --- numbers and strings ------------------------------------------------------------------------------------


@given(st.floats(allow_nan=False))
def test_a_double_keeps_all_its_bits(value: float) -> None:
    assert struct.pack("<d", float(write_double(value))) == struct.pack("<d", value)


@given(st.floats(allow_nan=False, width=32))
def test_a_single_keeps_all_its_bits(value: float) -> None:
    again = single(float(write_single(value)))
    assert again is not None
    assert struct.pack("<f", again) == struct.pack("<f", value)


@given(texts(40))
def test_a_string_comes_back(text: str) -> None:
    token = write_string(text)
    assert read_string(token) == text
    assert token.isprintable()


@pytest.mark.parametrize(
    ("token", "text"),
    [
        *((r'"\u{41}"', "A"), (r'"\\u{41}"', r"\u{41}"), (r'"\\\u{41}"', "\\A"), (r'"\u{110000}"', None)),
        *((r'"\u{d800}"', None), (r'"\\u{d800}"', r"\u{d800}"), (r'"\t\r\n\"\\"', '\t\r\n"\\')),
    ],
)  # fmt: skip
def test_escapes(token: str, text: str | None) -> None:
    assert read_string(token) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "null"), (True, "true"), (1, "1"), (1.0, "1.0"), (1e300, "1e+300"), (float("-inf"), "-inf")),
        *(("x", '"x"'), ((), "[]"), ((1, 2), "[1, 2]")),
    ],
)  # fmt: skip
def test_values(value: n.ConstantValue, text: str) -> None:
    assert write_value(n.ConstantType.NULL, value) == text
