"""Bytes that an independent writer made, field by field, and what the reader makes of them."""

from __future__ import annotations

import math
import struct

import pytest

from lamella.lang.nac import nodes as n
from lamella.lang.nac.nodes import Constant, ConstantType, Instruction
from lamella.lang.nac.parse import parse
from tests.support.lang.nac.containers import HEADERS, container, count, i16, long, patched, short, u16


def read(data: bytes) -> n.File:
    """A file that nothing is wrong with."""
    file, findings = parse(data, "a.nac")
    assert not findings, findings
    return file


def codes(data: bytes) -> list[str]:
    return [item.code for item in parse(data, "a.nac").findings]


@pytest.mark.parametrize("version", HEADERS)
def test_versions_are_told_apart(version: str) -> None:
    file = read(container(version=version, bits=0x83, counts=(3, 0, 768)))
    assert file == n.File(n.Header(version, n.Method.INT8_CHANNEL, True, 3, 0, 768))


@pytest.mark.parametrize("version", HEADERS)
def test_versions_without_the_optional_sections(version: str) -> None:
    absent = dict.fromkeys(("MMAP", "CMAP", "ORCH", "CNST", "PERM", "DATA"))
    assert read(container(absent, version)) == n.File(n.Header(version))


def test_tables() -> None:
    file = read(
        container(
            {
                "CMAP": count(u16(201) + short(b"custom.op"), u16(20) + short("añ".encode())),
                "PERM": count(u16(100) + short(b"TSc"), u16(0) + short(b"")),
                "MMAP": count(u16(43) + bytes([3, 20, 26, 0, 10, 43, 0, 40, 44, 0]), u16(65535) + b"\0"),
            }
        )
    )
    assert file.operations == (n.Operation(201, "custom.op"), n.Operation(20, "añ"))
    assert file.signatures == (n.Signature(100, "TSc"), n.Signature(0, ""))
    commands = (n.Command(20, 26), n.Command(10, 43), n.Command(40, 44))
    assert file.schedule == (n.Tick(43, commands), n.Tick(65535, ()))


def test_constants_of_every_type() -> None:
    records = (
        u16(1) + b"\0" + u16(0),
        u16(2) + b"\1" + u16(1) + b"\1",
        u16(3) + b"\2" + u16(8) + struct.pack("<q", -5),
        u16(4) + b"\3" + u16(8) + struct.pack("<d", 1e-5),
        u16(5) + b"\4" + long(b"tanh"),
        u16(50) + b"\5" + u16(2) + struct.pack("<2i", 1, 2),
        u16(7) + b"\6" + u16(2) + struct.pack("<2f", 0.5, math.nan),
        u16(8) + b"\5" + u16(0),
    )
    expected = (
        Constant(1, ConstantType.NULL, None),
        Constant(2, ConstantType.BOOL, True),
        Constant(3, ConstantType.INT64, -5),
        Constant(4, ConstantType.FLOAT64, 1e-5),
        Constant(5, ConstantType.STRING, "tanh"),
        Constant(50, ConstantType.INT32_LIST, (1, 2)),
        Constant(7, ConstantType.FLOAT32_LIST, (0.5, math.nan)),
        Constant(8, ConstantType.INT32_LIST, ()),
    )
    orchestrator = struct.pack("<II", 3, len(records)) + b"\x59\1\2" + b"".join(records)
    file = read(container({"CNST": count(*records), "ORCH": orchestrator}))
    assert file.constants == expected
    assert file.orchestrator == n.Orchestrator(b"\x59\1\2", expected)


@pytest.mark.parametrize("more", [0, 1], ids=["reference", "specification"])
def test_both_spellings_of_prefixes(more: int) -> None:
    """A load counts what follows or itself too; an output names its results or one more."""
    ops = count(
        b"\2\0",
        b"\2\1" + i16(1 + more, 7),
        b"\x0b\1" + i16(-2, -1),
        b"\xc9\2" + i16(1, 9) + i16(-1, 0, -2),
        b"\xc9\2" + i16(0) + i16(-1, -2, -3),
        b"\xc9\0",
        b"\6\5" + i16(3, 4, 5) + i16(-1),
        b"\3\0" + i16(2 + more, 0, 0) + i16(-1, -3),
    )
    perm = count(u16(1) + short(b"TT"), u16(2) + short(b"TiT"))
    file = read(container({"OPS ": ops, "PERM": perm}, counts=(1, 2, 0)))
    assert file.instructions == (
        Instruction(2, 0),
        Instruction(2, 1, (7,)),
        Instruction(11, 1, (), (-2, -1)),
        Instruction(201, 2, (9,), (-1, 0, -2)),
        Instruction(201, 2, (), (-1, -2, -3)),
        Instruction(201, 0),
        Instruction(6, 5, (4, 5), (-1,)),
        Instruction(3, 0, (), (-1, -3)),
    )


def test_a_signature_that_is_missing_means_no_arguments() -> None:
    assert read(container({"OPS ": count(b"\x0b\7", b"\x0b\7")})).instructions == (Instruction(11, 7),) * 2


def test_a_missing_signature_is_named_where_it_ends_the_reading() -> None:
    """What would be its arguments is read as instructions, until one of them is none."""
    negation = b"\x0e\7"
    assert codes(container({"OPS ": count(negation + i16(-1))})) == ["NAC074", "NAC013"]
    assert codes(container({"OPS ": count(negation + i16(1), negation + i16(1))})) == ["NAC074", "NAC028"]


