"""Every command has an example in the documentation, and examples are executed."""

from __future__ import annotations

import re

import pytest

from lamella.cli import COMMANDS
from tests.house.tree import ROOT

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_an_example(command: str) -> None:
    example = re.compile(rf"^\$ (?:.*\s)?lamella {command}\b", re.MULTILINE)
    assert any(example.search(page.read_text(encoding="utf-8")) for page in PAGES)
