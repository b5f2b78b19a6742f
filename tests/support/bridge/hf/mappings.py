"""The mappings of small models, as a model file would hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.bridge.hf_to_module import MappingContext
from lamella.lang.module.instantiate.evaluate import evaluate
from lamella.lang.module.instantiate.nodes import Known
from lamella.lang.module.nodes import Expr, Module
from lamella.lang.module.parse import parse

DECODER = """
    embedding: "model.embed_tokens.weight"
    final_norm: "model.norm.weight"
    lm_head: "lm_head.weight"
    blocks[{i}].ln1: "model.layers.{i}.input_layernorm.weight"
    blocks[{i}].ln2: "model.layers.{i}.post_attention_layernorm.weight"
    blocks[{i}].attention.qkv: fuse(
      "model.layers.{i}.self_attn.q_proj.weight",
      "model.layers.{i}.self_attn.k_proj.weight",
      "model.layers.{i}.self_attn.v_proj.weight",
      dim=0
    )
    blocks[{i}].attention.out: "model.layers.{i}.self_attn.o_proj.weight"
"""
LLAMA = f"""{DECODER}
    blocks[{{i}}].mlp.up: fuse("model.layers.{{i}}.mlp.gate_proj.weight", "model.layers.{{i}}.mlp.up_proj.weight")
    blocks[{{i}}].mlp.down: "model.layers.{{i}}.mlp.down_proj.weight"
"""
LLAMA_SPLIT = """
    blocks[{i}].attention.qkv -> split(
      "model.layers.{i}.self_attn.q_proj.weight": [0, q_dim],
      "model.layers.{i}.self_attn.k_proj.weight": [q_dim, q_dim + kv_dim],
      "model.layers.{i}.self_attn.v_proj.weight": [q_dim + kv_dim, q_dim + 2 * kv_dim],
      dim=0
    )
    blocks[{i}].mlp.up -> split(
      "model.layers.{i}.mlp.gate_proj.weight": [0, d_ff],
      "model.layers.{i}.mlp.up_proj.weight": [d_ff, 2 * d_ff]
    )
"""
MIXTRAL = f"""{DECODER}
    blocks[{{i}}].router: "model.layers.{{i}}.block_sparse_moe.gate.weight"
    blocks[{{i}}].experts_up[{{e}}]: fuse(
      "model.layers.{{i}}.block_sparse_moe.experts.{{e}}.w1.weight",
      "model.layers.{{i}}.block_sparse_moe.experts.{{e}}.w3.weight"
    )
    blocks[{{i}}].experts_down: transform("model.layers.{{i}}.block_sparse_moe.experts.{{k}}.w2.weight", fn: stack)
"""
QWEN3_MOE = f"""{DECODER}
    blocks[{{i}}].attention.q_norm: "model.layers.{{i}}.self_attn.q_norm.weight"
    blocks[{{i}}].attention.k_norm: "model.layers.{{i}}.self_attn.k_norm.weight"
    blocks[{{i}}].router: "model.layers.{{i}}.mlp.gate.weight"
    blocks[{{i}}].experts_up: fuse(
      transform("model.layers.{{i}}.mlp.experts.{{e}}.gate_proj.weight", fn: stack),
      transform("model.layers.{{i}}.mlp.experts.{{e}}.up_proj.weight", fn: stack),
      dim=1
    )
    blocks[{{i}}].experts_down[{{e}}]: transform("model.layers.{{i}}.mlp.experts.{{e}}.down_proj.weight", fn: transpose)
