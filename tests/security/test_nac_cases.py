"""Each case of the list of attacks on NAC files by its number: its finding, and no harm where there is none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lamella.base.diagnostic import LamellaError, errors
from lamella.bridge.nac_to_graph.weights import read_external
from lamella.lang.nac import check, disassemble, find_unwritable, parse, plan_memory, write
from lamella.lang.nac import nodes as n
from lamella.lang.nac.listing import listing
from lamella.lang.nac.nodes import INPUT, OUTPUT, Instruction
from tests.support.bridge.nac_stores import store_bytes
from tests.support.lang.nac.containers import container, count, long, patched, u16
from tests.support.lang.nac.models import perceptron
from tests.support.security.nac_attacks import right
from tests.support.security.nac_cases import CASES
from tests.support.watch import watched

WARNINGS = {"NAC005", "NAC043", "NAC051"}


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_its_finding(name: str) -> None:
    data, code = CASES[name]
    file, findings = parse(data, "attack.nac")
    found = [*findings, *check(file)]
    assert code in {item.code for item in found}, "\n".join(map(str, found))
    assert bool(errors(found)) == (code not in WARNINGS)
    listing(file)
    disassemble(file)
    plan_memory(file)


def test_n1_a_newer_byte_names_both_versions() -> None:
    """A file of version 1.6 that says 2 is read as what it says, and one of 1.8 that says 1 likewise."""
    for data in (patched(right(), 3, b"\2"), patched(container(version="1.8"), 3, b"\1")):
        assert errors(parse(data).findings)
    (finding,) = errors(parse(patched(right(), 3, b"\3")).findings)
    assert "1 (versions 1.5 and 1.6) and 2 (versions 1.7 and 1.8)" in finding.message


@pytest.mark.parametrize("number", [10, 11, 19, 20, 200])
def test_n6_a_file_may_name_what_only_newer_files_know_or_what_is_standard(number: int) -> None:
    """Real files of the first version give their own names from 20 on: the table of a file is stronger."""
    file = replace(
        perceptron(), operations=(*perceptron().operations, n.Operation(number, "aten.relu.default"))
    )
    assert not errors(check(parse(write(file)).file))


def test_n9_what_is_too_far_is_not_written() -> None:
    far = Instruction(202, 2, (2,), (-32769, 0))
    code = (*perceptron().instructions[:-1], *[Instruction(INPUT, 1, (1,))] * 32768, far)
    file = replace(perceptron(), instructions=code, schedule=())
    assert "NAC202" in {item.code for item in find_unwritable(file)}
    with pytest.raises(LamellaError, match=r"-32769; its field in OPS holds -32768 to 32767"):
        write(file)


def test_n9_ticks_and_inputs_beyond_65535_are_not_written() -> None:
    code = (Instruction(INPUT), *[Instruction(14, 9, (), (-1,))] * 65536, Instruction(OUTPUT, 0, (), (-1,)))
    file = n.File(n.Header(inputs=1, outputs=1), signatures=(n.Signature(9, "T"),), instructions=code)
    assert not errors(check(parse(write(file)).file)), "the instructions themselves have no such limit"
    for late in (
        replace(file, schedule=(n.Tick(65536, (n.Command(10, 1),)),)),
        replace(file, schedule=(n.Tick(3, (n.Command(20, 65536),)),)),
        replace(file, inputs=(n.Input(65536, "x"),)),
    ):
        with pytest.raises(LamellaError, match=r"65536; its field in .* holds 0 to 65535"):
            write(late)


# --- N15: the file beside it --------------------------------------------------------------------------------


def _parted(folder: Path) -> n.File:
    """A file whose weights lie beside it."""
    file = replace(perceptron(), header=n.Header(inputs=1, outputs=1), tensors=())
    arrays = {"fc.weight": np.ones((3, 2), np.float32), "fc.bias": np.ones(3, np.float32)}
    (folder / "model.safetensors").write_bytes(store_bytes(arrays))
    return file


def test_n15_weights_of_another_model(tmp_path: Path) -> None:
    file = _parted(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(store_bytes({"conv.weight": np.ones(3, np.float32)}))
    found = read_external(file, tmp_path / "model.nac").findings
    assert {item.code for item in found} == {"NAC151", "NAC152"}
    assert all("model.safetensors" in item.span.source.name for item in found)


def test_n15_a_file_that_is_cut_after_it_was_opened(tmp_path: Path) -> None:
    """Bytes that are no longer there are not touched: the system would end the process."""
    file = _parted(tmp_path)
    arrays = {"fc.weight": np.ones((3, 2 << 20), np.float32), "fc.bias": np.ones(3, np.float32)}
    (tmp_path / "model.safetensors").write_bytes(store_bytes(arrays))
    found = read_external(file, tmp_path / "model.nac")
    os.truncate(tmp_path / "model.safetensors", 16)
    assert found.mapped is not None
    with pytest.raises(LamellaError, match=r"model\.safetensors"):
        found.mapped.check_whole()


def test_n15_a_file_that_is_exchanged_after_it_was_opened(tmp_path: Path) -> None:
    """What was opened is what is read, whatever takes its name."""
    found = read_external(_parted(tmp_path), tmp_path / "model.nac")
    (tmp_path / "other").write_bytes(b"\xff" * 400)
    os.replace(tmp_path / "other", tmp_path / "model.safetensors")
    assert found.mapped is not None
    found.mapped.check_whole()
    assert bytes(found.tensors["fc.bias"].data) == np.ones(3, np.float32).tobytes()


# --- N16, N17: what comes with a file is never followed -----------------------------------------------------


def test_n17_patterns_are_text_and_nothing_else() -> None:
    """A pattern that takes exponential time is never compiled, only its length is looked at."""
    evil = b"(a+)+$" * 5000
    rules = b"".join(b"\0" + long(evil) for _ in range(20))
    manifest = b"TISA\1\x10" + (2 + len(rules)).to_bytes(4, "little") + u16(20) + rules
    file = parse(write(replace(perceptron(), manifest=manifest))).file
    assert not check(file)
    script = (
        "import re, sys; real = re.compile\n"
        "def refuse(pattern, *rest):\n"
        "    assert 'a+' not in str(pattern), 'a pattern of the file is compiled'\n"
        "    return real(pattern, *rest)\n"
        "re.compile = refuse\n"
        "from lamella.lang.nac import parse, check, disassemble\n"
        "file = parse(sys.stdin.buffer.read()).file\n"
        "check(file); disassemble(file)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=write(file), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("each", [0, 1, 60_000])
def test_n17_a_million_rules_are_refused_before_they_are_read(each: int) -> None:
    """As many instructions, instructions of one rule, or rules in few instructions."""
    record = b"\x10" + (2 + 3 * each).to_bytes(4, "little") + u16(each) + bytes(3 * each)
    empty = b"\1\0\0\0\0"
    manifest = b"TISA\1" + (record if each else empty) * (1_000_000 // max(each, 1))
    file = parse(write(replace(perceptron(), manifest=manifest))).file
    with watched(3, 200):
        (finding,) = check(file)
    assert finding.code == "NAC165"
    limit = "65536 instructions and rules" if each > 1 else "256 instructions"
    assert f"beyond {limit}" in finding.message


def test_n17_as_many_rules_as_tokenizers_have() -> None:
    record = b"\x10" + (2 + 3 * 60_000).to_bytes(4, "little") + u16(60_000) + bytes(3 * 60_000)
    assert not check(parse(write(replace(perceptron(), manifest=b"TISA\1" + record))).file)


def test_n16_resources_are_never_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("../x", "/tmp/lamella-attack", "C:\\x", "CON", "a/../../b")
    file = replace(perceptron(), resources=tuple(n.Resource(name, b"evil") for name in names))
    monkeypatch.chdir(tmp_path)
    found = [item for item in check(parse(write(file)).file) if item.code == "NAC160"]
    assert len(found) == len(names)
    assert not list(tmp_path.iterdir())
    assert not Path("/tmp/lamella-attack").exists()


def test_n19_the_same_bytes_are_not_two_sections() -> None:
    """Archives and pages that hide before, between or behind sections are told; each byte is of one thing."""
    zipped = b"PK\3\4" + bytes(26)
    assert {item.code for item in errors(parse(zipped + right()).findings)} == {"NAC001"}
    assert {item.code for item in errors(parse(right() + zipped).findings)} == {"NAC013"}
    two = container({"CMAP": count(), "PERM": None})
    cmap = re.search(b"CMAP", two)
    assert cmap is not None
    shared = patched(two, 12 + 8 * 4, cmap.start().to_bytes(8, "little"))
    assert "NAC011" in {item.code for item in errors(parse(shared).findings)}
