"""The path resolver under attack, and reading text."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base import paths
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import (
    STANDARD_INPUT,
    Refusal,
    default_root,
    map_bytes,
    map_bytes_in,
    read_bytes,
    read_included,
    read_shipped,
    read_text,
    resolve_include,
    shipped,
    shown,
)

SMALL = Limits(max_file_bytes=10, max_data_bytes=20, max_name=50)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a main file, a folder beside it, and a secret outside."""
    project = tmp_path / "project"
    (project / "lib" / "deep").mkdir(parents=True)
    (project / "main.nem").write_text("main")
    (project / "lib" / "a.nem").write_text("a")
    (project / "lib" / "deep" / "b.nem").write_text("b")
    (tmp_path / "secret.nem").write_text("secret")
    return project


def refused(root: Path, text: str, including: str = "main.nem") -> str:
    found = resolve_include(root, root / including, text)
    assert isinstance(found, Refusal), found
    return found.reason


@pytest.mark.parametrize(
    ("including", "text", "expected"),
    [
        ("main.nem", "lib/a.nem", "lib/a.nem"),
        ("main.nem", "./lib//a.nem", "lib/a.nem"),
        ("main.nem", "lib/../lib/./a.nem", "lib/a.nem"),
        ("lib/a.nem", "deep/b.nem", "lib/deep/b.nem"),
        ("lib/a.nem", "../main.nem", "main.nem"),
        ("lib/deep/b.nem", "../../lib/a.nem", "lib/a.nem"),
    ],
)
def test_files_inside_the_root_are_found(root: Path, including: str, text: str, expected: str) -> None:
    found = resolve_include(root, root / including, text)
    assert found == Path(os.path.realpath(root)) / expected
    assert isinstance(found, Path)
    assert read_included(root, found) == (root / expected).read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("../secret.nem", "leaves the root"),
        ("lib/../../secret.nem", "leaves the root"),
        ("../project/main.nem", "leaves the root"),
        ("/etc/passwd", "absolute"),
        ("//server/share", "absolute"),
        ("C:/x.nem", "absolute"),
        ("c:x.nem", "absolute"),
        ("\\\\server\\share", "backslash"),
        ("lib\\a.nem", "backslash"),
        ("a\0b", "control"),
        ("a\x1b[31m.nem", "control"),
        ("a\u202eb.nem", "control"),
        ("", "names no file"),
        (".", "names no file"),
        ("..", "names no file"),
        ("lib/..", "is a folder"),
        ("lib/", "names a folder"),
        ("lib", "is a folder"),
        ("missing.nem", "no such file"),
        ("main.nem/x", "not a directory"),
        ("x" * 300, "too long"),
        ("x/" * 600 + "y", "max_name"),
        ("\udcff.nem", "control"),
    ],
)
def test_paths_that_are_refused(root: Path, text: str, words: str) -> None:
    assert words in refused(root, text)


def test_symbolic_links_below_the_root_are_refused(root: Path) -> None:
    (root / "link.nem").symlink_to(root / "lib" / "a.nem")
    (root / "out.nem").symlink_to("../secret.nem")
    (root / "folder").symlink_to(root / "lib")
    (root / "loop").symlink_to("loop")
    assert "the symbolic link 'link.nem'" in refused(root, "link.nem")
    assert "the symbolic link 'out.nem'" in refused(root, "out.nem")
    assert "the symbolic link 'folder'" in refused(root, "folder/a.nem")
    assert "the symbolic link 'loop'" in refused(root, "loop")


def test_a_file_swapped_for_a_link_is_not_read(root: Path) -> None:
    found = resolve_include(root, root / "main.nem", "lib/a.nem")
    assert isinstance(found, Path)
    found.unlink()
    found.symlink_to("../../secret.nem")
    with pytest.raises(InputError, match="symbolic link"):
        read_included(root, found)
    found.unlink()
    with pytest.raises(InputError, match="no such file"):
        read_included(root, found)


