"""Adapters judged by the package PEFT: it reads our files, and its steps with torch give our losses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import lamella
from lamella.train.adapters.merge import merge_adapter, unmerge_adapter

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # peft asks transformers by an old name

STEPS, BATCH, LENGTH, RATE = 4, 2, 8, 2e-2
KINDS = [
    "lora:rank=3,alpha=5,targets=q,v,o",
    "dora:rank=3,alpha=5,targets=k,down",
    "ia3",
    "prompt:length=3",
    "prefix:length=3",
]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with biases, whose checkpoint has the inputs of weights first."""
    folder = tmp_path_factory.mktemp("gpt2") / "tiny"
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():  # biases begin as zeros, which hide what is done to them
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return folder


def judge(base: Path, adapter: Path, rows: np.ndarray) -> list[float]:
    """The losses of PEFT's model with torch's AdamW, from the adapters of a folder on."""
    plain = transformers.AutoModelForCausalLM.from_pretrained(base)
    is_virtual = "num_virtual_tokens" in (adapter / "adapter_config.json").read_text()
    model = peft.PeftModel.from_pretrained(plain, adapter, is_trainable=not is_virtual)
    if is_virtual:  # which it only reads to use
        model.prompt_encoder.requires_grad_(True)
    trained = [item for item in model.parameters() if item.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.01)
    losses = []
    for step in range(STEPS):
        starts = [(step * BATCH + item) * LENGTH for item in range(BATCH)]
        part = torch.from_numpy(np.stack([rows[start : start + LENGTH + 1] for start in starts]))
        logits = model(part[:, :-1]).logits[:, -LENGTH:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare(base: Path, kind: str, tokens: Path, folder: Path) -> None:
    rows = np.load(tokens).astype(np.int64)
    words: dict[str, Any] = {"batch": BATCH, "sequence": LENGTH}
    lamella.train(base, rows, steps=1, lr=0.0, adapters=kind, save=folder / "first", **words)
    ours = lamella.train(base, rows, steps=STEPS, lr=RATE, adapters=str(folder / "first"), **words)
    np.testing.assert_allclose(ours.losses, judge(base, folder / "first", rows), rtol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_peft_give_our_losses(kind: str, llama: Path, tokens: Path, tmp_path: Path) -> None:
    compare(llama, kind, tokens, tmp_path)


@pytest.mark.parametrize(
    "kind",
    [
        "lora:rank=3,targets=c_attn",
        "ia3:targets=c_attn,c_proj",
        "dora:rank=2,targets=c_fc",
        "prompt:length=2",
        "prefix:length=2",
    ],
)
def test_biases_and_turned_weights_are_those_of_peft(
    kind: str, gpt2: Path, tokens: Path, tmp_path: Path
) -> None:
    compare(gpt2, kind, tokens, tmp_path)


@pytest.mark.parametrize("is_rooted", [False, True])
def test_ranks_and_scales_that_differ_are_read(
    is_rooted: bool, llama: Path, tokens: Path, tmp_path: Path
) -> None:
    """Patterns give modules ranks of their own, and `use_rslora` divides by the root of the rank."""
    plain = transformers.AutoModelForCausalLM.from_pretrained(llama)
    config = peft.LoraConfig(
        r=2,
        lora_alpha=5,
        target_modules=["q_proj", "k_proj", "down_proj"],
        rank_pattern={"k_proj": 3, r"^model.layers.0.mlp.down_proj": 4},
        alpha_pattern={"self_attn.q_proj": 9},
        use_rslora=is_rooted,
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    peft.get_peft_model(plain, config).save_pretrained(tmp_path / "made")
    rows = np.load(tokens).astype(np.int64)
    words: dict[str, Any] = {"batch": BATCH, "sequence": LENGTH}
    ours = lamella.train(llama, rows, steps=STEPS, lr=RATE, adapters=str(tmp_path / "made"), **words)
    np.testing.assert_allclose(ours.losses, judge(llama, tmp_path / "made", rows), rtol=2e-5)


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixtral")
    torch.manual_seed(5)
    config = transformers.MixtralConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=3,
        max_position_embeddings=64,
    )
    transformers.MixtralForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["lora:rank=3,targets=experts", "lora:rank=2,targets=q,down"])
def test_experts_have_the_adapters_of_peft(kind: str, mixtral: Path, tokens: Path, tmp_path: Path) -> None:
    """Matrices of all experts are parameters there, not modules: one pair for all of them, each with its share."""
    compare(mixtral, kind, tokens, tmp_path)
    words: dict[str, Any] = {"steps": 2, "batch": 2, "sequence": 8, "lr": RATE, "adapters": kind}
    lamella.train(mixtral, np.load(tokens), save=tmp_path / "made", **words)
    merge_adapter(mixtral, tmp_path / "made", tmp_path / "merged")
    unmerge_adapter(tmp_path / "merged", tmp_path / "made", tmp_path / "back")
    plain = transformers.AutoModelForCausalLM.from_pretrained(mixtral)
    before = {key: tensor.clone() for key, tensor in plain.state_dict().items()}
    wanted = peft.PeftModel.from_pretrained(plain, tmp_path / "made").merge_and_unload().state_dict()
    for name, judge_of in (("merged", wanted), ("back", before)):
        found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict()
        for key, tensor in judge_of.items():
            torch.testing.assert_close(found[key], tensor, rtol=1e-5, atol=1e-6)


def test_what_is_merged_is_what_peft_merges(llama: Path, tokens: Path, tmp_path: Path) -> None:
    for kind in ("lora:rank=3", "dora:rank=3", "ia3"):
        name = kind.partition(":")[0]
        words: dict[str, Any] = {"steps": 2, "batch": 2, "sequence": 8, "lr": RATE, "adapters": kind}
        lamella.train(llama, np.load(tokens), save=tmp_path / name, **words)
        lamella.train(llama, np.load(tokens), save=tmp_path / f"{name}-merged", merge=True, **words)
        plain = transformers.AutoModelForCausalLM.from_pretrained(llama)
        wanted = peft.PeftModel.from_pretrained(plain, tmp_path / name).merge_and_unload().state_dict()
        found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / f"{name}-merged").state_dict()
        for key, tensor in wanted.items():
            torch.testing.assert_close(found[key], tensor, rtol=1e-5, atol=1e-6)
        assert json.loads((tmp_path / name / "adapter_config.json").read_text())["peft_type"]
