"""The atomic writer: every system call may fail, the process may be killed, and the file is whole."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from lamella.base import writer
from lamella.base.errors import OutputError
from lamella.base.writer import write_bytes, write_pieces, write_text

OLD = b"old" * 1000
NEW = b"new!" * 300_000
AS_ROOT = os.geteuid() == 0


class FaultyOs:
    """Stands in for a module of system calls and fails the n-th call, whichever it is."""

    def __init__(self, module: ModuleType, fail_at: int, code: int) -> None:
        self._module = module
        self._fail_at = fail_at
        self._code = code
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        found = getattr(self._module, name)
        return (
            self._wrap(name, found)
            if callable(found) and name not in ("fsencode", "fsdecode", "strerror")
            else found
        )

    def _wrap(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            self.calls.append(name)
            if len(self.calls) == self._fail_at:
                self.fail()
            return call(*arguments)

        return counted

    def fail(self) -> None:
        """What happens in the place of the call."""
        raise OSError(self._code, os.strerror(self._code))


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".tmp")]


def faulty(monkeypatch: pytest.MonkeyPatch, fail_at: int, code: int) -> FaultyOs:
    layer = FaultyOs(os, fail_at, code)
    monkeypatch.setattr(writer, "os", layer)
    return layer


def count_calls(target: Path) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        layer = faulty(patch, 0, 0)
        write_bytes(target, NEW)
    return layer.calls


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("existing", [True, False])
def test_every_failing_call_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, existing: bool, code: int
) -> None:
    calls = count_calls(tmp_path / "first")
    order = [name for name in calls if name in ("write", "fsync", "replace")]
    assert order == ["write", "fsync", "replace", "fsync"]
    for number in range(1, len(calls) + 3):
        target = tmp_path / f"case{number}"
        if existing:
            target.write_bytes(OLD)
        with pytest.MonkeyPatch.context() as patch:
            layer = faulty(patch, number, code)
            try:
                write_bytes(target, NEW)
                failed = ""
            except OutputError as problem:
                failed = problem.message
        check_outcome(target, OLD if existing else None, failed, layer.calls)
        assert leftovers(tmp_path) == [], (number, layer.calls)


def check_outcome(target: Path, old: bytes | None, failed: str, calls: list[str]) -> None:
    """A failure before the rename keeps the old file; only syncing the folder may fail after it."""
    found = target.read_bytes() if target.exists() else None
    if not failed:
        assert found == NEW
    elif "in place" in failed:
        assert "replace" in calls
        assert found == NEW
    else:
        assert found == old
        assert str(target) in failed
        assert f"of {len(NEW)} bytes written" in failed


def test_a_write_that_takes_few_bytes_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    layer = faulty(monkeypatch, 0, 0)
    monkeypatch.setattr(layer, "write", lambda descriptor, data: real(descriptor, data[:7]), raising=False)
    write_bytes(tmp_path / "x", b"0123456789" * 50)
    assert (tmp_path / "x").read_bytes() == b"0123456789" * 50
    monkeypatch.setattr(layer, "write", lambda descriptor, data: 0, raising=False)
    with pytest.raises(OutputError, match=r"takes no more bytes \(0 of 3 bytes written\)"):
        write_bytes(tmp_path / "x", b"abc")


def test_pieces_are_written_one_behind_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system takes few bytes at a time."""
    pieces: list[bytes | memoryview] = [b"", b"ab", memoryview(b"cdefg")[1:], b"h" * 100, b""]
    real = os.write
    layer = faulty(monkeypatch, 0, 0)
    monkeypatch.setattr(layer, "write", lambda descriptor, data: real(descriptor, data[:3]), raising=False)
    write_pieces(tmp_path / "out", pieces)
    assert (tmp_path / "out").read_bytes() == b"abdefg" + b"h" * 100


def test_an_interrupt_removes_the_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "x").write_bytes(OLD)
    monkeypatch.setattr(faulty(monkeypatch, 0, 0), "fsync", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "x", NEW)
    assert (tmp_path / "x").read_bytes() == OLD
    assert leftovers(tmp_path) == []


