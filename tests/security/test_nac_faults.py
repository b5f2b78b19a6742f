"""Writing of `.nac`, of `.nacs` and of `.nac` with weights beside it goes wrong at any step: the old file survives."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import OutputError
from lamella.bridge.nac_to_graph.convert_weights import with_external
from lamella.bridge.nac_to_graph.weights import read_external
from lamella.lang.nac import nodes as n
from lamella.lang.nac import open_file, save_file
from lamella.lang.nac.files import save_assembly
from tests.base.test_writer import FaultyOs, leftovers
from tests.support.security.nac_faults import NEW, OLD, ROADS, InterruptedOs, Road, calls_through

TEMPORARY = re.compile(r"\..+\.lamella-[0-9a-f]{8}\.tmp")
CODES = [errno.ENOSPC, errno.EIO, errno.EACCES]
ROOT = Path(__file__).parents[2]
every_road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncing is slow and shows only where the power fails; it is called and counted all the same."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def count_calls(road: Road, folder: Path) -> list[str]:
    """The system calls of a writer that nothing happens to."""
    layer = FaultyOs(os, 0, 0)
    folder.mkdir()
    road.write(folder / road.name, OLD)
    with calls_through(layer):
        road.write(folder / road.name, NEW)
    return layer.calls


def check_state(road: Road, path: Path, problem: str) -> None:
    """A reader gets the old file or the new one; of a pair it may get a finding that names the weights."""
    state = road.state(path)
    if not problem:
        assert state == "new"
    elif "NAC159" in state:
        assert road.name == "pair.nac"
        assert "pair.safetensors" in state
    else:
        assert state in (("old", "new") if "in place" in problem else ("old",)), problem


# --- W1, W2, W3: every system call fails, or is the last one ------------------------------------------------


@every_road
@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
def test_w2_w3_every_failing_call_leaves_the_old_file_or_the_new_one(
    road: Road, code: int, tmp_path: Path
) -> None:
    calls = count_calls(road, tmp_path / "first")
    assert calls.count("replace") == (1 if road.name == "model.nac" else 2)
    path = tmp_path / road.name
    for number in range(1, len(calls) + 2):
        road.write(path, OLD)
        assert road.state(path) == "old", "the next writer is not disturbed"
        problem = ""
        with calls_through(FaultyOs(os, number, code)):
            try:
                road.write(path, NEW)
            except OutputError as found:
                problem = found.message
        check_state(road, path, problem)
        assert not leftovers(path.parent)
        if problem:
            assert str(path.with_suffix("")) in problem, "the file that could not be written is named"
            assert os.strerror(code).lower() in problem.lower()
            assert "bytes written" in problem or "in place" in problem


@every_road
def test_w1_an_interrupt_at_any_call_leaves_nothing_half(road: Road, tmp_path: Path) -> None:
    path, number = tmp_path / road.name, 1
    layer = InterruptedOs(os, 0, 0)
    while number == 1 or len(layer.calls) >= number - 1:
        road.write(path, OLD)
        before = len(os.listdir("/proc/self/fd"))
        layer = InterruptedOs(os, number, 0)
        with calls_through(layer), suppress(KeyboardInterrupt):
            road.write(path, NEW)
        check_state(road, path, "in place")
        assert not leftovers(path.parent)
        ended = layer.calls[number - 1 : number]
        assert len(os.listdir("/proc/self/fd")) <= before + (ended == ["close"])
        number += 1
    assert number > 10


@every_road
def test_w1_a_writer_that_is_killed_at_any_call_leaves_nothing_half(road: Road, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.support.security.nac_faults", road.name, str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    mended, killed = told[0::2], told[1::2]
    assert len(killed) > 10
    assert any(TEMPORARY.fullmatch(name) for _, names in killed for name in names), (
        "some left a temporary file"
    )
    for state, _ in killed[:-1]:
        assert state in ("old", "new") or ("NAC159" in state and road.name == "pair.nac"), state
    for state, names in mended:
        assert state == "old"
        assert not [name for name in names if name.endswith(".tmp")], "the next writer removes what is left"


LOOP = """
import sys
from pathlib import Path
from tests.support.security.nac_faults import NEW, OLD, ROADS
road, path = ROADS[sys.argv[1]], Path(sys.argv[2])
print("ready", flush=True)
while True:
    road.write(path, NEW)
    road.write(path, OLD)
