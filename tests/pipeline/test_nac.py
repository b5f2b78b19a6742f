"""NAC through the Python API: loaded and saved under either ending, checked, and refused with a sentence."""

from __future__ import annotations

import os
import struct
import tracemalloc
from dataclasses import replace
from mmap import mmap
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lamella
from lamella import LamellaError, Limits
from lamella.base.limits import DEFAULT, GIB
from lamella.lang.nac import nodes as n
from lamella.lang.nac import write, write_pieces
from lamella.pipeline.nac.describe import describe
from lamella.pipeline.nac.model import Model, read_checked
from lamella.pipeline.options import Options
from tests.support.lang.nac.containers import container, count, i16
from tests.support.lang.nac.models import in_blocks, perceptron
from tests.support.strategies.nac import files, sound_files

TEXT = "nac 1.6\n.code\n%x = input()\n%z = output(%x)\n"
LARGE = 2 << 20
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def load(path: Path) -> Model:
    return cast(Model, lamella.load(path))


def shown(path: Path, listing: bool) -> str:
    """What `show` prints of a file; nothing where all it has to say is what is wrong."""
    try:
        return describe(str(path), Options(listing=listing)).text
    except LamellaError:
        return ""


def large() -> n.File:
    """A file whose weights are mapped and, as text, lie in a companion."""
    tensor = n.Tensor(1, 8, (LARGE,), n.Unscaled(), bytes(range(256)) * (LARGE // 256))
    return n.File(
        header=n.Header(internal=True, outputs=1),
        instructions=(n.Instruction(n.INPUT, 1, (1,)), n.Instruction(n.OUTPUT, 0, (), (-1,))),
        parameters=(n.Parameter(1, "w"),),
        tensors=(tensor,),
    )


@in_one_folder
@given(sound_files())
def test_bytes_return_through_the_text(tmp_path: Path, file: n.File) -> None:
    first, text, second = (tmp_path / name for name in ("a.nac", "a.nacs", "b.nac"))
    first.write_bytes(write(file))
    # Operations of any name come back; `lamella.load` would refuse those that nobody knows.
    lamella.save(read_checked(first, DEFAULT), text)
    lamella.save(read_checked(text, DEFAULT), second)
    assert second.read_bytes() == first.read_bytes()
    assert read_checked(text, DEFAULT).file == file


def test_large_weights_lie_beside_the_text(tmp_path: Path) -> None:
    data = write(large())
    (tmp_path / "a.nac").write_bytes(data)
    lamella.save(lamella.load(tmp_path / "a.nac"), tmp_path / "a.nacs")
    beside = [path for path in tmp_path.iterdir() if path.suffix == ".bin"]
    assert [path.stat().st_size for path in beside] == [LARGE]
    lamella.save(lamella.load(tmp_path / "a.nacs"), tmp_path / "b.nac")
    assert (tmp_path / "b.nac").read_bytes() == data


def test_a_file_is_saved_in_its_own_place(tmp_path: Path) -> None:
    path = tmp_path / "a.nac"
    path.write_bytes(write(large()))
    model = load(path)
    lamella.save(model, path)
    lamella.save(model, path)
    assert path.read_bytes() == write(large())


def test_a_file_that_became_shorter_is_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "a.nac"
    path.write_bytes(write(large()))
    model = load(path)
    os.truncate(path, 4096)
    for ending in ("nac", "nacs"):
        with pytest.raises(LamellaError, match="now 4096"):
            lamella.save(model, tmp_path / f"b.{ending}")
    assert os.listdir(tmp_path) == ["a.nac"]


@pytest.mark.parametrize("version", ["1.5", "1.6", "1.7", "1.8"])
def test_every_version_is_saved_as_the_same(tmp_path: Path, version: str) -> None:
    """20 is multiplication in the newer versions, and has no name before."""
    number = 20 if version > "1.6" else 11
    code = bytes([2, 0, number, 1]) + i16(-1, -1) + bytes([3, 0]) + i16(1, 0, -1)
    sections = {
        "OPS ": struct.pack("<I", 3) + code,
        "PERM": count(struct.pack("<HB", 1, 2) + b"TT"),
        "DATA": count(),
    }
    sections["DATA"] += count(struct.pack("<HH", 0, 1) + b"x")
    path = tmp_path / "a.nac"
    path.write_bytes(container(sections, version, counts=(1, 1, 0)))
    assert not lamella.check(path)
    lamella.save(lamella.load(path), tmp_path / "b.nac")
    again = load(tmp_path / "b.nac")
    assert (tmp_path / "b.nac").read_bytes()[3] == 1
    assert again.file.header.version == "1.6"
    assert again.file.instructions == load(path).file.instructions
    names = {item.id: item.name for item in again.file.operations}
    assert names.get(20) == ("nac.mul" if version > "1.6" else None)


@pytest.mark.parametrize(
    ("name", "content"),
    [("model", write(perceptron())), ("model.bin", write(in_blocks())), ("text", TEXT.encode())],
    ids=["bytes", "blocks", "text"],
)
def test_the_first_bytes_decide_where_the_ending_does_not(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert not lamella.check(path, language="nac")
    assert (cast(Model, lamella.load(path, language="nac")).mapped is None) == (content == TEXT.encode())
    (unknown,) = lamella.check(path)
    assert ".nac, " in unknown.hint
    assert ".nacs" in unknown.hint


def test_a_text_of_version_6_must_be_one_that_bytes_can_say(tmp_path: Path) -> None:
    path = tmp_path / "a.nacs"
    text = TEXT.replace("nac 1.6", "nac 1.6\n.operations\n70000 = custom.op")
    path.write_text(text, encoding="utf-8")
    assert [(item.code, item.span.line) for item in lamella.check(path)] == [("NAC043", 3), ("NAC202", 3)]
    path.write_text(text.replace("1.6", "1.8"), encoding="utf-8")
    assert [item.code for item in lamella.check(path)] == ["NAC043"]
    with pytest.raises(LamellaError, match="NAC202"):
        lamella.save(lamella.load(path), tmp_path / "a.nac")
    assert not (tmp_path / "a.nac").exists()


def test_a_file_with_errors_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.nacs"
    path.write_text(TEXT.replace("output(%x)", "nac.neg(%x)"), encoding="utf-8")
    with pytest.raises(LamellaError) as problem:
        lamella.load(path)
    assert [item.code for item in problem.value.findings] == ["NAC086"]
    assert list(map(str, problem.value.findings)) == list(map(str, lamella.check(path)))


def test_a_file_runs_once_its_inputs_are_known(tmp_path: Path) -> None:
    path = tmp_path / "a.nac"
    path.write_bytes(write(perceptron()))
    model = load(path)
    assert repr(model).startswith(f"<NAC 1.6 {path}: 7 instructions, 2 parameters, ")
    with pytest.raises(LamellaError, match="'x'"):
        lamella.compile(model)()
    x = np.ones((1, 2), np.float32)
    found = lamella.compile(model)(x=x)
    again = lamella.compile(model, backend="reference", types={"x": "f32[1, 2]"})(x=x)
    assert found.keys() == again.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], again[name])


def test_a_text_has_the_limit_of_texts(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text(TEXT, encoding="utf-8")
    limits = Limits(max_file_bytes=len(TEXT) - 1)
    (found,) = lamella.check(path, language="nac", limits=limits)
    assert "max_file_bytes" in found.message
    assert not lamella.check(path, language="nac", limits=Limits(max_file_bytes=len(TEXT)))


@in_one_folder
@given(files(), st.data())
def test_anything_is_checked_and_shown_without_an_exception(
    tmp_path: Path, file: n.File, data: st.DataObject
) -> None:
    content = bytearray(write(file))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=6)):
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "a.nac"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    wrong = [item for item in lamella.check(path) if item.severity == "error"]
    for listing in (False, True):
        text = shown(path, listing)
        assert text or wrong
        assert text.replace("\n", "").isprintable()


def test_weights_are_neither_read_nor_copied_to_check_and_show_a_file(tmp_path: Path) -> None:
    path = tmp_path / "large.nac"
    tensor = n.Tensor(1, 8, (GIB,), n.Unscaled(), memoryview(mmap(-1, GIB)))
    with path.open("wb") as target:
        for piece in write_pieces(replace(large(), tensors=(tensor,))):
            if len(piece) < GIB:
                target.write(piece)
            else:
                target.seek(GIB, os.SEEK_CUR)  # a hole in the file: it takes no room on the disk
    tracemalloc.start()
    try:
        assert not lamella.check(path)
        assert f"uint8[{GIB}]" in shown(path, listing=False)
        assert tracemalloc.get_traced_memory()[1] < LARGE
    finally:
        tracemalloc.stop()
