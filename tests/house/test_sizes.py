"""Files, functions, parameters and nesting stay small; what is public says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.tree import Module, modules_of_tests, package_modules

FILE, FUNCTION, PARAMETERS, NESTING = 500, 60, 7, 4
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
ALL = pytest.mark.parametrize(
    "module", [*package_modules(), *modules_of_tests()], ids=lambda module: module.place
)
OURS = pytest.mark.parametrize("module", package_modules(), ids=lambda module: module.place)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: Module) -> Iterator[tuple[str, Function]]:
    """Every function of a module with its place."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function):
            yield f"{module.place}:{node.lineno} {node.name}", node


def nesting(node: ast.AST) -> int:
    """How many blocks lie inside each other; `elif` and plain expressions add none."""
    chained = node.orelse if isinstance(node, ast.If) and len(node.orelse) == 1 else []
    inner = (
        nesting(child) + (isinstance(child, BLOCKS) and child not in chained) for child in _children(node)
    )
    return max(inner, default=0)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    return (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


def test_nesting_is_counted_as_a_reader_counts() -> None:
    assert nesting(ast.parse("def f():\n  if a:\n    for b in c:\n      pass\n  elif d:\n    pass")) == 2
    assert nesting(ast.parse("if a:\n  pass\nelif b:\n  pass\nelif c:\n  pass")) == 1


@ALL
def test_files_are_short(module: Module) -> None:
    assert len(module.text.splitlines()) <= FILE


@ALL
def test_functions_are_short(module: Module) -> None:
    assert not [
        place for place, node in functions(module) if (node.end_lineno or 0) - node.lineno >= FUNCTION
    ]


@ALL
def test_parameters_are_few(module: Module) -> None:
    counted = (
        (place, len(n.args.posonlyargs + n.args.args + n.args.kwonlyargs)) for place, n in functions(module)
    )
    assert not [place for place, count in counted if count > PARAMETERS]


@ALL
def test_nesting_is_flat(module: Module) -> None:
    assert not [place for place, node in functions(module) if nesting(node) > NESTING]


@ALL
def test_modules_say_what_they_are(module: Module) -> None:
    assert ast.get_docstring(module.tree)


@OURS
def test_public_classes_and_functions_say_what_they_are(module: Module) -> None:
    public = (
        n for n in module.tree.body if isinstance(n, Function | ast.ClassDef) and not n.name.startswith("_")
    )
    assert not [f"{module.place}:{node.lineno} {node.name}" for node in public if not ast.get_docstring(node)]


@OURS
def test_broad_except_only_in_cli(module: Module) -> None:
    if module.name == "lamella.cli" or module.name.startswith("lamella.cli."):
        return
    handlers = (node for node in ast.walk(module.tree) if isinstance(node, ast.ExceptHandler))
    names = ((node.lineno, ast.unparse(node.type) if node.type else "") for node in handlers)
    assert not [line for line, name in names if name in ("", "Exception", "BaseException")]
