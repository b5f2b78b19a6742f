"""The object cache: what is kept comes back whole or not at all, and only from a private folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu.jit import ObjectCache, build, open_cache
from lamella.base.object_cache import ENDING

KEY, OTHER = bytes(range(32)), bytes(32)
TEXT = "define i64 @value() {\n  ret i64 5\n}"


def only_file(folder: Path) -> Path:
    """The one object of a cache."""
    (found,) = folder.glob(f"*{ENDING}")
    return found


@given(st.binary(max_size=300), st.binary(min_size=32, max_size=32))
def test_what_is_put_comes_back(tmp_path_factory: pytest.TempPathFactory, content: bytes, key: bytes) -> None:
    cache = ObjectCache(tmp_path_factory.mktemp("cache"))
    assert cache.get(key) is None
    cache.put(key, content)
    assert cache.get(key) == content
    cache.put(key, content + b"!")
    assert cache.get(key) == content + b"!"


def test_every_damage_is_seen(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(KEY, b"machine code")
    whole = only_file(tmp_path).read_bytes()
    for place in range(len(whole)):
        only_file(tmp_path).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert cache.get(KEY) is None, place
        only_file(tmp_path).write_bytes(whole[:place])
        assert cache.get(KEY) is None, place
    only_file(tmp_path).write_bytes(whole + b"\0")
    assert cache.get(KEY) is None
    only_file(tmp_path).write_bytes(whole)
    assert cache.get(KEY) == b"machine code"


def test_an_object_under_another_name_is_foreign(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(KEY, b"machine code")
    only_file(tmp_path).rename(tmp_path / (OTHER.hex() + ENDING))
    assert cache.get(OTHER) is None


def test_links_are_not_followed(tmp_path: Path) -> None:
    real, linked = tmp_path / "real", tmp_path / "linked"
    real.mkdir()
    linked.mkdir()
    ObjectCache(real).put(KEY, b"machine code")
    (linked / only_file(real).name).symlink_to(only_file(real))
    assert ObjectCache(linked).get(KEY) is None


def test_a_damaged_object_is_compiled_again(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    build(TEXT, ["value"], cache)
    whole = only_file(tmp_path).read_bytes()
    only_file(tmp_path).write_bytes(whole[:-1])
    build(TEXT, ["value"], cache)
    assert only_file(tmp_path).read_bytes() == whole


def test_the_store_is_asked_before_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ObjectCache(tmp_path)
    build(TEXT, ["value"], cache)
    monkeypatch.setattr("lamella.backend.cpu.jit.engine.assemble", lambda *_: pytest.fail("LLVM is asked"))
    assert build(TEXT, ["value"], cache).address("value")


def test_what_is_used_stays_longest(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, largest=1000)
    keys = [bytes([number]) * 32 for number in range(5)]
    for number, key in enumerate(keys):
        cache.put(key, bytes(100))
        os.utime(tmp_path / f"{key.hex()}.object", ns=(number, number))
        assert cache.get(keys[0]) is not None
    cache.put(bytes([9]) * 32, bytes(300))
    assert cache.get(keys[0]) is not None
    assert cache.get(keys[1]) is None


def test_the_oldest_go_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, largest=1000)
    keys = [bytes([number]) * 32 for number in range(8)]
    for number, key in enumerate(keys):
        cache.put(key, bytes(100))
        for path in tmp_path.glob(key.hex() + "*"):
            os.utime(path, ns=(number, number))
    kept = [key for key in keys if cache.get(key) is not None]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1000
    assert kept
    assert kept == keys[-len(kept) :]


def test_small_objects_keep_the_bound_and_seldom_go_through_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []

    def look(folder: Path) -> Iterator[os.DirEntry[str]]:
        looks.append(folder)
        return scandir(folder)

    scandir, largest, count = os.scandir, 1 << 20, 1500
    monkeypatch.setattr(os, "scandir", look)
    cache = ObjectCache(tmp_path, largest)
    for number in range(count):
        cache.put(hashlib.sha256(str(number).encode()).digest(), bytes(900))
    assert 0 < len(looks) < count // 16
    monkeypatch.undo()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert largest // 2 < sum(sizes) < largest * 5 // 4


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / f".{OTHER.hex()}{ENDING}.lamella-00000000.tmp").write_bytes(b"half")
    ObjectCache(tmp_path, largest=1000).put(KEY, b"x")
    assert list(tmp_path.iterdir()) == [only_file(tmp_path)]


def test_what_is_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    ObjectCache(tmp_path, largest=100).put(KEY, bytes(100))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "gone")
    cache.put(KEY, b"x")
    assert cache.get(KEY) is None


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_write_to_is_not_used(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "objects"
    folder.mkdir()
    folder.chmod(mode)
    assert open_cache(folder) is None


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "objects"
    assert open_cache(folder) == ObjectCache(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_link_or_a_file_is_no_folder(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "file").write_text("")
    assert open_cache(tmp_path / "link") is None
    assert open_cache(tmp_path / "file") is None


def test_a_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "objects"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert open_cache(folder) is None


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "mine"))
    assert open_cache() == ObjectCache(tmp_path / "mine")
    monkeypatch.setenv("LAMELLA_CACHE", "")
    assert open_cache() is None
    monkeypatch.delenv("LAMELLA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert open_cache() == ObjectCache(tmp_path / "xdg" / "lamella" / "objects")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_cache() == ObjectCache(tmp_path / "home" / ".cache" / "lamella" / "objects")
