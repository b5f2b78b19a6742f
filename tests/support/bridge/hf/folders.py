"""Tiny folders with random weights, written by transformers, and what their weights are by torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from lamella.base.arrays import Array
from lamella.bridge.hf_to_module import Weight
from tests.support.bridge.hf import mappings

SIZES: dict[str, Any] = {
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64},
}
State = Mapping[str, torch.Tensor]
Judged = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """A family: the model, its mapping, and every weight as torch makes it from the state of the model."""

    build: Callable[[], Any]
    mapping: str
    weights: Callable[[State], Judged]
    prefix: str = ""
    tied: tuple[str, ...] = ()


def decoder(state: State) -> Judged:
    """The weights that all decoders have."""
    found = {"embedding": state["model.embed_tokens.weight"], "final_norm": state["model.norm.weight"]}
    if "lm_head.weight" in state:
        found["lm_head"] = state["lm_head.weight"]
    for i in range(3):
        layer, block = f"model.layers.{i}", f"blocks[{i}]"
        qkv = [state[f"{layer}.self_attn.{part}_proj.weight"] for part in "qkv"]
        found[f"{block}.ln1"] = state[f"{layer}.input_layernorm.weight"]
        found[f"{block}.ln2"] = state[f"{layer}.post_attention_layernorm.weight"]
        found[f"{block}.attention.qkv"] = torch.cat(qkv)
        found[f"{block}.attention.out"] = state[f"{layer}.self_attn.o_proj.weight"]
    return found


def llama(state: State) -> Judged:
    """Llama: gate and up fused."""
    found = decoder(state)
    for i in range(3):
        mlp = f"model.layers.{i}.mlp"
        gated = [state[f"{mlp}.gate_proj.weight"], state[f"{mlp}.up_proj.weight"]]
        found[f"blocks[{i}].mlp.up"] = torch.cat(gated)
        found[f"blocks[{i}].mlp.down"] = state[f"{mlp}.down_proj.weight"]
    return found


def experts(state: State, name: str, parts: tuple[str, str, str], turn: bool) -> Judged:
    """The experts of a decoder, one behind the other."""
    found = decoder(state)
    gate, up, down = parts
    for i in range(3):
        moe = name.format(i)
        found[f"blocks[{i}].router"] = state[f"{moe}.gate.weight"]
        each = [{part: state[f"{moe}.experts.{e}.{part}.weight"] for part in parts} for e in range(4)]
        found[f"blocks[{i}].experts_up"] = torch.stack([torch.cat([e[gate], e[up]]) for e in each])
        found[f"blocks[{i}].experts_down"] = torch.stack([e[down].T if turn else e[down] for e in each])
    return found


def mixtral(state: State) -> Judged:
    """Mixtral in the form of its files."""
    return experts(state, "model.layers.{}.block_sparse_moe", ("w1", "w3", "w2"), turn=False)


def qwen3_moe(state: State) -> Judged:
    """Qwen3 with experts; we keep the second matrix of an expert transposed, to have that too."""
    found = experts(state, "model.layers.{}.mlp", ("gate_proj", "up_proj", "down_proj"), turn=True)
    for i in range(3):
        for part in "qk":
            found[f"blocks[{i}].attention.{part}_norm"] = state[
                f"model.layers.{i}.self_attn.{part}_norm.weight"
            ]
    return found


def gpt2(state: State) -> Judged:
    """GPT-2, whose matrices are stored transposed."""
    found = {"wte": state["transformer.wte.weight"], "wpe": state["transformer.wpe.weight"]}
    pairs = {"qkv": "attn.c_attn", "out": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}
    for kind in ("weight", "bias"):
        found[f"lnf.{kind}"] = state[f"transformer.ln_f.{kind}"]
        for i in range(3):
            for norm in "12":
                found[f"blocks[{i}].ln{norm}.{kind}"] = state[f"transformer.h.{i}.ln_{norm}.{kind}"]
            for path, name in pairs.items():
                values = state[f"transformer.h.{i}.{name}.{kind}"]
                found[f"blocks[{i}].{path}_{kind}"] = values.T if kind == "weight" else values
    return found


def bert(state: State) -> Judged:
    """BERT without a head: its files lack the prefix that the mapping has."""
    embeddings = {"words": "word", "positions": "position", "kinds": "token_type"}
    found = {path: state[f"embeddings.{name}_embeddings.weight"] for path, name in embeddings.items()}
    names = {"out": "attention.output.dense", "ln1": "attention.output.LayerNorm"}
    names |= {"up": "intermediate.dense", "down": "output.dense", "ln2": "output.LayerNorm"}
    for kind in ("weight", "bias"):
        found[f"norm.{kind}"] = state[f"embeddings.LayerNorm.{kind}"]
        found[f"pooler.{kind}"] = state[f"pooler.dense.{kind}"]
        for i in range(3):
            layer = f"encoder.layer.{i}"
            for path, name in names.items():
                found[f"blocks[{i}].{path}.{kind}"] = state[f"{layer}.{name}.{kind}"]
            parts = [state[f"{layer}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            found[f"blocks[{i}].qkv.{kind}"] = torch.cat(parts)
    return found


def _build(family: str, head: str = "ForCausalLM", **sizes: Any) -> Any:
    """A model of a family; the names of transformers are looked up, since its types say little."""
    config = getattr(transformers, f"{family}Config")(**sizes)
    return getattr(transformers, f"{family}{head}")(config)


def _llama(**more: Any) -> Any:
    return _build("Llama", **SIZES, **more)


def _qwen3_moe() -> Any:
    own: dict[str, Any] = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "head_dim": 16,
    }
    return _build("Qwen3Moe", **SIZES, **own)


def _mixtral() -> Any:
    return _build("Mixtral", **SIZES, num_local_experts=4)


def _gpt2() -> Any:
    sizes = {"vocab_size": 64, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
    return _build("GPT2", "LMHeadModel", **sizes, bos_token_id=0, eos_token_id=0)


def _bert() -> Any:
    return _build("Bert", "Model", **{key: SIZES[key] for key in SIZES if key != "num_key_value_heads"})


CASES = {
    "llama": Case(_llama, mappings.LLAMA, llama),
    "tied llama": Case(lambda: _llama(tie_word_embeddings=True), mappings.LLAMA, llama, tied=("lm_head",)),
    "bfloat16": Case(lambda: _llama().to(torch.bfloat16), mappings.LLAMA, llama),
    "mixtral": Case(_mixtral, mappings.MIXTRAL, mixtral),
    "qwen3 moe": Case(_qwen3_moe, mappings.QWEN3_MOE, qwen3_moe),
    "gpt2": Case(_gpt2, mappings.GPT2, gpt2, tied=("head",)),
    "bert": Case(_bert, mappings.BERT, bert, prefix="bert"),
}


def save(case: Case, folder: Path, **options: Any) -> Any:
    """Write a folder with random weights, norms and biases too, and give the model."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    torch.manual_seed(len(case.mapping))
    model = case.build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(folder, **options)
    return model


def weights_of(judged: Judged, tied: tuple[str, ...] = (), element: str = "") -> list[Weight]:
    """The weights of a model of which torch tells the shapes; the tied ones share those of the first."""
    first, *_ = judged
    found = [Weight(path, tuple(values.shape), element) for path, values in judged.items()]
    shape = tuple(judged[first].shape)
    return [item for item in found if item.path not in tied] + [
        Weight(path, shape, element, tied=first) for path in tied
    ]


def bits(values: torch.Tensor | Array) -> bytes:
    """The bytes of an array or tensor, row by row."""
    if isinstance(values, torch.Tensor):
        values = values.detach().contiguous().view(torch.uint8 if values.ndim else values.dtype).numpy()
    return np.ascontiguousarray(values).tobytes()
