"""Files and functions stay readable: wide fences, since cohesion decides; what is public says what it is."""

from __future__ import annotations

import ast

from tests.support.repository import Module, modules_of_tests, nesting, package_modules

FILE, FUNCTION, PARAMETERS, NESTING = 800, 100, 7, 4


def every_module() -> tuple[Module, ...]:
    """The package and its tests."""
    return (*package_modules(), *modules_of_tests())


def test_nesting_is_counted_as_a_reader_counts() -> None:
    assert nesting(ast.parse("def f():\n  if a:\n    for b in c:\n      pass\n  elif d:\n    pass")) == 2
    assert nesting(ast.parse("if a:\n  pass\nelif b:\n  pass\nelif c:\n  pass")) == 1


def test_files_are_short() -> None:
    assert not [module.place for module in every_module() if module.lines > FILE]


def test_functions_are_short() -> None:
    assert not [f.place for module in every_module() for f in module.functions if f.lines >= FUNCTION]


def test_parameters_are_few() -> None:
    assert not [f.place for module in every_module() for f in module.functions if f.parameters > PARAMETERS]


def test_nesting_is_flat() -> None:
    assert not [f.place for module in every_module() for f in module.functions if f.nesting > NESTING]


def test_modules_say_what_they_are() -> None:
    assert not [module.place for module in every_module() if not module.has_docstring]


def test_public_classes_and_functions_say_what_they_are() -> None:
    assert not [place for module in package_modules() for place in module.undocumented]


def test_broad_except_only_in_cli() -> None:
    modules = [module for module in package_modules() if not f"{module.name}.".startswith("lamella.cli.")]
    assert not [f"{module.place}:{line}" for module in modules for line in module.broad_handlers]
