"""This package as it is now: what is kept on disk belongs to the code that made it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache

from lamella.base.paths import shipped

PARTS = ("backend/cpu", "kernels", "lang/tensor")
"""The parts of the package that machine code depends on."""


@cache
def fingerprint() -> str:
    """The sizes and times of the files of the package, as a digest: a changed one may write other code."""
    found = hashlib.sha256()
    for part in PARTS:
        for line in sorted(_files(os.fspath(shipped(part)))):
            found.update(line.encode())
    return found.hexdigest()


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                state = entry.stat()
                yield f"{entry.name} {state.st_size} {state.st_mtime_ns}"
