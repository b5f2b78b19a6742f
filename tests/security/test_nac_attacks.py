"""Every attack on the container gives its finding; work grows like the file, memory stays small, no byte is free."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, render
from lamella.base.limits import Limits
from lamella.lang.nac import nodes as n
from lamella.lang.nac.check import check
from lamella.lang.nac.files import open_file, save_file
from lamella.lang.nac.parse import parse
from lamella.lang.nac.rules import RULES
from lamella.lang.nac.write import write
from tests.support.lang.nac.containers import HEADERS, container, count, long, patched, short, u16
from tests.support.lang.nac.models import in_blocks, perceptron
from tests.support.security import nac_attacks as attacks
from tests.support.strategies.nac import files

MEBIBYTE = 1 << 20
CODES = {rule.code for rule in RULES}
WRONG = {
    **attacks.offsets(),
    **attacks.texts(),
    **attacks.constants(),
    **attacks.tensors(),
    **attacks.instructions(),
}


def findings_of(data: bytes, limits: Limits | None = None) -> list[Diagnostic]:
    """What reading and checking find; every finding can be shown and lies in the file."""
    file, found = parse(data, "attack.nac", limits or Limits())
    found = (*found, *check(file))
    for finding in found:
        assert finding.code in CODES
        assert 0 <= finding.span.start <= finding.span.end <= len(data)
        assert all(line.isprintable() for line in render(finding).split("\n"))
    return list(found)


def codes(data: bytes) -> list[str]:
    """What reading finds, where that is an error."""
    findings_of(data)
    return [item.code for item in errors(parse(data, "attack.nac").findings)]


def test_the_right_files_are_right() -> None:
    assert not findings_of(attacks.right())
    assert not findings_of(write(in_blocks()))


# --- N1, N3: the header -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", HEADERS)
def test_every_file_that_is_too_short_is_refused(version: str) -> None:
    data = container(version=version)
    for size in range(len(data)):
        wanted = "NAC001" if size < 3 else "NAC002" if size < HEADERS[version][1] else "NAC0"
        found = codes(data[:size])
        assert found
        assert found[0].startswith(wanted)


def test_versions_that_nobody_knows_name_those_that_are_known() -> None:
    for byte in (0, *range(3, 256)):
        (finding,) = errors(parse(patched(attacks.right(), 3, bytes([byte]))).findings)
        assert finding.code == "NAC003"
        assert f"the version byte is {byte};" in finding.message
        assert all(version in finding.message for version in HEADERS)


@given(st.binary(max_size=300))
def test_other_bytes_are_no_file(data: bytes) -> None:
    if not data.startswith(b"NAC"):
        assert codes(data) == ["NAC001"]
    codes(b"NAC\1" + data)
    codes(b"NAC\2" + data)


def test_methods_that_do_not_exist() -> None:
    for method in range(5, 128):
        assert codes(patched(attacks.right(), 4, bytes([0x80 | method]))) == ["NAC004"]


def test_a_file_that_its_writer_left_is_refused() -> None:
    assert codes(patched(attacks.right(), 12, bytes(72))) == ["NAC006"]
    assert codes(attacks.right()[:88].replace(attacks.right()[12:84], bytes(72))) == ["NAC006"]
    assert "NAC007" in codes(attacks.with_offset("OPS ", 0))


# --- N2, N4, N5, N13, N14 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRONG)
def test_an_attack_gives_its_finding(name: str) -> None:
    data, code = WRONG[name]
    assert code in codes(data)


@pytest.mark.parametrize("name", attacks.counts())
def test_a_count_is_compared_with_what_is_left(name: str) -> None:
    data = attacks.counts()[name]
    assert "NAC020" in codes(data)
    tracemalloc.start()
    parse(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEBIBYTE


def test_ids_and_names_that_come_twice() -> None:
    """N5: each table keeps both, and the checker tells of them."""
    file = perceptron()
    twice: dict[str, n.File] = {
        "NAC041": replace(file, operations=(*file.operations, n.Operation(201, "other"))),
        "NAC042": replace(file, operations=(*file.operations, n.Operation(203, "aten.gelu.default"))),
        "NAC044": replace(file, operations=(*file.operations, n.Operation(203, ""))),
        "NAC050": replace(file, signatures=(*file.signatures, n.Signature(1, "TTT"))),
        "NAC060": replace(file, constants=file.constants * 2),
        "NAC130": replace(file, parameters=(*file.parameters, n.Parameter(1, "other"))),
        "NAC131": replace(file, parameters=(*file.parameters, n.Parameter(3, "fc.bias"))),
        "NAC132": replace(file, inputs=(*file.inputs, n.Input(0, "y"))),
        "NAC133": replace(file, inputs=(*file.inputs, n.Input(1, "x"))),
        "NAC136": replace(file, tensors=file.tensors * 2),
        "NAC139": replace(file, parameters=(*file.parameters, n.Parameter(9, ""))),
    }
    for code, wrong in twice.items():
        assert code in {item.code for item in findings_of(write(wrong))}, code


# --- N16: resources and manifest ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../x", "/etc/x", "C:\\x", "CON", "a/../../b", "", ".", "x\n", "a\u202eb"])
def test_names_of_resources_stay_in_one_folder(name: str) -> None:
    file = replace(perceptron(), resources=(n.Resource(name, b""),))
    assert "NAC160" in {item.code for item in findings_of(write(file))}


def test_a_name_with_nul() -> None:
    assert "NAC021" in codes(container({"RSRC": count(long(b"a\0b") + bytes(4))}))


def test_equal_names_and_twins() -> None:
    equal = replace(perceptron(), resources=(n.Resource("vocab.json", b""),) * 300)
    twins = replace(perceptron(), resources=(n.Resource("vocab.json", b""), n.Resource("VOCAB.json", b"")))
    for file in (equal, twins):
        assert "NAC161" in {item.code for item in findings_of(write(file))}


def test_a_bomb_of_sizes_is_not_believed() -> None:
    """Each resource and the manifest say that they have 4 GiB."""
    huge = long(b"a") + struct.pack("<I", attacks.MOST)
    assert "NAC020" in codes(container({"RSRC": count(*[huge] * 100)}))
    assert "NAC020" in codes(container({"PROC": struct.pack("<I", attacks.MOST) + b"TISA"}))


# --- N19: every byte belongs to exactly one thing -----------------------------------------------------------


@pytest.mark.parametrize("data", [write(perceptron()), write(in_blocks())], ids=["channels", "blocks"])
@pytest.mark.parametrize("mask", [0xFF, 0x80, 0x08])
def test_no_byte_can_change_unseen(data: bytes, mask: int) -> None:
    file = parse(data).file
    for position in range(len(data)):
        other = patched(data, position, bytes([data[position] ^ mask]))
        changed, findings = parse(other)
        assert findings or changed != file, position


@pytest.mark.parametrize("more", [b"\0", b"PK\5\6" + bytes(18), b"<html>", bytes(100)])
def test_nothing_hides_behind_the_end_or_between_sections(more: bytes) -> None:
    assert codes(attacks.right() + more) == ["NAC013"]
    gap = attacks.place_of("OPS ")
    moved = attacks.right()[:gap] + more + attacks.right()[gap:]
    table = struct.unpack_from("<9Q", moved, 12)
    shifted = struct.pack("<9Q", *(item + len(more) if item >= gap else item for item in table))
    assert codes(patched(moved, 12, shifted)) == ["NAC013"]


def test_nothing_hides_behind_the_header() -> None:
    data = attacks.right()
    table = struct.unpack_from("<9Q", data, 12)
    shifted = struct.pack("<9Q", *(item + 7 for item in table))
    assert codes(data[:12] + shifted + data[84:88] + bytes(7) + data[88:]) == ["NAC013"]


# --- work and memory ----------------------------------------------------------------------------------------


def crowds(size: int) -> dict[str, bytes]:
    """Files full of the smallest records, right and wrong ones."""
    bad = u16(1) + short(b"\xff")
    return {
        "instructions": container({"OPS ": count(*[b"\2\0"] * size)}),
        "loads": container({"OPS ": count(*[b"\2\1\1\0\1\0"] * size)}),
        "outputs": container({"OPS ": count(*[b"\3\0\0\0"] * size)}),
        "prefixes": container({"OPS ": count(*[b"\2\1\5\0\1\0"] * size)}),
        "operations": container({"CMAP": count(*[u16(201) + b"\0"] * size)}),
        "bad names": container({"CMAP": count(*[bad] * size)}),
        "bad signatures": container({"PERM": count(*[bad] * size)}),
        "constants": container({"CNST": count(*[u16(2) + b"\0\0\0"] * size)}),
        "bad constants": container({"CNST": count(*[u16(2) + b"\1\0\0"] * size)}),
        "ticks": container({"MMAP": count(*[u16(9) + b"\0"] * size)}),
        "commands": container({"MMAP": count(*[u16(9) + b"\xff" + bytes(765)] * (size // 200))}),
        "tensors": container({"DATA": bytes(8) + count(*[bytes(14)] * size)}, bits=0x80),
        "resources": container({"RSRC": count(*[bytes(6)] * size)}),
    }


def count_calls(work: Callable[[], object]) -> int:
    """How many Python functions are called."""
    calls = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("name", crowds(0))
def test_work_and_memory_grow_like_the_file(name: str) -> None:
    small, large = (crowds(size)[name] for size in (400, 4000))
    few, many = count_calls(partial(parse, small)), count_calls(partial(parse, large))
    assert many <= 12 * few
    tracemalloc.start()
    parse(large)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEBIBYTE + 600 * len(large)


def test_findings_are_counted_and_hide_nothing() -> None:
    """Of each rule the first thousand are told, so that many warnings do not cover an error."""
    prefixes = count(*[b"\2\1\5\0\1\0"] * 3000, b"\5\0")
    found = Counter(item.code for item in parse(container({"OPS ": prefixes})).findings)
    assert found == {"NAC030": 1000, "NAC028": 1}


def test_limits_bound_what_is_built() -> None:
    data = container({"OPS ": count(*[b"\2\0"] * 11)})
    (finding,) = findings_of(data, Limits(max_statements=10))[:1]
    assert finding.code == "NAC022"
    assert "the number of instructions in OPS is 11; the limit max_statements is 10" in finding.message
    assert "--limit max_statements=N" in finding.hint


@given(files(), st.data())
def test_mutated_files_give_clean_findings(file: n.File, draw: st.DataObject) -> None:
    """A file with some bytes replaced is refused, or read as a file that can be written again."""
    data = bytearray(write(file))
    for _ in range(draw.draw(st.integers(1, 3))):
        position = draw.draw(st.integers(0, len(data) - 1))
        data[position] = draw.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, data[position] ^ 1]))
    findings_of(bytes(data))
    found, findings = parse(bytes(data))
    if not findings and found.header.version == n.V1_6:
        assert parse(write(found)).file == found


# --- files on disk ------------------------------------------------------------------------------------------


def test_a_file_is_open_before_its_weights_are_read(tmp_path: Path) -> None:
    """A file of 1 GiB that lies on the disk as a hole: opening it builds a few kilobytes of nodes."""
    size = 1 << 30
    record = struct.pack("<HIQ", 1, 7, size) + b"\0\1" + struct.pack("<I", size // 4) + b"\0"
    head = container({"ORCH": None, "DATA": count(u16(1) + long(b"w")) + bytes(4) + count(record)}, bits=0x80)
    path = tmp_path / "large.nac"
    path.write_bytes(head)
    with path.open("r+b") as file:
        file.truncate(len(head) + size)
    tracemalloc.start()
    opened = open_file(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not opened.findings
    assert peak < MEBIBYTE
    (tensor,) = opened.file.tensors
    assert (len(tensor.data), tensor.span.source.name) == (size, str(path))
    opened.mapped.check_whole()
    assert bytes(tensor.data[-4:]) == bytes(4)


def test_a_file_that_ends_early_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "short.nac"
    path.write_bytes(attacks.right()[:-1])
    assert [item.code for item in open_file(path).findings] == ["NAC020"]


def test_a_file_is_written_in_the_place_of_the_one_it_was_read_from(tmp_path: Path) -> None:
    path = tmp_path / "model.nac"
    weight = n.Tensor(1, 8, (2 * MEBIBYTE,), n.Unscaled(), bytes(range(256)) * (8 * 1024))
    save_file(path, replace(perceptron(), tensors=(weight,)))
    opened = open_file(path)
    renamed = replace(opened.file, parameters=(n.Parameter(1, "other"),))
    save_file(path, renamed)
    opened.mapped.check_whole()
    assert open_file(path).file == renamed
    assert [item.name for item in tmp_path.iterdir()] == ["model.nac"]


def test_a_file_that_cannot_be_said_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model.nac"
    save_file(path, perceptron())
    with pytest.raises(LamellaError, match="NAC202"):
        save_file(path, replace(perceptron(), header=n.Header(internal=True, outputs=1, inputs=1 << 16)))
    assert path.read_bytes() == attacks.right()