"""
GPT2 = """
    wte: "transformer.wte.weight"
    wpe: "transformer.wpe.weight"
    lnf.weight: "transformer.ln_f.weight"
    lnf.bias: "transformer.ln_f.bias"
    blocks[{i}].ln1.weight: "transformer.h.{i}.ln_1.weight"
    blocks[{i}].ln1.bias: "transformer.h.{i}.ln_1.bias"
    blocks[{i}].ln2.weight: "transformer.h.{i}.ln_2.weight"
    blocks[{i}].ln2.bias: "transformer.h.{i}.ln_2.bias"
    blocks[{i}].qkv_weight: transform("transformer.h.{i}.attn.c_attn.weight", fn: transpose)
    blocks[{i}].qkv_bias: "transformer.h.{i}.attn.c_attn.bias"
    blocks[{i}].out_weight: transform("transformer.h.{i}.attn.c_proj.weight", fn: transpose)
    blocks[{i}].out_bias: "transformer.h.{i}.attn.c_proj.bias"
    blocks[{i}].up_weight: transform("transformer.h.{i}.mlp.c_fc.weight", fn: transpose)
    blocks[{i}].up_bias: "transformer.h.{i}.mlp.c_fc.bias"
    blocks[{i}].down_weight: transform("transformer.h.{i}.mlp.c_proj.weight", fn: transpose)
    blocks[{i}].down_bias: "transformer.h.{i}.mlp.c_proj.bias"
    head: tied_to(wte)
"""


def _bert() -> str:
    whole = {
        "words": "embeddings.word_embeddings.weight",
        "positions": "embeddings.position_embeddings.weight",
        "kinds": "embeddings.token_type_embeddings.weight",
    }
    pairs = {
        "norm": "embeddings.LayerNorm",
        "pooler": "pooler.dense",
        "blocks[{i}].out": "encoder.layer.{i}.attention.output.dense",
        "blocks[{i}].ln1": "encoder.layer.{i}.attention.output.LayerNorm",
        "blocks[{i}].up": "encoder.layer.{i}.intermediate.dense",
        "blocks[{i}].down": "encoder.layer.{i}.output.dense",
        "blocks[{i}].ln2": "encoder.layer.{i}.output.LayerNorm",
    }
    both = ("weight", "bias")
    lines = [f'{path}: "bert.{name}"' for path, name in whole.items()]
    lines += [f'{path}.{kind}: "bert.{name}.{kind}"' for path, name in pairs.items() for kind in both]
    for kind in both:
        parts = ", ".join(
            f'"bert.encoder.layer.{{i}}.attention.self.{part}.{kind}"' for part in ("query", "key", "value")
        )
        lines.append(f"blocks[{{i}}].qkv.{kind}: fuse({parts})")
    return "\n".join(f"    {line}" for line in lines)


BERT = _bert()
LLAMA_CONFIG = """
    architecture: "LlamaForCausalLM"
    model_type: "llama"
    param_mapping:
      d_model: hidden_size
      n_layers: num_hidden_layers
      num_heads: num_attention_heads
      num_kv_heads: num_key_value_heads
      d_ff: intermediate_size
      vocab_size: vocab_size
      max_seq: max_position_embeddings
      eps: rms_norm_eps
      rope_theta: rope_theta
      tie: tie_word_embeddings
"""


def read_model(mapping: str = "", export: str = "", config: str = "", params: str = "") -> Module:
    """A model with these sections."""
    sections = {"hf_config": config, "hf_mapping": mapping, "hf_export": export}
    body = "".join(f"  {name}:\n{text.strip(chr(10))}\n" for name, text in sections.items() if text.strip())
    text = f"model Small({params}):\n  params:\n    unused: [1]\n{body}"
    parsed = parse(Source("small.module", text))
    assert not errors(parsed.findings), "\n".join(map(str, parsed.findings))
    found = parsed.document.items[0]
    assert isinstance(found, Module)
    return found


def context(values: Mapping[str, int | bool] | None = None, prefix: str = "") -> MappingContext:
    """A context in which these names have values."""
    known = {name: Known(value, "argument") for name, value in (values or {}).items()}

    def find(expr: Expr) -> int | bool:
        found = evaluate(expr, known)
        assert isinstance(found, int)
        return found

    return MappingContext("Small", find, prefix=prefix)


def with_head(given: MappingContext, head_dim: int) -> MappingContext:
    """The same context with heads of some rows."""
    return replace(given, head_dim=head_dim)
