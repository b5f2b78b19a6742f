"""GGUF files of tiny models of transformers, written by the package `gguf` with the names that it has for tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Kind
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXTS = [
    "the quick brown fox jumps over the lazy dog " * 3,
    "hello world, tensors and kernels: 12345 and 678",
]
HIDDEN = 64
SIZES = {
    **{"hidden_size": HIDDEN, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": None},
}
MODELS: dict[str, tuple[str, Any, Any, dict[str, Any], Kind, Kind]] = {
    "llama": ("llama", transformers.LlamaConfig, transformers.LlamaForCausalLM, {}, Kind.Q8_0, Kind.F16),
    "llama tied": (
        *("llama", transformers.LlamaConfig, transformers.LlamaForCausalLM),
        *({"tie_word_embeddings": True}, Kind.Q4_1, Kind.Q4_1),
    ),
    "mixtral": (
        *("llama", transformers.MixtralConfig, transformers.MixtralForCausalLM),
        *({"num_local_experts": 3, "num_experts_per_tok": 2}, Kind.Q4_0, Kind.Q8_0),
    ),
    "qwen2": ("qwen2", transformers.Qwen2Config, transformers.Qwen2ForCausalLM, {}, Kind.Q4_0, Kind.Q8_0),
    "qwen3": (
        *("qwen3", transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        *({"head_dim": 32}, Kind.Q5_1, Kind.BF16),
    ),
    "gemma": (
        *("gemma", transformers.GemmaConfig, transformers.GemmaForCausalLM),
        *({"head_dim": 16}, Kind.Q8_0, Kind.Q8_0),
    ),
    "gemma2": (
        *("gemma2", transformers.Gemma2Config, transformers.Gemma2ForCausalLM),
        *({"head_dim": 16, "query_pre_attn_scalar": 16}, Kind.Q5_0, Kind.F32),
    ),
    "gemma3": (
        *("gemma3", transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
        *({"head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 5}, Kind.Q4_0, Kind.Q8_0),
    ),
    "olmo2": ("olmo2", transformers.Olmo2Config, transformers.Olmo2ForCausalLM, {}, Kind.Q8_0, Kind.Q8_0),
    "granite": (
        *("granite", transformers.GraniteConfig, transformers.GraniteForCausalLM),
        *({"logits_scaling": 2.0, "residual_multiplier": 0.5}, Kind.Q8_0, Kind.Q8_0),
    ),
    "starcoder2": (
        *("starcoder2", transformers.Starcoder2Config, transformers.Starcoder2ForCausalLM),
        *({"norm_epsilon": 1e-4}, Kind.Q8_0, Kind.Q8_0),
    ),
    "phi3": ("phi3", transformers.Phi3Config, transformers.Phi3ForCausalLM, {}, Kind.Q8_0, Kind.Q8_0),
}
"""The architecture in GGUF, the classes of transformers, their settings, the types of matrices and of the table."""


def train_tokenizer() -> Tokenizer:
    """A tokenizer that merges bytes."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    found.train_from_iterator(TEXTS, trainer)
    return found


def save_gguf(name: str, path: Path, tokenizer: Tokenizer) -> Any:
    """Write a file, and give the model of transformers whose weights are the numbers that it holds."""
    architecture, config_of, model_of, settings, matrices, table = MODELS[name]
    torch.manual_seed(3)
    config = config_of(vocab_size=tokenizer.get_vocab_size(), **{**SIZES, **settings})
    model = model_of(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * (0.1 if weight.ndim == 1 else 0.02))
    writer = gguf.GGUFWriter(path, architecture)
    _add_facts(writer, config, tokenizer)
    codes = {word: number for number, word in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(codes[architecture], config.num_hidden_layers)
    decoded = {}
    for key, value in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if ".experts." in key:
            decoded[key] = _add_experts(writer, key, value.numpy(), matrices)
            continue
        heads = 0
        if architecture in ("llama", "granite") and key.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in key else config.num_key_value_heads
        more = float(architecture.startswith("gemma") and key.endswith("norm.weight"))
        stored = _in_pairs(value.numpy() + np.float32(more), heads)
        kind = Kind.F32 if stored.ndim == 1 else table if "embed" in key else matrices
        data = gguf.quants.quantize(stored, kind)
        writer.add_tensor(names.get_name(key, (".weight", ".bias")) or key, data, raw_dtype=kind)
        numbers = gguf.quants.dequantize(data, kind)
        decoded[key] = torch.from_numpy(_in_halves(numbers, heads).copy()) - more
    if config.tie_word_embeddings:
        decoded["lm_head.weight"] = decoded["model.embed_tokens.weight"]
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model.load_state_dict(decoded)
    return model


def _add_experts(writer: gguf.GGUFWriter, key: str, values: np.ndarray[Any, Any], kind: Kind) -> torch.Tensor:
    """The matrices of all experts in one tensor, those of gates and of the others apart."""
    block = key.split(".")[2]
    words = ("down",) if key.endswith("down_proj") else ("gate", "up")
    found = []
    for word, part in zip(words, np.split(values, len(words), axis=1), strict=True):
        data = gguf.quants.quantize(np.ascontiguousarray(part), kind)
        writer.add_tensor(f"blk.{block}.ffn_{word}_exps.weight", data, raw_dtype=kind)
        found.append(gguf.quants.dequantize(data, kind))
    return torch.from_numpy(np.concatenate(found, axis=1))


def _add_facts(writer: gguf.GGUFWriter, config: Any, tokenizer: Tokenizer) -> None:
    heads = config.num_attention_heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        writer.add_layer_norm_eps(config.norm_epsilon)
    turned = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(turned["rope_theta"])
    writer.add_key_length(getattr(config, "head_dim", None) or config.hidden_size // heads)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, key, None):
            getattr(writer, f"add_{key}")(getattr(config, key))
    if getattr(config, "sliding_window", None) and writer.arch in ("gemma2", "gemma3"):
        writer.add_sliding_window(config.sliding_window)
    if hasattr(config, "num_local_experts"):
        writer.add_expert_count(config.num_local_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if writer.arch == "granite":
        writer.add_logit_scale(config.logits_scaling)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([3, 3, *[1] * (len(words) - 2)])
    writer.add_token_merges([" ".join(item) for item in json.loads(tokenizer.to_str())["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def _in_pairs(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The rows of each head in the order in which llama.cpp turns them."""
    if not heads:
        return values
    return values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def _in_halves(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    if not heads:
        return values
    return values.reshape(heads, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
