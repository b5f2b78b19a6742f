"""The door to packages that may be missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lamella.base import optional
from lamella.base.diagnostic import LamellaError
from lamella.base.optional import CORE, EXTRAS, need


def test_a_package_that_is_there_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional, "EXTRAS", {"email": "mail"})
    assert need("email.message").__name__ == "email.message"


@pytest.mark.parametrize("name", EXTRAS)
def test_a_missing_package_names_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(LamellaError) as caught:
        need(name)
    finding = caught.value.findings[0]
    assert (finding.message, finding.hint) == (
        f"package '{name}' is not installed",
        f"pip install 'lamella[{EXTRAS[name]}]'",
    )


def test_a_broken_package_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package.py").write_text("raise ImportError('a library is too old')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(optional, "EXTRAS", {"broken_package": "x"})
    with pytest.raises(LamellaError, match="cannot be loaded: a library is too old"):
        need("broken_package")


@pytest.mark.parametrize("name", CORE)
def test_a_missing_core_package_is_named_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(LamellaError) as caught:
        need(name)
    assert caught.value.findings[0].hint == f"pip install {name}"
