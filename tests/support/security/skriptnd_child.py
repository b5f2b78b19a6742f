"""Runs hostile texts through the commands in a process of little memory; what happened goes out as JSON.

`python -m tests.support.security.skriptnd_child GROUP FOLDER`
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from pathlib import Path

from click.testing import CliRunner

from lamella.cli import lamella
from tests.support.security.skriptnd_attacks import GROUPS

ADDRESSES = 2 << 30
COMMANDS = ("check", "show", "fmt", "run", "lower")
LIMITS = ("--limit", "max_steps=2000", "--limit", "max_total_bytes=200000000")
PACKS = ("--limit", "max_pack=100000")
"""`check` keeps the default: ten times the items, and ten times as long until the limit is met."""
CODE = re.compile(r"error\[(\w+)\]")


def arguments(command: str, path: Path, folder: Path) -> list[str]:
    """The words of a command line."""
    words = [command, str(path)]
    if command in ("show", "run", "lower"):
        words += PACKS
    if command in ("run", "lower"):
        words += LIMITS
    return [*words, "--to", "sknd", "-o", str(folder / "out")] if command == "lower" else words


def attempt(command: str, path: Path, folder: Path) -> dict[str, object]:
    """One command: its status, its codes, an exception that got out, its processor time, how much it printed."""
    start = time.process_time()
    result = CliRunner().invoke(lamella, arguments(command, path, folder))
    escaped = result.exception is not None and not isinstance(result.exception, SystemExit)
    return {
        "status": result.exit_code,
        "codes": sorted(set(CODE.findall(result.output))),
        "escaped": repr(result.exception)[:300] if escaped else "",
        "seconds": time.process_time() - start,
        "printed": len(result.output),
        "raw": "\x1b" in result.output and command != "fmt",
    }


def main(group: str, folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    path = folder / "attack.sknd"
    found: dict[str, object] = {}
    for name, attack in GROUPS[group].items():
        path.write_bytes(attack.make().encode("utf-8", "surrogateescape"))
        found[name] = {command: attempt(command, path, folder) for command in COMMANDS}
    sys.stdout.write(json.dumps({"found": found, "kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
