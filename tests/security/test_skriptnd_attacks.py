"""Every attack gives its finding through every command, in a process of two gigabytes, and soon.

Time is that of the processor and bounded generously: it tells what grows like the text from what does not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.repository import ROOT, environment
from tests.support.security.skriptnd_attacks import GROUPS, Attack

SECONDS = 15
PRINTED = 20_000_000
READ = ("fmt",)


@pytest.fixture(scope="module", params=list(GROUPS))
def group(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any]]:
    """What became of one group of attacks."""
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.security.skriptnd_child", name, str(folder)],
        capture_output=True,
        cwd=ROOT,
        env=environment(),
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return name, json.loads(done.stdout)


def expected(attack: Attack, command: str) -> str:
    """The code that a command must give; formatting asks only for the syntax."""
    composed = command == "show" or (command == "check" and not attack.early)
    return attack.check if composed or attack.run is None else attack.run


def test_every_attack_gives_its_finding(group: tuple[str, dict[str, Any]]) -> None:
    name, told = group
    wrong = []
    for title, attack in GROUPS[name].items():
        for command, result in told["found"][title].items():
            code = expected(attack, command)
            fine = result["status"] == (1 if code else 0) and (
                code in result["codes"] if code else not result["codes"]
            )
            if result["escaped"] or not (fine or command in READ):
                wrong.append((title, command, code, result))
    assert not wrong, "\n".join(map(str, wrong))


def test_no_attack_takes_long_or_prints_escapes(group: tuple[str, dict[str, Any]]) -> None:
    _, told = group
    results = [
        (title, command, item) for title, row in told["found"].items() for command, item in row.items()
    ]
    assert not [item for item in results if item[2]["seconds"] > SECONDS or item[2]["printed"] > PRINTED]
    assert not [item for item in results if item[2]["raw"]]
