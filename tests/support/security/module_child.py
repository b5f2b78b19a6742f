"""Checks hostile Module DSL programs in a process of little memory; what happened goes out as JSON.

`python -m tests.support.security.module_child FOLDER`
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

import lamella
from lamella.base.diagnostic import Diagnostic, LamellaError, render
from tests.support.security.module_attacks import GROUPS, Attack, module

ADDRESSES = 3 << 30
ROOT = Path(__file__).parents[3]
MAIN = "main.module"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Opened:
    """Files that were opened while it listens, other than those of a program and of the interpreter."""

    def __init__(self, folder: Path) -> None:
        allowed = (folder, ROOT / "src", ROOT / "tests", Path(sys.prefix), Path(sys.base_prefix))
        self.allowed = tuple(map(str, allowed))
        self.paths: list[str] = []
        self.listens = False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        """See an event of the interpreter."""
        if event in ("os.system", "subprocess.Popen", "socket.connect") and self.listens:
            self.paths.append(event)
        if event == "open" and self.listens and isinstance(arguments[0], str):
            flags = arguments[2] if isinstance(arguments[2], int) else 0
            # What is opened below a folder that is open already has a plain name.
            plain = "/" not in arguments[0] and ".." not in arguments[0]
            if flags & WRITES or not (plain or arguments[0].startswith(self.allowed)):
                self.paths.append(arguments[0])


def check(path: Path) -> list[Diagnostic]:
    """What is wrong with a program."""
    try:
        return lamella.check(path)
    except LamellaError as refused:
        return list(refused.findings)


def attempt(attack: Attack, folder: Path, opened: Opened) -> dict[str, object]:
    """One program: its codes, an exception that got out, what it touched, its processor time and memory."""
    for name, text in {**attack.files, MAIN: attack.make()}.items():
        (folder / name).write_text(text, encoding="utf-8")
    start, before = time.process_time(), _memory()
    escaped, found = "", []
    opened.paths, opened.listens = [], True
    try:
        found = check(folder / MAIN)
    except Exception as problem:  # noqa: BLE001
        escaped = repr(problem)[:300]
    opened.listens = False
    seconds = time.process_time() - start
    for name in attack.files:
        (folder / name).unlink()
    shown = all(line.isprintable() for item in found for line in render(item).split("\n"))
    return {
        "codes": sorted({item.code for item in found}),
        "escaped": escaped,
        "touched": opened.paths,
        "printable": shown,
        "seconds": seconds,
        "mib": (_memory() - before) >> 10,
    }


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(folder: Path) -> None:
    """Check all attacks, one after the other."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    opened = Opened(folder)
    sys.addaudithook(opened)
    attempt(Attack("", lambda: module("x -> relu() -> y")), folder, opened)
    found = {
        group: {name: attempt(attack, folder, opened) for name, attack in attacks.items()}
        for group, attacks in GROUPS.items()
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
