"""Folders as older versions and other writers leave them: keys, names, element types, many files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.graph.model import Model
from lamella.pipeline.module.export import export
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import (
    LLAMA3,
    build,
    first_of,
    inputs_of,
    logits,
    results_of,
    save,
    tokens,
)

FILE = "model.safetensors"
Config = dict[str, Any]
Tensors = dict[str, torch.Tensor]


def rewrite(
    folder: Path, config: Callable[[Config], None], names: Callable[[Tensors], Tensors] = dict
) -> None:
    """Write the config and the tensors of a folder anew."""
    path = folder / "config.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    config(found)
    path.write_text(json.dumps(found), encoding="utf-8")
    save_file(names(load_file(folder / FILE)), folder / FILE, {"format": "pt"})


def keep(config: Config) -> None:
    """The config as it is."""


def judge(folder: Path, model: Any, atol: float = 1e-5) -> None:
    """Our logits of a folder are those of the model that it was made of."""
    ids = tokens(length=12, seed=6)
    found = first_of(lamella.compile(lamella.load(folder))(token_ids=ids))
    np.testing.assert_allclose(found, logits(model, ids), rtol=0, atol=atol)


def old_rope(config: Config) -> None:
    """The RoPE values where version 4 of transformers had them."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")


def oldest_rope(config: Config) -> None:
    """The kind of scaling under its first name."""
    old_rope(config)
    config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")


def silent(config: Config) -> None:
    """Nothing that is a default of the class."""
    old_rope(config)
    for key in ("head_dim", "attention_bias", "tie_word_embeddings", "mlp_bias", "rope_scaling"):
        config.pop(key, None)


def counted(config: Config) -> None:
    """Experts under the key of version 4."""
    old_rope(config)
    config["num_experts"] = config.pop("num_local_experts")


def patterned(config: Config) -> None:
    """The kinds of layers as letters."""
    config.pop("layers_block_type")
    config["hybrid_override_pattern"] = "M*-EM"


def worded(config: Config) -> None:
    """The kinds of layers under their first words."""
    config["layers_block_type"] = ["mamba", "attention", "mlp", "moe", "mamba"]


@pytest.mark.parametrize(
    ("name", "spell"),
    [
        ("llama", old_rope),
        ("llama", silent),
        ("llama 3.1", old_rope),
        ("llama 3.1", oldest_rope),
        ("llama linear", oldest_rope),
        ("qwen2", old_rope),
        ("qwen2 window", lambda config: config.pop("layer_types")),
        ("mistral", old_rope),
        ("mixtral", old_rope),
        ("qwen3 moe", counted),
        ("nemotron", patterned),
        ("nemotron", worded),
        ("gpt2", lambda config: config.pop("architectures")),
    ],
)
def test_older_configs_say_the_same(name: str, spell: Callable[[Config], Any], tmp_path: Path) -> None:
    model = save(name, tmp_path)
    rewrite(tmp_path, spell)
    judge(tmp_path, model)


def test_positions_before_scaling_are_those_of_the_model_where_nothing_says_more(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    save("llama 3.1", folder)

    def shorten(config: Config) -> None:
        del config["rope_parameters"]["original_max_position_embeddings"]

    rewrite(folder, shorten)
    judge(folder, transformers.AutoModelForCausalLM.from_pretrained(folder))


def test_scaled_positions_differ_from_plain_ones() -> None:
    ids = tokens()
    plain, scaled = (logits(build(name), ids) for name in ("llama", "llama 3.1"))
    assert np.abs(plain - scaled).max() > 0.01
    assert LLAMA3["factor"] == 8.0


@pytest.mark.parametrize(
    ("name", "prefix"), [("gpt2", "transformer."), ("llama", "model."), ("mamba", "backbone.")]
)
def test_a_prefix_may_be_left_out(name: str, prefix: str, tmp_path: Path) -> None:
    model = save(name, tmp_path)
    rewrite(tmp_path, keep, lambda tensors: {key.removeprefix(prefix): item for key, item in tensors.items()})
    judge(tmp_path, model)


def test_a_prefix_may_be_there(tmp_path: Path) -> None:
    """As a model with a head stores its encoder, with tables of old versions beside the weights."""
    model = save("bert", tmp_path)
    tables = {"bert.embeddings.position_ids": torch.arange(96)[None]}
    rewrite(tmp_path, keep, lambda tensors: {f"bert.{key}": item for key, item in tensors.items()} | tables)
    judge(tmp_path, model)


def test_causal_masks_of_old_files_are_no_weights(tmp_path: Path) -> None:
    model = save("gpt2", tmp_path)
    masks = {f"transformer.h.{layer}.attn.bias": torch.ones(1, 1, 96, 96) for layer in range(2)}
    rewrite(tmp_path, keep, lambda tensors: tensors | masks)
    judge(tmp_path, model)


@pytest.mark.parametrize("name", ["llama", "mixtral", "mamba"])
@pytest.mark.parametrize("element", [torch.bfloat16, torch.float16, torch.float64])
def test_other_element_types_are_converted_told_and_kept(
    name: str, element: torch.dtype, tmp_path: Path
) -> None:
    build(name).to(element).save_pretrained(tmp_path / "in")
    loaded = lamella.load(tmp_path / "in")
    assert isinstance(loaded, Model)
    assert "W110" in {item.code for item in loaded.findings}
    model = build(name)
    with torch.no_grad():
        for tensor in model.parameters():  # not the tables of angles, which are computed and not stored
            tensor.copy_(tensor.to(element))
    judge(tmp_path / "in", model)

    export(tmp_path / "in", tmp_path / "out", Options())
    before, after = (load_file(tmp_path / part / FILE) for part in ("in", "out"))
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert after[key].dtype == element
        assert torch.equal(after[key], value), key


@pytest.mark.parametrize("name", ["llama", "qwen3 moe", "nemotron"])
def test_many_files_are_one_checkpoint(name: str, tmp_path: Path) -> None:
    model = build(name)
    model.save_pretrained(tmp_path / "in", max_shard_size="20KB")
    assert len(list((tmp_path / "in").glob("*.safetensors"))) > 2
    judge(tmp_path / "in", model)
    export(tmp_path / "in", tmp_path / "out", Options())
    ids = tokens()
    again = type(model).from_pretrained(tmp_path / "out").eval()
    np.testing.assert_array_equal(logits(again, ids), logits(model, ids))


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("llama", "hidden_act", "gelu"),
        ("llama", "num_attention_heads", 0),
        ("llama", "rope_parameters", {"rope_type": "proportional", "rope_theta": 1e4, "factor": 2.0}),
        ("qwen3 moe", "num_experts_per_tok", 5),
        ("qwen3 moe", "decoder_sparse_step", 0),
        ("gpt2", "scale_attn_by_inverse_layer_idx", True),
        ("bert", "is_decoder", True),
        ("bert", "position_embedding_type", "relative_key"),
        ("mamba", "hidden_act", "relu"),
        ("nemotron", "n_group", 2),
        ("nemotron", "layers_block_type", ["linear_attention", "full_attention", "mlp", "moe", "rnn"]),
    ],
)
def test_what_a_model_does_not_compute_is_refused(name: str, key: str, value: object, tmp_path: Path) -> None:
    save(name, tmp_path)
    rewrite(tmp_path, lambda config: config.update({key: value}))
    with pytest.raises(LamellaError) as caught:
        lamella.load(tmp_path, via="module")
    assert {item.code for item in caught.value.findings} <= {"E027", "E003", "E115"}


