"""Commands load only what they need, counted in modules rather than in time."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT, environment

HEAVY = {"numpy", "ml_dtypes", "rich", "torch", "lark", "llvmlite", "hypothesis"}


def loaded(*arguments: str) -> set[str]:
    """The modules that a command imports, as the interpreter itself reports them."""
    command = [sys.executable, "-X", "importtime", "-m", "lamella", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    rows = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    return {row.rsplit("|", 1)[1].strip() for row in rows}


def test_help_loads_nothing_heavy() -> None:
    modules = loaded("--help")
    assert "click" in modules
    assert not modules & HEAVY
    assert not [name for name in modules if name.startswith("lamella.lang.")]


@pytest.mark.parametrize(
    ("language", "path"),
    [
        ("nem", "examples/npu/conv_relu.nem"),
        ("skriptnd", "examples/alexnet"),
        ("skriptnd", "examples/operator/window_attention.sknd"),
    ],
    ids=["nem", "skriptnd", "operators"],
)
def test_check_loads_one_language_and_no_numpy(language: str, path: str) -> None:
    modules = loaded("check", path)
    assert languages_of(modules) == {f"lamella.lang.{language}"}
    assert not modules & HEAVY
    assert not [name for name in modules if name.startswith(("lamella.backend.", "lamella.bridge."))]


def test_check_of_instructions_builds_their_graph_without_a_backend() -> None:
    modules = loaded("check", "examples/nac/words.nacs")
    assert languages_of(modules) == {"lamella.lang.nac", "lamella.lang.skriptnd"}
    assert "lamella.bridge.nac_to_graph" in modules
    assert not modules & (HEAVY - {"numpy", "ml_dtypes"})
    assert not [name for name in modules if name.startswith("lamella.backend.")]


def test_show_of_a_model_loads_one_language_and_no_numpy() -> None:
    modules = loaded("show", "examples/alexnet")
    assert languages_of(modules) == {"lamella.lang.skriptnd"}
    assert not modules & HEAVY


def test_check_of_an_architecture_builds_its_graph_without_numpy() -> None:
    modules = loaded("check", "examples/llama/page.module")
    assert "lamella.bridge.module_to_graph" in modules
    assert not modules & HEAVY
    assert not [name for name in modules if name.startswith("lamella.backend.")]


def test_a_folder_of_hugging_face_is_shown_with_one_language(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "vocab_size": 4,
    }
    config |= {"num_attention_heads": 2, "intermediate_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    square = [f"self_attn.{name}_proj" for name in "qkvo"] + [
        f"mlp.{name}_proj" for name in ("gate", "up", "down")
    ]
    shapes = {f"model.layers.0.{name}.weight": [8, 8] for name in square}
    shapes |= {f"model.layers.0.{name}_layernorm.weight": [8] for name in ("input", "post_attention")}
    shapes |= {"model.embed_tokens.weight": [4, 8], "lm_head.weight": [4, 8], "model.norm.weight": [8]}
    header, position = {}, 0
    for name, shape in shapes.items():
        end = position + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(position))
    modules = loaded("show", str(tmp_path))
    assert languages_of(modules) == {"lamella.lang.module"}
    assert not [
        name for name in modules if name.startswith(("lamella.graph", "lamella.ops", "lamella.backend"))
    ]
    assert not modules & (HEAVY - {"numpy", "ml_dtypes"})


def test_nac_is_shown_and_converted_without_numpy(tmp_path: Path) -> None:
    target = str(tmp_path / "words.nac")
    for words in (
        ("convert", "examples/nac/words.nacs", target),
        ("show", target),
        ("show", target, "--listing"),
    ):
        modules = loaded(*words)
        assert languages_of(modules) == {"lamella.lang.nac"}
        assert not modules & HEAVY


def languages_of(modules: set[str]) -> set[str]:
    """The languages among modules."""
    return {name for name in modules if name.count(".") == 2 and name.startswith("lamella.lang.")}
