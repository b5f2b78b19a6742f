"""JSON and bytes: both say the same, neither is trusted, and the bytes are those of the documented layout."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.npu.stream import compile_stream
from lamella.base.diagnostic import LamellaError
from lamella.base.quant import PerChannel, PerGroup, PerTensor
from lamella.lang.nem.registry import load_registry
from lamella.pipeline.nem.program import read_program
from lamella.plan.bind import bind
from lamella.plan.stcb import from_bytes, list_stream, read_stream, to_bytes
from lamella.plan.stcb.json import from_json, to_json
from lamella.plan.stcb.nodes import (
    RESET,
    MappedBuffer,
    NamedTensor,
    RecordOrigin,
    Stream,
    StreamUnit,
    StridedAccess,
    TaskRecord,
    op_names,
)
from lamella.plan.stcb.validate import validate_stream
from tests.support.plan.binding import EXAMPLES

PAGE = Path(__file__).parents[2] / "docs" / "layers" / "stcb.md"


def bound(name: str) -> Stream:
    program = read_program(EXAMPLES / f"{name}.nem")
    assert program.plan is not None
    stream, _ = bind(program.plan)
    assert stream is not None
    return stream


STREAMS = [bound(path.stem) for path in sorted(EXAMPLES.glob("*.nem"))]


def small() -> Stream:
    """One of everything: both kinds of bits, a wide bank, all quant forms, all kinds of attributes, odd i4 strides."""
    move = TaskRecord(
        0,
        StreamUnit("DMA", 300),
        "transfer",
        set=(0, 17, 31),
        remote=((1, 5),),
        src=(StridedAccess("L2", 0, (3,), (1,)),),
        dst=(StridedAccess("L1", 4, (3,), (1,)),),
        path="wdm",
        memmove=True,
        origin=RecordOrigin(7, "t", (("i", -3), ("j", 2)), "näme", "tag"),
    )
    pad = TaskRecord(
        2,
        StreamUnit("CSTLA", 1),
        "pad",
        wait=(0, 17, 31),
        clear=(0, 17, 31),
        src=(StridedAccess("L1", 8, (2, 3), (5, 1), "i4", "MN", 0),),
        dst=(StridedAccess("L1", 16, (2, 3), (3, 1), "i4", None, 1),),
        attrs={"pads": (0, 0, 0, 0), "mode": "constant", "constant_value": 0.5},
    )
    other = TaskRecord(
        1,
        StreamUnit("NMU", 0),
        "softmax",
        (5,),
        (),
        (5,),
        (),
        (StridedAccess("L2", 8, (2,), (1,), "f32"),),
        (StridedAccess("L2", 8, (2,), (1,), "f32"),),
        {"axis": -1},
    )
    ends = [TaskRecord(3 + engine, StreamUnit("SEQ", 0), RESET) for engine in range(2)]
    return Stream(
        "all",
        "d",
        32,
        (
            MappedBuffer(1, "A", "L2", 0, 0, 16, True),
            MappedBuffer(0, "B", "L1", 0, 0, 64),
            MappedBuffer(2, "C", "DDR", 0, 1 << 40, 8),
        ),
        ((move, pad, ends[0]), (other, ends[1])),
        (PerTensor(0.5, -3), PerChannel(0, (0.5, 0.25), (1, 2)), PerGroup(1, 2, (1.0, 2.0), (0, -8))),
        (NamedTensor("B_all", 0, StridedAccess("L1", 0, (2, 3), (3, 1), "i4", "MN", 2)),),
    )


@pytest.mark.parametrize("stream", [*STREAMS, small()], ids=lambda stream: stream.name)
def test_both_forms_round_trip(stream: Stream) -> None:
    validate_stream(stream)
    text, data = to_json(stream), to_bytes(stream)
    assert from_json(text) == stream
    assert from_bytes(data) == stream
    assert to_json(from_bytes(data)) == text
    assert to_bytes(from_json(text)) == data


def test_a_file_is_read_in_either_form() -> None:
    assert read_stream(to_bytes(small())) == small()
    assert read_stream(to_json(small()).encode()) == small()
    assert "neither STCB nor UTF-8 (at byte 1)" in refusal(read_stream, b"\x00\xff")


def test_a_record_begins_with_sixteen_bytes() -> None:
    data = to_bytes(small())
    start = data.index(b"\xb5\x01" + bytes([op_names().index("transfer")]))
    magic, unit, op, flags, length, index, wait, sets, clear = struct.unpack_from("<BBBBIHHHH", data, start)
    assert (magic, unit, op, flags, index) == (0xB5, 1, 1, 2 | 4 | 8 | 16, 300)
    assert (wait, sets, clear) == (0, 1, 0)
    seq, *high = struct.unpack_from("<4I", data, start + 16)
    assert (seq, high) == (0, [0, 1 << 15 | 1 << 1, 0])
    assert struct.unpack_from("<2I", data, start + 32) == (1, 1 << 16 | 5)
    following = start + 16 + 4 * length
    assert data[following] == 0xB5
    assert data[following + 2] == op_names().index("pad")


def test_numbers_of_units_and_operations_are_those_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert op_names() == ("reset", *load_registry())
    for number, name in enumerate(op_names()):
        assert f"{number} {name}" in page.replace("\n", " "), name


# --- what is refused ----------------------------------------------------------------------------------------


def refusal(read: Callable[[Any], object], value: object) -> str:
    with pytest.raises(LamellaError) as caught:
        read(value)
    assert [finding.code for finding in caught.value.findings] == ["NEM188"]
    return caught.value.findings[0].message


def changed(path: str, value: object) -> str:
    """The JSON of the small stream with one field replaced or, by the value `...`, removed."""
    top: Any = json.loads(to_json(small()))
    *way, last = (int(part) if part.isdigit() else part for part in path.split("."))
    entry = top
    for part in way:
        entry = entry[part]
    if value is ...:
        del entry[last]
    else:
        entry[last] = value
    return refusal(from_json, json.dumps(top))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", "1.0", "version"),
        ("device", ..., "no 'device'"),
        ("device", "a\0b", "not a text"),
        ("name", "\ud800", "not a text"),
        ("name", "x" * 2000, "max_name"),
        ("surplus", 1, "unknown field 'surplus'"),
        ("tokens.bits", 33, "bank of 33 bits"),
        ("tokens.bits", True, "not a 64-bit integer"),
        ("tokens.bits", 2**70, "not a 64-bit integer"),
        ("tokens.bits", 16, "do not ascend below 16"),
        ("memory.L2.0.size", 0, "cannot have 0 bytes"),
        ("memory.L2.0.addr", -1, "must not be negative"),
        ("memory.DDR.0.size", 2**63 - 1, "cannot have"),
        ("memory.L2.0.number", 7, "not numbered"),
        ("memory.L1", [[], [], [{"buffer": "X", "addr": 0, "size": 1, "number": 3}]], "no memory"),
        ("memory.L2.0.buffer", "B", "the same buffer"),
        ("memory.DDR.0.codec", "shared9", "cannot be stored by codec 'shared9'"),
        ("memory.DDR.0.stored", 64, "cannot be stored by codec ''"),
        ("kernels", [{"name": "x", "text": "func @x() {}"}], "kernel 'x' is named"),
        ("constants.0.scale", 0.0, "not a positive finite number"),
        ("constants.0.form", "per_word", "form of quantisation"),
        ("constants.1.scales", [1.0], "scales are given"),
        ("constants.0.zero_point", 8, "zero point 8"),
        ("tensors.0.dims", [2, 300], "lie in no buffer"),
        ("tensors.0.engine", 9, "does not exist"),
        ("tensors.0.quant", 9, "constant 9"),
        ("engines.0.id", 1, "another id"),
        ("engines.0.stream", [], "only reset"),
        ("engines.0.stream.0.seq", 1, "given twice"),
        ("engines.0.stream.0.unit", "DMA00", "not a unit"),
        ("engines.0.stream.0.unit", "SEQ0", "does not run on"),
        ("engines.0.stream.0.unit", "CSTL1", "not a unit"),
        ("engines.0.stream.0.op", "compute", "kernel 'None' is named by a record"),
        ("engines.0.stream.0.op", "warp", "not an operation"),
        ("engines.0.stream.0.path", "air", "no path"),
        ("engines.0.stream.0.memmove", False, "true or left out"),
        ("engines.0.stream.0.chain", True, "does not take what"),
        ("engines.0.stream.0.set", [17, 0, 31], "ascend"),
        ("engines.0.stream.0.set", [0, 17], "never ends"),
        ("engines.0.stream.0.remote", [[0, 5]], "not a remote bit"),
        ("engines.0.stream.0.remote", [[1]], "pairs"),
        ("engines.0.stream.0.remote", ..., "never ends"),
        ("engines.0.stream.0.src.0.addr", 14, "lie in no buffer"),
        ("engines.0.stream.0.src.0.level", "L3", "lie in no buffer"),
        ("engines.0.stream.0.src.0.dims", [0], "shapes and dims"),
        ("engines.0.stream.0.src.0.strides_bytes", [2], "moves bytes"),
        ("engines.0.stream.0.params.dtype", ["i8", "u8"], "moves bytes"),
        ("engines.0.stream.0.params.dtype", ["f64", "u8"], "not an element type"),
        ("engines.0.stream.0.params.dtype", ["u8"], "other than the 2 operands"),
        ("engines.0.stream.0.params.shapes", [[3], [4]], "shapes and dims"),
        ("engines.0.stream.0.params.attrs", {"axis": 0}, "no attribute 'axis'"),
        ("engines.0.stream.0.origin.line", 2**40, "no line"),
        ("engines.0.stream.1.clear", [0, 1], "cleared that is not waited for"),
        ("engines.0.stream.1.src.0.strides_bytes", [2.25, 0.5], "whole number of elements"),
        ("engines.0.stream.1.src.0.strides_bytes", [1e300, 0.5], "number of bytes"),
        ("engines.0.stream.1.params.attrs.pads", [0, 0], "it needs 4 values"),
        ("engines.0.stream.1.params.attrs.pads", ..., "lacks the attribute 'pads'"),
        ("engines.0.stream.1.params.attrs.mode", "mirror", "constant, edge or reflect"),
        ("engines.0.stream.1.params.attrs.constant_value", "1", "no attribute 'constant_value'"),
        ("engines.1.stream.0.params.attrs.axis", 1, "between -1 and 0"),
        ("engines.1.stream.0.params.attrs.axis", True, "no attribute 'axis'"),
        ("engines.1.stream.0.dst", [], "other than the"),
    ],
)
def test_a_wrong_field_is_named(path: str, value: object, message: str) -> None:
    assert message in changed(path, value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "null",
        '{"version": "1.0", "version": "1.0"}',
        "[" * 100_000,
        "1" * 5000,
        '{"version": NaN}',
    ],
    ids=["empty", "list", "open", "null", "double", "deep", "long", "nan"],
)
def test_what_is_no_stream_is_refused(text: str) -> None:
    assert refusal(from_json, text)


def test_bytes_that_end_early_or_late_are_refused() -> None:
    data = to_bytes(small())
    for size in range(len(data)):
        assert refusal(from_bytes, data[:size]), size
    assert "follow the end" in refusal(from_bytes, data + b"\0")


def test_giant_counts_cost_nothing() -> None:
    """Every word of the file as the largest number: counts are compared with the bytes that are left."""
    data = to_bytes(small())
    for place in range(8, len(data) - 3, 4):
        wrong = data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :]
        survive(from_bytes, wrong)


def test_many_units_are_refused_before_they_cost_anything() -> None:
    moves = [
        replace(small().engines[0][0], seq=n, unit=StreamUnit("DMA", n), set=(), remote=())
        for n in range(600)
    ]
    many = replace(
        small(),
        engines=(
            (*moves, TaskRecord(600, StreamUnit("SEQ", 0), RESET)),
            (TaskRecord(601, StreamUnit("SEQ", 0), RESET),),
        ),
    )
    assert "602 units are in use" in refusal(from_bytes, to_bytes(many))


def survive(read: Callable[[Any], Stream], value: object) -> Stream | None:
    """The stream, or None where it was refused; anything else is a failure of ours."""
    try:
        return read(value)
    except LamellaError as problem:
        codes = {finding.code for finding in problem.findings}
    assert codes == {"NEM188"}
    return None


def mutants(data: bytes, count: int) -> Iterator[bytes]:
    chooser = random.Random(count)
    for _ in range(count):
        made = bytearray(data)
        for _ in range(chooser.choice((1, 1, 2, 4))):
            place = chooser.randrange(len(made))
            kind = chooser.random()
            if kind < 0.6:
                made[place] = chooser.choice(
                    (0, 1, 2, 127, 128, 255, made[place] ^ 1 << chooser.randrange(8))
                )
            elif kind < 0.8:
                del made[place : place + chooser.choice((1, 4, 16))]
            else:
                made[place:place] = made[place : place + chooser.choice((1, 4, 16))]
        yield bytes(made)


def test_mutated_bytes_are_refused_or_run(mutations: int) -> None:
    """What is still accepted is a stream like any other: it round-trips, and runs or says why not."""
    chosen = [small(), *(stream for stream in STREAMS if stream.name in ("gemm_int4", "two_engines"))]
    accepted = 0
    for stream in chosen:
        data = to_bytes(stream)
        for mutant in mutants(data, mutations // 10):
            found = survive(from_bytes, mutant)
            if found is None:
                continue
            accepted += 1
            assert to_bytes(found) == mutant
            assert from_json(to_json(found)) == found
    assert accepted


def test_mutated_text_is_refused_or_read(mutations: int) -> None:
    data = to_json(small()).encode()
    for mutant in mutants(data, mutations // 10):
        text = mutant.decode("utf-8", errors="surrogateescape")
        found = survive(from_json, text)
        assert found is None or from_bytes(to_bytes(found)) == found


def test_changed_types_still_run(mutations: int) -> None:
    """Element types that no variant has are not the format's business; execution gives some bytes and no traceback."""
    stream = next(item for item in STREAMS if item.name == "layernorm_softmax")
    chooser = random.Random(1)
    for _ in range(mutations // 100):
        records = list(stream.engines[0])
        place = chooser.randrange(len(records) - 1)
        one = records[place]
        swap = {op: op for op in ("relu", "exp", "sqrt", "softmax", "log_softmax", "neg", "abs")}
        if one.op == "softmax":
            records[place] = replace(one, op=chooser.choice(list(swap)), attrs={})
        found = survive(validate_stream, replace(stream, engines=(tuple(records),)))
        if found is not None:
            compile_stream(found)()


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert refusal(from_bytes, data)
    assert refusal(from_bytes, b"STCB\0\0\1\0" + data)


def test_the_page_shows_what_is_written() -> None:
    """The listing of the worked pipeline and the JSON of the page are real."""
    blocks = PAGE.read_text(encoding="utf-8").split("```")
    shown = (
        next(block for block in blocks if block.startswith("text\n"))
        .removeprefix("text\n")
        .rstrip()
        .splitlines()
    )
    lines = [line.strip() for line in list_stream(bound("conv_relu"))]
    first = lines.index(shown[0].strip())
    assert [line.strip() for line in shown] == lines[first : first + len(shown)]
    written = next(block for block in blocks if block.startswith("json\n")).removeprefix("json\n")
    stream = from_json(written)
    assert json.loads(to_json(stream)) == json.loads(written)
    compile_stream(stream)()