def test_spans_count_bytes() -> None:
    file = read(container({"CMAP": count(u16(201) + short(b"custom.op"))}))
    (operation,) = file.operations
    assert (operation.span.start, operation.span.end) == (88 + 8 + 8 + 8, 88 + 8 + 8 + 8 + 12)
    assert operation.span.source.name == "a.nac"


META: dict[bytes, tuple[int, tuple[int, ...], n.Quantization]] = {
    b"\x02\x02" + struct.pack("<II", 2, 3) + b"\0": (2, (2, 3), n.Unscaled()),
    b"\x02\x00\x01": (2, (), n.Unscaled(n.Method.FP16)),
    b"\x07\x01" + struct.pack("<I", 4) + b"\2" + struct.pack("<f", 0.5): (7, (4,), n.Int8Tensor(0.5)),
    b"\x07\x01" + struct.pack("<I", 2) + b"\3\0" + struct.pack("<I2f", 2, 0.5, 1.5): (
        7,
        (2,),
        n.Int8Channel(0, struct.pack("<2f", 0.5, 1.5)),
    ),
    b"\x07\x01" + struct.pack("<I", 64) + b"\4" + struct.pack("<HBIIIf", 64, 2, 3, 5, 1, 0.25): (
        7,
        (64,),
        n.BlockFp8(64, (3, 5), struct.pack("<f", 0.25)),
    ),
}
"""The specification's example and one tensor of each quantisation."""


@pytest.mark.parametrize("metadata", META, ids=range(len(META)))
def test_tensors(metadata: bytes) -> None:
    dtype, shape, quantization = META[metadata]
    names = count(u16(1) + long(b"w")) + count(u16(0) + long(b"x"))
    tensor = struct.pack("<HIQ", 1, len(metadata), 5) + metadata + b"12345"
    file = read(container({"DATA": names + count(tensor)}, bits=0x80))
    assert (file.parameters, file.inputs) == ((n.Parameter(1, "w"),), (n.Input(0, "x"),))
    assert file.tensors == (n.Tensor(1, dtype, shape, quantization, b"12345"),)


def test_weights_are_views_of_the_file() -> None:
    metadata = b"\0\1" + struct.pack("<I", 250) + b"\0"
    tensor = struct.pack("<HIQ", 1, len(metadata), 1000) + metadata + bytes(1000)
    data = container({"DATA": bytes(8) + count(tensor), "RSRC": count(long(b"a") + struct.pack("<I", 9) + bytes(9))},
                     bits=0x80)  # fmt: skip
    file = read(data)
    for view in (file.tensors[0].data, file.resources[0].data):
        assert isinstance(view, memoryview)
        assert view.obj is data
        assert view.readonly


def test_newer_sections() -> None:
    ops = count(
        b"\2\4" + i16(1, 3), b"\2\5" + i16(1, 0), b"\3\3" + i16(1, 6) + i16(-2, -1), b"\3\4" + i16(-1)
    )
    array = long(b"table") + bytes([5, 1]) + struct.pack("<IQ", 1, 8) + bytes(8)
    file = read(container({"TRNG": ops, "ARRS": count(array)}, "1.8", bits=0xC2))
    assert file.header.method is n.Method.INT8_TENSOR
    assert file.training == (
        Instruction(2, 4, (3,)),
        Instruction(2, 5, (0,)),
        Instruction(3, 3, (6,), (-2, -1)),
        Instruction(3, 4, (), (-1,)),
    )
    assert file.arrays == (n.Array("table", 5, (1,), bytes(8)),)
    assert codes(container({"TRNG": ops}, "1.7")) == ["NAC008"]
    assert codes(container({}, "1.7", bits=0x40)) == ["NAC008"]
    # in version 1 the same bit belongs to the method
    assert codes(container(bits=0x40)) == ["NAC004"]


def test_attachments() -> None:
    resource = long(b"vocab.json") + struct.pack("<I", 2) + b"{}"
    file = read(container({"PROC": struct.pack("<I", 4) + b"TISA", "RSRC": count(resource)}))
    assert (file.manifest, file.resources) == (b"TISA", (n.Resource("vocab.json", b"{}"),))


def test_sections_in_another_order() -> None:
    sections = {"CMAP": count(u16(201) + short(b"x")), "PERM": count(u16(1) + short(b"T"))}
    turned = {"ORCH": bytes(8), "PERM": sections["PERM"], "OPS ": count(), "CMAP": sections["CMAP"]}
    absent: dict[str, bytes | None] = dict.fromkeys(("MMAP", "CNST", "DATA"))
    body = container({**absent, **sections})
    start = HEADERS["1.6"][1]
    moved = b"".join(tag.encode() + content for tag, content in turned.items())
    offsets = {tag: start + moved.index(tag.encode()) for tag in turned}
    other = container(absent, offsets=offsets)[:start] + moved
    assert len(other) == len(body)
    assert read(other) == read(body)


@pytest.mark.parametrize(("offset", "what"), [(9, "reserved byte"), (84, "padding"), (87, "padding")])
def test_reserved_bytes_are_warned_of(offset: int, what: str) -> None:
    (finding,) = parse(patched(container(), offset, b"\1")).findings
    assert (finding.code, finding.severity) == ("NAC005", "warning")
    assert what in finding.message


def test_values_without_a_meaning_are_warned_of() -> None:
    assert codes(container({"OPS ": count(b"\2\1" + i16(9, 1))})) == ["NAC030"]
    assert codes(container({"OPS ": count(b"\3\0" + i16(1, 5) + i16(-1))}, counts=(0, 1, 0))) == ["NAC031"]
    assert codes(container({"CNST": count(u16(1) + b"\1" + u16(1) + b"\2")})) == ["NAC025"]