def test_a_folder_swapped_after_looking_is_not_followed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "lib").rename(root / "moved")
    (root / "lib").symlink_to("moved")
    monkeypatch.setattr(paths, "_refuse_link", lambda folder, part, last: None)
    assert "cannot be read" in refused(root, "lib/a.nem")
    (root / "leaf.nem").symlink_to("main.nem")
    assert "cannot be read" in refused(root, "leaf.nem")


def test_other_kinds_of_files_are_refused_without_waiting(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert refused(root, "pipe") == "is not a regular file"
    (root / "dev").mkdir()
    assert refused(Path("/dev"), "null", "main.nem") == "is not a regular file"


def test_hard_links_are_refused_except_in_the_package(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.link(root.parent / "secret.nem", root / "hard.nem")
    assert refused(root, "hard.nem") == "has 2 hard links"
    monkeypatch.setattr(paths, "_PACKAGE", Path(os.path.realpath(root)))
    assert isinstance(resolve_include(root, root / "main.nem", "hard.nem"), Path)


def test_a_root_may_itself_be_reached_by_a_link(root: Path) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)
    found = resolve_include(alias, alias / "main.nem", "lib/a.nem")
    assert found == Path(os.path.realpath(root)) / "lib/a.nem"


def test_an_including_file_outside_the_root_is_refused(root: Path) -> None:
    assert "outside the root" in refused(root / "lib", "a.nem", "../main.nem")


def test_a_root_that_is_missing_is_told(root: Path) -> None:
    assert "no such file" in refused(root / "nowhere", "a.nem")


def test_standard_input_includes_from_the_working_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert default_root(STANDARD_INPUT) == Path.cwd()
    assert default_root(root / "main.nem") == root
    found = resolve_include(default_root(STANDARD_INPUT), STANDARD_INPUT, "lib/a.nem")
    assert isinstance(found, Path)
    assert shown(found) == "lib/a.nem"


@given(st.text(st.sampled_from("./\\ab\0:é"), max_size=12))
def test_no_spelling_escapes(text: str) -> None:
    root = Path(__file__).parent
    found = resolve_include(root, Path(__file__), text)
    if isinstance(found, Path):
        assert Path(os.path.realpath(found)).is_relative_to(os.path.realpath(root))


def test_text_is_strict_utf8(tmp_path: Path) -> None:
    file = tmp_path / "x.nem"
    file.write_bytes(b"\xef\xbb\xbfa\r\n\xc3\xa9")
    assert read_text(file) == "a\r\né"
    file.write_bytes("é\nab".encode() + b"\xff")
    with pytest.raises(InputError) as caught:
        read_text(file)
    finding = caught.value.findings[0]
    assert (caught.value.offset, finding.span.line, finding.span.column) == (5, 2, 3)
    assert finding.message == "the text is not UTF-8 (at byte 5)"


@pytest.mark.parametrize(
    "data",
    [b"ab\xed\xa0\x80", b"ab\xc0\xaf", b"ab\xf5\x80\x80\x80", b"ab\xe2\x82", b"ab\0c"],
    ids=["surrogate", "overlong", "beyond", "cut", "NUL"],
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "marked"])
def test_bad_bytes_tell_their_offset(tmp_path: Path, data: bytes, mark: bytes) -> None:
    file = tmp_path / "x.nem"
    file.write_bytes(mark + data)
    with pytest.raises(InputError) as caught:
        read_text(file)
    assert caught.value.offset == 2 + len(mark)


@given(st.binary(max_size=30))
def test_any_bytes_are_text_or_a_clean_error(data: bytes) -> None:
    text: str | None = None
    try:
        text = paths._decode(data, Path("x"))
    except InputError as problem:
        data = data[: problem.offset]
    assert text is None or text.encode() == data.removeprefix(b"\xef\xbb\xbf")
    assert data.decode() is not None