def test_a_tied_head_with_other_numbers_is_refused(tmp_path: Path) -> None:
    """Such a head is read by transformers, and by our model when it is not tied."""
    save("llama tied", tmp_path)

    def add(tensors: Tensors) -> Tensors:
        return {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"] * 2}

    rewrite(tmp_path, keep, add)
    with pytest.raises(LamellaError, match="E117"):
        lamella.load(tmp_path)
    found = lamella.load(tmp_path, unused="lm_head.*")
    assert isinstance(found, Model)
    assert [item.code for item in found.findings] == ["W112"]
    ids = tokens()
    read = lamella.compile(lamella.load(tmp_path, config={"tie": False}))(token_ids=ids)["logits"]
    judge_of = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    np.testing.assert_allclose(read, logits(judge_of, ids), rtol=0, atol=1e-5)


def test_biases_of_networks_and_a_head_of_its_own_are_read(tmp_path: Path) -> None:
    judge(tmp_path / "gpt2", save("gpt2", tmp_path / "gpt2", tie_word_embeddings=False))
    model = save("llama", tmp_path / "llama", mlp_bias=True)
    judge(tmp_path / "llama", model)
    rewrite(tmp_path / "llama", lambda config: config.update(mlp_bias=False))
    with pytest.raises(LamellaError, match=re.escape("'blocks[{i}].mlp.down_bias' reads it")):
        lamella.load(tmp_path / "llama")
    found = lamella.load(tmp_path / "llama", unused="*mlp*bias")
    assert isinstance(found, Model)
    assert {item.code for item in found.findings} == {"W112"}


@pytest.mark.parametrize(
    ("key", "value"), [("quantization_config", {"quant_method": "unheard"}), ("rope_theta", 77.0)]
)
def test_what_would_give_other_numbers_is_refused(key: str, value: object, tmp_path: Path) -> None:
    save("llama", tmp_path)
    rewrite(tmp_path, lambda config: config.update({key: value}))
    with pytest.raises(LamellaError, match=f"'{key}' in config.json"):
        lamella.load(tmp_path, via="module")


def test_what_nobody_can_read_is_refused_with_both_reasons(tmp_path: Path) -> None:
    save("nemotron", tmp_path)
    wrong = {"layers_block_type": ["linear_attention", "full_attention", "mlp", "moe", "rnn"]}
    rewrite(tmp_path, lambda config: config.update(wrong))
    with pytest.raises(LamellaError) as caught:
        lamella.load(tmp_path)
    assert [item.code for item in caught.value.findings] == ["LAM001", "W118"]


def test_lengths_and_directions_of_weights_under_their_older_names(tmp_path: Path) -> None:
    model = save("hubert letters", tmp_path, seed=3)
    older = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}

    def rename(tensors: Tensors) -> Tensors:
        for new, old in older.items():
            tensors = {name.replace(new, old): item for name, item in tensors.items()}
        return tensors

    rewrite(tmp_path, keep, rename)
    loaded = lamella.load(tmp_path)
    inputs = inputs_of(loaded)
    wanted = results_of(model, inputs)
    found = first_of(lamella.compile(loaded, backend="reference")(**inputs))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
