"""The notebooks of the examples run from top to bottom, and what their cells end with has a card."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import pytest

from tests.support.repository import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def shown(source: str, names: dict[str, object]) -> object:
    """Run a cell; give the value of its last line, where that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path / "examples" / "notebooks")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    names: dict[str, object] = {}
    cards = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "notebooks are kept without outputs"
            value = shown("".join(cell["source"]), names)
            if hasattr(value, "_repr_html_"):
                assert "<" in value._repr_html_()
                cards += 1
    assert cards >= 4
