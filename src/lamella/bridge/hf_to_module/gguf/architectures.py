"""What the metadata and the tensors of a GGUF file are in the words of Hugging Face: config keys, and names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import Malformed
from lamella.base.gguf import Item

BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
KEYS: Mapping[str, str] = MappingProxyType(
    {
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "block_count": "num_hidden_layers",
        "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads",
        "attention.layer_norm_rms_epsilon": "rms_norm_eps",
        "attention.key_length": "head_dim",
        "attention.sliding_window": "sliding_window",
        "rope.freq_base": "rope_theta",
        "vocab_size": "vocab_size",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    }
)
"""What the keys behind the name of the architecture are called in config.json."""
SPECIAL: Mapping[str, str] = MappingProxyType(
    {
        "tokenizer.ggml.bos_token_id": "bos_token_id",
        "tokenizer.ggml.eos_token_id": "eos_token_id",
        "tokenizer.ggml.padding_token_id": "pad_token_id",
    }
)
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_HEADS = {
    **{"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"},
    **{"attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm"},
}
_GATED = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_LLAMA = {**_HEADS, **_GATED, "ffn_norm": "post_attention_layernorm"}
_GEMMA2 = {
    **{**_HEADS, **_GATED, "ffn_norm": "pre_feedforward_layernorm"},
    **{"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"},
}
_EXPERTS = {"ffn_gate_exps": "w1", "ffn_up_exps": "w3", "ffn_down_exps": "w2"}


@dataclass(frozen=True, slots=True)
class GgufArchitecture:
    """An architecture of GGUF as one of transformers."""

    name: str
    model_type: str
    blocks: Mapping[str, str]
    """The tensors of a block: what they are called in GGUF, and in a layer of transformers."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of its own."""
    is_interleaved: bool = False
    """Whether the rows of queries and keys lie in pairs, as rotations take them."""
    adds_one: bool = False
    """Whether norms are stored with the 1 that the model adds to them."""
    experts: Mapping[str, str] = field(default_factory=dict)
    """Matrices of all experts in one tensor, each by the name of one expert's."""
    home: str = ""
    """Where a layer holds its experts."""


