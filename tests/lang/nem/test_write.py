"""NEM nodes to text and back: equal nodes, equal text, every comment."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.nem import nodes as n
from lamella.lang.nem.parse import parse
from lamella.lang.nem.parse.tokens import LEXER
from lamella.lang.nem.write import WIDTH, write, write_real, write_string
from tests.support.strategies.nem import documents, expressions

GOOD = sorted((Path(__file__).parent / "good").rglob("*.nem"))


def read(text: str) -> n.Document:
    """The document of a text without errors."""
    parsed = parse(Source("text.nem", text))
    assert not errors(parsed.findings), "\n".join(map(str, parsed.findings))
    return parsed.document


def comments(text: str) -> Counter[str]:
    """The comments of a text, as often as each occurs."""
    return Counter(comment.text.rstrip() for comment in LEXER.cut(Source("", text)).comments)


@given(documents())
def test_what_is_written_reads_back(document: n.Document) -> None:
    text = write(document)
    again = read(text)
    assert again == document
    assert write(again) == text


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_right_programs_are_kept(path: Path) -> None:
    text = path.read_bytes().decode("utf-8")
    document = read(text)
    written = write(document)
    assert read(written) == document
    assert write(read(written)) == written
    assert comments(written) == comments(text)
    assert written.endswith("\n") or not written
    assert not [line for line in written.split("\n") if line != line.rstrip()]


@given(expressions())
def test_no_parentheses_without_need(expression: n.Expr) -> None:
    text = write(n.Document(statements=(n.Const(n.Name("a"), expression),)))
    for index, sign in enumerate(text):
        if sign == "(":
            inner = 1
            for other in range(index + 1, len(text)):
                inner += (text[other] == "(") - (text[other] == ")")
                if inner == 0:
                    bare = f"{text[:index]} {text[index + 1 : other]} {text[other + 1 :]}"
                    assert read(bare) != read(text)
                    break


@given(st.floats(0.0, allow_nan=False, allow_infinity=False).map(abs))
def test_floats_are_exact(number: float) -> None:
    text = write_real(number)
    (let,) = read(f"let a = {text}").statements
    assert isinstance(let, n.Let)
    assert isinstance(let.value, n.Real)
    assert struct.pack("d", let.value.value) == struct.pack("d", number)


def test_floats_have_digits_on_both_sides() -> None:
    assert [write_real(number) for number in (1.0, 1e-5, 1.5e300, 1e16, 0.1, 5e-324)] == [
        *("1.0", "1.0e-05", "1.5e+300", "1.0e+16", "0.1", "5.0e-324")
    ]


def test_strings_show_what_can_be_seen() -> None:
    assert write_string('a"b\\c\n\té\u202e\x00') == r'"a\"b\\c\n\té\u{202e}\u{0}"'


CANONICAL = """\
# The file.

include "nem_baseline_1.0.nem"

type_family cast {
    src: any_supported
    quant = required on dst

    variants:
        default: {}
            conformance: { MUST MAY <i8, f16> }
}

device own extends nem_baseline_1_0 {  # ours
    topology {
        num_engines = 1
        l2_size_bytes = 4 * 1024
        per_engine {
            NMU = 1
            # CSTL = 2
        }
    }

    opcode.extended {
        gemm.float<f32>.no_bias
    }
}

device own

program canonical:

const T = 4
buffer A : L1[0] (size=T * (64 + 1), align=64, import) @debug("a")
let r = region(A, 0, 64) elem=i8, shape=[8, 8], layout=MK, quant=per_tensor(scale=1.0e-05, zero_point=-1)

loop i in [0..T - 1] @max_in_flight(2):
    # The slot.
    s = region(A, i mod 2 * 64, 64) elem=i8, shape=[8, 8], layout=MK @readonly
    t = transfer.async(dst=r, src=s, deps=[u]) @memmove

    relu.sync in r, s out region(A, 0, 64) elem=i8, shape=[64], layout=C alpha=0.5 deps=[t] @debug(i)
    wait(t)  # done
    # The end.
endloop
# After the end.
"""


def test_canonical_text_stays() -> None:
    assert write(read(CANONICAL)) == CANONICAL


def test_long_statements_are_broken() -> None:
    scales = ", ".join(f"0.{index}25" for index in range(1, 64))
    text = f"""
    w = region(W, 0, 4096) elem=i8, shape=[64, 64], layout=KN, quant=per_channel(axis=1, scales=[{scales}])
    t = conv2d.async in x, w, region(B_L2, 0, 512) elem=i32, shape=[128], layout=C out y @materialized
        pads=[0, 0, 0, 0] strides=[1, 1] dilations=[1, 1] groups=1 accum_type=i32 deps=[a, b] @resource(NMU[0])
    u = transfer.async(dst=region(A, {"aaaa * " * 9}b, 64) @writeonly, src=region(B, 0, 64), deps=[t]) @memmove
    """
    written = write(read(text))
    assert read(written) == read(text)
    assert max(map(len, written.split("\n"))) <= WIDTH
    assert "layout=C out y @materialized pads=[0, 0, 0, 0]\n    strides=[1, 1] dilations=[1, 1]" in written
    assert "accum_type=i32 deps=[a, b] @resource(NMU[0])\n" in written
    assert write(read(written)) == written
