"""Work in children of this process: its memory is gone when it is done, and several of them work at once."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import NamedTuple

PARKED = "lamella"
"""The name of threads that hold nothing which a child of this process would wait for."""


def may_fork() -> bool:
    """Whether a child of this process can work: elsewhere, and beside threads of others, it might wait for ever."""
    others = (item for item in threading.enumerate() if item is not threading.current_thread())
    return sys.platform == "linux" and all(item.name == PARKED for item in others)


class ChildProcess(NamedTuple):
    """A child of this process at work, and the pipe through which it tells lines."""

    process: int
    receiving: int

    def wait(self, told: Callable[[bytes], None]) -> bool:
        """Hand on the lines that the child tells until it ends; whether it came to the end of its work."""
        try:
            rest = b""
            while found := os.read(self.receiving, 1 << 12):
                *lines, rest = (rest + found).split(b"\n")
                for line in lines:
                    told(line)
        finally:
            os.close(self.receiving)
            _, status = os.waitpid(self.process, 0)
        return status == 0


def start_child(work: Callable[[Callable[[bytes], None]], None]) -> ChildProcess:
    """Begin something in a child of this process; the work gets a function that tells this process a line.

    What else it leaves must be in files: its memory is gone when it is done. OSError where the system has no room for
    another process.
    """
    receiving, sending = os.pipe()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which `may_fork` has asked for
            child = os.fork()
    except OSError:
        os.close(receiving)
        os.close(sending)
        raise
    if not child:
        _run_child(work, sending)
    os.close(sending)
    return ChildProcess(child, receiving)


def run_in_child(work: Callable[[Callable[[bytes], None]], None], told: Callable[[bytes], None]) -> bool:
    """Run something in a child of this process; whether there was one, and it came to its end."""
    try:
        child = start_child(work)
    except OSError:
        return False
    return child.wait(told)


def _run_child(work: Callable[[Callable[[bytes], None]], None], sending: int) -> None:
    """The whole life of a child; nothing of this process is ended or flushed by it."""
    status = 1
    with suppress(BaseException):  # whoever asked does the work again, and sees what is wrong
        work(lambda line: _send(sending, line))
        status = 0
    os._exit(status)


def _send(pipe: int, line: bytes) -> None:
    os.write(pipe, line + b"\n")


TICKET_BYTES = 4
MOST_TICKETS = 1 << 10
"""What every pipe has room for, so that nobody waits to write one."""


def share_with_children(count: int, helpers: int, work: Callable[[Iterator[int]], bytes]) -> list[bytes]:
    """Do `count` pieces of work in this process and in children of it at once; what each of them made.

    Whoever is free takes the number of the next piece. What a child took that did not come to its end is in none of the
    results. There are at most `MOST_TICKETS` pieces.
    """
    taking, giving = os.pipe()
    try:
        os.write(giving, b"".join(item.to_bytes(TICKET_BYTES, "little") for item in range(count)))
    finally:
        os.close(giving)
    children: list[tuple[ChildProcess, int]] = []
    with ExitStack() as stack:
        with suppress(OSError):  # as many as the system has room for
            for _ in range(helpers):
                file = _memory_file()
                stack.callback(os.close, file)
                children.append((start_child(partial(_work_shared, work, taking, file)), file))
        try:
            found = [work(_tickets(taking))]
        finally:
            os.close(taking)
            ended = [file for child, file in children if child.wait(lambda _: None)]
        return found + [os.pread(file, os.fstat(file).st_size, 0) for file in ended]


def _memory_file() -> int:
    """The descriptor of a file in memory, which this process and its children have in common."""
    if sys.platform != "linux":
        raise OSError("work is not shared with children on this system")
    return os.memfd_create("lamella")


def _work_shared(
    work: Callable[[Iterator[int]], bytes], taking: int, file: int, _: Callable[[bytes], None]
) -> None:
    rest = memoryview(work(_tickets(taking)))
    while rest:
        rest = rest[os.write(file, rest) :]


def _tickets(taking: int) -> Iterator[int]:
    """Numbers that nobody has taken yet; a pipe gives each of them to one reader, whole."""
    while ticket := os.read(taking, TICKET_BYTES):
        yield int.from_bytes(ticket, "little")
