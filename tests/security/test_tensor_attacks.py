"""Every hostile kernel is refused or compiled, in a process of little memory, and soon."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.repository import ROOT, environment
from tests.support.security.tensor_attacks import GROUPS

SECONDS = 10
"""Processor time, bounded generously: it tells what grows like the text from what does not."""
MEBIBYTES = 200


@pytest.fixture(scope="module", params=list(GROUPS))
def group(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """What became of one group of attacks."""
    name: str = request.param
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.security.tensor_child", name],
        capture_output=True,
        cwd=ROOT,
        env=environment(),
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return name, json.loads(done.stdout)


def test_every_attack_gives_its_finding(group: tuple[str, dict[str, Any]]) -> None:
    name, told = group
    wrong = []
    for title, attack in GROUPS[name].items():
        codes = told[title]["codes"]
        fine = attack.code in codes if attack.code else not codes
        if told[title]["escaped"] or not fine:
            wrong.append((title, attack.code, told[title]))
    assert not wrong, "\n".join(map(str, wrong))


def test_no_attack_takes_long(group: tuple[str, dict[str, Any]]) -> None:
    _, told = group
    slow = {
        title: item for title, item in told.items() if item["seconds"] > SECONDS or item["mib"] > MEBIBYTES
    }
    assert not slow, slow
