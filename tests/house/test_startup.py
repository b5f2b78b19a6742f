"""Commands load only what they need, counted in modules rather than in time."""

from __future__ import annotations

import subprocess
import sys

from tests.house.tree import ROOT, environment

HEAVY = {"numpy", "ml_dtypes", "rich", "torch", "lark", "hypothesis"}


def loaded(*arguments: str) -> set[str]:
    """The modules that a command imports, as the interpreter itself reports them."""
    command = [sys.executable, "-X", "importtime", "-m", "lamella", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    rows = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    return {row.rsplit("|", 1)[1].strip() for row in rows}


def test_help_loads_nothing_heavy() -> None:
    modules = loaded("--help")
    assert "click" in modules
    assert not modules & HEAVY
    assert not [name for name in modules if name.startswith("lamella.lang.")]


def test_check_loads_one_language_and_no_numpy() -> None:
    modules = loaded("check", "examples/npu/conv_relu.nem")
    assert {name for name in modules if name.count(".") == 2 and name.startswith("lamella.lang.")} == {
        "lamella.lang.nem"
    }
    assert not modules & {"numpy", "ml_dtypes", "torch"}
