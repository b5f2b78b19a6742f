"""What is wrong with an assembly text: several findings per run, clean ones for whatever is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import errors
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.nac.assembly import assemble, disassemble, parse_assembly, write_assembly
from lamella.lang.nac.assembly.build import MOST_ZEROS
from lamella.lang.nac.check import check
from lamella.lang.nac.write import find_unwritable
from tests.support.strategies.mutation import mutants

GOOD = sorted((Path(__file__).parent / "good").rglob("*.nacs"))


def codes(text: str) -> list[tuple[int, str]]:
    """Line and code of everything that is wrong with a text."""
    found = assemble(Source("text.nacs", text)).findings
    return [(item.span.line, item.code) for item in found]


def messages(text: str) -> list[str]:
    """What is said of a text."""
    return [item.message for item in assemble(Source("text.nacs", text)).findings]


def resource(data: str) -> str:
    """A text with one resource."""
    return f"nac 1.6\n.resources\n    a = {data}\n"


def test_several_errors_are_found_in_one_run() -> None:
    text = """nac 1.6
inputs many
outputs 1
.operations
    201 aten.relu.default
    202 = aten.tanh.default
.nothing
    1 = 2
.code
    %0 = input(
    %1 = nac.neg(%0))
    %2 = nac.neg(%0) @lose(%1)
    %3 = nac.add(%0, 0x10)
    %4 = "open
    %5 = output(%3)
.tensors
    1 = float31[2] zeros(8)
    2 = int8[2] int8_tensor(1) zeros(2)
