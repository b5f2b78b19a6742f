"""Modules: qualified names, folders, what is refused, several graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

import lamella
from tests.support.lang.skriptnd.conformance.cases import attempt

NEGATE = "import math;\noperator op { @input { x: real[n]; } @output { y: real[n]; } @compose { y = math.neg(x); } }\n"
OWN = "operator neg { @input { x: real[n]; } @output { y: real[n]; } @lower { y[i,] = 7.0, i < n; } }\n"
SQUARE = NEGATE.replace("neg", "sqr")
NEGATED, SQUARED, SAME = [-1.0, -2.0, -3.0], [1.0, 4.0, 9.0], [1.0, 2.0, 3.0]
COPY = "graph H { @input { x: real[3]; } @output { y: real; } @compose { y = x; } }\n"
SIBLING = "import a.c;\noperator op { @input { x: real[n]; } @output { y: real[n]; } @compose { y = a.c.op(x); } }\n"


def main(imports: str, call: str) -> str:
    """A main module."""
    graph = f"graph G {{ @input {{ x: real[3]; }} @output {{ y: real; }} @compose {{ y = {call}; }} }}\n"
    return f"import {imports};\n{graph}" if imports else graph


@pytest.mark.parametrize(
    ("files", "model", "expected"),
    [
        ({"main": main("A", "A.op(x)"), "A": NEGATE}, None, NEGATED),
        ({"main": main("A", "op(x)"), "A": NEGATE}, None, "SKR051"),
        ({"main": main("", "A.op(x)"), "A": NEGATE}, None, "SKR050"),
        ({"main": main("a.b", "a.b.op(x)"), "a/b": NEGATE}, None, NEGATED),
        ({"main": main("a.b", "a.b.op(x)"), "a/b": SIBLING, "a/c": NEGATE}, None, NEGATED),
        ({"main": main("a.b, c.b", "c.b.op(x)"), "a/b": NEGATE, "c/b": SQUARE}, None, SQUARED),
        ({"main": main("A", "math.neg(x)"), "A": NEGATE}, None, "SKR050"),
        ({"main": main("A", "A.op(x)"), "A": f"import B;\n{NEGATE}", "B": "import A;\n"}, None, "SKR057"),
        ({"main": main("A", "A.op(x)"), "A": NEGATE + COPY}, None, "SKR054"),
        ({"main": main("math", "math.neg(x)"), "math": OWN}, None, [7.0, 7.0, 7.0]),
        ({"main": main("math", "math.sqr(x)"), "math": OWN}, None, "SKR051"),
        ({"main": main("math, nn", "nn.relu(x)"), "math": OWN}, None, SAME),
        ({"main": main("A", "A.op(x)"), "A": NEGATE, "math": OWN}, None, [7.0, 7.0, 7.0]),
        ({"A": NEGATE}, None, "LAM001"),
        ({"main": NEGATE}, None, "SKR300"),
        ({"main": main("A", "A.op(x)"), "A": f"import main;\n{NEGATE}"}, None, "SKR059"),
        ({"main": main("A", "A._op(x)"), "A": NEGATE.replace("op {", "_op {")}, None, "SKR052"),
        ({"main": main("a", "a.op(x)"), "A": NEGATE}, None, "SKR056"),
        ({"main": main("A", "A.op(x)") + COPY, "A": NEGATE}, None, NEGATED),
        ({"main": main("A", "A.op(x)") + COPY, "A": NEGATE}, "H", SAME),
        ({"main": main("A", "A.op(x)") + COPY, "A": NEGATE}, "Q", "SKR300"),
        ({"main": main("A", "A.op(x)") + COPY.replace("graph H", "graph G"), "A": NEGATE}, None, "SKR040"),
    ],
)
def test_a_folder_of_modules(
    files: dict[str, str], model: str | None, expected: list[float] | str, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / f"{name}.sknd"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    found = attempt(lambda: outputs(tmp_path, model))
    assert found == ([expected] if isinstance(expected, str) else expected)


def outputs(folder: Path, model: str | None) -> list[float]:
    """What the graph of a folder gives."""
    found: list[float] = lamella.compile(folder, backend="reference", model=model)(x=SAME)["y"].tolist()
    return found
