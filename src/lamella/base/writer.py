"""The one place where files are written: whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lamella.base.errors import OutputError, cause_of
from lamella.base.system import (
    BINARY,
    CLOEXEC,
    DIRECTORY,
    KEEPS_NAMES,
    NOFOLLOW,
    NONBLOCK,
    lock_file,
    set_mode,
)

_LEFTOVER = re.compile(r"\.(.*)\.lamella-[0-9a-f]{8}\.tmp", re.DOTALL)
_LARGE = 1 << 20
# Some file systems cannot sync a folder, and a folder may be writable without being readable.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


def write_text(path: Path, text: str) -> None:
    """Replace a file by a text in UTF-8, or leave it as it was and raise OutputError."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise OutputError(
            f"cannot write '{path}': character {problem.start} is not Unicode text", path=path
        ) from None
    write_bytes(path, data)


def write_bytes(path: Path, data: bytes | memoryview, *, durable: bool = True) -> None:
    """Replace a file by these bytes, or leave it as it was and raise OutputError; see `write_pieces`."""
    write_pieces(path, (data,), durable=durable)


def write_pieces(
    path: Path,
    pieces: Iterable[bytes | memoryview],
    *,
    durable: bool = True,
    through_links: bool = True,
    size: int | None = None,
) -> None:
    """Replace a file by these bytes, one piece behind the other, or leave it as it was and raise OutputError.

    A reader sees the old file or the new one, also after a crash; what need not be `durable`, because its reader
    verifies it, may be lost or cut where the power fails, and what killed writers left of it is for its owner to
    remove. A symbolic link that the user named is written through; one that only lies where a companion of a named
    file goes is refused, without `through_links`. Pipes and character devices have no old content and are written
    directly. Where the `size` of all is known, the pieces are taken one at a time and let go again.
    """
    views: Iterable[memoryview] = (memoryview(piece).cast("B") for piece in pieces)
    if size is None:
        views = list(views)
        size = sum(map(len, views))
    progress = _Progress(size)
    try:
        target, old = _find_target(path, through_links)
        if old is not None and not stat.S_ISREG(old.st_mode):
            _write_stream(target, views, progress)
        else:
            _replace(target, _final_mode(old), views, progress, durable)
    except OSError as problem:
        raise _explain(path, problem, progress) from problem
    except ValueError:
        raise OutputError("the path holds a NUL character", path=str(path).replace("\0", "?")) from None


def append_bytes(path: Path, data: bytes) -> None:
    """Add bytes behind those of a log, which a killed process may leave cut; OutputError says why not.

    Only for files that nobody takes for whole: everything else is replaced by `write_pieces`.
    """
    progress = _Progress(len(data))
    try:
        flags = os.O_WRONLY | BINARY | os.O_CREAT | os.O_APPEND | NOFOLLOW | CLOEXEC | NONBLOCK
        descriptor = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            _write_all(descriptor, (memoryview(data),), progress)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise _explain(path, problem, progress) from problem
    except ValueError:
        raise OutputError("the path holds a NUL character", path=str(path).replace("\0", "?")) from None


def make_folder(folder: Path) -> None:
    """Make a folder and those that it lies in, where they are not there yet; OutputError says why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"cannot make the folder '{folder}': {cause_of(problem)}", path=folder) from problem
    except ValueError:
        raise OutputError("the path holds a NUL character", path=str(folder).replace("\0", "?")) from None


def require_room(target: Path, size: int = 0) -> None:
    """OutputError where so many bytes cannot be written under a name, before the work whose result it is to hold.

    A file that is made and removed is the only proof: permissions say nothing of a file system that takes no files.
    """
    folder = target.parent
    try:
        while not os.path.lexists(folder) and folder != folder.parent:
            folder = folder.parent
        _let_go(*_create(str(folder), f".{os.fsdecode(os.fsencode(target.name)[:200])}"), finished=False)
        _check_space(str(folder), size)
    except OSError as problem:
        needed = f", and {size} are needed" if problem.errno == errno.ENOSPC and size else ""
        raise OutputError(f"cannot write '{target}': {cause_of(problem)}{needed}", path=target) from problem
    except ValueError:
        raise OutputError("the path holds a NUL character", path=str(target).replace("\0", "?")) from None


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder beside the target to write into; it gets the name of the target when all that is in it is written.

    The target must not be there, or be empty. What a killed process left under the name beside it is removed.
    """
    beside = target.with_name(f".{target.name}.lamella-unfinished.tmp")
    try:
        make_folder(target.parent)
        if beside.is_dir() and not beside.is_symlink():
            shutil.rmtree(beside)
        beside.mkdir()
        yield beside
        _sync_folder(str(beside))
        os.rename(beside, target)
        _sync_folder(str(target.parent))
    except OSError as problem:
        raise OutputError(f"cannot write '{target}': {cause_of(problem)}", path=target) from problem
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def remove_file(path: Path) -> None:
    """Remove a file that an earlier result left and this one has not, where it is there; OutputError says why not."""
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:
        raise OutputError(f"cannot remove '{path}': {cause_of(problem)}", path=path) from problem


def remove_leftovers(folder: Path, names: re.Pattern[str]) -> None:
    """Remove what killed writers left of files whose names differ with their content; others are as good as new."""
    _remove_stale(str(folder), names)


class _Progress:
    """How far a write came, for the error message."""

    __slots__ = ("needed", "replaced", "written")

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.written = 0
        self.replaced = False