"""
    assert codes(text) == [
        *((2, "NAC180"), (5, "NAC180"), (7, "NAC185"), (11, "NAC180"), (11, "NAC180"), (12, "NAC185")),
        *((13, "NAC183"), (14, "NAC182"), (17, "NAC185"), (18, "NAC180")),
    ]


def test_several_wrong_labels_are_found_in_one_run() -> None:
    text = "nac 1.6\n.code\n%0 = nac.neg(%x)\n%0 = nac.neg(%0)\n%7 = nac.add:T(%7, %y)\n%3 = nac.neg(%3) @free(%z)\n"
    assert sorted(codes(text)) == [
        *((3, "NAC188"), (4, "NAC186"), (5, "NAC187"), (5, "NAC188"), (5, "NAC189"), (5, "NAC190")),
        *((6, "NAC188"), (6, "NAC189")),
    ]


def test_a_line_that_cannot_be_read_is_not_missed_elsewhere() -> None:
    assert codes("nac 1.6\n.code\n%0 = input(\n%1 = nac.neg(%0)\n") == [(4, "NAC180")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 'nac' and a version at the beginning of a text, found the end of the file"),
        ("nac 2.0", "there is no version '2.0'"),
        ("nac 1.6 .code %0 = output(%1)", "no instruction of this section is called %1"),
        ("nac 1.6 .code %0 = nac.neg(%0)", "%0 takes its own result, which an offset of 0 cannot say"),
        ("nac 1.6 .code %a = nac.neg:TT(1)", 'the signature "TT" has 2 arguments, but 1 is given'),
        ("nac 1.6 inputs 1 inputs 2", "the field 'inputs' is given twice"),
        ("nac 1.6 .tensors 1 = int8[-1] zeros(1)", "-1 is out of range"),
        ("nac 1.6 .constants 2 = [1e39]", "1e39 is out of range"),
        ("nac 1.6 .constants 2 = " + "9" * 5000, f"{'9' * 40}… (5000 characters) is out of range"),
    ],
)  # fmt: skip
def test_messages(text: str, message: str) -> None:
    assert messages(text) == [message]


# --- data ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../a", "/etc/passwd", "a/b", "a\\b", "", ".", "..", ".hidden", "C:x", "a\nb"]
)
def test_a_companion_lies_in_the_folder_of_the_text(name: str) -> None:
    def refuse(asked: str) -> bytes:
        raise AssertionError(asked)

    escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
    found = assemble(Source("text.nacs", resource(f'file("{escaped}", 0, 1)')), refuse).findings
    assert [item.code for item in found] == ["NAC193"]


def test_why_a_companion_cannot_be_read() -> None:
    def read(name: str) -> bytes:
        raise InputError(f"there is no '{name}'", hint="look elsewhere")

    text = resource('file("w.bin", 0, 1)') + 'b = file("w.bin", 0, 2)\n'
    found = assemble(Source("text.nacs", text), read).findings
    assert [(item.message, item.hint) for item in found] == [
        ("the data in 'w.bin' cannot be taken: there is no 'w.bin'", "look elsewhere")
    ]


def test_a_companion_is_read_once_and_not_beyond_its_end() -> None:
    asked: list[str] = []

    def read(name: str) -> bytes:
        asked.append(name)
        return b"0123"

    text = (
        resource('file("w", 1, 2)')
        + 'b = file("w", 2, 2)\nc = file("w", 3, 2)\nd = file("w", 9223372036854775807, 1)\n'
    )
    file, found = assemble(Source("text.nacs", text), read)
    assert asked == ["w"]
    assert [bytes(item.data) for item in file.resources] == [b"12", b"23", b"", b""]
    assert [(item.span.line, item.code) for item in found] == [(5, "NAC193"), (6, "NAC193")]


def test_many_zeros_take_no_memory() -> None:
    rows = "".join(f"r{number} = zeros({MOST_ZEROS})\n" for number in range(60))
    file, found = assemble(Source("text.nacs", f"nac 1.6\n.resources\n{rows}"))
    assert not found
    assert sum(len(item.data) for item in file.resources) == 60 * MOST_ZEROS
    assert len({id(item.data.obj) for item in file.resources if isinstance(item.data, memoryview)}) == 1


def test_growing_zeros_share_buffers() -> None:
    rows = "".join(f"r{size} = zeros({size})\n" for size in range(1, 1000))
    file, _ = assemble(Source("text.nacs", f"nac 1.6\n.resources\n{rows}"))
    assert [len(item.data) for item in file.resources] == list(range(1, 1000))
    assert len({id(item.data.obj) for item in file.resources if isinstance(item.data, memoryview)}) < 12


def test_zeros_keep_the_limits() -> None:
    assert codes(resource(f"zeros({MOST_ZEROS + 1})")) == [(3, "NAC195")]
    text = resource("zeros(600)") + "b = zeros(600)\n"
    found = assemble(Source("text.nacs", text), None, Limits(max_data_bytes=1000)).findings
    assert [(item.span.line, item.code) for item in found] == [(4, "NAC195")]


def test_rows_keep_the_limit() -> None:
    text = "nac 1.6\n.constants\n" + "".join(f"{number} = 1\n" for number in range(9))
    file, found = assemble(Source("text.nacs", text), None, Limits(max_statements=5))
    assert [(item.span.line, item.code) for item in found] == [(8, "NAC195")]
    assert len(file.constants) == 5
    assert not assemble(Source("text.nacs", text), None, Limits(max_statements=9)).findings
    wrong = "nac 1.6\n.constants\n" + "1 = x\n" * 100
    assert len(assemble(Source("text.nacs", wrong), None, Limits(max_statements=5)).findings) == 6


# --- whatever is given --------------------------------------------------------------------------------------


@given(st.text())
def test_any_text_is_answered(text: str) -> None:
    file, found = assemble(Source("text.nacs", text))
    assert errors(found) or text.strip().startswith(("nac", ";"))
    disassemble(file)


def test_mutated_texts_are_answered() -> None:
    texts = [path.read_text(encoding="utf-8") for path in GOOD]
    for text in mutants(texts, 300, seed=11):
        source = Source("text.nacs", text)
        assembly, wrong = parse_assembly(source)
        written = write_assembly(assembly)
        if not wrong:
            assert parse_assembly(Source("text.nacs", written)) == (assembly, ())
            assert write_assembly(parse_assembly(Source("text.nacs", written)).assembly) == written
        file, _ = assemble(source, lambda _: b"0123")
        again, _ = assemble(Source("text.nacs", disassemble(file)))
        assert again == file
        check(file)
        find_unwritable(file)


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 20_000, "(" * 20_000, '"' * 20_001, "@" * 20_000, "%" * 20_000, "." * 20_000, "-" * 20_000),
        *("1 = " * 10_000, "%a = " * 10_000, '"\\' * 10_000, ".code " * 20_000, "#" * 20_000, "nac " * 10_000),
        *("%a = f(" * 5_000, "1 = [" * 20_000, "@free(" * 20_000, "é" * 20_000, "\ud800" * 1000, "1e" * 10_000),
    ],
    ids=lambda text: text[:6].encode("ascii", "replace").decode(),
)  # fmt: skip
@pytest.mark.parametrize("head", ["", "nac 1.6 .code ", "nac 1.6 .constants ", "nac 1.6 .tensors "])
def test_endless_repetition_is_answered(head: str, text: str) -> None:
    assert errors(assemble(Source("text.nacs", head + text)).findings)
