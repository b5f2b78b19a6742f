"""The built wheel holds every data file and works where only it is installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.repository import PACKAGE, ROOT, data_files, environment

EXAMPLE = ROOT / "examples" / "npu" / "conv_relu.nem"


def python(*arguments: str, cwd: Path, **more: str) -> str:
    """Run our interpreter and give what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    python("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    (built,) = folder.glob("lamella-*.whl")
    return built


def test_holds_every_file_of_the_package(wheel: Path) -> None:
    code = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")]
    wanted = {f"lamella/{name}" for name in [*code, *data_files()]}
    assert "lamella/py.typed" in wanted
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("lamella/")}
    assert held == wanted


def test_runs_an_example_where_only_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    install = (
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(wheel),
    )
    python(*install, cwd=tmp_path)
    where = python("-c", "import lamella; print(lamella.__file__)", cwd=tmp_path, PYTHONPATH=str(target))
    assert Path(where.strip()).is_relative_to(target)
    program = tmp_path / EXAMPLE.name
    program.write_bytes(EXAMPLE.read_bytes())
    python("-m", "lamella", "check", program.name, cwd=tmp_path, PYTHONPATH=str(target))
    assert python("-m", "lamella", "sim", program.name, "--json", cwd=tmp_path, PYTHONPATH=str(target))
