"""Tiny random checkpoints of transformers, with norms and biases that are random too."""

from __future__ import annotations

import os
import warnings
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
SHARED_MOE = {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 20, "num_experts": 4}
SHARED_MOE |= {"num_experts_per_tok": 2}
ENCODER = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"} | {"pad_token_id": 0}
OFFSET = {
    **ENCODER,
    "pad_token_id": VOCABULARY + 2,
    "vocab_size": VOCABULARY + 3,
    "max_position_embeddings": 160,
}
DISTILLED = {
    **{"vocab_size": VOCABULARY, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
    **{"max_position_embeddings": 96, "pad_token_id": 0},
}
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

HEADED = {**SIZES, "num_labels": 5, "pad_token_id": 5}
LOCAL = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
TURNED = {"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "rope_type": "default"}
YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 24}
LONG = {
    **{"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 48},
    **{"short_factor": [1.0, 1.25, 1.5, 2.0], "long_factor": [1.0, 2.0, 4.0, 8.0]},
}
FULL = ["full_attention", "full_attention"]
APART = {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}
WIDE = {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 96, **ENDLESS}
NEO = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "window_size": 5,
    **ENDLESS,
}
BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4}
FALCON = {"num_attention_heads": 4, "num_kv_heads": 2, "bias": True}

