"""Objects on disk: found by what they were made from, verified before use, in a folder that is the user's alone."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.base.limits import MIB, Limits
from lamella.base.paths import is_there, read_bytes_in
from lamella.base.reader import Reader
from lamella.base.records import dataclass
from lamella.base.writer import remove_leftovers, write_bytes

MAGIC = b"LAMELLA\x00"
VERSION = 1
LARGEST = 256 * MIB
ENDING = ".object"
OBJECTS = re.compile(rf"[0-9a-f]{{64}}{re.escape(ENDING)}")
KEY_BYTES = 32
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class ObjectCache:
    """A folder of objects that may hold so many bytes; those that nobody used for the longest time go first."""

    folder: Path
    largest: int = LARGEST

    def get(self, key: bytes) -> bytes | None:
        """The object of a key, if it is there and whole; it then counts as new."""
        if not is_there(self.folder / _name(key)):  # reading would look through the folder for a name like it
            return None
        try:
            data = read_bytes_in(self.folder, _name(key), Limits(max_data_bytes=self.largest))
            found = _unwrap(key, data)
        except LamellaError:
            return None
        with suppress(OSError):
            os.utime(self.folder / _name(key), follow_symlinks=False)
        return found

    def put(self, key: bytes, content: bytes) -> None:
        """Keep an object; a full disk or a folder that is gone is no reason to fail."""
        data = _wrap(key, content)
        if len(data) > self.largest:
            return
        with suppress(LamellaError):
            write_bytes(self.folder / _name(key), data, durable=False)
            # To go through thousands of files costs more than to write one. Keys are digests: of 64 small objects
            # one looks, so that on average the folder is a sixteenth above its bound at most before somebody does.
            if len(data) > self.largest // 1024 or key[0] % 64 == 0:
                self._evict()

    def count(self) -> tuple[int, int]:
        """How many objects there are, and their bytes."""
        found = _list_objects(self.folder)
        return len(found), sum(state.st_size for _, state in found)

    def _evict(self) -> None:
        """Remove the oldest files until three quarters of the bound are left, where it is passed; and leftovers."""
        remove_leftovers(self.folder, OBJECTS)
        files = sorted(_list_objects(self.folder), key=lambda item: item[1].st_mtime_ns)
        total = sum(found.st_size for _, found in files)
        if total <= self.largest:
            return
        for path, found in files:
            if total <= self.largest * 3 // 4:
                return
            with suppress(OSError):
                os.unlink(path)
            total -= found.st_size


def _name(key: bytes) -> str:
    return key.hex() + ENDING


def _wrap(key: bytes, content: bytes) -> bytes:
    length = len(content).to_bytes(8, "little")
    head = MAGIC + VERSION.to_bytes(4, "little") + key + length
    return head + hashlib.sha256(head + content).digest() + content


def _unwrap(key: bytes, data: bytes) -> bytes | None:
    reader = Reader(data)
    reader.expect(MAGIC, "an object of the cache")
    version, own = reader.u32(), reader.take(KEY_BYTES)
    length = reader.count(reader.u64(), 1)
    head, digest = data[: reader.position], reader.take(KEY_BYTES)
    content = reader.take(length)
    reader.finish("the object")
    whole = hashlib.sha256(head + content).digest() == digest
    return content if whole and version == VERSION and own == key else None


def _list_objects(folder: Path) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(ENDING) and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    found.append((entry.path, entry.stat(follow_symlinks=False)))
    return found


def open_cache(folder: Path | None = None) -> ObjectCache | None:
    """The cache of this user, or None where there is no folder that only they can write to."""
    place = folder or _default_folder()
    if place is None:
        return None
    with suppress(OSError, ValueError):
        os.makedirs(place, mode=0o700, exist_ok=True)
        if _is_private(place):
            return ObjectCache(place)
    return None


def _default_folder() -> Path | None:
    """`$LAMELLA_CACHE`, else the folder for caches of the desktop standard; an empty variable switches it off."""
    named = os.environ.get("LAMELLA_CACHE")
    if named is not None:
        return Path(named) if named else None
    standard = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(standard):
        return Path(standard) / "lamella" / "objects"
    home = os.path.expanduser("~")
    return Path(home) / ".cache" / "lamella" / "objects" if os.path.isabs(home) else None


def _is_private(folder: Path) -> bool:
    found = os.lstat(folder)
    if not hasattr(os, "geteuid"):  # Windows: the folders of a user are theirs alone
        return stat.S_ISDIR(found.st_mode)
    mine = found.st_uid == os.geteuid()
    return stat.S_ISDIR(found.st_mode) and mine and not found.st_mode & _OTHERS_WRITE
