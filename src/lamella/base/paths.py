"""The one place where files are found and read, for paths a user typed and for paths a file names."""

from __future__ import annotations

import mmap
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from lamella.base.errors import InputError, Malformed, cause_of
from lamella.base.limits import DEFAULT, Limits, hint_for
from lamella.base.records import dataclass
from lamella.base.source import Source, Span
from lamella.base.suggest import nearest
from lamella.base.system import BINARY, CLOEXEC, DIRECTORY, NOFOLLOW, NONBLOCK, OPENS_BELOW

STANDARD_INPUT = Path("-")
BOM = b"\xef\xbb\xbf"
_PACKAGE = Path(__file__).resolve().parent.parent
_CHUNK = 1 << 20
_MOST_NAMES = 1000
"""Names of a folder that a misspelt one is compared with."""
_MAPPED = 1 << 20
"""Smaller files are read: that is as fast, and what becomes of them later does not matter then."""
_OPEN = os.O_RDONLY | CLOEXEC | NONBLOCK | BINARY
_UNSAVED: ContextVar[Mapping[str, bytes]] = ContextVar("unsaved", default=MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a path named in a file is not taken; the reason continues a sentence that begins with the path."""

    reason: str
    hint: str = ""

    @property
    def cause(self) -> str:
        """The reason behind `cannot read PATH: `."""
        reason = self.reason.removeprefix(_UNREADABLE)
        return f"it {reason}" if reason == self.reason else reason


_UNREADABLE = "cannot be read: "
_CACHE = re.compile(r"(?:models|datasets|spaces)--.+")
"""The name of a folder in the cache of a hub: what it holds, and of whom."""
_BLOB_DEPTH = 2
"""`blobs/DIGEST`."""


def default_root(main: Path) -> Path:
    """The folder below which a main file's includes must lie unless the user names a project root."""
    return Path.cwd() if main == STANDARD_INPUT else main.parent


def shipped(folder: str) -> Path:
    """A folder of data files that comes with the package."""
    path = _PACKAGE / folder
    if not path.is_dir():
        raise InputError(f"this installation lacks its folder '{folder}'", hint="install the package again")
    return path


def read_shipped(name: str) -> str:
    """The text of a data file that comes with the package, named from the package's folder."""
    return read_text(_PACKAGE / name)


def is_folder(path: Path) -> bool:
    """Whether a path leads to a folder; one that the system cannot even look up, being too long, does not."""
    return os.path.isdir(path)


def is_there(path: Path) -> bool:
    """Whether a path leads to anything."""
    return os.path.exists(path)


def shown(path: Path) -> str:
    """A path as messages name it: relative to the working folder where it lies below it."""
    if path == STANDARD_INPUT:
        return "<stdin>"
    try:
        here = Path.cwd()
    except OSError:  # the working folder was removed
        return str(path)
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else str(path)


def resolve_include(root: Path, including: Path, text: str, limits: Limits = DEFAULT) -> Path | Refusal:
    """The canonical path of a file that another file names, or why it is refused.

    The path is relative to the including file and stays inside the root; no component below the root is a
    symbolic link; what it leads to is a regular file with one name.
    """
    wrong = _spelling_problem(text, limits)
    if wrong:
        return wrong
    top = Path(os.path.realpath(root))
    base = top if including == STANDARD_INPUT else Path(os.path.realpath(including.parent))
    if not base.is_relative_to(top):
        return Refusal(f"is named by a file outside the root '{shown(top)}'")
    parts = _normalise([*base.relative_to(top).parts, *text.split("/")])
    if parts is None:
        hint = "includes stay below the folder of the main file; --root names a wider one"
        return Refusal(f"leaves the root '{shown(top)}'", hint)
    try:
        os.close(_open_below(top, parts))
    except Malformed as problem:
        return _refusal(problem)
    except OSError as problem:
        return Refusal(f"{_UNREADABLE}{cause_of(problem)}")
    return top.joinpath(*parts)


def _spelling_problem(text: str, limits: Limits) -> Refusal | None:
    """Why a path cannot be meant for us, by its letters alone."""
    too_long = limits.excess("max_name", len(text), "the length of the path")
    if too_long:
        return Refusal(f"is too long: {too_long}", hint_for("max_name"))
    if not text.strip("./"):
        return Refusal("names no file")
    if text.startswith("/") or re.match(r"[A-Za-z]:", text):
        return Refusal("is an absolute path", "name the file relative to the file that includes it")
    if "\\" in text:
        return Refusal("holds a backslash", "write '/' between folders")
    if not text.isprintable():
        return Refusal("holds a control character")
    return Refusal("names a folder") if text.endswith("/") else None


def _normalise(parts: list[str]) -> list[str] | None:
    """Components without `.` and `..`, or None where they climb above their start."""
    found: list[str] = []
    for part in parts:
        if part == "..":
            if not found:
                return None
            found.pop()
        elif part not in ("", "."):
            found.append(part)
    return found


def _refusal(problem: Malformed) -> Refusal:
    return Refusal(str(problem), str(problem.details.get("hint", "")))


def _open_below(top: Path, parts: list[str]) -> int:
    """Open a file component by component, each relative to the folder before it and none through a link."""
    descriptor = _walk_down(top, parts) if OPENS_BELOW else _open_by_path(top, parts)
    try:
        _refuse_unusual(os.fstat(descriptor), trusted=top.is_relative_to(_PACKAGE))
    except Malformed:
        os.close(descriptor)
        raise
    return descriptor


def _walk_down(top: Path, parts: list[str]) -> int:
    descriptor = os.open(top, _OPEN | DIRECTORY)
    for index, part in enumerate(parts):
        folder = 0 if index == len(parts) - 1 else DIRECTORY
        try:
            _refuse_link(os.stat(part, dir_fd=descriptor, follow_symlinks=False), part, last=not folder)
            inner = os.open(part, _OPEN | NOFOLLOW | folder, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def _open_by_path(top: Path, parts: list[str]) -> int:
    """The same where nothing can be opened relative to a folder: what is exchanged meanwhile is not noticed."""
    path = top
    for index, part in enumerate(parts):
        path = path / part
        _refuse_link(os.lstat(path), part, last=index == len(parts) - 1)
    return os.open(path, _OPEN | NOFOLLOW)


def _refuse_link(found: os.stat_result, part: str, last: bool) -> None:
    """Look before opening, so that the reason is exact and a device is not even opened."""
    if stat.S_ISLNK(found.st_mode):
        raise Malformed(f"passes through the symbolic link '{part}'", hint="name the file itself")
    if last:
        _refuse_unusual(found, trusted=True)


def _refuse_unusual(found: os.stat_result, trusted: bool) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise Malformed("is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise Malformed("is not a regular file")
    # A hard link may be another name of a file outside the root; installers make them of our own data files.
    # One that was replaced after it was opened has no name left, and is still what was there.
    if found.st_nlink > 1 and not trusted:
        hint = "copy the file instead of linking it"
        raise Malformed(f"has {found.st_nlink} hard links", hint=hint)


def read_included(root: Path, path: Path, limits: Limits = DEFAULT) -> str:
    """The text of a file that `resolve_include` found; everything is checked again while opening."""
    top = Path(os.path.realpath(root))
    return _decode(_read_below(top, list(path.relative_to(top).parts), path, "max_file_bytes", limits), path)


def stored_in(folder: Path, name: str) -> tuple[Path, list[str]]:
    """Where a file of a folder lies: a folder that may be trusted, and the way down from it without a link.

    A snapshot in the cache of a hub (`models--org--name/snapshots/REVISION`) holds links to the blobs of the same
    cache, and such a link is followed: once, and only to what lies in that cache. Any other stays what it is, and
    is refused when it is opened.
    """
    top = Path(os.path.realpath(folder))
    cache = top.parent.parent
    if top.parent.name != "snapshots" or not _CACHE.match(cache.name) or "/" in name:
        return folder, [name]
    try:
        target = os.readlink(top / name)
    except (OSError, ValueError):
        return folder, [name]
    # By its letters alone: what lies on the way is looked at when it is opened.
    found = os.path.normpath(top / target)
    parts = Path(found).relative_to(cache).parts if Path(found).is_relative_to(cache) else ()
    is_blob = len(parts) == _BLOB_DEPTH and parts[0] == "blobs"
    return (cache, list(parts)) if is_blob else (folder, [name])


def read_text_in(folder: Path, name: str, limits: Limits = DEFAULT) -> str:
    """The text of a file that belongs to a folder the user named: a link in the folder leads nowhere else."""
    path = folder / name
    return _decode(_read_below(*stored_in(folder, name), path, "max_file_bytes", limits), path)


def read_bytes_in(folder: Path, name: str, limits: Limits = DEFAULT) -> bytes:
    """The bytes of a file that belongs to a folder the user named: a link in the folder leads nowhere else."""
    return _read_below(*stored_in(folder, name), folder / name, "max_data_bytes", limits)


def _read_below(top: Path, parts: list[str], path: Path, limit: str, limits: Limits) -> bytes:
    unsaved = _unsaved(top.joinpath(*parts), limit, limits)
    return unsaved if unsaved is not None else _read_all(_open_named(top, parts, path), path, limit, limits)


def _open_named(top: Path, parts: list[str], path: Path) -> int:
    try:
        return _open_below(top, parts)
    except Malformed as problem:
        refusal = _refusal(problem)
        raise InputError(f"'{shown(path)}' {refusal.reason}", path=shown(path), hint=refusal.hint) from None
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    except ValueError:
        raise InputError("the path holds a NUL character") from None


def read_text(path: Path, limits: Limits = DEFAULT) -> str:
    """The text of a file the user named (`-` is standard input): strict UTF-8, no NUL, no byte order mark."""
    return _decode(_read(path, "max_file_bytes", limits), path)


def read_bytes(path: Path, limits: Limits = DEFAULT) -> bytes:
    """The bytes of a binary file the user named (`-` is standard input)."""
    return _read(path, "max_data_bytes", limits)


def _read(path: Path, limit: str, limits: Limits) -> bytes:
    try:
        if path == STANDARD_INPUT:
            return _collect(sys.stdin.buffer.read, path, limit, limits)
        unsaved = _unsaved(path, limit, limits)
        return unsaved if unsaved is not None else _read_all(os.open(path, _OPEN), path, limit, limits)
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    except ValueError:
        raise InputError("the path holds a NUL character") from None


@contextmanager
def unsaved_texts(texts: Mapping[Path, str]) -> Iterator[None]:
    """Inside, these texts are read instead of the files: an editor shows them and has not saved them yet."""
    held = {os.path.realpath(path): text.encode("utf-8", "replace") for path, text in texts.items()}
    token = _UNSAVED.set(held)
    try:
        yield
    finally:
        _UNSAVED.reset(token)


def _unsaved(path: Path, limit: str, limits: Limits) -> bytes | None:
    """What an editor shows of a file; None where it shows nothing else than the file."""
    texts = _UNSAVED.get()
    found = texts.get(os.path.realpath(path)) if texts else None
    if found is not None:
        _keep_limit(len(found), path, limit, limits)
    return found


def _unreadable(path: Path, problem: OSError) -> InputError:
    hint = suggest_path(path) if isinstance(problem, FileNotFoundError) else ""
    return InputError(f"cannot read '{shown(path)}': {cause_of(problem)}", path=shown(path), hint=hint)


def suggest_path(path: Path) -> str:
    """A hint with the file or folder beside a path that is not there, where one is called nearly so; else empty."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in islice(entries, _MOST_NAMES)]
    except (OSError, ValueError):
        return ""
    close = nearest(path.name, (name for name in sorted(names) if name.isprintable()))
    return f"did you mean '{shown(path.parent / close[0])}'?" if close else ""


class Mapped:
    """The bytes of a file that are not read before they are touched.

    A page that the file has lost since then ends the process when it is touched: `check_whole` comes before that.
    """

    __slots__ = ("_map", "data", "path")

    def __init__(self, path: Path, data: bytes | mmap.mmap) -> None:
        self.path = path
        self.data = memoryview(data)
        self._map = data if isinstance(data, mmap.mmap) else None

    def check_whole(self) -> None:
        """Refuse a file that has become shorter."""
        if self._map is not None and self._map.size() < len(self.data):
            sizes = f"{len(self.data)} bytes long when it was opened, and now {self._map.size()}"
            raise InputError(f"'{shown(self.path)}' was {sizes}", path=shown(self.path))

    def release(self, start: int, length: int) -> None:
        """Give back the memory of bytes that are not needed soon; touching them reads them again."""
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        size = (start + length) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if self._map is not None and size > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, first, size)


def map_bytes(path: Path, limits: Limits = DEFAULT) -> Mapped:
    """The bytes of a binary file the user named, mapped read-only; standard input and small files are read."""
    mapped = None if path == STANDARD_INPUT else _map(path, limits)
    return Mapped(path, read_bytes(path, limits) if mapped is None else mapped)


def map_bytes_in(folder: Path, name: str, limits: Limits = DEFAULT) -> Mapped:
    """The bytes of a file as `map_bytes` gives them; as with `read_bytes_in`, a link leads nowhere else."""
    path = folder / name
    descriptor = _open_named(*stored_in(folder, name), path)
    try:
        mapped = _map_open(descriptor, path, limits)
        return Mapped(
            path, _read_open(descriptor, path, "max_data_bytes", limits) if mapped is None else mapped
        )
    finally:
        os.close(descriptor)


def _map(path: Path, limits: Limits) -> mmap.mmap | None:
    """A large regular file; None for what is read instead, which also says why a file cannot be opened."""
    try:
        descriptor = os.open(path, _OPEN)
    except (OSError, ValueError):
        return None
    try:
        return _map_open(descriptor, path, limits)
    finally:
        os.close(descriptor)


def _map_open(descriptor: int, path: Path, limits: Limits) -> mmap.mmap | None:
    try:
        size = _regular_size(descriptor, path, "max_data_bytes", limits)
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size >= _MAPPED else None
    except (OSError, ValueError):  # a file system without maps, or a file that shrinks meanwhile
        return None


def _read_all(descriptor: int, path: Path, limit: str, limits: Limits) -> bytes:
    """Read and close a descriptor that must be a regular file of a bearable size."""
    try:
        return _read_open(descriptor, path, limit, limits)
    finally:
        os.close(descriptor)


def _read_open(descriptor: int, path: Path, limit: str, limits: Limits) -> bytes:
    _regular_size(descriptor, path, limit, limits)
    return _collect(lambda size: os.read(descriptor, size), path, limit, limits)


def _regular_size(descriptor: int, path: Path, limit: str, limits: Limits) -> int:
    """The size of what must be a regular file of a bearable size."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
        hint = "" if stat.S_ISDIR(found.st_mode) else "use - to read standard input"
        raise InputError(f"'{shown(path)}' is {kind}", path=shown(path), hint=hint)
    _keep_limit(found.st_size, path, limit, limits)
    return found.st_size


def _collect(read: Callable[[int], bytes], path: Path, limit: str, limits: Limits) -> bytes:
    """Everything up to the end; the size known before may be wrong, so the limit is kept while reading."""
    chunks: list[bytes] = []
    total = 0
    while chunk := read(_CHUNK):
        chunks.append(chunk)
        total += len(chunk)
        _keep_limit(total, path, limit, limits)
    return b"".join(chunks)


def _keep_limit(size: int, path: Path, limit: str, limits: Limits) -> None:
    sentence = limits.excess(limit, size, f"the size of '{shown(path)}' in bytes")
    if sentence:
        raise InputError(sentence, path=shown(path), hint=hint_for(limit))


def decode_text(data: bytes | memoryview, path: Path, limits: Limits = DEFAULT) -> str:
    """The text of bytes that were read before anybody knew that they are text."""
    _keep_limit(len(data), path, "max_file_bytes", limits)
    return _decode(bytes(data), path)


def _decode(data: bytes, path: Path) -> str:
    skipped = len(BOM) if data.startswith(BOM) else 0
    try:
        text = data[skipped:].decode("utf-8")
    except UnicodeDecodeError as problem:
        raise _bad_text(data, skipped + problem.start, path, "is not UTF-8") from None
    if "\0" in text:
        raise _bad_text(data, data.index(0), path, "holds a NUL character")
    return text


def _bad_text(data: bytes, offset: int, path: Path, what: str) -> InputError:
    """The error at the line and column that the readable text before it reaches."""
    before = data[:offset].removeprefix(BOM).decode("utf-8")
    place = Span(Source(shown(path), before), len(before), len(before))
    return InputError(f"the text {what}", offset, span=place)
