"""The models of the library by the architectures of Hugging Face that they are; names are compared, never imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.base.limits import DEFAULT
from lamella.base.paths import read_text, shipped
from lamella.base.source import Source, Span
from lamella.bridge.hf_to_module import Folder, find_architecture
from lamella.lang.module.rules.mappings import ARCHITECTURE

_MODEL = re.compile(r'^model +([A-Za-z_]\w*)|^ +(?:architecture|model_type): *"([^"]*)"', re.MULTILINE)
FOLDER = "models"


@cache
def architectures() -> Mapping[str, tuple[Path, str]]:
    """For each architecture and each type of a model, the file and the model that it is."""
    found: dict[str, tuple[Path, str]] = {}
    for path in sorted((shipped("models") / FOLDER).glob("*.module")):
        model = ""
        for match in _MODEL.finditer(read_text(path, DEFAULT)):
            model = match[1] or model
            if match[2]:
                found.setdefault(match[2], (path, model))
    return found


def find_model(folder: Folder) -> tuple[Path, str]:
    """The file and the model for a folder; LamellaError where the library has none."""
    names = find_architecture(folder.config)
    known = architectures()
    for name in names:
        if name in known:
            return known[name]
    place = Span(Source(str(folder.path / "config.json"), ""), 0, 0)
    shown = " or ".join(f"'{name}'" for name in names) or "that config.json does not name"
    near = get_close_matches(names[0], known, 1) if names else []
    hint = f"did you mean '{near[0]}'? " if near else ""
    listed = ", ".join(name for name in known if name[:1].isupper())
    raise LamellaError([ARCHITECTURE.at(place, name=shown, repair=f"{hint}there are: {listed}")])