def test_limits_are_kept_and_named(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"a" * 11)
    assert read_bytes(file, SMALL) == b"a" * 11
    with pytest.raises(InputError, match="in bytes is 11; the limit max_file_bytes is 10") as caught:
        read_text(file, SMALL)
    assert caught.value.hint == "raise it with --limit max_file_bytes=N"
    file.write_bytes(b"a" * 21)
    with pytest.raises(InputError, match="max_data_bytes is 20"):
        read_bytes(file, SMALL)


def test_a_file_that_lies_about_its_size_is_bounded() -> None:
    file = Path("/proc/self/status")
    if not file.exists():
        pytest.skip("there is no /proc on this machine")
    assert file.stat().st_size == 0
    assert read_text(file).startswith("Name:")
    with pytest.raises(InputError, match="max_file_bytes"):
        read_text(file, SMALL)


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_collect", lambda *_: pytest.fail("the file was read"))
    file = tmp_path / "sparse"
    with file.open("wb") as out:
        out.truncate(1 << 40)
    with pytest.raises(InputError, match="max_data_bytes"):
        read_bytes(file)


def test_what_the_user_names_may_be_a_link_but_must_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    (tmp_path / "link").symlink_to("x")
    os.mkfifo(tmp_path / "pipe")
    assert read_text(tmp_path / "link") == "x"
    for path, words in (
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "is not a regular file"),
        (Path("/dev/zero"), "is not a regular file"),
        (tmp_path / "missing", "no such file"),
        (tmp_path / "x" / "y", "not a directory"),
        (tmp_path / ("n" * 300), "too long"),
        (tmp_path / "a\0b", "NUL"),
    ):
        with pytest.raises(InputError, match=words):
            read_bytes(path)


def test_descriptors_are_given_back(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    os.link(root.parent / "secret.nem", root / "hard.nem")
    for text in ("lib/a.nem", "lib", "missing", "main.nem/x", "hard.nem", "lib/missing/x"):
        resolve_include(root, root / "main.nem", text)
    with pytest.raises(InputError):
        read_bytes(root)
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)


def test_standard_input_is_read_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"program x")))
    assert read_text(STANDARD_INPUT, SMALL) == "program x"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 11)))
    with pytest.raises(InputError, match="'<stdin>' in bytes is 11"):
        read_text(STANDARD_INPUT, SMALL)


def test_data_folders_come_with_the_package() -> None:
    assert (shipped("base") / "paths.py").samefile(paths.__file__)
    with pytest.raises(InputError, match="lacks its folder 'nothing'"):
        shipped("nothing")
    assert read_shipped("base/paths.py") == Path(paths.__file__).read_text()
    with pytest.raises(InputError):
        read_shipped("base/nothing.txt")


def test_paths_are_shown_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(Path.cwd() / "a" / "b.nem") == "a/b.nem"
    assert shown(Path("a/../b.nem")) == "a/../b.nem"
    assert shown(Path("/elsewhere/b.nem")) == "/elsewhere/b.nem"
    assert shown(STANDARD_INPUT) == "<stdin>"
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert shown(tmp_path / "x") == str(tmp_path / "x")


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 5])
def test_mapped_bytes_are_those_of_the_file(tmp_path: Path, size: int) -> None:
    path, data = tmp_path / "weights.nac", os.urandom(size)
    path.write_bytes(data)
    mapped = map_bytes(path)
    assert mapped.data == data
    assert mapped.data.readonly
    mapped.check_whole()


def test_a_mapped_file_that_became_shorter_is_refused_before_it_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "weights.nac"
    path.write_bytes(bytes(3 << 20))
    mapped = map_bytes(path)
    os.truncate(path, 1 << 20)
    with pytest.raises(InputError, match="was 3145728 bytes long when it was opened, and now 1048576"):
        mapped.check_whole()
    os.truncate(path, 4 << 20)
    mapped.check_whole()


