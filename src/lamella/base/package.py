"""This package as it is now: what is kept on disk belongs to the code that made it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache

from lamella.base.paths import shipped

ENDINGS = (".py", ".sknd")
"""The files that decide what is compiled: our code, and the operators that come with it."""


@cache
def fingerprint(*parts: str) -> str:
    """The sizes and times of the files of some folders of the package, as a digest: a change may write other code."""
    found = hashlib.sha256()
    for part in parts:
        for line in sorted(_files(os.fspath(shipped(part)))):
            found.update(line.encode())
    return found.hexdigest()


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files(entry.path)
            elif entry.name.endswith(ENDINGS):
                state = entry.stat()
                yield f"{entry.name} {state.st_size} {state.st_mtime_ns}"
