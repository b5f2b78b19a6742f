"""Plays a system that is not Linux, then runs a command: `python -m tests.support.other_system win32 check FILE`.

Others' packages are loaded first: they know each system by themselves, and would not expect half of it. Then what the
system lacks is taken away, and what it refuses is refused; `import` in place of a command imports every module.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import mmap
import multiprocessing.connection
import os
import pkgutil
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from types import ModuleType
from typing import Any

import click
import llvmlite.binding
import ml_dtypes
import numpy as np
import rich.progress

LOADED = (asyncio, click, llvmlite.binding, ml_dtypes, multiprocessing.connection, np, rich.progress)
LOADED_TOO = (subprocess, tempfile, zipfile)
ADVICE = " ".join(name for name in dir(mmap) if name.startswith("MADV_"))
MISSING: dict[str, dict[ModuleType, str]] = {
    "win32": {
        os: "O_CLOEXEC O_NONBLOCK O_NOFOLLOW O_DIRECTORY geteuid getuid getegid sched_getaffinity uname fork fchmod "
        "memfd_create pread pwrite statvfs fstatvfs posix_fadvise sysconf getpgid killpg mkfifo setsid nice getloadavg",
        mmap: f"PROT_READ PROT_WRITE PROT_EXEC MAP_PRIVATE MAP_ANONYMOUS MAP_ANON MAP_SHARED MAP_POPULATE {ADVICE}",
        signal: "SIGPIPE SIGALRM SIGHUP SIGUSR1 SIGUSR2 SIGCHLD SIGQUIT alarm setitimer",
        socket: "AF_UNIX",
    },
    "darwin": {
        os: "memfd_create sched_getaffinity posix_fadvise",
        mmap: "MAP_POPULATE MADV_HUGEPAGE MADV_POPULATE_READ MADV_POPULATE_WRITE",
    },
}
POSIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty")
C_RUNTIME = "ucrtbase"

_open, _replace, _unlink, _library, _map = os.open, os.replace, os.unlink, ctypes.CDLL, mmap.mmap


def _open_here(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """No file tells about processes; Windows opens no folders, and nothing relative to one."""
    if os.fspath(path).startswith("/proc/"):
        raise FileNotFoundError(2, "No such file or directory")
    if sys.platform == "win32":
        if dir_fd is not None:
            raise NotImplementedError("dir_fd unavailable on this platform")
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied")
        return _open(path, flags, mode)
    return _open(path, flags, mode, dir_fd=dir_fd)


def _require_closed(path: Any) -> None:
    """Windows neither renames nor removes a file that is open."""
    real = os.path.realpath(path)
    for name in os.listdir("/proc/self/fd"):
        if os.path.realpath(f"/proc/self/fd/{name}") == real:
            raise PermissionError(13, "The process cannot access the file because it is being used")


def _replace_closed(source: Any, target: Any) -> None:
    _require_closed(source)
    _require_closed(target)
    _replace(source, target)


def _unlink_closed(path: Any) -> None:
    _require_closed(path)
    _unlink(path)


class _WindowsLibrary(ctypes.CDLL):
    """A library; the process itself is none."""

    def __init__(self, name: str | None, *rest: Any, **more: Any) -> None:
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        if ".so" in name:
            raise FileNotFoundError(f"Could not find module '{name}'")
        super().__init__(None if name == C_RUNTIME else name, *rest, **more)


class _WindowsMap(mmap.mmap):
    """Memory without protection, flags or advice."""

    def __new__(
        cls, fileno: int, length: int, tagname: str | None = None, access: int = 0, offset: int = 0
    ) -> Any:
        del tagname
        return _map.__new__(cls, fileno, length, access=access or _map_access, offset=offset)

    @property
    def madvise(self) -> Any:
        raise AttributeError("madvise")


_map_access = mmap.ACCESS_DEFAULT


def play(system: str) -> None:
    """Make this process believe that it runs on another system."""
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # which it has decided by itself before
    for module, names in MISSING[system].items():
        for name in names.split():
            vars(module).pop(name, None)
    stand_ins: dict[Any, dict[str, object]] = {os: {"open": _open_here}, sys: {"platform": system}}
    if system == "win32":
        sys.modules.update(dict.fromkeys(POSIX_MODULES))  # type: ignore[arg-type]
        stand_ins[os] |= {"replace": _replace_closed, "unlink": _unlink_closed, "supports_dir_fd": set()}
        stand_ins |= {ctypes: {"CDLL": _WindowsLibrary}, mmap: {"mmap": _WindowsMap}}
    else:
        os.supports_dir_fd.add(_open_here)
    for module, found in stand_ins.items():
        vars(module).update(found)


def main() -> None:
    """Play the system that is named first, then run the command."""
    system = sys.argv.pop(1)
    play(system)
    package = importlib.import_module("lamella")
    if sys.argv[1:] != ["import"]:
        importlib.import_module("lamella.cli").main()
        return
    for found in pkgutil.walk_packages(package.__path__, "lamella."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)


if __name__ == "__main__":
    main()
