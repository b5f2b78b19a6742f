"""What configs can say, drawn: a model gives the numbers of transformers, or its refusal names the key."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import transformers
from transformers import CONFIG_MAPPING

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.pipeline.module.describe import describe
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import LLAMA3, MODELS, YARN, build, first_of, logits, tokens

BASE = {"rope_theta": 10000.0}
BENT = {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.3, "truncate": False}
ANGLES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "linear": {"rope_type": "linear", "factor": 3.0, **BASE},
        "dynamic": {"rope_type": "dynamic", "factor": 3.0, **BASE},
        "yarn": YARN,
        "yarn bent": BENT,
        "llama3": LLAMA3,
        "sections": {"rope_type": "default", "mrope_section": [1, 1, 2], **BASE},
        "partial": {**YARN, "partial_rotary_factor": 0.5},
        "unknown": {"rope_type": "proportional", "partial_rotary_factor": 0.5, **BASE},
    }
)
"""Kinds of positions; transformers itself cannot run `partial` in most models."""
VALUES: Mapping[str, Any] = MappingProxyType(
    {
        **{"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu", "tie_word_embeddings": True},
        **{"sliding_window": 4, "head_dim": 16, "num_key_value_heads": 4, "rms_norm_eps": 0.1},
        **{"layer_types": ["full_attention", "sliding_attention"], "use_bidirectional_attention": True},
        **{"final_logit_softcapping": 5.0, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 7},
        **{"qk_layernorm": True, "use_qk_norm": True, "clip_qkv": 0.5, "logit_scale": 0.3},
        **{"attention_multiplier": 0.4, "residual_multiplier": 0.5, "use_parallel_residual": True},
        **{"use_qkv_bias": True, "use_bias": True, "norm_topk_prob": False, "routed_scaling_factor": 0.5},
        **{"swiglu_limit": 0.5, "rope_interleave": False, "first_k_dense_replace": 0, "n_group": 2},
        **{"time_step_limit": [0.01, 0.05], "layer_norm_epsilon": 0.1, "decoder_sparse_step": 2},
    }
)
"""Another value for keys of configs."""
FAMILIES = (
    *("llama", "qwen2", "qwen3", "mistral", "mixtral", "qwen3 moe", "gemma", "gemma2", "phi3", "phi", "olmo"),
    *("olmo2", "gpt neox", "falcon", "starcoder2", "granite", "stablelm", "cohere", "cohere2", "smollm3"),
    *("deepseek v3", "deepseek v2", "gpt oss", "qwen3 next", "mamba2", "rwkv", "bloom", "opt", "nemotron"),
    *("seed oss", "arcee", "helium", "ernie 4.5", "exaone4", "olmo3", "nemotron dense"),
    *("gptj", "gpt bigcode", "mpt", "gpt neo", "glm", "glm4"),
)
FEW = 12


def cases() -> Iterator[tuple[str, str, Any]]:
    """Every family with each kind of positions, and with each value that its config has."""
    for name in FAMILIES:
        kind = MODELS[name][0]
        known = getattr(transformers, f"{kind}Config")(**MODELS[name][1]).to_dict()
        if "rope_parameters" in known:
            part = {key: value for key, value in known["rope_parameters"].items() if "partial" in key}
            yield from ((name, "rope_parameters", {**part, **item}) for item in ANGLES.values())
        yield from ((name, key, value) for key, value in VALUES.items() if known.get(key, value) != value)


def drawn() -> list[tuple[str, str, Any]]:
    """Some of them, always the same ones."""
    return random.Random(7).sample(list(cases()), FEW)


@pytest.mark.parametrize(("name", "key", "value"), drawn())
def test_a_value_is_honoured_or_refused_by_its_name(name: str, key: str, value: Any, tmp_path: Path) -> None:
    model = build(name, **{key: value})
    model.save_pretrained(tmp_path)
    ids = tokens(2, 11)
    found, refusal = _ours(tmp_path, ids)
    if found is None:
        assert any(part in refusal for part in (key, *(value if isinstance(value, dict) else ())))
        return
    try:
        wanted = logits(model, ids)
    except (
        TypeError,
        RuntimeError,
    ):  # a value that transformers takes and cannot run, as windows of no width
        return
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def _ours(folder: Path, ids: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any] | None, str]:
    """What our model of a folder gives, or its refusal."""
    try:
        executable = lamella.compile(lamella.load(folder, via="module"), backend="reference")
    except LamellaError as refused:
        return None, str(refused)
    return first_of(executable(token_ids=ids)), ""


@pytest.mark.parametrize("kind", random.Random(3).sample(sorted(CONFIG_MAPPING), 16))
def test_every_folder_is_shown(kind: str, tmp_path: Path) -> None:
    """Also one of an architecture that nobody here has, as its config is by default."""
    CONFIG_MAPPING[kind]().save_pretrained(tmp_path)
    found = describe(str(tmp_path), Options())
    assert not found.findings
    assert kind.split("_")[0] in found.text


def test_a_folder_whose_values_are_refused_is_shown(tmp_path: Path) -> None:
    build("llama", hidden_act="gelu").save_pretrained(tmp_path)
    found = describe(str(tmp_path), Options())
    assert not found.findings
    assert "'hidden_act' in config.json" in found.text
