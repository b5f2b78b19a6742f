"""What only some systems have: flags of `os.open`, locks of files, the memory of a process."""

from __future__ import annotations

import os
import sys

if sys.platform != "win32":
    import fcntl
    import resource

CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
"""A file is closed in programs that this one starts; on Windows files are so by themselves."""
NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe does not wait for its other end."""
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
"""A link is refused, not followed."""
DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
"""What is opened is a folder."""
BINARY: int = getattr(os, "O_BINARY", 0)
"""Windows would translate the ends of lines."""
OPENS_BELOW = os.open in os.supports_dir_fd
"""Whether a file can be opened relative to an open folder, so that nobody can exchange the way to it meanwhile."""
KEEPS_NAMES = sys.platform == "win32"
"""Whether an open file can neither be renamed nor removed."""


def lock_file(descriptor: int, wait: bool) -> None:
    """Lock an open file for this process alone; OSError where another one holds it, or locks are not known."""
    if sys.platform == "win32":
        raise OSError("files are not locked on this system")
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def set_mode(descriptor: int, mode: int) -> None:
    """Set the permissions of an open file, where the system has any."""
    change = getattr(os, "fchmod", None)
    if change is not None:
        change(descriptor, mode)


def peak_bytes(children: bool = False) -> int:
    """The most memory that this process, or the largest of its children, has used; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    used = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024  # macOS counts bytes, others kibibytes


def busy_seconds() -> float:
    """The processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def count_processors() -> int:
    """The processors that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # only Linux says which are ours
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
