"""The smallest models of `transformers` that still are what they are: random weights, one layer each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
import transformers

from tests.support.bridge.torch_models.random_weights import shake

SMALL: Mapping[str, object] = MappingProxyType(
    {
        "vocab_size": 61,
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 32,
    }
)
GROUPED: Mapping[str, object] = MappingProxyType({**SMALL, "num_key_value_heads": 2, "head_dim": 8})
IMAGE: Mapping[str, object] = MappingProxyType(
    {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "image_size": 16,
        "patch_size": 8,
    }
)
WORDS = 7
BATCH = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """A model, what it is called with by the names of its arguments, and the extents that may change."""

    module: Any
    inputs: Mapping[str, Any]
    dynamic: Mapping[str, Mapping[int, str]]


def _built(model: str, config: str, **settings: object) -> Any:
    torch.manual_seed(0)
    made = getattr(transformers, config)(**settings)
    return shake(getattr(transformers, model)(made)).eval()


def _words(module: Any, mask: bool = True) -> Sample:
    """A model of words with padding behind some of them."""
    inputs = {"input_ids": torch.randint(3, 50, (BATCH, WORDS))}
    if mask:
        inputs["attention_mask"] = torch.tensor([[1] * WORDS, [1] * (WORDS - 2) + [0] * 2])
    return Sample(module, inputs, {name: {1: "T"} for name in inputs})


def _pixels(module: Any, size: int) -> Sample:
    return Sample(module, {"pixel_values": torch.randn(BATCH, 3, size, size)}, {"pixel_values": {0: "B"}})


def _text(model: str, config: str, **settings: object) -> Callable[[], Sample]:
    return lambda: _words(_built(model, config, **settings))


def _decoder(model: str, config: str, **settings: object) -> Callable[[], Sample]:
    return lambda: _words(_built(model, config, use_cache=False, **settings))


def _image(model: str, config: str, **settings: object) -> Callable[[], Sample]:
    return lambda: _pixels(_built(model, config, **settings), 16 if settings.get("image_size") else 32)


def _t5_encoder() -> Sample:
    settings: dict[str, object] = {"vocab_size": 61, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}
    return _words(_built("T5EncoderModel", "T5Config", num_layers=1, **settings))


def _bart_encoder() -> Sample:
    sides = ("layers", "attention_heads", "ffn_dim")
    sizes = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in zip(sides, (1, 4, 48), strict=True)
    }
    made = _built("BartModel", "BartConfig", vocab_size=61, d_model=32, max_position_embeddings=32, **sizes)
    return _words(made.encoder)


def _whisper_encoder() -> Sample:
    sizes = {"encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_layers": 1}
    rest = {"decoder_attention_heads": 4, "decoder_ffn_dim": 48, "vocab_size": 61, "num_mel_bins": 8}
    named = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    settings = {**sizes, **rest, **named, "d_model": 32, "max_source_positions": 12}
    made = _built("WhisperModel", "WhisperConfig", **settings)
    return Sample(made.encoder, {"input_features": torch.randn(BATCH, 8, 24)}, {"input_features": {0: "B"}})


def _clip() -> Sample:
    text = {**SMALL, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0, "projection_dim": 16}
    made = _built(
        "CLIPModel",
        "CLIPConfig",
        text_config=text,
        vision_config={**IMAGE, "projection_dim": 16},
        projection_dim=16,
    )
    words = torch.randint(3, 50, (BATCH, WORDS))
    words[:, -1] = 2
    pixels, mask = torch.randn(BATCH, 3, 16, 16), torch.ones(BATCH, WORDS, dtype=torch.int64)
    inputs = {"input_ids": words, "pixel_values": pixels, "attention_mask": mask}
    return Sample(made, inputs, {name: {0: "B"} for name in inputs})


def _gpt2() -> Sample:
    made = _built(
        "GPT2LMHeadModel", "GPT2Config", vocab_size=61, n_positions=32, n_embd=32, n_layer=1, n_head=4
    )
    made.config.use_cache = False
    return _words(made)


_SEGFORMER: Mapping[str, object] = MappingProxyType(
    {
        "num_encoder_blocks": 2,
        "depths": [1, 1],
        "sr_ratios": [2, 1],
        "hidden_sizes": [8, 16],
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "num_attention_heads": [1, 2],
        "mlp_ratios": [2, 2],
        "decoder_hidden_size": 16,
        "num_labels": 5,
    }
)

MODELS: Mapping[str, Callable[[], Sample]] = MappingProxyType(
    {
        "BERT": _text("BertModel", "BertConfig", **SMALL),
        "DistilBERT": _text(
            "DistilBertModel",
            "DistilBertConfig",
            **{"vocab_size": 61, "dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 48},
            max_position_embeddings=32,
        ),
        "RoBERTa": _text("RobertaModel", "RobertaConfig", **SMALL),
        "ALBERT": _text("AlbertModel", "AlbertConfig", **SMALL, embedding_size=16),
        "ELECTRA": _text("ElectraModel", "ElectraConfig", **SMALL, embedding_size=16),
        "GPT-2": _gpt2,
        "GPT-NeoX": _decoder("GPTNeoXForCausalLM", "GPTNeoXConfig", **SMALL),
        "OPT": _decoder(
            "OPTForCausalLM",
            "OPTConfig",
            **{"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4},
            **{"ffn_dim": 48, "max_position_embeddings": 32, "word_embed_proj_dim": 32},
        ),
        "Llama": _decoder("LlamaForCausalLM", "LlamaConfig", **GROUPED),
        "Qwen2": _decoder("Qwen2ForCausalLM", "Qwen2Config", **SMALL, num_key_value_heads=2),
        "Qwen3": _decoder("Qwen3ForCausalLM", "Qwen3Config", **GROUPED),
        "Mistral": _decoder("MistralForCausalLM", "MistralConfig", **GROUPED, sliding_window=4),
        "Gemma": _decoder("GemmaForCausalLM", "GemmaConfig", **GROUPED),
        "Phi": _decoder("PhiForCausalLM", "PhiConfig", **SMALL, num_key_value_heads=2),
        "T5 encoder": _t5_encoder,
        "BART encoder": _bart_encoder,
        "ViT": _image("ViTModel", "ViTConfig", **IMAGE),
        "DeiT": _image("DeiTModel", "DeiTConfig", **IMAGE),
        "ConvNeXt": _image(
            "ConvNextModel", "ConvNextConfig", num_stages=2, hidden_sizes=[8, 16], depths=[1, 1]
        ),
        "ResNet": _image(
            "ResNetModel",
            "ResNetConfig",
            embedding_size=8,
            hidden_sizes=[16, 32],
            depths=[1, 1],
        ),
        "MobileNetV2": _image("MobileNetV2Model", "MobileNetV2Config", depth_multiplier=0.1),
        "SegFormer": _image("SegformerForSemanticSegmentation", "SegformerConfig", **_SEGFORMER),
        "Whisper encoder": _whisper_encoder,
        "CLIP": _clip,
    }
)
"""Every model by its name, in the order of the page."""
