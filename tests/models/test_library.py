"""Everything that the library declares is built and runs, is written canonically, and is found by its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamella
from docs.generate_standard import standard_pages
from lamella.backend.executor import GraphExecutable
from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError
from lamella.base.paths import shipped
from lamella.base.source import Source
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.lang.module.nodes import Module
from lamella.lang.module.parse import parse
from lamella.lang.module.resolve import Workspace, resolve
from lamella.lang.module.write import write
from lamella.pipeline.module.files import check
from lamella.pipeline.module.folders import architectures
from lamella.pipeline.module.library import describe as describe_standard
from lamella.pipeline.options import Options
from tests.support.models.library import FOLDER, declarations, files, options_of

KINDS = ("modules", "blocks", "models")
DECLARED = {
    f"{path.stem}.{module.name}": (path, module, small)
    for kind in KINDS
    for path, module, small in declarations(kind)
}
JUDGED = {(path, model) for name, (path, model) in architectures().items() if name[0].isupper()}
"""Models that run on the reference, with the same preset, where transformers judges them: in test_hf_models."""
EXTENTS = {"B": 2, "T": 9, "N": 5, "H": 20, "W": 24}
"""As many samples and pixels as the convolutions of the smallest presets need."""


@pytest.mark.parametrize(
    "name", [name for name, (path, module, _) in DECLARED.items() if (path, module.name) not in JUDGED]
)
def test_every_declaration_runs_with_random_weights(name: str) -> None:
    path, module, small = DECLARED[name]
    model = lamella.load(path, **options_of(module, small))
    assert isinstance(model, Model)
    random = np.random.default_rng(0)
    given = {item.name: _numbers(item, random) for item in model.graph.inputs if isinstance(item, Tensor)}
    # Machine code of all models is judged with their checkpoints.
    run = lamella.compile(model, "reference", seed=1)
    assert isinstance(run, GraphExecutable)
    first = run(**given)
    run.reset()
    second = run(**given)
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
    folder = ".".join(("std", *path.parent.relative_to(FOLDER).parts))
    for text in (
        f"import {folder}.{module.name}",
        f"from {folder}.{path.stem} import {module.name}",
        f"import {folder}.{path.stem}.v1",
        *([f"import std.modules.{module.name}"] if folder.startswith("std.modules") else []),
    ):
        found = _scope(text, tmp_path).find(module.name)
        assert found is not None, text
        assert isinstance(found.declaration, Module)


ORGANIZATION = """
primitives: matmul rmsnorm attention bias tensor_ops flash_attention
modules: linear mlp attention attention.mha attention.gqa attention.mqa moe moe.router moe.expert
blocks: dense parallel moe mamba qwen3 stacked_blocks
models: llama qwen mistral mixtral
"""
"""The paths of chapter 10.1 of the specification, and those that programs written for it use."""
PATHS = [
    f"std.{folder}.{name}"
    for folder, _, names in (line.partition(": ") for line in ORGANIZATION.split("\n"))
    for name in names.split()
]


@pytest.mark.parametrize("path", PATHS)
def test_every_path_of_the_specification_is_imported_and_shown(path: str, tmp_path: Path) -> None:
    scope = _scope(f"import {path}", tmp_path)
    shown = describe_standard(path, Options())
    told = shown.data["declarations"]
    assert isinstance(told, list)
    assert told
    for item in told:
        assert scope.find(item["name"]) is not None
        assert item["sentence"] in shown.text
        assert all(name in shown.text for name in item["parameters"])
        assert item["inputs"]
        assert item["outputs"]
        assert item["sentence"].endswith(".")


def test_a_declaration_is_shown_with_its_shapes() -> None:
    text = describe_standard("std.primitives.flash_attention", Options()).text
    for line in (
        "causal: bool = true",
        "q: [B, Hq, T, D]",
        "out: [B, Hq, T, D]",
        "operator llm.flash_attention",
    ):
        assert line in text
    assert (
        "lm_head: tied_to(embedding) if tie or head != words else"
        in describe_standard("std.models.llama", Options()).text
    )
    assert "std.models.…" in describe_standard("std", Options()).text
    with pytest.raises(LamellaError, match=re.escape("did you mean 'std.models.llama'?")):
        describe_standard("std.models.lama", Options())


def _ran(name: str, given: dict[str, Any], state: dict[str, Any], **config: int | str) -> dict[str, Any]:
    """What a declaration of the library gives with these weights."""
    path, module, _ = DECLARED[name]
    model = lamella.load(path, model=module.name, config=config)
    assert isinstance(model, Model)
    run = compile_model(model)
    own = {key: item for key, item in state.items() if not key.endswith("freqs")}  # tables are computed
    assert {key for key in run.state if not key.endswith("freqs")} == set(own)
    run.state.update(own)
    return dict(run(**given))


def _weights(name: str, **config: int | str) -> dict[str, Any]:
    """Random weights of a declaration of the library."""
    path, module, _ = DECLARED[name]
    model = lamella.load(path, model=module.name, config=config)
    assert isinstance(model, Model)
    return dict(compile_model(model, seed=3).state)


def test_a_router_picks_the_best_experts() -> None:
    random = np.random.default_rng(5)
    x, weight = (random.standard_normal(shape).astype(np.float32) for shape in ((6, 8), (5, 8)))
    found = _ran("router.MoERouter", {"x": x}, {"weight": weight}, d_model=8, num_experts=5, top_k=2)
    scores = np.exp(x @ weight.T)
    scores /= scores.sum(1, keepdims=True)
    best = np.argsort(-scores, 1)[:, :2]
    np.testing.assert_array_equal(found["indices"], best)
    chosen = np.take_along_axis(scores, best, 1)
    np.testing.assert_allclose(found["weights"], chosen / chosen.sum(1, keepdims=True), rtol=1e-5)


def test_blocks_made_of_dense_ones_are_those_blocks() -> None:
    random = np.random.default_rng(6)
    sizes: dict[str, int | str] = {"d_model": 16, "num_heads": 4, "num_kv_heads": 2, "d_ff": 24, "max_seq": 8}
    given = {name: random.standard_normal((1, 3, 16)).astype(np.float32) for name in ("x", "residual")}
    dense = "dense.DenseTransformerBlock"

    state = _weights(dense, **sizes, use_qk_norm="true")
    plain = _ran(dense, given, state, **sizes, use_qk_norm="true", rope_theta="1e6")
    block = _ran("qwen3.Qwen3Block", given, {f"block.{name}": item for name, item in state.items()}, **sizes)
    np.testing.assert_allclose(block["out"], plain["out"], rtol=1e-5, atol=1e-6)

    stacked = _weights("stacked_blocks.StackedDenseBlocks", **sizes, n_layers=2)
    found = _ran("stacked_blocks.StackedDenseBlocks", given, stacked, **sizes, n_layers=2)
    stream = given
    for layer in range(2):
        prefix = f"blocks.{layer}."
        own = {name.removeprefix(prefix): item for name, item in stacked.items() if name.startswith(prefix)}
        made = _ran(dense, stream, own, **sizes)
        stream = {"x": made["out"], "residual": made["residual_out"]}
    np.testing.assert_allclose(found["out"], stream["x"], rtol=1e-5, atol=1e-6)


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


def test_every_file_and_every_declaration_has_a_sentence_on_its_page() -> None:
    pages = standard_pages()
    assert len(pages) == 1 + len(list(shipped("models").rglob("*.module")))
    for name, page in pages.items():
        if name != "index.md":
            title, *declarations = page.split("\n## ")
            assert len(title.splitlines()) >= 5, f"{name} begins without a sentence"
            for text in declarations:
                head, sentence = text.split("```text\n")[1].splitlines()[:2]
                assert sentence.startswith("  "), f"{name}: {head}"
                assert sentence.endswith("."), f"{name}: {head}"
