"""What only some systems have: flags of `os.open`, locks of files, the memory of a process."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress

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


def lock_file(descriptor: int, wait: bool) -> None:
    """Lock an open file for this process alone; OSError where another one holds it, or locks are not known."""
    if sys.platform == "win32":
        raise OSError("files are not locked on this system")
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def peak_bytes(children: bool = False) -> int:
    """The most memory that this process, or the largest of its children, has used; 0 where the system does not say."""
    if sys.platform == "win32":
        return 0
    used = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024  # macOS counts bytes, others kibibytes


def busy_seconds() -> float:
    """The processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


PARKED = "lamella"
"""The name of threads that hold nothing which a child of this process would wait for."""


def may_fork() -> bool:
    """Whether a child of this process can work: elsewhere, and beside threads of others, it might wait for ever."""
    others = (item for item in threading.enumerate() if item is not threading.current_thread())
    return sys.platform == "linux" and all(item.name == PARKED for item in others)


def run_aside(work: Callable[[Callable[[bytes], None]], None], told: Callable[[bytes], None]) -> bool:
    """Run something in a child of this process, whose memory is gone when it is done; whether it came to its end.

    The work gets a function that tells this process a line. What else it leaves must be in files.
    """
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which `may_fork` has asked for
        child = os.fork()
    if not child:
        _work_aside(work, sending)
    os.close(sending)
    try:
        with open(receiving, "rb") as lines:
            for line in lines:
                told(line.rstrip(b"\n"))
    finally:
        _, status = os.waitpid(child, 0)
    return status == 0


def _work_aside(work: Callable[[Callable[[bytes], None]], None], sending: int) -> None:
    """The whole life of a child; nothing of this process is ended or flushed by it."""
    status = 1
    with suppress(BaseException):  # whoever asked does the work again, and sees what is wrong
        work(lambda line: _send(sending, line))
        status = 0
    os._exit(status)


def _send(pipe: int, line: bytes) -> None:
    os.write(pipe, line + b"\n")
