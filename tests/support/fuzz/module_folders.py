"""A tiny folder of weights, and fields of it that say something else than before."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "vocab_size": 16,
    "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "tie_word_embeddings": False,
    "attention_bias": False,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 7, 10**9, 10**12, 1 << 63, 1 << 64, 10**400, 0.5, -0.0, 1e308, 1e-320),
    *(float("nan"), float("inf"), float("-inf"), "", "8", "1e9", "silu", "\x1b[2J", "../x", "/etc/passwd", "a" * 5000),
    *([], [8], [[[]]], ["LlamaForCausalLM", 7], {}, {"a": 1}, {"rope_theta": "x"}, ["__import__('os')"], "torch.nn"),
)  # fmt: skip
KEYS = (
    *CONFIG, "auto_map", "rope_scaling", "rope_theta", "sliding_window", "layer_types", "quantization_config",
    "num_local_experts", "mlp_only_layers", "use_sliding_window", "trust_remote_code", "dtype",
)  # fmt: skip
ARCHITECTURES = (
    *("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM", "MixtralForCausalLM"),
    *("Qwen3MoeForCausalLM", "GPT2LMHeadModel", "BertModel", "MambaForCausalLM", "os.system", "__class__"),
)
TYPES = ("F32", "F16", "BF16", "F64", "I64", "U8", "BOOL", "F8_E4M3", "Q4", "", "f32", 7, None)


def shapes() -> dict[str, list[int]]:
    """The tensors of the checkpoint."""
    found = {"model.embed_tokens.weight": [16, 8], "model.norm.weight": [8], "lm_head.weight": [16, 8]}
    for layer in (f"model.layers.{number}." for number in range(2)):
        found |= {
            f"{layer}input_layernorm.weight": [8],
            f"{layer}post_attention_layernorm.weight": [8],
            f"{layer}self_attn.q_proj.weight": [8, 8],
            f"{layer}self_attn.k_proj.weight": [4, 8],
            f"{layer}self_attn.v_proj.weight": [4, 8],
            f"{layer}self_attn.o_proj.weight": [8, 8],
            f"{layer}mlp.gate_proj.weight": [12, 8],
            f"{layer}mlp.up_proj.weight": [12, 8],
            f"{layer}mlp.down_proj.weight": [8, 12],
        }
    return found


def header() -> tuple[dict[str, Any], int]:
    """The header of a file that holds them, and how many bytes of numbers follow."""
    at, found = 0, {}
    for name, shape in shapes().items():
        size = 4
        for extent in shape:
            size *= extent
        found[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return found, at


def mutate_config(config: dict[str, Any], chance: Random) -> None:
    """One field of the config changed, taken out or put in."""
    key = chance.choice(KEYS)
    way = chance.randrange(5)
    if way == 0:
        config.pop(key, None)
    elif way == 1:
        config["architectures"] = [chance.choice(ARCHITECTURES)]
        config["model_type"] = chance.choice(("llama", "qwen3", "mixtral", "gpt2", "bert", "mamba", "x"))
    elif way == 2 and isinstance(config.get("rope_parameters"), dict):
        name = chance.choice(("rope_theta", "rope_type", "factor", "original_max_position_embeddings"))
        config["rope_parameters"][name] = chance.choice(NASTY)
    else:
        config[key] = chance.choice(NASTY)


def mutate_header(found: dict[str, Any], chance: Random) -> None:
    """One entry of a header changed, taken out, put in or called otherwise."""
    name = chance.choice(list(found)) if found else "x"
    entry = found.get(name)
    way = chance.randrange(6)
    if way == 0:
        found.pop(name, None)
    elif way == 1:
        found[
            chance.choice(("model.layers.99.mlp.up_proj.weight", "../../x", "", "a\x1b[0m", "lm_head.bias"))
        ] = entry
    elif way == 2:
        found["__metadata__"] = chance.choice(NASTY)
    elif way == 3:
        found[name] = chance.choice(NASTY)
    elif isinstance(entry, dict):
        field = chance.choice(("dtype", "shape", "data_offsets"))
        own: tuple[Any, ...] = {
            "dtype": TYPES,
            "shape": ([], [8], [8, 8], [-8, -8], [0, 8], [1 << 40, 1 << 40], [8.0, 8], ["8", 8], [1] * 100),
            "data_offsets": ([0, 0], [0], [4, 0], [-4, 4], [0, 1 << 62], [0, 1e3], ["0", "4"], [1, 5]),
        }[field]
        entry[field] = chance.choice((*own, *NASTY))


def _index(names: list[str], chance: Random) -> dict[str, Any]:
    weights: dict[str, Any] = dict.fromkeys(names, "model.safetensors")
    outside = ("../model.safetensors", "/etc/hostname", "other.safetensors", "", "a/b.safetensors", 7, None)
    weights[chance.choice((*names, "ghost"))] = chance.choice(outside)
    return {"metadata": chance.choice(({}, None, {"total_size": "x"})), "weight_map": weights}


def mutate_folder(folder: Path, seed: str) -> None:
    """Write the folder with up to three of its fields changed, and now and then damage in its bytes."""
    chance = Random(seed)
    config: dict[str, Any] = json.loads(json.dumps(CONFIG))
    found, size = header()
    names = list(found)
    changes = chance.randrange(4)
    for _ in range(changes):
        if chance.random() < 0.6:
            mutate_config(config, chance)
        else:
            mutate_header(found, chance)
    text = json.dumps(config).encode()
    head = json.dumps(found).encode()
    data = bytearray(struct.pack("<Q", len(head)) + head + bytes(size))
    if changes and chance.random() < 0.1:
        data[chance.randrange(16)] ^= 1 << chance.randrange(8)
    if changes and chance.random() < 0.1:
        del data[chance.randrange(len(data)) :]
    if changes and chance.random() < 0.1:
        text = text[: chance.randrange(len(text))]
    (folder / "config.json").write_bytes(text)
    (folder / "model.safetensors").write_bytes(data)
    index = folder / "model.safetensors.index.json"
    index.unlink(missing_ok=True)
    if changes and chance.random() < 0.2:
        index.write_text(json.dumps(_index(names, chance)), encoding="utf-8")
        if chance.random() < 0.5:
            (folder / "model.safetensors").unlink()
