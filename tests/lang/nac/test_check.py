"""Whole files: what is right has no findings, what is anything at all has an answer, and nothing takes long."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import NOTE, errors
from lamella.lang.nac.check import check
from lamella.lang.nac.nodes import (
    File,
    Input,
    Operation,
    Orchestrator,
    Parameter,
    Signature,
    Tensor,
    Unscaled,
)
from lamella.lang.nac.parse import parse
from lamella.lang.nac.write import write
from tests.support.strategies.nac import files, sound_files

SAMPLES = sorted((Path(__file__).parents[4] / "shared" / "samples" / "nac").glob("*/*.nac"))


@given(sound_files())
def test_sound_files_have_nothing_wrong(file: File) -> None:
    assert not check(file)


@given(files())
def test_any_file_is_answered_in_order(file: File) -> None:
    findings = check(file)
    starts = [item.span.start for item in findings]
    assert starts == sorted(starts)
    assert len(findings) == len(set(findings))


@given(sound_files(), st.integers(0, 1 << 32))
def test_any_bytes_are_answered(file: File, seed: int) -> None:
    """Bytes of a right file of which a few are changed."""
    chance, data = random.Random(seed), bytearray(write(file))
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(data))] = chance.choice(
            [0, 1, 2, 3, 20, 127, 128, 255, chance.randrange(256)]
        )
    read, _ = parse(bytes(data))
    assert all(item.code.startswith("NAC") for item in check(read))


@given(sound_files())
def test_findings_point_into_the_bytes(file: File) -> None:
    """A record that is given twice is found where it stands the second time."""
    data = write(
        replace(file, parameters=(*file.parameters, *file.parameters, Parameter(90, "x"), Parameter(90, "y")))
    )
    read, found = parse(data)
    assert not errors(found)
    places = [item.span for item in check(read) if item.code == "NAC130"]
    again = read.parameters[len(file.parameters) : 2 * len(file.parameters)]
    assert places == [item.span for item in (*again, read.parameters[-1])]
    assert data[places[-1].start : places[-1].end].endswith(b"y")


@pytest.mark.skipif(not SAMPLES, reason="files of the public compiler are not at hand")
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_files_of_the_public_compiler_have_nothing_wrong(path: Path) -> None:
    file, found = parse(path.read_bytes())
    assert not [item for item in (*found, *check(file)) if item.severity != NOTE]


def test_ids_may_be_anything_that_a_field_holds() -> None:
    file = File(
        operations=tuple(Operation(number, f"own.o{number}") for number in range(10, 256)),
        signatures=tuple(Signature(number, "T") for number in range(1, 256)),
        parameters=tuple(Parameter(number, f"w{number}") for number in range(0, 32768, 1000)),
        orchestrator=Orchestrator(b"\xff"),
    )
    assert not check(file)


def test_names_of_inputs_and_tensors_need_what_they_name() -> None:
    file = File(inputs=(Input(0, "x"),), tensors=(Tensor(1, 0, (), Unscaled(), bytes(4)),))
    assert [item.code for item in check(file)] == ["NAC134", "NAC137"]
