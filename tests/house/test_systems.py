"""Systems that are not Linux, played: every module imports, and commands do what they do here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT, environment

DIGITS = ("examples/digits/digits.sknd", "--weights", "examples/digits/digits.safetensors")


def run_on(system: str, cache: Path, *words: str) -> str:
    """What a command prints on a system."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.other_system", system, *words],
        cwd=ROOT,
        env=environment(LAMELLA_CACHE=str(cache)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_modules_import_and_commands_work_where_much_is_missing(system: str, tmp_path: Path) -> None:
    """Reading, checking, machine code, files and folders that are written, with no fork, no /proc and no futex."""
    run_on(system, tmp_path, "import")
    assert "nothing found" in run_on(system, tmp_path, "check", "examples/llama/page.module")
    numbers = {run_on(system, tmp_path, "run", *DIGITS).splitlines()[-1] for _ in ("compiled", "found again")}
    here = [sys.executable, "-m", "lamella", "run", *DIGITS]
    told = subprocess.run(here, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    assert numbers == {told.stdout.splitlines()[-1]}
    folder = str(tmp_path / "tiny")
    run_on(
        system,
        tmp_path,
        "convert",
        "examples/sessions/tiny.module",
        folder,
        "--preset",
        "tiny",
        "--seed",
        "1",
    )
    assert (
        len(run_on(system, tmp_path, "generate", folder, "--tokens", "1,2", "--max-tokens", "3").split(","))
        == 3
    )