def test_a_size_limit_of_the_system_is_told(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(OLD)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        with pytest.raises(OutputError, match=f"too large.*500000 of {len(NEW)} bytes written"):
            write_bytes(tmp_path / "x", NEW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "x").read_bytes() == OLD
    assert leftovers(tmp_path) == []


def test_a_full_disk_is_known_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_free_bytes", lambda folder: 1000)
    with pytest.raises(OutputError, match=f"1000 bytes free .0 of {len(NEW)} bytes written"):
        write_bytes(tmp_path / "x", NEW)
    write_bytes(tmp_path / "x", b"a small file is tried")
    assert os.listdir(tmp_path) == ["x"]


LOOP = """
import sys
from pathlib import Path
from lamella.base.writer import write_bytes
target, byte = Path(sys.argv[1]), 0
print("ready", flush=True)
while True:
    byte = (byte + 1) % 256
    write_bytes(target, bytes([byte]) * 400_000)
"""


def start_writing(target: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", LOOP, str(target)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def check_whole(data: bytes) -> None:
    assert len(data) == 400_000
    assert data == data[:1] * 400_000


def test_a_killed_writer_leaves_a_whole_file_and_its_leftover_is_removed(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"\0" * 400_000)
    for delay in (0.0, 0.003, 0.011, 0.019, 0.027):
        process = start_writing(target)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        check_whole(target.read_bytes())
    (tmp_path / ".x.lamella-0123abcd.tmp").write_bytes(b"what a killed writer left")
    write_bytes(target, b"\1" * 400_000)
    assert os.listdir(tmp_path) == ["x"]


def test_a_reader_sees_a_whole_file_at_any_time(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"\0" * 400_000)
    process = start_writing(target)
    seen = set()
    for _ in range(2000):
        data = target.read_bytes()
        check_whole(data)
        seen.add(data[0])
        if len(seen) > 5:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(seen) > 1


def test_writers_at_the_same_time_never_mix_or_disturb_each_other(tmp_path: Path) -> None:
    target = tmp_path / "x"
    problems: list[OutputError] = []

    def write_often(byte: int) -> None:
        try:
            for _ in range(20):
                write_bytes(target, bytes([byte]) * 400_000)
        except OutputError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=write_often, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    check_whole(target.read_bytes())
    assert os.listdir(tmp_path) == ["x"]


def test_only_leftovers_of_the_same_file_without_a_living_writer_are_removed(tmp_path: Path) -> None:
    alive = tmp_path / ".x.lamella-00000000.tmp"
    others = [
        ".y.lamella-00000000.tmp",
        ".x.lamella-0.tmp",
        ".x.lamella-zzzzzzzz.tmp",
        "x.lamella-00000000.tmp",
    ]
    for name in [alive.name, ".x.lamella-00000001.tmp", *others]:
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".x.lamella-00000002.tmp").symlink_to(others[0])
    with alive.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_bytes(tmp_path / "x", b"1")
    kept = {alive.name, "x", ".x.lamella-00000002.tmp", *others}
    assert set(os.listdir(tmp_path)) == kept


def test_permissions_are_those_of_the_old_file_or_of_the_mask(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_bytes(b"")
    old.chmod(0o751)
    write_bytes(old, b"1")
    assert stat.S_IMODE(old.stat().st_mode) == 0o751
    mask = os.umask(0o027)
    try:
        write_bytes(tmp_path / "new", b"1")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_link_the_user_named_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to("folder/file")
    for data in (b"created", b"replaced"):
        write_bytes(link, data)
        assert link.is_symlink()
        assert (tmp_path / "folder" / "file").read_bytes() == data
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match="symbolic links"):
        write_bytes(tmp_path / "loop", b"1")
    assert (tmp_path / "loop").is_symlink()


def test_a_hard_link_keeps_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    os.link(tmp_path / "a", tmp_path / "b")
    write_bytes(tmp_path / "a", b"2")
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()) == (b"2", b"1")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (".", "is a directory"),
        ("missing/x", "no such file or directory"),
        ("file/x", "not a directory"),
        ("n" * 300, "too long"),
        ("a\0b", "NUL"),
    ],
)
def test_targets_that_cannot_be(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match=words):
        write_bytes(tmp_path / name, b"data")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127, ".hidden"])
def test_names_up_to_the_limit_of_the_file_system(tmp_path: Path, name: str) -> None:
    write_bytes(tmp_path / name, b"data")
    assert os.listdir(tmp_path) == [name]


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    if AS_ROOT:
        pytest.skip("root may write into any folder")
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(OutputError, match="permission denied"):
            write_bytes(tmp_path / "x", b"1")
    finally:
        tmp_path.chmod(0o755)


def test_a_protected_file_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(OLD)
    layer = faulty(monkeypatch, 0, 0)
    monkeypatch.setattr(layer, "access", lambda path, mode: mode != os.W_OK, raising=False)
    with pytest.raises(OutputError, match="permission denied"):
        write_bytes(tmp_path / "x", NEW)
    assert (tmp_path / "x").read_bytes() == OLD


def test_pipes_and_devices_are_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OutputError, match="no such device"):
        write_bytes(pipe, b"nobody reads")
    received: list[bytes] = []
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "rb") as source:
        reader = threading.Thread(target=lambda: received.append(source.read()))
        write_bytes(pipe, b"small")
        reader.start()
        reader.join()
    assert received == [b"small"]
    write_bytes(Path("/dev/null"), b"gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_text_is_written_as_utf8(tmp_path: Path) -> None:
    write_text(tmp_path / "x", "é\n")
    assert (tmp_path / "x").read_bytes() == b"\xc3\xa9\n"
    with pytest.raises(OutputError, match="character 1 is not Unicode text"):
        write_text(tmp_path / "x", "a\ud800")
    assert (tmp_path / "x").read_bytes() == b"\xc3\xa9\n"


def test_an_empty_file_and_a_view_are_bytes_too(tmp_path: Path) -> None:
    write_bytes(tmp_path / "x", b"")
    assert (tmp_path / "x").read_bytes() == b""
    write_bytes(tmp_path / "x", memoryview(b"abcdefgh").cast("I"))
    assert (tmp_path / "x").read_bytes() == b"abcdefgh"


@pytest.mark.parametrize("durable", [True, False])
def test_what_can_be_made_again_need_not_be_synced(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, calls = tmp_path / "file", FaultyOs(os, 0, 0)
    target.write_bytes(OLD)
    monkeypatch.setattr(writer, "os", calls)
    write_bytes(target, NEW, durable=durable)
    assert ("fsync" in calls.calls) == durable
    assert target.read_bytes() == NEW
    assert leftovers(tmp_path) == []
