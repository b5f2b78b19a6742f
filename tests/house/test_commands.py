"""Every command has an example in the documentation, and examples are executed."""

from __future__ import annotations

import re

from lamella.cli import COMMANDS
from tests.support.repository import ROOT

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


def test_every_command_has_an_example() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    shown = {name for name in COMMANDS if re.search(rf"^\$ (?:.*\s)?lamella {name}\b", text, re.MULTILINE)}
    assert shown == set(COMMANDS)
