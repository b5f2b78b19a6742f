"""Wrong runs say themselves what is wrong with them: `# expect CODE` on the line, `# with x=[1.0]` gives an input."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from docs.generate import repaired
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.ops.library import Library

FOLDER = Path(__file__).parents[2] / "lang" / "skriptnd" / "bad" / "run"
RUNS = sorted(FOLDER.glob("*.sknd"))
EXPECT = re.compile(r"#\s*expect\s+(SKR\d{3})")
LIMITS = Limits(max_steps=1000)


def given_inputs(text: str) -> dict[str, Array]:
    """The inputs that the first line gives, as JSON."""
    line = re.match(r"# with (.*)", text)
    pairs = re.findall(r"(\w+)=(\S.*?)(?= \w+=|$)", line[1]) if line else []
    return {name: np.array(json.loads(value)) for name, value in pairs}


def run(name: str, text: str) -> list[Diagnostic]:
    """Everything found by running; composing finds nothing."""
    library = Library()
    module = library.load(Source(name, text))
    found = compose(module)
    assert found.graph is not None, "\n".join(map(str, [*module.findings, *found.findings]))
    try:
        compile_model(Model(found.graph, library), limits=LIMITS)(**given_inputs(text))
    except LamellaError as problem:
        return list(problem.findings)
    return []


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_wrong_run_has_exactly_the_finding_it_announces(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = enumerate(text.split("\n"), 1)
    expected = Counter((number, match[1]) for number, line in lines for match in EXPECT.finditer(line))
    found = run(path.name, text)
    assert Counter((item.span.line, item.code) for item in found) == expected, "\n".join(map(str, found))
    assert expected


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_repaired_run_has_nothing_wrong(path: Path) -> None:
    assert not run(path.name, repaired(path.read_text(encoding="utf-8")))
