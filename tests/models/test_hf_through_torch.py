"""Folders that no model of the library is: read by transformers, exported by PyTorch, and said so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import lamella
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from tests.support.cli.skriptnd_models import call
from tests.support.models.checkpoints import ENCODER, SIZES, logits, tokens

WRITER = {"vocab_size": 61, "d_model": 32, "num_layers": 1, "attention_heads": 4, "ffn_dim": 48}


def make(name: str, folder: Path, **values: Any) -> Any:
    """A checkpoint of transformers with random weights, biases too."""
    torch.manual_seed(1)
    model_class = getattr(transformers, name)
    model = model_class(model_class.config_class(**values)).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.normal_(std=0.2)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", ["RoFormerForTokenClassification", "MegatronBertForMaskedLM"])
def test_any_number_of_sequences_of_any_length(name: str, tmp_path: Path) -> None:
    model = make(name, tmp_path, **{**ENCODER, "num_hidden_layers": 1})
    loaded = lamella.load(tmp_path)
    assert isinstance(loaded, Model)
    assert [item.code for item in loaded.findings] == ["W118"]
    run = lamella.compile(loaded, backend="reference")
    for batch, length in ((1, 4), (3, 11)):
        ids = tokens(batch, length) % 50 + 2
        np.testing.assert_allclose(run(input_ids=ids)["logits"], logits(model, ids), rtol=0, atol=1e-5)


def test_of_texts_with_images_texts_are_taken(tmp_path: Path) -> None:
    text = {
        **SIZES,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]},
    }
    vision = {"depth": 1, "embed_dim": 16, "num_heads": 2, "hidden_size": 32, "patch_size": 4}
    places = {"image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 7, "vision_end_token_id": 8}
    model = make(
        "Qwen2VLForConditionalGeneration", tmp_path, text_config=text, vision_config=vision, **places
    )
    loaded = lamella.load(tmp_path)
    assert isinstance(loaded, Model)
    assert [item.code for item in loaded.findings] == ["W118", "W111"]
    ids = tokens(1, 9) % 50 + 9
    found = lamella.compile(loaded, backend="reference")(input_ids=ids)["logits"]
    wanted = logits(model, ids)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_a_spectrogram_has_the_size_that_its_config_says(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    make("ASTForAudioClassification", tmp_path, **sizes, max_length=40, num_mel_bins=32)
    loaded = lamella.load(tmp_path)
    assert isinstance(loaded, Model)
    assert [item.shape[1:] for item in loaded.graph.inputs if isinstance(item, Tensor)] == [(40, 32)]


def test_tokens_are_those_of_transformers(tmp_path: Path) -> None:
    model = make("XGLMForCausalLM", tmp_path, **WRITER)
    given = ("generate", tmp_path, "--tokens", "5,6,7", "--max-tokens", "8", "--backend", "reference")
    found = call(*given)
    assert found.exit_code == 0, found.output
    chosen = [int(item) for item in found.stdout.split(",")]
    rated = logits(model, np.asarray([[5, 6, 7, *chosen[:-1]]]))[0, 2:]
    assert rated.argmax(-1).tolist() == chosen
    refused = call(*given, "--via", "module")
    assert refused.exit_code == 1
    assert "no model for the architecture 'XGLMForCausalLM'" in refused.stderr


def test_tensors_that_are_missing_or_unknown_are_errors(tmp_path: Path) -> None:
    make("XGLMForCausalLM", tmp_path, **WRITER)
    file = tmp_path / "model.safetensors"
    whole = load_file(file)
    first = next(name for name in whole if name.endswith("fc1.weight"))
    save_file({**whole, "other.weight": whole[first]}, file, {"format": "pt"})
    with pytest.raises(lamella.LamellaError, match=r"nothing reads: 'other\.weight'"):
        lamella.load(tmp_path)
    loaded = lamella.load(tmp_path, unused=("other.*",))
    assert isinstance(loaded, Model)
    assert loaded.findings[0].code == "W118"
    save_file({name: item for name, item in whole.items() if name != first}, file, {"format": "pt"})
    with pytest.raises(lamella.LamellaError, match=f"has no tensor '{first}'"):
        lamella.load(tmp_path)


def test_via_torch_reads_what_the_library_knows_too(tmp_path: Path) -> None:
    ids = tokens(2, 6) % 50 + 2
    model = make("BertModel", tmp_path, **ENCODER)
    ours, theirs = (
        lamella.compile(lamella.load(tmp_path, via=way), backend="reference") for way in (None, "torch")
    )
    wanted = logits(model, ids)
    np.testing.assert_allclose(ours(token_ids=ids)["last_hidden_state"], wanted, rtol=0, atol=1e-5)
    np.testing.assert_allclose(theirs(input_ids=ids)["last_hidden_state"], wanted, rtol=0, atol=1e-5)