"""


def start_writing(road: Road, path: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", LOOP, road.name, str(path)]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@every_road
def test_w1_w6_a_reader_never_sees_half_a_file_and_a_killed_writer_leaves_none(
    road: Road, tmp_path: Path
) -> None:
    """The writer is killed at a moment that nobody chose, while a reader looks all the time."""
    path, chance, seen = tmp_path / road.name, Random(0), set[str]()
    road.write(path, OLD)
    for _ in range(2):
        process = start_writing(road, path)
        try:
            for _ in range(chance.randrange(10, 60)):
                seen.add(road.state(path))
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        seen.add(road.state(path))
    whole = {state for state in seen if "NAC159" not in state}
    assert whole <= {"old", "new"}
    assert whole == seen or road.name == "pair.nac"
    road.write(path, NEW)
    assert road.state(path) == "new"
    assert not leftovers(tmp_path)


@every_road
@pytest.mark.parametrize("name", ["missing/{}", "file/{}", "{}/", "n" * 300 + "{}"])
def test_w3_places_that_cannot_be(road: Road, name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / name.format(road.name)
    if name.endswith("/"):
        path.mkdir()
    with pytest.raises(OutputError) as told:
        road.write(path, NEW)
    assert str(path.parent) in told.value.message
    assert not [
        found
        for found in tmp_path.rglob("*")
        if found.name.endswith((".tmp", ".nac", ".nacs")) and found.is_file()
    ]


@every_road
def test_w3_a_folder_that_is_gone(road: Road, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    road.write(folder / road.name, OLD)
    for item in folder.iterdir():
        item.unlink()
    folder.rmdir()
    with pytest.raises(OutputError, match="no such file or directory"):
        road.write(folder / road.name, NEW)


# --- W4: links ----------------------------------------------------------------------------------------------


@every_road
def test_w4_a_link_that_was_named_is_written_through(road: Road, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    path = tmp_path / road.name
    path.symlink_to(Path("there") / "file")
    road.write(path, NEW)
    assert path.is_symlink()
    assert (tmp_path / "there" / "file").is_file()


def test_w4_a_link_that_lies_where_weights_go_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"keep")
    beside = tmp_path / "pair.safetensors"
    for goal in ("precious", "nowhere"):
        beside.unlink(missing_ok=True)
        beside.symlink_to(goal)
        with pytest.raises(OutputError, match="symbolic link that was not named"):
            with_external(NEW, tmp_path / "pair.nac")
        assert beside.is_symlink()
    assert precious.read_bytes() == b"keep"
    assert not (tmp_path / "nowhere").exists()
    with_external(NEW, beside)
    assert beside.is_symlink()
    assert (tmp_path / "nowhere").is_file()


def test_w4_a_link_that_lies_where_the_data_of_a_text_goes_is_not_followed(tmp_path: Path) -> None:
    companion = save_assembly(tmp_path / "model.nacs", NEW)
    assert companion is not None
    companion.unlink()
    companion.symlink_to("precious")
    (tmp_path / "precious").write_bytes(b"keep")
    with pytest.raises(OutputError, match="symbolic link that was not named"):
        save_assembly(tmp_path / "model.nacs", NEW)
    assert (tmp_path / "precious").read_bytes() == b"keep"


# --- W5: two writers ----------------------------------------------------------------------------------------


@every_road
def test_w5_writers_at_the_same_time_never_mix_unseen(road: Road, tmp_path: Path) -> None:
    path = tmp_path / road.name
    writers = [threading.Thread(target=_write_often, args=(road, path, file)) for file in (OLD, NEW)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    state = road.state(path)
    assert state in ("old", "new") or (road.name == "pair.nac" and "NAC159" in state)
    assert not leftovers(tmp_path)


def _write_often(road: Road, path: Path, file: n.File) -> None:
    for _ in range(10):
        road.write(path, file)


# --- W7: a file and its weights -----------------------------------------------------------------------------


def test_w7_weights_are_written_before_the_file_that_needs_them(tmp_path: Path) -> None:
    layer = FaultyOs(os, 0, 0)
    with calls_through(layer):
        outside = with_external(NEW, tmp_path / "pair.nac")
        assert [item.name for item in tmp_path.iterdir()] == ["pair.safetensors"]
        assert layer.calls[-1] == "close", "and they are safe on the disk"
        assert layer.calls.count("fsync") == 2
        save_file(tmp_path / "pair.nac", outside)
    assert ROADS["pair.nac"].state(tmp_path / "pair.nac") == "new"


def test_w7_weights_of_another_version_are_told_by_their_name(tmp_path: Path) -> None:
    """Names, shapes and types are those of the file; only what was trained differs."""
    path, beside, road = tmp_path / "pair.nac", tmp_path / "pair.safetensors", ROADS["pair.nac"]
    road.write(path, OLD)
    old = beside.read_bytes()
    road.write(path, NEW)
    new = beside.read_bytes()
    beside.write_bytes(old)
    (finding,) = read_external(open_file(path).file, path).findings
    assert (finding.code, finding.span.source.name) == ("NAC159", str(beside))
    assert not read_external(open_file(path).file, beside).findings, "who names the weights means them"
    beside.write_bytes(new)
    assert road.state(path) == "new"


def test_w7_notes_of_a_file_are_kept_and_those_that_are_none_are_left(tmp_path: Path) -> None:
    path = tmp_path / "pair.nac"
    for notes in (b'{"format":1,"graph":"main"}', b"[1]", b"{", b"\xff", b"[" * 100_000):
        resources = (n.Resource("vocab.json", b"{}"), n.Resource("lamella.json", notes))
        file = replace(NEW, resources=resources)
        outside = with_external(file, path)
        assert [item.name for item in outside.resources] == ["vocab.json", "lamella.json"]
        assert (outside.resources == resources) == (notes != b'{"format":1,"graph":"main"}')
        save_file(path, outside)
        found = ROADS["pair.nac"].read(path)
        assert found == file


# --- W9 to W12 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("road", [ROADS["model.nac"], ROADS["pair.nac"]], ids=lambda road: road.name)
def test_w9_what_cannot_be_said_is_refused_before_anything_is_written(road: Road, tmp_path: Path) -> None:
    path = tmp_path / road.name
    road.write(path, OLD)
    wrong = replace(NEW, tensors=(*NEW.tensors[:1], replace(NEW.tensors[1], data=b"")))
    if road.name == "pair.nac":
        with pytest.raises(LamellaError, match="NAC141"):
            road.write(path, wrong)
    with pytest.raises(LamellaError, match="NAC202"):
        road.write(path, replace(NEW, header=replace(NEW.header, d_model=1 << 16)))
    assert road.state(path) == "old"


@every_road
def test_w10_equal_files_give_equal_bytes(road: Road, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        road.write(tmp_path / name / road.name, NEW)
    first, second = (
        {item.name: item.read_bytes() for item in (tmp_path / name).iterdir()} for name in ("one", "two")
    )
    assert first == second


def test_w11_a_device_without_room_is_an_error() -> None:
    with pytest.raises(OutputError, match="cannot write '/dev/full': no space left on device"):
        save_file(Path("/dev/full"), NEW)


def test_w12_weights_are_not_copied_to_be_written(tmp_path: Path) -> None:
    large = n.Tensor(1, 7, (32 << 20, 1), n.Int8Tensor(0.5), bytes(32 << 20))
    file = replace(NEW, tensors=(large, NEW.tensors[1]))
    for road in ROADS.values():
        tracemalloc.start()
        road.write(tmp_path / road.name, file)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 << 20, road.name