@given(st.integers(0, 3 << 20), st.integers(0, 3 << 20))
def test_bytes_whose_memory_was_given_back_are_read_again(start: int, length: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, data = Path(folder) / "weights", os.urandom(1 << 10) * (3 << 10)
        path.write_bytes(data)
        mapped = map_bytes(path)
        before = bytes(mapped.data)
        mapped.release(start, min(length, len(data) - start))
        assert bytes(mapped.data) == before == data


def test_a_mapped_file_survives_its_name(tmp_path: Path) -> None:
    path = tmp_path / "weights.nac"
    path.write_bytes(b"x" * (2 << 20))
    mapped = map_bytes(path)
    path.unlink()
    mapped.check_whole()
    assert bytes(mapped.data[-3:]) == b"xxx"


def test_what_cannot_be_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        map_bytes(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a folder"):
        map_bytes(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        map_bytes(tmp_path / "missing")
    with pytest.raises(InputError, match="NUL"):
        map_bytes(Path("a\0b"))
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    with pytest.raises(InputError, match="max_data_bytes"):
        map_bytes(tmp_path / "large", SMALL)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc")))
    assert bytes(map_bytes(STANDARD_INPUT).data) == b"abc"


@pytest.mark.parametrize("size", [0, 5, (1 << 20) + 3])
def test_bytes_mapped_in_a_folder_are_those_of_its_file(tmp_path: Path, size: int) -> None:
    data = bytes(index % 251 for index in range(size))
    (tmp_path / "data").write_bytes(data)
    before = len(os.listdir("/proc/self/fd"))
    mapped = map_bytes_in(tmp_path, "data")
    assert bytes(mapped.data) == data
    # a map keeps a descriptor of its own
    assert len(os.listdir("/proc/self/fd")) - before == (size >= 1 << 20)


def test_what_cannot_be_mapped_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(21))
    (tmp_path / "link").symlink_to(tmp_path / "data")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for name, words in (
        ("link", "symbolic link"),
        ("pipe", "not a regular file"),
        ("folder", "is a folder"),
        ("missing", "no such file"),
        ("a\0b", "NUL"),
        ("data", "max_data_bytes"),
    ):
        with pytest.raises(InputError, match=words):
            map_bytes_in(tmp_path, name, SMALL)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("target", "is_read"),
    [
        ("../../blobs/aa", True),
        ("../../blobs/../blobs/aa", True),
        ("../../blobs/link", False),
        ("../../blobs/deep/aa", False),
        ("../../blobs/hard", False),
        ("../../blobs", False),
        ("../../../other/blobs/aa", False),
        ("../../../secret", False),
        ("../../blobs/../../secret", False),
        ("../0/plain", False),
        ("/etc/hostname", False),
        ("gone", False),
    ],
)
def test_a_link_of_a_hub_is_followed_inside_its_cache_alone(
    tmp_path: Path, target: str, is_read: bool
) -> None:
    cache = tmp_path / "models--a--b"
    folder = cache / "snapshots" / "0"
    for item in (folder, cache / "blobs" / "deep", tmp_path / "other" / "blobs"):
        item.mkdir(parents=True)
    for item in (
        cache / "blobs" / "aa",
        cache / "blobs" / "deep" / "aa",
        tmp_path / "other" / "blobs" / "aa",
    ):
        item.write_text("blob")
    (tmp_path / "secret").write_text("secret")
    (folder / "plain").write_text("plain")
    (cache / "blobs" / "link").symlink_to("../../secret")
    os.link(tmp_path / "secret", cache / "blobs" / "hard")
    (folder / "x").symlink_to(target)
    if is_read:
        assert paths.read_text_in(folder, "x") == "blob"
        assert bytes(map_bytes_in(folder, "x").data) == b"blob"
    else:
        with pytest.raises(InputError):
            paths.read_bytes_in(folder, "x")
    # the same link in a folder that is no snapshot of a cache is not followed
    other = tmp_path / "model" / "snapshots" / "0"
    other.mkdir(parents=True)
    (other / "x").symlink_to(folder / "plain")
    with pytest.raises(InputError, match="symbolic link"):
        paths.read_text_in(other, "x")