def _explain(path: Path, problem: OSError, progress: _Progress) -> OutputError:
    done = f"{progress.written} of {progress.needed} bytes written"
    state = "the new file is in place but may not survive a power failure" if progress.replaced else done
    return OutputError(f"cannot write '{path}': {cause_of(problem)} ({state})", path=path)


def _find_target(path: Path, through_links: bool) -> tuple[str, os.stat_result | None]:
    """Where the bytes go, and what is there now."""
    if not through_links and os.path.islink(path):
        raise OSError(errno.ELOOP, "it is a symbolic link that was not named")
    # What is not to be followed keeps its own name, so that a link made meanwhile is replaced and not followed.
    target = (
        os.path.realpath(path) if through_links else os.path.join(os.path.realpath(path.parent), path.name)
    )
    try:
        old = os.stat(path)
    except FileNotFoundError:
        return target, None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISCHR(old.st_mode) or stat.S_ISFIFO(old.st_mode):
        return str(path), old
    if not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "it is neither a file nor a pipe")
    # A rename would replace a file that its owner protected.
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return target, old


def _write_stream(target: str, views: Iterable[memoryview], progress: _Progress) -> None:
    """Write to a pipe or device; opening never waits for a reader that does not come."""
    descriptor = os.open(target, os.O_WRONLY | BINARY | CLOEXEC | NONBLOCK)
    try:
        os.set_blocking(descriptor, True)
        _write_all(descriptor, views, progress)
    finally:
        os.close(descriptor)


def _replace(target: str, mode: int, views: Iterable[memoryview], progress: _Progress, durable: bool) -> None:
    folder, name = os.path.split(target)
    short = os.fsdecode(os.fsencode(name)[:200])
    if durable:
        _remove_stale(folder, re.compile(re.escape(short)))
    _check_space(folder, progress.needed)
    temporary, descriptor = _create(folder, f".{short}")
    try:
        _write_all(descriptor, views, progress)
        set_mode(descriptor, mode)
        if durable:
            os.fsync(descriptor)
        if KEEPS_NAMES:
            descriptor = _close(descriptor)
        os.replace(temporary, target)
        progress.replaced = True
    finally:
        _let_go(temporary, descriptor, progress.replaced)
    if durable:
        _sync_folder(folder)


def _let_go(temporary: str, descriptor: int, finished: bool) -> None:
    """Close a file, and remove it where it was not finished.

    Closing gives up the lock, so it comes last where it can; what closing could report, fsync has reported.
    """
    if KEEPS_NAMES:
        descriptor = _close(descriptor)
    try:
        if not finished:
            with suppress(OSError):
                os.unlink(temporary)
    finally:
        _close(descriptor)


def _close(descriptor: int) -> int:
    """Close a file that may be closed already; gives what is no file, so that nobody closes another's by its number."""
    with suppress(OSError):
        os.close(descriptor)
    return -1


def _write_all(descriptor: int, views: Iterable[memoryview], progress: _Progress) -> None:
    for view in views:
        rest = view
        while rest:
            count = os.write(descriptor, rest)
            if count == 0:
                raise OSError(errno.EIO, "the system takes no more bytes")
            progress.written += count
            rest = rest[count:]


def _create(folder: str, prefix: str) -> tuple[str, int]:
    """A new private file, locked while it is ours so that nobody takes it for a leftover."""
    for _ in range(100):
        temporary = os.path.join(folder, f"{prefix}.lamella-{os.urandom(4).hex()}.tmp")
        flags = os.O_WRONLY | BINARY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC
        try:
            descriptor = os.open(temporary, flags, 0o600)
        except FileExistsError:
            continue
        ours = False
        try:
            ours = _claim(descriptor)
        finally:
            if not ours:
                _let_go(temporary, descriptor, finished=False)
        if ours:
            return temporary, descriptor
    raise OSError(errno.EEXIST, "no free name for a temporary file")


def _claim(descriptor: int) -> bool:
    """Lock a new file; whether it kept its name in the moment between its creation and its lock."""
    # Without locks (some network file systems) nobody can claim a leftover either.
    with suppress(OSError):
        lock_file(descriptor, wait=True)
    try:
        return os.fstat(descriptor).st_nlink > 0
    except OSError:
        return True


def _remove_stale(folder: str, names: re.Pattern[str]) -> None:
    """Remove what killed writers of files with these names left; a living writer holds its lock."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = _LEFTOVER.fullmatch(entry.name)
            if found is not None and names.fullmatch(found[1]):
                _remove_if_unlocked(entry.path)


def _remove_if_unlocked(leftover: str) -> None:
    with suppress(OSError):
        descriptor = os.open(leftover, os.O_RDONLY | NOFOLLOW | NONBLOCK | CLOEXEC)
        try:
            lock_file(descriptor, wait=False)
            os.unlink(leftover)
        finally:
            os.close(descriptor)


def _check_space(folder: str, needed: int) -> None:
    """Refuse a large write early where the disk is known to be too full."""
    free = _free_bytes(folder) if needed >= _LARGE else None
    if free is not None and free < needed:
        raise OSError(errno.ENOSPC, f"the disk has {free} bytes free")


def _free_bytes(folder: str) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _final_mode(old: os.stat_result | None) -> int:
    """The permissions of the file that was there, or those a new file gets."""
    if old is not None:
        return stat.S_IMODE(old.st_mode) & 0o777
    # Asking for the mask means setting it: a strict one does no harm to files made meanwhile.
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: str) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | DIRECTORY | CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as problem:
        if problem.errno not in _NO_FOLDER_SYNC:
            raise
