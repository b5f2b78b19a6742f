"""Tiny random checkpoints of transformers, with norms and biases that are random too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import transformers

VOCABULARY = 61
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
WINDOW = {"use_sliding_window": True, "sliding_window": 5}
MOE = {"moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 12}
ENCODER = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"} | {"pad_token_id": 0}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96}
ENDLESS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
MAMBA = {"vocab_size": VOCABULARY, "hidden_size": 32, "state_size": 6, "num_hidden_layers": 2, **ENDLESS}
HYBRID = {
    **{key: value for key, value in SIZES.items() if key != "num_hidden_layers"},
    "head_dim": 12,
    "mamba_num_heads": 6,
    "mamba_head_dim": 8,
    "ssm_state_size": 5,
    "n_groups": 2,
    "n_routed_experts": 4,
    "moe_intermediate_size": 20,
    "moe_shared_expert_intermediate_size": 28,
    "num_experts_per_tok": 2,
    "routed_scaling_factor": 1.5,
    "layers_block_type": ["linear_attention", "full_attention", "mlp", "moe", "linear_attention"],
    "chunk_size": 8,
}

Made = tuple[str, Mapping[str, Any]]
MODELS: Mapping[str, Made] = MappingProxyType(
    {
        "llama": ("Llama", SIZES),
        "llama tied": ("Llama", {**SIZES, "tie_word_embeddings": True}),
        "llama biases": ("Llama", {**SIZES, "attention_bias": True, "head_dim": 12}),
        "llama 3.1": ("Llama", {**SIZES, "rope_parameters": LLAMA3}),
        "llama linear": ("Llama", {**SIZES, "rope_parameters": {**LLAMA3, "rope_type": "linear"}}),
        "qwen2": ("Qwen2", SIZES),
        "qwen2 window": ("Qwen2", {**SIZES, **WINDOW, "max_window_layers": 1}),
        "qwen3": ("Qwen3", {**SIZES, "head_dim": 12}),
        "qwen3 window": (
            "Qwen3",
            {**SIZES, **WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
        ),
        "mistral": ("Mistral", {**SIZES, "sliding_window": 5}),
        "mistral without window": ("Mistral", {**SIZES, "sliding_window": None}),
        "mixtral": ("Mixtral", {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}),
        "qwen3 moe": ("Qwen3Moe", {**SIZES, **MOE, "norm_topk_prob": True}),
        "qwen3 moe plain": ("Qwen3Moe", {**SIZES, **MOE, "norm_topk_prob": False}),
        "qwen3 moe dense first": ("Qwen3Moe", {**SIZES, **MOE, "mlp_only_layers": [0]}),
        "qwen3 moe every second": (
            "Qwen3Moe",
            {**SIZES, **MOE, "decoder_sparse_step": 2, "num_hidden_layers": 3},
        ),
        "gpt2": ("GPT2LMHead", {**GPT2, **ENDLESS}),
        "mamba": ("Mamba", MAMBA),
        "mamba biases": ("Mamba", {**MAMBA, "use_bias": True, "use_conv_bias": False, "time_step_rank": 3}),
        "mamba untied": ("Mamba", {**MAMBA, "tie_word_embeddings": False, "expand": 1, "conv_kernel": 3}),
        "nemotron": ("NemotronH", HYBRID),
        "nemotron latent": ("NemotronH", {**HYBRID, "moe_latent_size": 16, "norm_topk_prob": False}),
        "bert": ("BertModel", ENCODER),
    }
)
"""For each checkpoint its architecture and the values of its config."""
CAUSAL = tuple(name for name in MODELS if name != "bert")


def build(name: str, seed: int = 0, **changes: object) -> Any:
    """A model of transformers with numbers that hide nothing; `changes` are other values of its config."""
    torch.manual_seed(seed)
    kind, values = MODELS[name]
    model_class = _model_class(kind)
    model = model_class(model_class.config_class(**{**values, **changes})).eval()
    with torch.no_grad():
        for path, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_floating_point() and not path.endswith("inv_freq"):
                tensor.copy_(_numbers(path, tensor))
    return model


def _model_class(kind: str) -> Any:
    suffix = "Model" if kind.endswith("LMHead") else "" if kind.endswith("Model") else "ForCausalLM"
    return getattr(transformers, f"{kind}{suffix}")


def _numbers(path: str, tensor: torch.Tensor) -> torch.Tensor:
    """Norms around 1, decays and biases of all sizes, matrices that keep the size of what they multiply."""
    made = torch.randn_like(tensor)
    if tensor.dim() < 2:
        return 1 + 0.3 * made if path.endswith(("weight", ".D")) else 0.3 * made
    if path.endswith(("A_log", "conv1d.weight")):
        return 0.5 * made
    return made / tensor.shape[-1] ** 0.5


def save(name: str, folder: Path, seed: int = 0, **changes: object) -> Any:
    """A model, with its folder written."""
    model = build(name, seed, **changes)
    model.save_pretrained(folder)
    return model


def tokens(batch: int = 2, length: int = 11, seed: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Random tokens."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, (batch, length))


def logits(model: Any, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a model of transformers gives for tokens: logits, or the last states of an encoder."""
    with torch.no_grad():
        out = model(torch.from_numpy(ids))
    found: np.ndarray[Any, Any] = (out.logits if "logits" in out else out.last_hidden_state).numpy()
    return found


def first_of(outputs: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The first output of a model of ours: its logits, or the last states of an encoder."""
    return next(iter(outputs.values()))
