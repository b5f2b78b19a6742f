"""Manifests and plans as instructions: the same bytes come back, and what is no program stays bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from lamella.base.source import Source
from lamella.lang.nac import nodes as n
from lamella.lang.nac.assembly import assemble, disassemble
from lamella.lang.nac.assembly.nodes import ProgramStep
from lamella.lang.nac.assembly.programs import MANIFEST_NAMES, PLAN_NAMES, decode_manifest, decode_plan
from lamella.lang.nac.check import check
from lamella.lang.nac.check.bytecode import OPCODES, DecodeStop, OperandKind, decode
from tests.support.strategies.nac import texts

GOOD = Path(__file__).parent / "good" / "tokenizer.nacs"
LISTS = (OperandKind.READS, OperandKind.WRITES)


def s8(text: str) -> bytes:
    """A text behind one byte of length."""
    return struct.pack("<B", len(text.encode())) + text.encode()


def s16(text: str) -> bytes:
    """A text behind two bytes of length."""
    return struct.pack("<H", len(text.encode())) + text.encode()


def rule(flags: int, pattern: str, trim: str) -> bytes:
    """A rule of PARTITION_RULES."""
    behaviour = b"\1" if flags & 2 else b""
    return bytes([flags]) + s16(pattern) + behaviour + (s8(trim) if flags & 4 else b"")


def item(kind: int, number: int, text: str) -> bytes:
    """An item of COMPOSE."""
    return (b"\0", struct.pack("<BBi", 1, 1, number), b"\1\0" + s8(text))[kind]


def our_payloads(some: SearchStrategy[str]) -> dict[int, SearchStrategy[bytes]]:
    """Payloads of the instructions from 0x80 on."""
    byte, short = st.binary(min_size=1, max_size=1), st.binary(min_size=2, max_size=2)
    token = st.builds(
        lambda flags, number, text: flags + number + s16(text), byte, st.binary(min_size=4, max_size=4), some
    )
    bare = dict.fromkeys((0x90, 0x93, 0x95), st.just(b""))
    named = dict.fromkeys((0x85, 0x97, 0x98), some.map(s8))
    marked = dict.fromkeys((0x91, 0x92), st.builds(lambda text, flag: s8(text) + flag, some, byte))
    changing = dict.fromkeys(
        (0x83, 0x96), st.builds(lambda flag, a, b: flag + s16(a) + s16(b), byte, some, some)
    )
    return {
        **bare,
        **named,
        **marked,
        **changing,
        0x80: st.lists(token, max_size=3).map(lambda all_: struct.pack("<H", len(all_)) + b"".join(all_)),
        0x81: st.builds(lambda flags, text: flags + s16(text), short, some),
        0x82: st.builds(lambda flag, text: flag + s16(text), byte, some),
        0x84: st.builds(lambda flag, count, a, b: flag + count + s8(a) + s8(b), byte, short, some, some),
        0x94: st.builds(lambda text, a, b: s8(text) + a + b, some, short, short),
    }


@st.composite
def manifests(draw: DrawFn) -> bytes:
    """Manifests as the format describes them."""
    some, few = texts(6), st.integers(0, 3)
    payloads = {
        0x01: st.just(b""),
        0x02: some.map(s8),
        0x03: st.builds(lambda a, b: s16(a) + s16(b), some, some),
        0x04: st.lists(some, max_size=3).map(lambda all_: bytes([len(all_)]) + b"".join(map(s8, all_))),
        0x07: some.map(s16),
        0x10: st.lists(st.builds(rule, st.integers(0, 7), some, some), max_size=3).map(
            lambda all_: struct.pack("<H", len(all_)) + b"".join(all_)
        ),
        0x15: st.just(b""),
        0x20: st.one_of(st.just(b""), some.map(s8)),
        0x21: some.map(s8),
        0x22: st.just(b""),
        0x30: st.lists(
            st.builds(item, st.integers(0, 2), st.integers(-(1 << 31), (1 << 31) - 1), some), max_size=3
        ).map(lambda all_: bytes([len(all_)]) + b"".join(all_)),
        **our_payloads(some),
    }
    data = b"TISA\x01"
    for _ in range(draw(few) + 1):
        code = draw(st.sampled_from(sorted(payloads)))
        payload = draw(payloads[code])
        data += struct.pack("<BI", code, len(payload)) + payload
    return data


@st.composite
def plans(draw: DrawFn) -> bytes:
    """Plans whose operands need not make sense."""
    data = b""
    for code in draw(st.lists(st.sampled_from(sorted(OPCODES)), max_size=6)):
        opcode = OPCODES[code]
        first = draw(st.integers(0, 255))
        more = opcode.more.get(first, ()) if opcode.operands else ()
        data += bytes([code])
        for place, operand in enumerate((*opcode.operands, *more)):
            count = first if place == 0 else draw(st.integers(0, 255))
            if operand.kind in LISTS:
                slots = draw(st.binary(max_size=3))
                data += bytes([len(slots)]) + slots
            else:
                data += bytes([count]) + bytes(operand.kind.size - 1)
    return data


def through_text(file: n.File) -> tuple[n.File, str]:
    """A file that has been a text, and the text."""
    text = disassemble(file)
    again, found = assemble(Source("text.nacs", text))
    assert not found, "\n".join(map(str, found))
    return again, text


@given(manifests())
def test_a_manifest_comes_back(data: bytes) -> None:
    steps = decode_manifest(data)
    assert steps
    again, text = through_text(n.File(manifest=data))
    assert again.manifest == data
    assert not any(word in text for word in ("hex(", "base64("))


@given(plans())
def test_a_plan_comes_back(data: bytes) -> None:
    steps = decode_plan(data)
    judged = list(decode(data))
    assert steps is not None
    assert [step.name for step in steps] == [
        step.opcode.name for step in judged if not isinstance(step, DecodeStop)
    ]
    again, text = through_text(n.File(orchestrator=n.Orchestrator(data)))
    assert again.orchestrator.bytecode == data
    assert not any(word in text for word in ("hex(", "base64("))


@given(st.binary(max_size=20))
def test_other_bytes_stay_bytes(data: bytes) -> None:
    file = n.File(manifest=b"TISA\x01" + data, orchestrator=n.Orchestrator(data))
    assert through_text(file)[0] == file


def test_both_know_the_same_instructions() -> None:
    assert set(PLAN_NAMES) == {opcode.name for opcode in OPCODES.values()}
    for name in MANIFEST_NAMES:
        assert name.isupper()


def test_nothing_is_wrong_with_the_tokenizer() -> None:
    file, found = assemble(Source("tokenizer.nacs", GOOD.read_text(encoding="utf-8")))
    assert not found
    assert not check(file), "\n".join(map(str, check(file)))
    steps = decode_manifest(file.manifest)
    assert steps is not None
    assert steps[2] == ProgramStep("REPLACE", (" ", "▁"))
    assert bytes(file.orchestrator.bytecode)[-8:] == bytes([0xA0, 0, 0xA1, 0xFD, 0xFF, 0xFE, 1, 2])
    assert file.orchestrator.span.line == 35


@pytest.mark.parametrize(
    ("section", "text", "reason"),
    [
        ("orchestrator", "EXEC_HALT(1)", "EXEC_HALT takes 0 operands; 1 is given"),
        ("orchestrator", "SYS_COPY(0, 256)", "SYS_COPY holds 256 in 1 byte"),
        ("orchestrator", "FLOW_LOOP_END(-40000)", "FLOW_LOOP_END holds -40000 in 2 bytes"),
        ("orchestrator", "EXEC_RETURN(1)", "EXEC_RETURN takes a list of slots where none is given"),
        ("orchestrator", 'SYS_COPY(0, "a")', "SYS_COPY takes a number where none is given"),
        ("orchestrator", "TENSOR_INFO(1, 0, 0)", "TENSOR_INFO takes 4 operands; 3 are given"),
        ("manifest", "PREPEND()", "PREPEND takes 1 operand; 0 are given"),
        ("manifest", "PREPEND(1)", "PREPEND takes a text where none is given"),
        ("manifest", "PARTITION_RULES(1)", "PARTITION_RULES takes rules as [flags, pattern, …]"),
        ("manifest", 'PARTITION_RULES([4, "a"])', "PARTITION_RULES takes 3 operands; 2 are given"),
        ("manifest", "COMPOSE([1])", "COMPOSE takes 0 operands; 1 is given"),
        ("manifest", f'UNICODE_NORM("{"a" * 256}")', "UNICODE_NORM holds a text of 256 bytes; 255 are the most"),
        ("manifest", 'BPE_ENCODE("a", "b")', "BPE_ENCODE takes 1 operand; 2 are given"),
    ],
)  # fmt: skip
def test_what_an_instruction_takes(section: str, text: str, reason: str) -> None:
    found = assemble(Source("text.nacs", f"nac 1.6\n.{section}\n{text}\n")).findings
    assert [(item.code, item.span.line, item.message) for item in found] == [("NAC196", 3, reason)]


def test_several_wrong_instructions_are_found_in_one_run() -> None:
    text = "nac 1.6\n.orchestrator\nEXEC_HALT(1)\nSYS_COPY(0)\n.manifest\nPREPEND()\n"
    found = assemble(Source("text.nacs", text)).findings
    assert [(item.code, item.span.line) for item in found] == [("NAC196", 3), ("NAC196", 4), ("NAC196", 6)]
    text = "nac 1.6\n.orchestrator\nEXEC_STOP()\nSYS_COPY(0,)\nEXEC_HALT()\n.manifest\nTITLE()\nPREPEND()\n"
    found = assemble(Source("text.nacs", text)).findings
    assert [(item.code, item.span.line) for item in found] == [("NAC185", 3), ("NAC180", 4), ("NAC185", 7)]
