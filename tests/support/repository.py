"""The repository as the house tests see it: its folders, its modules and their syntax trees."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "lamella"
TESTS = ROOT / "tests"
LOADING = {"import_module", "__import__"}
OPENING = {"open", "fdopen", "read_text", "write_text", "read_bytes", "write_bytes"}


Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)


class FunctionFacts(NamedTuple):
    """One function: where it stands, how long and deep it is, what it takes."""

    place: str
    lines: int
    parameters: int
    nesting: int


class Import(NamedTuple):
    """Something that a module imports: the line, the full name, and whether a function does it."""

    line: int
    name: str
    is_inside_function: bool


class Call(NamedTuple):
    """A call: the line, the last word of what it names (`open` of `os.open`), and all of it."""

    line: int
    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file: where it lies, its dotted name, and what one walk over its syntax tree finds.

    The tree itself is let go: those of all files are a million objects, which every collection of garbage would walk.
    """

    path: Path
    name: str
    lines: int
    has_docstring: bool
    undocumented: tuple[str, ...]
    """The public classes and functions without a docstring."""
    functions: tuple[FunctionFacts, ...]
    imports: tuple[Import, ...]
    calls: tuple[Call, ...]
    broad_handlers: tuple[int, ...]
    """The lines of handlers that catch everything."""

    @property
    def place(self) -> str:
        """The path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()


def nesting(node: ast.AST) -> int:
    """How many blocks lie inside each other; `elif` and plain expressions add none."""
    chained = node.orelse if isinstance(node, ast.If) and len(node.orelse) == 1 else []
    inner = (
        nesting(child) + (isinstance(child, BLOCKS) and child not in chained)
        for child in ast.iter_child_nodes(node)
        if not isinstance(child, ast.expr)
    )
    return max(inner, default=0)


def read_module(path: Path, name: str, text: str) -> Module:
    """Walk a module's syntax tree once and keep what the house rules ask."""
    tree = ast.parse(text, str(path))
    nodes = list(ast.walk(tree))
    place = path.relative_to(ROOT).as_posix()
    functions = [node for node in nodes if isinstance(node, Function)]
    nested = any(isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset for node in nodes)
    inside = {
        id(node)
        for function in functions
        if nested
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    public = (node for node in tree.body if isinstance(node, Function | ast.ClassDef) and node.name[0] != "_")
    return Module(
        path,
        name,
        len(text.splitlines()),
        bool(ast.get_docstring(tree)),
        tuple(f"{place}:{node.lineno} {node.name}" for node in public if not ast.get_docstring(node)),
        tuple(_function(place, node) for node in functions),
        tuple(
            Import(node.lineno, imported, id(node) in inside)
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for imported in _imported(path, name, node)
        ),
        tuple(
            Call(node.lineno, _last_word(node.func), ast.unparse(node.func))
            for node in nodes
            if isinstance(node, ast.Call) and _last_word(node.func) in LOADING | OPENING
        ),
        tuple(
            node.lineno
            for node in nodes
            if isinstance(node, ast.ExceptHandler)
            and (ast.unparse(node.type) if node.type else "") in ("", "Exception", "BaseException")
        ),
    )


def _function(place: str, node: Function) -> FunctionFacts:
    taken = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    lines = (node.end_lineno or 0) - node.lineno
    return FunctionFacts(f"{place}:{node.lineno} {node.name}", lines, len(taken), nesting(node))


def _imported(path: Path, name: str, node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [item.name for item in node.names]
    start = node.module or ""
    if node.level:
        parts = name.split(".")
        kept = parts[: len(parts) - node.level + (path.name == "__init__.py")]
        start = ".".join([*kept, *filter(None, [node.module])])
    return [f"{start}.{item.name}" for item in node.names]


def _last_word(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


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
    return read_module(path, name, text)


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
