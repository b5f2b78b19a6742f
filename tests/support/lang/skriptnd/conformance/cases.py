"""Cases of a conformance file: a program each, with what it is given and what it must do.

A case begins with `#! case NAME`; the other lines that begin with `#!` say how it runs and what is demanded:
`input`, `set`, `extent`, `model`, `dialect`, `quantized`, then `output`, `expect` (codes of errors), `told` (the
message of the first one) or `fine`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import lamella
from lamella import LamellaError
from lamella.base.diagnostic import Diagnostic, errors

FOLDER = Path(__file__).parents[4] / "lang" / "skriptnd" / "conformance"
Result = TypeVar("Result")
ASSIGNMENT = re.compile(r"(\S+) = (.*)")


@dataclass
class Case:
    """A program and what is demanded of it."""

    name: str
    lines: list[str] = field(default_factory=list)
    words: dict[str, list[str]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The program."""
        return "\n".join(self.lines) + "\n"

    def word(self, key: str) -> str | None:
        """What the last line of a kind says."""
        return self.words[key][-1] if key in self.words else None

    def assigned(self, key: str) -> dict[str, str]:
        """Names with the texts that lines of a kind give them."""
        found = (ASSIGNMENT.fullmatch(item) for item in self.words.get(key, ()))
        return {item[1]: item[2] for item in found if item is not None}

    @property
    def options(self) -> dict[str, Any]:
        """The options under which the program is read."""
        found: dict[str, object] = {key: self.word(key) for key in ("model", "dialect") if key in self.words}
        if "set" in self.words:
            found["config"] = self.assigned("set")
        if "extent" in self.words:
            found["shape"] = {key: int(value) for key, value in self.assigned("extent").items()}
        return found


def cases() -> Iterator[Case]:
    """Every case of every file, named after both."""
    for path in sorted(FOLDER.glob("*.cases")):
        case: Case | None = None
        for line in path.read_text(encoding="utf-8").splitlines():
            key, _, rest = line.removeprefix("#! ").partition(" ")
            if line.startswith("#! case "):
                case = Case(f"{path.stem}: {rest}")
                yield case
            elif line.startswith("#! ") and case is not None:
                case.words.setdefault(key, []).append(rest)
            elif case is not None:
                case.lines.append(line)


def write(folder: Path, text: str) -> Path:
    """A program as the main module of a folder."""
    path = folder / "main.sknd"
    path.write_text(text, encoding="utf-8")
    return path


def attempt(action: Callable[[], Result]) -> Result | list[str]:
    """What an action gives, or the codes of what it finds wrong, each once."""
    try:
        return action()
    except LamellaError as error:
        return list(dict.fromkeys(item.code for item in errors(error.findings)))


def run(case: Case, path: Path) -> tuple[list[Diagnostic], dict[str, object]]:
    """What is wrong with a program, found by a check or else by a run, and the outputs of the run."""
    found = errors(lamella.check(path, None, **case.options))
    if found or "fine" in case.words:
        return found, {}
    inputs = {name: np.asarray(json.loads(text)) for name, text in case.assigned("input").items()}
    try:
        quantized = "quantized" in case.words
        program = lamella.compile(path, backend="reference", quantized=quantized, random=True, **case.options)
        return [], {name: value.tolist() for name, value in program(**inputs).items()}
    except LamellaError as error:
        return errors(error.findings), {}
