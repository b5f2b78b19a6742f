"""Reading gives back what was written, bytes are those of real files, and what bytes cannot say is a finding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from lamella.lang.nac import nodes as n
from lamella.lang.nac.check import check
from lamella.lang.nac.nodes import ConstantType, File, Header, Instruction, Signature
from lamella.lang.nac.parse import parse
from lamella.lang.nac.upgrade_version import upgrade_version
from lamella.lang.nac.write import find_unwritable, write, write_pieces
from tests.support.strategies.nac import files, sound_files

SAMPLES = sorted((Path(__file__).parents[4] / "shared" / "samples" / "nac").glob("v1*/*.nac"))


@given(files())
def test_reading_gives_back_what_was_written(file: File) -> None:
    data = write(file)
    found, findings = parse(data)
    assert not findings
    assert found == file
    assert write(found) == data


@given(sound_files())
def test_right_files_are_found_right(file: File) -> None:
    found, findings = parse(write(file))
    assert not findings
    assert found == file
    assert not check(found)


@given(files())
def test_the_pieces_are_the_bytes(file: File) -> None:
    pieces = write_pieces(file)
    assert b"".join(pieces) == write(file)
    large = [tensor.data for tensor in file.tensors if len(tensor.data) > 4096]
    assert len([piece for piece in pieces if isinstance(piece, memoryview)]) == len(large)


def test_an_empty_file_byte_by_byte() -> None:
    """All sections that are always there, in the order of the public compiler."""
    offsets = (88, 96, 104, 112, 120, 128, 0, 140, 0)
    table = b"".join(offset.to_bytes(8, "little") for offset in offsets)
    body = b"".join(tag + bytes(4) for tag in (b"MMAP", b"OPS ", b"CMAP", b"CNST", b"PERM"))
    expected = b"NAC\1\0" + bytes(7) + table + bytes(4) + body + b"DATA" + bytes(8) + b"ORCH" + bytes(8)
    assert write(File()) == expected


def test_prefixes_are_those_of_the_public_compiler() -> None:
    file = File(
        Header(outputs=2),
        instructions=(
            Instruction(2, 1, (7,)),
            Instruction(3, 0, (), (-1, -1)),
            Instruction(6, 0, (1, 2), (-1,)),
        ),
    )
    data = write(file)
    start = data.index(b"OPS ") + 8
    expected = b"\2\1\1\0\7\0\3\0\2\0\0\0\0\0\xff\xff\xff\xff\6\0\3\0\1\0\2\0\xff\xff"
    assert data[start : start + len(expected)] == expected


@pytest.mark.skipif(not SAMPLES, reason="the folder of samples is not beside the repository")
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_real_files(path: Path) -> None:
    """A perceptron of six parameters, as the public compilers wrote it; 1.6 comes back byte by byte."""
    data = path.read_bytes()
    file, findings = parse(data, path.name)
    assert not findings
    assert file.header.version == ("1.8" if path.parent.name.startswith("v18") else "1.6")
    assert [len(file.instructions), file.header.d_model, file.inputs[0].name] == [12, 32, "x"]
    assert {item.name for item in file.operations} == {
        f"aten.{op}.default" for op in ("gelu", "layer_norm", "linear")
    }
    assert [item.name for item in file.parameters][:2] == ["fc1.weight", "fc1.bias"]
    if file.header.version == n.V1_6:
        assert write(file) == data
    assert parse(write(upgrade_version(file))).file == upgrade_version(file)


def test_a_newer_file_names_its_standard_operations() -> None:
    newer = File(
        Header("1.8"),
        operations=(n.Operation(32, "aten.relu.default"),),
        signatures=(Signature(1, "T"),),
        instructions=(Instruction(2), Instruction(22, 1, (), (-1,)), Instruction(11, 1, (), (-1,))),
    )
    found = upgrade_version(newer)
    assert found.operations == (n.Operation(22, "nac.matmul"), n.Operation(32, "aten.relu.default"))
    assert found.header == Header()
    assert not find_unwritable(found)
    assert upgrade_version(found) == found


# --- what bytes cannot say ----------------------------------------------------------------------------------

CONSTANT = n.Constant(2, ConstantType.INT64, 5)
TENSOR = n.Tensor(1, 0, (1,), n.Unscaled(), bytes(4))
LAST = File(Header(internal=True), signatures=(Signature(1, "TS"),))


def limits() -> Iterator[tuple[File, str, str]]:
    """Each field one beyond what it holds: a file, the field in words, the bound."""
    header = LAST.header
    yield replace(LAST, header=replace(header, inputs=65536)), "the number of inputs is 65536", "65535"
    yield replace(LAST, header=replace(header, d_model=-1)), "d_model is -1", "0 to 65535"
    yield replace(LAST, operations=(n.Operation(65536, "a"),)), "an operation id is 65536", "65535"
    yield replace(LAST, operations=(n.Operation(1, "é" * 128),)), "the name of operation 1 is 256", "255"
    yield replace(LAST, signatures=(Signature(1, "T" * 256),)), "signature 1 is 256", "255"
    yield replace(LAST, constants=(replace(CONSTANT, id=70000),)), "a constant id is 70000", "65535"
    yield (
        replace(LAST, constants=(replace(CONSTANT, value=1 << 63),)),
        "constant 2 is 9223372036854775808",
        "775807",
    )
    yield replace(LAST, constants=(replace(CONSTANT, value=1 << 9999),)), "a 10000-bit number", "775807"
    text = n.Constant(2, ConstantType.STRING, "a" * 65536)
    yield replace(LAST, constants=(text,)), "the length of constant 2 is 65536", "65535"
    numbers = n.Constant(2, ConstantType.INT32_LIST, (0, 1 << 31))
    yield replace(LAST, constants=(numbers,)), "constant 2[1] is 2147483648", "-2147483648 to 2147483647"
    longest = n.Constant(2, ConstantType.FLOAT32_LIST, (0.0,) * 65536)
    yield replace(LAST, constants=(longest,)), "the length of constant 2 is 65536", "65535"
    yield replace(LAST, instructions=(Instruction(256),)), "the operation of instruction 0 is 256", "255"
    yield replace(LAST, instructions=(Instruction(10, 256),)), "the variant of instruction 0 is 256", "255"
    yield (
        replace(LAST, instructions=(Instruction(2, 1, (32768,)),)),
        "field C of instruction 0[0] is 32768",
        "32767",
    )
    far = Instruction(10, 1, (1,), (-32769, 0))
    yield replace(LAST, instructions=(far,)), "field D of instruction 0[0] is -32769", "-32768 to 32767"
    many = Instruction(10, 1, (1,) * 32768, (-1, 0))
    yield replace(LAST, instructions=(many,)), "field C of instruction 0 is 32768", "32767"
    yield replace(LAST, schedule=(n.Tick(65536, ()),)), "a tick is 65536", "65535"
    crowd = n.Tick(3, (n.Command(10, 3),) * 256)
    yield replace(LAST, schedule=(crowd,)), "the number of commands of tick 3 is 256", "255"
    yield (
        replace(LAST, schedule=(n.Tick(0, (n.Command(20, 65536),)),)),
        "a target of tick 0 is 65536",
        "65535",
    )
    yield replace(LAST, parameters=(n.Parameter(65536, "w"),)), "a parameter id is 65536", "65535"
    yield replace(LAST, inputs=(n.Input(65536, "x"),)), "the instruction of an input is 65536", "65535"
    yield (
        replace(LAST, tensors=(replace(TENSOR, dtype=256),)),
        "the element type of parameter 1 is 256",
        "255",
    )
    yield replace(LAST, tensors=(replace(TENSOR, shape=(1,) * 256),)), "the rank of parameter 1 is 256", "255"
    yield (
        replace(LAST, tensors=(replace(TENSOR, shape=(1 << 32,)),)),
        "the shape of parameter 1[0]",
        "4294967295",
    )
    blocks = replace(TENSOR, quantization=n.BlockFp8(65536, (), b""))
    yield replace(LAST, tensors=(blocks,)), "the block size of parameter 1 is 65536", "65535"
    yield replace(LAST, resources=(n.Resource("a" * 65536, b""),)), "is 65536", "65535"


@pytest.mark.parametrize(("file", "field", "bound"), list(limits()))
def test_a_limit_names_its_field_and_its_bound(file: File, field: str, bound: str) -> None:
    (finding,) = find_unwritable(file)
    assert finding.code == "NAC202"
    assert field in finding.message
    assert bound in finding.message
    with pytest.raises(LamellaError, match="NAC202"):
        write(file)


@pytest.mark.parametrize(
    ("code", "file"),
    [
        ("NAC200", File(Header("1.5"))),
        ("NAC201", replace(LAST, training=(Instruction(2),))),
        ("NAC201", replace(LAST, arrays=(n.Array("a", 0, (), bytes(4)),))),
        ("NAC203", replace(LAST, operations=(n.Operation(201, "a\0b"),))),
        ("NAC203", replace(LAST, parameters=(n.Parameter(1, "\udcff"),))),
        ("NAC204", replace(LAST, instructions=(Instruction(2, 0, (1,)),))),
        ("NAC204", replace(LAST, instructions=(Instruction(10, 1, (1,), (-1,)),))),
        ("NAC204", replace(LAST, instructions=(Instruction(10, 2, (1,)),))),
        ("NAC204", replace(LAST, instructions=(Instruction(10, 0, (), (-1,)),))),
        ("NAC204", replace(LAST, instructions=(Instruction(3, 0, (0,)),))),
        ("NAC204", replace(LAST, instructions=(Instruction(3, 0, (), (-1,)),))),
        ("NAC205", replace(LAST, instructions=(Instruction(1),))),
        ("NAC205", replace(LAST, instructions=(Instruction(2, 6),))),
        ("NAC205", replace(LAST, instructions=(Instruction(3, 2),))),
        ("NAC206", replace(LAST, constants=(n.Constant(1, ConstantType.NULL, 0),))),
        ("NAC206", replace(LAST, constants=(n.Constant(1, ConstantType.BOOL, 1),))),
        ("NAC206", replace(LAST, constants=(n.Constant(1, ConstantType.INT64, True),))),
        ("NAC206", replace(LAST, constants=(n.Constant(1, ConstantType.FLOAT64, 1),))),
        ("NAC206", replace(LAST, constants=(n.Constant(1, ConstantType.STRING, None),))),
        ("NAC206", replace(LAST, constants=(n.Constant(1, ConstantType.INT32_LIST, (0.5,)),))),
        ("NAC206", replace(LAST, constants=(n.Constant(1, ConstantType.FLOAT32_LIST, (1,)),))),
        ("NAC206", replace(LAST, constants=(n.Constant(1, ConstantType.FLOAT32_LIST, (1e39,)),))),
        ("NAC207", replace(LAST, header=Header(), tensors=(TENSOR,))),
        ("NAC206", replace(LAST, tensors=(replace(TENSOR, quantization=n.Int8Channel(0, b"123")),))),
        ("NAC206", replace(LAST, tensors=(replace(TENSOR, quantization=n.Int8Tensor(1e39)),))),
    ],
)  # fmt: skip
def test_what_cannot_be_said(code: str, file: File) -> None:
    assert [item.code for item in find_unwritable(file)] == [code]


def test_all_findings_at_once() -> None:
    file = File(
        Header("1.7", inputs=1 << 16), constants=(replace(CONSTANT, value=1 << 80), replace(CONSTANT, id=-1))
    )
    assert [item.code for item in find_unwritable(file)] == ["NAC200", "NAC202", "NAC202", "NAC202"]


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_numbers_of_lists_are_rounded_to_single_precision(value: float) -> None:
    """As C does it; a number beyond the largest is refused and not made infinite."""
    file = File(constants=(n.Constant(2, ConstantType.FLOAT32_LIST, (value,)),))
    if find_unwritable(file):
        assert math.isfinite(value)
        assert abs(value) > 3.4028234e38
        return
    (found,) = parse(write(file)).file.constants
    (rounded,) = found.value if isinstance(found.value, tuple) else ()
    assert (
        math.isnan(value)
        if math.isnan(rounded)
        else math.isclose(rounded, value, rel_tol=2**-23, abs_tol=2**-149)
    )
