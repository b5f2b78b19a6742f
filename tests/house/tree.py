"""The repository as the house tests see it: its folders, its modules and their syntax trees."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "lamella"
TESTS = ROOT / "tests"


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file: where it lies, its dotted name, its text and its syntax tree."""

    path: Path
    name: str
    text: str
    tree: ast.Module

    @property
    def place(self) -> str:
        """The path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()


@cache
def package_modules() -> tuple[Module, ...]:
    """Every module of the package."""
    return _modules(PACKAGE, PACKAGE.parent)


@cache
def modules_of_tests() -> tuple[Module, ...]:
    """Every module of the tests."""
    return _modules(TESTS, ROOT)


def _modules(folder: Path, base: Path) -> tuple[Module, ...]:
    return tuple(_read(path, base) for path in sorted(folder.rglob("*.py")))


def _read(path: Path, base: Path) -> Module:
    parts = path.relative_to(base).with_suffix("").parts
    text = path.read_text(encoding="utf-8")
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(path, name, text, ast.parse(text, str(path)))


def languages() -> list[str]:
    """The names of the languages that exist."""
    return sorted(path.parent.name for path in (PACKAGE / "lang").glob("*/__init__.py"))


def data_files() -> list[str]:
    """Every file of the package that is not Python, as the package's folder names it."""
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(
        path.relative_to(PACKAGE).as_posix() for path in files if path.suffix not in (".py", ".pyc")
    )


def environment(**more: str) -> dict[str, str]:
    """The variables of a command whose output is compared: our interpreter first, no colours, fixed width."""
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "PYTHONPATH")}
    path = os.pathsep.join([str(Path(sys.executable).parent), plain.get("PATH", os.defpath)])
    fixed = {"PATH": path, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "110", "LC_ALL": "C.UTF-8"}
    return plain | fixed | more
