"""The languages are built alike."""

from __future__ import annotations

import importlib

import pytest

from tests.house.tree import PACKAGE, languages

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
