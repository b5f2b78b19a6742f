"""Files and functions stay readable: wide fences, since cohesion decides; what is public says what it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.tree import Module, modules_of_tests, package_modules

FILE, FUNCTION, PARAMETERS, NESTING = 800, 100, 7, 4
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def every_module() -> tuple[Module, ...]:
    """The package and its tests."""
    return (*package_modules(), *modules_of_tests())


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


def test_files_are_short() -> None:
    assert not [module.place for module in every_module() if len(module.text.splitlines()) > FILE]


def test_functions_are_short() -> None:
    found = (item for module in every_module() for item in functions(module))
    assert not [place for place, node in found if (node.end_lineno or 0) - node.lineno >= FUNCTION]


def test_parameters_are_few() -> None:
    found = (item for module in every_module() for item in functions(module))
    counted = ((place, len(n.args.posonlyargs + n.args.args + n.args.kwonlyargs)) for place, n in found)
    assert not [place for place, count in counted if count > PARAMETERS]


def test_nesting_is_flat() -> None:
    found = (item for module in every_module() for item in functions(module))
    assert not [place for place, node in found if nesting(node) > NESTING]


def test_modules_say_what_they_are() -> None:
    assert not [module.place for module in every_module() if not ast.get_docstring(module.tree)]


def test_public_classes_and_functions_say_what_they_are() -> None:
    public = (
        (module, node)
        for module in package_modules()
        for node in module.tree.body
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
    )
    assert not [f"{m.place}:{node.lineno} {node.name}" for m, node in public if not ast.get_docstring(node)]


def test_broad_except_only_in_cli() -> None:
    handlers = (
        (module.place, node)
        for module in package_modules()
        if not f"{module.name}.".startswith("lamella.cli.")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler)
    )
    names = (
        (f"{place}:{node.lineno}", ast.unparse(node.type) if node.type else "") for place, node in handlers
    )
    assert not [place for place, name in names if name in ("", "Exception", "BaseException")]