LATENT = {
    **{**SIZES, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 12, "qk_rope_head_dim": 4},
    **{"qk_nope_head_dim": 8, "v_head_dim": 6, "first_k_dense_replace": 1, "moe_intermediate_size": 16},
    **{"n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "n_shared_experts": 2},
}
RAISED = {**YARN, "mscale": 0.7, "mscale_all_dim": 0.9}
GROUPS = {"topk_method": "group_limited_greedy", "routed_scaling_factor": 1.5}
MAMBA2 = {
    **{"vocab_size": VOCABULARY, "hidden_size": 32, "state_size": 6, "num_hidden_layers": 2, "chunk_size": 8},
    **{"num_heads": 8, "head_dim": 8, "n_groups": 2, **ENDLESS},
}
RWKV = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "context_length": 96, **ENDLESS}
NEXT = {
    **{**SIZES, **MOE, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    **{"linear_key_head_dim": 6, "linear_value_head_dim": 5, "shared_expert_intermediate_size": 20},
    "layer_types": ["linear_attention", "full_attention"],
}
OSS = {
    **{**SIZES, "head_dim": 12, "sliding_window": 5, "num_local_experts": 4, "num_experts_per_tok": 2},
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}

Made = tuple[str, Mapping[str, Any]]
T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 12,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10, "num_decoder_layers": 1}
T5 |= {"decoder_start_token_id": 0, "eos_token_id": None}
BOTH: dict[str, Any] = {"vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 1, "decoder_layers": 2}
BOTH |= {
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 24,
}
BOTH |= {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, "decoder_start_token_id": 3}
SPEECH = {**BOTH, "num_mel_bins": 8, "max_source_positions": 12, "max_target_positions": 96}
SPEECH |= {"suppress_tokens": [5, 7], "begin_suppress_tokens": [9]}
MODERN = {**ENCODER, "local_attention": 6, "num_hidden_layers": 3}
V3 = {"relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True}
V3 |= {"pos_att_type": "p2c|c2p", "position_biased_input": False}
V2 = {"relative_attention": True, "max_relative_positions": 9, "pos_att_type": ["c2p"], "type_vocab_size": 2}
SEQUENCES: Mapping[str, Made] = MappingProxyType(
    {
        "t5": ("T5ForConditionalGeneration", T5),
        "t5 gated": (
            "T5ForConditionalGeneration",
            {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        ),
        "t5 encoder": ("T5EncoderModel", {**T5, "feed_forward_proj": "gated-silu"}),
        "bart": ("BartForConditionalGeneration", {**BOTH, "max_position_embeddings": 96}),
        "bart scaled": (
            "BartForConditionalGeneration",
            {**BOTH, "scale_embedding": True, "forced_bos_token_id": 7, "activation_function": "relu"},
        ),
        "mbart": ("MBartForConditionalGeneration", {**BOTH, "scale_embedding": True}),
        "pegasus": ("PegasusForConditionalGeneration", BOTH),
        "blenderbot": ("BlenderbotForConditionalGeneration", BOTH),
        "marian": ("MarianMTModel", {**BOTH, "activation_function": "swish", "scale_embedding": True}),
        "mt5": ("MT5ForConditionalGeneration", T5),
        "mt5 encoder": ("MT5EncoderModel", T5),
        "whisper": ("WhisperForConditionalGeneration", SPEECH),
    }
)
NARROW = {**ENCODER, "embedding_size": 20}
MPNET = {**ENCODER, "pad_token_id": 1, "max_position_embeddings": 160}
ENCODERS: Mapping[str, Made] = MappingProxyType(
    {
        "modernbert": ("ModernBertModel", MODERN),
        "modernbert masked": ("ModernBertForMaskedLM", {**MODERN, "norm_bias": True}),
        "modernbert classes": (
            "ModernBertForSequenceClassification",
            {**MODERN, "num_labels": 5, "classifier_pooling": "mean", "mlp_bias": True},
        ),
        "modernbert tokens": ("ModernBertForTokenClassification", {**MODERN, "attention_bias": True}),
        "camembert masked": ("CamembertForMaskedLM", OFFSET),
        "electra": ("ElectraModel", {**ENCODER, "embedding_size": 32}),
        "electra replaced": ("ElectraForPreTraining", NARROW),
        "electra masked": ("ElectraForMaskedLM", NARROW),
        "electra classes": ("ElectraForSequenceClassification", {**NARROW, "num_labels": 5}),
        "albert": ("AlbertModel", {**NARROW, "num_hidden_layers": 3}),
        "albert masked": ("AlbertForMaskedLM", NARROW),
        "albert classes": ("AlbertForSequenceClassification", {**NARROW, "num_labels": 5}),
        "albert spans": ("AlbertForQuestionAnswering", {**NARROW, "hidden_act": "relu"}),
        "mpnet": ("MPNetModel", MPNET),
        "mpnet masked": ("MPNetForMaskedLM", {**MPNET, "hidden_act": "relu"}),
        "mpnet classes": ("MPNetForSequenceClassification", {**MPNET, "num_labels": 5}),
        "deberta": ("DebertaV2Model", {**ENCODER, **V2}),
        "deberta masked": ("DebertaV2ForMaskedLM", {**ENCODER, **V3}),
        "deberta classes": ("DebertaV2ForSequenceClassification", {**ENCODER, "num_labels": 5}),
        "deberta spans": ("DebertaV2ForQuestionAnswering", {**ENCODER, **V3, "share_att_key": False}),
    }
)
PICTURES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
PICTURES |= {"image_size": 18, "patch_size": 5}
CAPTIONS = {**ENCODER, "eos_token_id": 7}
TOWERS = {"vision_config": PICTURES, "projection_dim": 20}
SOUND: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
SOUND |= {"num_conv_pos_embeddings": 6, "num_conv_pos_embedding_groups": 4, "vocab_size": 30}
SOUND |= {"conv_dim": [12, 16, 20], "conv_kernel": [6, 3, 2], "conv_stride": [3, 2, 2]}
STABLE = {**SOUND, "do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True}
STAGES: dict[str, Any] = {
    "hidden_sizes": [8, 12, 16, 24],
    "num_attention_heads": [1, 2, 2, 4],
    "sr_ratios": [4, 2, 1, 1],
}
STAGES |= {"depths": [1, 2, 1, 1], "mlp_ratios": [2, 2, 3, 2], "decoder_hidden_size": 20}
LAYERS: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [16, 24], "depths": [2, 1]}
SPOKEN: Mapping[str, Made] = MappingProxyType(
    {
        "wav2vec2": ("Wav2Vec2Model", {**SOUND, "mask_time_prob": 0.0, "num_conv_pos_embeddings": 5}),
        "wav2vec2 letters": ("Wav2Vec2ForCTC", STABLE),
        "wav2vec2 adapted": ("Wav2Vec2ForCTC", {**STABLE, "adapter_attn_dim": 10}),
        "wav2vec2 classes": (
            "Wav2Vec2ForSequenceClassification",
            {**SOUND, "num_labels": 5, "classifier_proj_size": 12},
        ),
        "wav2vec2 moments": ("Wav2Vec2ForAudioFrameClassification", SOUND),
        "hubert letters": ("HubertForCTC", {**SOUND, "feat_proj_layer_norm": False}),
    }
)
VISION: Mapping[str, Made] = MappingProxyType(
    {
        "vit": ("ViTModel", {**PICTURES, "pooler_output_size": 20}),
        "vit classes": ("ViTForImageClassification", {**PICTURES, "num_labels": 5, "qkv_bias": False}),
        "deit": ("DeiTModel", PICTURES),
        "deit classes": ("DeiTForImageClassification", {**PICTURES, "num_labels": 5}),
        "deit teacher": ("DeiTForImageClassificationWithTeacher", {**PICTURES, "hidden_act": "relu"}),
        "dinov2": ("Dinov2Model", {**PICTURES, "mlp_ratio": 2, "use_mask_token": False}),
        "dinov2 classes": (
            "Dinov2ForImageClassification",
            {**PICTURES, "num_labels": 5, "use_swiglu_ffn": True, "num_channels": 2},
        ),
        "segformer": ("SegformerModel", STAGES),
        "segformer classes": ("SegformerForImageClassification", {**STAGES, "num_labels": 5}),
        "segformer pixels": ("SegformerForSemanticSegmentation", {**STAGES, "num_labels": 7}),
        "resnet": ("ResNetModel", {**LAYERS, "downsample_in_bottleneck": True, "hidden_act": "gelu"}),
        "resnet classes": (
            "ResNetForImageClassification",
            {**LAYERS, "num_labels": 5, "layer_type": "basic", "downsample_in_first_stage": True},
        ),
        "convnext": ("ConvNextModel", {**LAYERS, "num_stages": 2, "layer_scale_init_value": 0.0}),
        "convnext classes": (
            "ConvNextForImageClassification",
            {**LAYERS, "num_stages": 2, "num_labels": 5, "patch_size": 3},
        ),
        "siglip": (
            "SiglipModel",
            {"vision_config": PICTURES, "text_config": {**ENCODER, "hidden_size": 24, "projection_size": 32}},
        ),
        "siglip text": ("SiglipTextModel", {**ENCODER, "projection_size": 20}),
        "siglip vision": ("SiglipVisionModel", PICTURES),
        "clip": ("CLIPModel", {**TOWERS, "text_config": {**CAPTIONS, "hidden_size": 24}}),
        "clip largest": ("CLIPModel", {**TOWERS, "text_config": {**CAPTIONS, "eos_token_id": 2}}),
        "clip text": ("CLIPTextModel", {**CAPTIONS, "hidden_act": "gelu"}),
        "clip text projected": ("CLIPTextModelWithProjection", {**CAPTIONS, "projection_dim": 20}),
        "clip vision": ("CLIPVisionModel", PICTURES),
        "clip vision projected": ("CLIPVisionModelWithProjection", {**PICTURES, "projection_dim": 20}),
    }
)
ONE_STREAM: Mapping[str, Made] = MappingProxyType(
    {
        "gemma": ("Gemma", {**SIZES, "head_dim": 12}),
        "gemma2": ("Gemma2", {**SIZES, **LOCAL, "head_dim": 12, "query_pre_attn_scalar": 9}),
        "gemma3": ("Gemma3Text", {**SIZES, **LOCAL, "head_dim": 12, "query_pre_attn_scalar": 9}),
        "phi3": ("Phi3", SIZES),
        "phi3 long": ("Phi3", {**SIZES, "rope_parameters": LONG, "original_max_position_embeddings": 48}),
        "olmo": ("Olmo", SIZES),
        "olmo2": ("Olmo2", SIZES),
        "olmo2 yarn": ("Olmo2", {**SIZES, "rope_parameters": YARN}),
        "gpt neox": ("GPTNeoX", SIZES),
        "gpt neox behind": ("GPTNeoX", {**SIZES, "use_parallel_residual": False, "attention_bias": False}),
        "falcon": ("Falcon", {**SIZES, "num_kv_heads": 1}),
        "falcon newer": ("Falcon", {**SIZES, **FALCON, "new_decoder_architecture": True}),
        "falcon plain": (
            "Falcon",
            {**SIZES, **FALCON, "num_kv_heads": 4, "multi_query": False, "parallel_attn": False},
        ),
        "starcoder2": ("Starcoder2", {**SIZES, "sliding_window": 5}),
        "bloom": ("Bloom", {**BLOOM, **ENDLESS}),
        "bloom 6 heads": ("Bloom", {**BLOOM, **ENDLESS, "hidden_size": 24, "n_head": 6}),
        "granite": (
            "Granite",
            {
                **{**SIZES, "embedding_multiplier": 3.0, "residual_multiplier": 0.7},
                **{"attention_multiplier": 0.2, "logits_scaling": 2.0},
            },
        ),
        "stablelm": ("StableLm", {**SIZES, "rope_parameters": TURNED, "use_qkv_bias": True}),
        "stablelm parallel": ("StableLm", {**SIZES, "use_parallel_residual": True}),
        "glm": ("Glm", {**SIZES, "head_dim": 12, "rope_parameters": TURNED}),
        "glm4": ("Glm4", {**SIZES, "head_dim": 8, "attention_bias": False}),
        "cohere": ("Cohere", SIZES),
        "cohere2": ("Cohere2", {**SIZES, **LOCAL, "head_dim": 12}),
        "smollm3": ("SmolLM3", {**SIZES, "no_rope_layers": [1, 0]}),
        "phi": ("Phi", {**SIZES, "rope_parameters": TURNED}),
        "seed oss": ("SeedOss", {**SIZES, "head_dim": 12, "mlp_bias": True}),
        "arcee": ("Arcee", {**SIZES, "attention_bias": True, "mlp_bias": True}),
        "helium": ("Helium", {**SIZES, "head_dim": 8}),
        "ernie 4.5": ("Ernie4_5", {**SIZES, "head_dim": 12, "use_bias": True}),
        "exaone4": ("Exaone4", {**SIZES, **LOCAL}),
        "exaone4 everything": ("Exaone4", {**SIZES, "sliding_window": None, "layer_types": FULL}),
        "olmo3": ("Olmo3", {**SIZES, **LOCAL}),
        "olmo3 yarn": ("Olmo3", {**SIZES, **LOCAL, "rope_parameters": APART}),
        "nemotron dense": ("Nemotron", {**SIZES, "head_dim": 12, "rope_parameters": TURNED}),
        "gptj": ("GPTJ", {**GPT2, **ENDLESS, "rotary_dim": 4}),
        "gpt bigcode": ("GPTBigCode", {**GPT2, **ENDLESS}),
        "gpt bigcode heads": ("GPTBigCode", {**GPT2, **ENDLESS, "multi_query": False, "n_inner": 40}),
        "mpt": ("Mpt", {**WIDE, "attn_config": {"softmax_scale": 0.3}}),
        "gpt neo": ("GPTNeo", {**NEO, "attention_types": [[["global", "local"], 1]]}),
    }
)
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
        "qwen2 moe": ("Qwen2Moe", {**SIZES, **SHARED_MOE, "mlp_only_layers": [1]}),
        "qwen2 moe plain": ("Qwen2Moe", {**SIZES, **SHARED_MOE, "qkv_bias": False, "norm_topk_prob": True}),
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
        "bert masked": ("BertForMaskedLM", ENCODER),
        "bert classes": ("BertForSequenceClassification", {**ENCODER, "num_labels": 5}),
        "bert tokens": ("BertForTokenClassification", {**ENCODER, "num_labels": 3}),
        "bert spans": ("BertForQuestionAnswering", ENCODER),
        "roberta": ("RobertaModel", OFFSET),
        "roberta masked": ("RobertaForMaskedLM", OFFSET),
        "roberta classes": ("RobertaForSequenceClassification", {**OFFSET, "num_labels": 5}),
        "xlm roberta tokens": ("XLMRobertaForTokenClassification", {**OFFSET, "num_labels": 3}),
        "distilbert": ("DistilBertModel", DISTILLED),
        "distilbert masked": ("DistilBertForMaskedLM", DISTILLED),
        "distilbert classes": ("DistilBertForSequenceClassification", {**DISTILLED, "num_labels": 5}),
        "distilbert spans": ("DistilBertForQuestionAnswering", DISTILLED),
        "opt": ("OPT", {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32}),
        **ONE_STREAM,
        **SEQUENCES,
        **ENCODERS,
        **VISION,
        **SPOKEN,
        "deepseek v3": ("DeepseekV3", LATENT),
        "deepseek v3 yarn": (
            "DeepseekV3",
            {**LATENT, "q_lora_rank": None, "rope_parameters": RAISED, "rope_interleave": False},
        ),
        "deepseek v3 biases": ("DeepseekV3", {**LATENT, "attention_bias": True, "norm_topk_prob": False}),
        "llama classes": ("LlamaForSequenceClassification", HEADED),
        "llama tokens": ("LlamaForTokenClassification", HEADED),
        "llama spans": ("LlamaForQuestionAnswering", HEADED),
        "mistral spans": ("MistralForQuestionAnswering", {**HEADED, "sliding_window": 5}),
        "qwen2 classes": ("Qwen2ForSequenceClassification", {**HEADED, "tie_word_embeddings": True}),
        "gemma2 classes": ("Gemma2ForSequenceClassification", {**HEADED, **LOCAL, "head_dim": 12}),
        "phi3 tokens": ("Phi3ForTokenClassification", HEADED),
        "gpt neox tokens": ("GPTNeoXForTokenClassification", HEADED),
        "falcon spans": ("FalconForQuestionAnswering", {**HEADED, "num_kv_heads": 1}),
        "deepseek v3 classes": (
            "DeepseekV3ForSequenceClassification",
            {**LATENT, "num_labels": 3, "pad_token_id": 5},
        ),
        "gpt oss classes": ("GptOssForSequenceClassification", {**OSS, "num_labels": 3, "pad_token_id": 5}),
        "mamba2": ("Mamba2", MAMBA2),
        "mamba2 biases": (
            "Mamba2",
            {**MAMBA2, "use_bias": True, "use_conv_bias": False, "tie_word_embeddings": True},
        ),
        "rwkv": ("Rwkv", RWKV),
        "rwkv halved": (
            "Rwkv",
            {**RWKV, "rescale_every": 1, "intermediate_size": 40, "layer_norm_epsilon": 0.1},
        ),
        "qwen3 next": ("Qwen3Next", NEXT),
        "qwen3 next dense first": (
            "Qwen3Next",
            {**NEXT, "mlp_only_layers": [0], "attention_bias": True, "norm_topk_prob": False},
        ),
        "gpt oss": ("GptOss", {**OSS, "swiglu_limit": 1.0}),
        "gpt oss plain": (
            "GptOss",
            {**OSS, "attention_bias": False, "rope_parameters": {**YARN, "truncate": False}},
        ),
        "deepseek v2": ("DeepseekV2", LATENT),
        "deepseek v2 groups": (
            "DeepseekV2",
            {**LATENT, **GROUPS, "rope_parameters": RAISED, "mlp_bias": True},
        ),
    }
)
"""For each checkpoint its architecture and the values of its config."""
CAUSAL = tuple(name for name, (kind, _) in MODELS.items() if "Model" not in kind and "For" not in kind)


def build(name: str, seed: int = 0, **changes: object) -> Any:
    """A model of transformers with numbers that hide nothing; `changes` are other values of its config."""
    torch.manual_seed(seed)
    kind, values = MODELS[name]
    model_class = _model_class(kind)
    model = model_class(model_class.config_class(**{**values, **changes})).eval()
    randomise(model)
    return model


def randomise(model: Any) -> None:
    """Give a model numbers that hide nothing: norms and biases too."""
    with torch.no_grad():
        for path, tensor in (*model.named_parameters(), *model.named_buffers()):
            waves = path.endswith("embed_positions.weight") and not tensor.requires_grad
            own = path.endswith(("inv_freq", "embed_scale", "embed_positions")) or waves
            if tensor.is_floating_point() and not own:
                tensor.copy_(_numbers(path, tensor))


def _model_class(kind: str) -> Any:
    whole = "Model" in kind or "For" in kind
    suffix = "Model" if kind.endswith("LMHead") else "" if whole else "ForCausalLM"
    return class_named("Gemma3ForCausalLM" if kind == "Gemma3Text" else f"{kind}{suffix}")


def class_named(name: str) -> Any:
    """A class of transformers; some of its modules use what PyTorch will not have for ever."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(transformers, name)


def _numbers(path: str, tensor: torch.Tensor) -> torch.Tensor:
    """Norms around 1, decays and biases of all sizes, matrices that keep the size of what they multiply."""
    made = torch.randn_like(tensor)
    if path.endswith("running_var"):
        return 0.5 + made.abs()
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
    """What a model of transformers gives first for tokens: logits, or the last states of an encoder."""
    with torch.no_grad():
        out = model(torch.from_numpy(ids))
    found: np.ndarray[Any, Any] = out.to_tuple()[0].numpy()
    return found


GIVEN = MappingProxyType(
    {
        "token_ids": "input_ids",
        "decoder_token_ids": "decoder_input_ids",
        "features": "input_features",
    }
)
"""What transformers calls the inputs of models of the library, where it calls them otherwise."""


def inputs_of(loaded: Any, length: int = 11, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Random tokens and numbers for all inputs of a model of ours, for two sequences, sounds or images."""
    chance, found = np.random.default_rng(seed), {}
    for item in loaded.graph.inputs:
        usual = {"B": 2, "S": length + 4, "H": 37, "W": 45}
        if item.name == "input_values":
            usual["T"] = 12 * length
        sizes = [size if isinstance(size, int) else usual.get(str(size), length) for size in item.shape]
        found[item.name] = (
            chance.integers(0, VOCABULARY, sizes)
            if item.element.is_integer
            else chance.standard_normal(sizes).astype(np.float32)
        )
    return found


def results_of(model: Any, inputs: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """What a model of transformers gives first for the inputs of one of ours."""
    with torch.no_grad():
        out = model(**{GIVEN.get(name, name): torch.from_numpy(item) for name, item in inputs.items()})
    found: np.ndarray[Any, Any] = out.to_tuple()[0].numpy()
    return found


def first_of(outputs: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The first output of a model of ours: its logits, or the last states of an encoder."""
    return next(iter(outputs.values()))
