"""Everything that the library declares is built and runs, is written canonically, and is found by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.base.source import Source
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.lang.module.nodes import Module
from lamella.lang.module.parse import parse
from lamella.lang.module.resolve import Workspace, resolve
from lamella.lang.module.write import write
from lamella.pipeline.module.files import check
from lamella.pipeline.options import Options
from tests.models.library import FOLDER, declarations, files, options_of

KINDS = ("modules", "blocks", "models")
DECLARED = {
    f"{path.stem}.{module.name}": (path, module, small)
    for kind in KINDS
    for path, module, small in declarations(kind)
}
EXTENTS = {"B": 2, "T": 5, "N": 5}


@pytest.mark.parametrize("name", DECLARED)
def test_every_declaration_runs_with_random_weights(name: str) -> None:
    path, module, small = DECLARED[name]
    model = lamella.load(path, **options_of(module, small))
    assert isinstance(model, Model)
    random = np.random.default_rng(0)
    given = {item.name: _numbers(item, random) for item in model.graph.inputs if isinstance(item, Tensor)}
    first, second = (lamella.compile(model, seed=1)(**given) for _ in range(2))
    assert first
    for key, value in first.items():
        assert np.isfinite(value).all()
        assert value.std() > 0
        np.testing.assert_array_equal(value, second[key])


def _numbers(tensor: Tensor, random: np.random.Generator) -> np.ndarray[Any, Any]:
    shape = [item if isinstance(item, int) else EXTENTS.get(str(item), 3) for item in tensor.shape]
    if tensor.element.is_integer:
        return random.integers(0, 40, shape)
    return random.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.module")), ids=lambda path: path.stem)
def test_every_file_is_canonical(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    document, findings = parse(Source(path.name, text))
    assert not findings
    assert write(document) == text


@pytest.mark.parametrize("path", [path for kind in KINDS for path in files(kind)], ids=lambda path: path.stem)
def test_every_file_passes_its_own_check(path: Path) -> None:
    assert [item.code for item in check(path, Options()) if item.severity != "note"] == []


@pytest.mark.parametrize("name", DECLARED)
def test_every_declaration_is_found_under_std(name: str, tmp_path: Path) -> None:
    path, module, _ = DECLARED[name]
    folder = f"std.{path.parent.name}"
    for text in (
        f"import {folder}.{module.name}",
        f"from {folder}.{path.stem} import {module.name}",
        f"import {folder}.{path.stem}.v1",
    ):
        found = _scope(text, tmp_path).find(module.name)
        assert found is not None, text
        assert isinstance(found.declaration, Module)


@pytest.mark.parametrize("name", ["matmul", "rmsnorm", "moe_router", "mamba_selective_scan", "split"])
def test_primitives_have_versions(name: str, tmp_path: Path) -> None:
    assert _scope(f"import std.primitives.{name}.v1", tmp_path).find(name) is not None
    with pytest.raises(LamellaError, match="E002"):
        _scope(f"import std.primitives.{name}.v2", tmp_path)


def _scope(text: str, folder: Path) -> Any:
    path = folder / "program.module"
    path.write_text(f"{text}\n", encoding="utf-8")
    workspace = Workspace(())
    resolved = resolve(workspace.read(path), workspace)
    if resolved.findings:
        raise LamellaError(resolved.findings)
    return resolved.scope


@pytest.mark.parametrize("model", ["Llama", "Qwen3", "Mixtral", "Qwen3Moe", "GPT2", "Bert", "NemotronH"])
def test_a_model_without_heads_is_refused(model: str) -> None:
    path = next(path for path, module, _ in DECLARED.values() if module.name == model)
    with pytest.raises(LamellaError) as caught:
        lamella.load(path, model=model, preset="tiny", config={"num_heads": 0})
    assert caught.value.findings[0].code == "E027"
    assert "num_heads" in caught.value.findings[0].message