ARCHITECTURES: Mapping[str, GgufArchitecture] = MappingProxyType(
    {
        "llama": GgufArchitecture("LlamaForCausalLM", "llama", _LLAMA, is_interleaved=True),
        "qwen2": GgufArchitecture("Qwen2ForCausalLM", "qwen2", _LLAMA),
        "qwen3": GgufArchitecture("Qwen3ForCausalLM", "qwen3", {**_LLAMA, **_NORMS}),
        "gemma": GgufArchitecture("GemmaForCausalLM", "gemma", _LLAMA, adds_one=True),
        "gemma2": GgufArchitecture("Gemma2ForCausalLM", "gemma2", _GEMMA2, adds_one=True),
        "gemma3": GgufArchitecture("Gemma3ForCausalLM", "gemma3_text", {**_GEMMA2, **_NORMS}, adds_one=True),
        "phi3": GgufArchitecture(
            "Phi3ForCausalLM",
            "phi3",
            {**_LLAMA, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
        ),
        "starcoder2": GgufArchitecture(
            "Starcoder2ForCausalLM",
            "starcoder2",
            {**_LLAMA, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
            {"attention.layer_norm_epsilon": "norm_epsilon"},
        ),
        "olmo2": GgufArchitecture("Olmo2ForCausalLM", "olmo2", {**_GEMMA2, **_NORMS}),
        "granite": GgufArchitecture(
            "GraniteForCausalLM",
            "granite",
            _LLAMA,
            {
                **{"logit_scale": "logits_scaling", "residual_scale": "residual_multiplier"},
                **{"embedding_scale": "embedding_multiplier", "attention.scale": "attention_multiplier"},
            },
            is_interleaved=True,
        ),
    }
)
"""The architectures that are read, by the name that the metadata have for them."""
MIXTRAL = GgufArchitecture(
    "MixtralForCausalLM",
    "mixtral",
    {**_LLAMA, "ffn_gate_inp": "block_sparse_moe.gate"},
    {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    is_interleaved=True,
    experts=_EXPERTS,
    home="block_sparse_moe.experts",
)
"""What `llama` is where it has experts."""


def find_gguf_architecture(items: Mapping[str, Item]) -> GgufArchitecture:
    """The architecture that metadata name; Malformed where it is not known."""
    name = items.get("general.architecture")
    if name == "llama" and items.get("llama.expert_count"):
        return MIXTRAL
    found = ARCHITECTURES.get(name) if isinstance(name, str) else None
    if found is None:
        raise Malformed(
            f"its architecture is {name!s:.40}; those that are read are {', '.join(ARCHITECTURES)}"
        )
    return found


def config_of(
    architecture: GgufArchitecture, items: Mapping[str, Item], tensors: Sequence[str], factors: Array | None
) -> dict[str, object]:
    """The metadata of a file as a config.json says them; `factors` are those by which rotations are slower."""
    prefix = f"{items.get('general.architecture')}."
    keys = {**KEYS, **architecture.keys}
    found: dict[str, object] = {"architectures": [architecture.name], "model_type": architecture.model_type}
    found |= {
        name: _single(items[f"{prefix}{key}"]) for key, name in keys.items() if f"{prefix}{key}" in items
    }
    found |= {name: items[key] for key, name in SPECIAL.items() if key in items}
    tokens = items.get("tokenizer.ggml.tokens")
    if "vocab_size" not in found and isinstance(tokens, list):
        found["vocab_size"] = len(tokens)
    found["tie_word_embeddings"] = "output.weight" not in tensors
    if f"{prefix}attention.layer_norm_epsilon" not in items:
        found.setdefault("rms_norm_eps", 1e-5)
    _add_rotation(found, prefix, items, factors)
    _add_own(found, architecture, tensors)
    return found


def _single(value: Item) -> object:
    """A value that may stand once for each block."""
    return value[0] if isinstance(value, list) and value and len(set(value)) == 1 else value


def _add_rotation(
    found: dict[str, object], prefix: str, items: Mapping[str, Item], factors: Array | None
) -> None:
    kind, factor = items.get(f"{prefix}rope.scaling.type", "none"), items.get(f"{prefix}rope.scaling.factor")
    if factors is not None:
        found["rope_scaling"] = _llama3(found, factors)
    elif kind != "none" and isinstance(factor, int | float) and factor:
        length = items.get(f"{prefix}rope.scaling.original_context_length")
        more = {} if length is None else {"original_max_position_embeddings": length}
        found["rope_scaling"] = {"rope_type": kind, "factor": factor, **more}
    width, head = items.get(f"{prefix}rope.dimension_count"), _head_of(found)
    if isinstance(width, int) and head and width != head:
        found["partial_rotary_factor"] = width / head


def _head_of(found: Mapping[str, object]) -> int:
    head, size, count = (found.get(key) for key in ("head_dim", "hidden_size", "num_attention_heads"))
    if isinstance(head, int):
        return head
    return size // count if isinstance(size, int) and isinstance(count, int) and count else 0


def _llama3(found: Mapping[str, object], factors: Array) -> dict[str, object]:
    """The words of a config for factors of rotations; Malformed where they are no table of Llama 3."""
    base = found.get("rope_theta", 10000.0)
    head = 2 * len(factors)
    for length in (8192, 4096, 16384, 32768):
        words = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": length}
        factor = float(np.max(factors))
        turns = (
            length
            / (2 * np.pi)
            * float(base if isinstance(base, int | float) else 1e4) ** -(np.arange(0, head, 2) / head)
        )
        smooth = np.clip((turns - 1) / 3, 0, 1)
        if np.allclose(1 / ((1 - smooth) / factor + smooth), factors, rtol=1e-4):
            return {"rope_type": "llama3", "factor": factor, **words}
    raise Malformed("its 'rope_freqs.weight' is no table of Llama 3, and no other one is known")


def _add_own(found: dict[str, object], architecture: GgufArchitecture, tensors: Sequence[str]) -> None:
    """What a config must say and metadata leave to the program that reads them."""
    layers, head = found.get("num_hidden_layers"), _head_of(found)
    size, count = found.get("hidden_size"), found.get("num_attention_heads")
    kind = architecture.model_type
    if kind in ("gemma2", "gemma3_text"):
        # The largest of either family scales by the width that its heads would have as parts of the whole.
        is_largest = layers == {"gemma2": 46, "gemma3_text": 62}[kind]
        whole = size // count if isinstance(size, int) and isinstance(count, int) and count else head
        found["query_pre_attn_scalar"] = whole if is_largest else head
        found["hidden_activation"] = "gelu_pytorch_tanh"
    if kind == "gemma":
        found["hidden_activation"] = found["hidden_act"] = "gelu_pytorch_tanh"
    if kind == "gemma3_text":
        found.setdefault("rope_local_base_freq", 10000.0)
    biased = any(name.endswith("attn_q.bias") for name in tensors)
    if kind in ("llama", "granite") and biased:
        found["attention_bias"] = True
    if kind == "starcoder2":
        found["use_bias"] = biased


def name_of(architecture: GgufArchitecture, name: str) -> str | None:
    """The name in transformers of a tensor; None where it is not known, or holds the matrices of all experts."""
    stem, _, kind = name.rpartition(".")
    match = BLOCK.fullmatch(stem)
    if match is None:
        return f"{_TOP[stem]}.{kind}" if stem in _TOP else None
    inner = architecture.blocks.get(match[2])
    return None if inner is None else f"model.layers.{match[1]}.{inner}.{kind}"


def experts_of(architecture: GgufArchitecture, name: str, count: int) -> list[str]:
    """The names in transformers of the matrices of experts that a tensor holds; none where it is no such tensor."""
    stem, _, kind = name.rpartition(".")
    match = BLOCK.fullmatch(stem)
    inner = None if match is None else architecture.experts.get(match[2])
    if match is None or inner is None:
        return []
    home = f"model.layers.{match[1]}.{architecture.home}"
    return [f"{home}.{number}.{inner}.{kind}" for number in range(count)]


def row_order(architecture: GgufArchitecture, name: str, heads: Mapping[str, int], rows: int) -> Array | None:
    """The order of rows of queries and keys, halves of a head apart; None where they lie as they are stored."""
    if not architecture.is_interleaved or not re.search(r"\.attn_[qk]\.(weight|bias)$", name):
        return None
    count = heads["k" if ".attn_k." in name else "q"]
    if count < 1 or rows % (2 * count):
        raise Malformed(f"the {rows} rows of '{name[:80]}' are no {count} heads")
    return np.arange(rows).reshape(count, -1, 2).swapaxes(1, 2).reshape(-1)


def is_norm(name: str) -> bool:
    """Whether a tensor holds the factors of a norm."""
    return name.endswith("norm.weight")
