"""The languages are built alike."""

from __future__ import annotations

import importlib
import inspect

import pytest

from lamella.pipeline import backends
from lamella.pipeline import languages as registry
from tests.support.repository import PACKAGE, languages

PARTS = ("nodes", "rules", "parse", "check", "write")
LANGUAGES = pytest.mark.parametrize("name", languages())


def test_a_language_was_found() -> None:
    assert languages()


@LANGUAGES
def test_has_the_same_parts(name: str) -> None:
    folder = PACKAGE / "lang" / name
    missing = [
        part
        for part in PARTS
        if not ((folder / f"{part}.py").is_file() or (folder / part / "__init__.py").is_file())
    ]
    assert not missing
    assert (folder / "grammar.lark").is_file()


@LANGUAGES
def test_offers_the_same_functions(name: str) -> None:
    language = importlib.import_module(f"lamella.lang.{name}")
    for function in ("parse", "check", "write"):
        assert callable(getattr(language, function, None)), f"lamella.lang.{name}.{function}"
        assert function in language.__all__


PROTOCOLS: dict[str, type] = {
    "files": registry.Files,
    "shows": registry.Shows,
    "loads": registry.Loads,
    "saves": registry.Saves,
    "lowers": registry.Lowers,
    "as_graph": registry.AsGraph,
    "writing": registry.FromGraph,
    "printing": registry.Printing,
}
"""The fields of a row of the registry, and what the module that each names has."""
DOORS: dict[str, type] = {
    "module.sources": registry.Architectures,
    "nac.graphs": registry.NacGraphs,
    "nac.results": registry.NacResults,
    "nac.convert": registry.NacWriting,
    "nac.plans": registry.NacPlans,
}


def parameters(function: object, skip: int) -> list[str]:
    """The names of the parameters without a default."""
    assert callable(function)
    found = list(inspect.signature(function).parameters.values())[skip:]
    return [item.name for item in found if item.default is inspect.Parameter.empty]


@pytest.mark.parametrize("row", registry.ROWS, ids=lambda row: row.name)
def test_the_modules_of_a_row_have_what_the_registry_calls(row: registry.Language) -> None:
    for field, protocol in PROTOCOLS.items():
        if getattr(row, field):
            compare_with(f"lamella.pipeline.{getattr(row, field)}", protocol)


def test_the_doors_lead_somewhere() -> None:
    for module, protocol in DOORS.items():
        compare_with(f"lamella.pipeline.{module}", protocol)
    for backend in backends.ROWS:
        compare_with(f"lamella.pipeline.backends.{backend.module}", backends.Runner)


def compare_with(name: str, protocol: type) -> None:
    """A module has the functions of a protocol, each with as many parameters."""
    module = importlib.import_module(name)
    for word, wanted in vars(protocol).items():
        if not word.startswith("_") and callable(wanted):
            found = parameters(getattr(module, word, None), 0)
            assert len(found) <= len(parameters(wanted, 1)), f"{name}.{word}"
