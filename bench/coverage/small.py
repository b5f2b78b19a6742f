"""Small members of the zoo: one for each family of timm, one for each model type of transformers, small inputs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

SMALL = re.compile(r"atto|femto|pico|nano|tiny|small|xxs|xs|_s\b|_xs\b|b0|_0|18|mini|micro|light")
FAMILY = re.compile(r"[a-z]+")
SIDES = (64, 96, 128, 160, 192, 224)
"""Sides of images, the smallest first: a network takes those that its strides and windows divide."""
Inputs = dict[str, Tensor]

# --- timm ---------------------------------------------------------------------------------------------------


def timm_names(timm: ModuleType) -> Iterator[str]:
    """One small model for each family of each file of timm."""
    families: dict[tuple[str, str], list[str]] = {}
    for module in timm.list_modules():
        for name in timm.list_models(module=module):
            match = FAMILY.match(name)
            if match is not None and match[0] != "test":
                families.setdefault((module, match[0]), []).append(name)
    for listed in families.values():
        yield min(listed, key=lambda name: (not SMALL.search(name), len(name), name))


def small_timm(timm: ModuleType, name: str) -> tuple[nn.Module, Inputs]:
    """A model with few blocks where it lets itself be told, and the smallest image that it takes."""
    kept: Any = timm.models.get_pretrained_cfg(name)
    wanted = getattr(kept, "input_size", (3, 224, 224))
    sides = wanted[1:2] if getattr(kept, "fixed_input_size", False) else (*SIDES, wanted[1])
    for options in ({"depth": 2}, {}):
        for side in sides:
            shaped = {"img_size": side} if side != wanted[1] else {}
            found = _first_that_runs(timm, name, side, ({**options, **shaped}, options))
            if found is not None:
                return found
    module = timm.create_model(name, pretrained=False).eval()
    return module, {"x": torch.randn(1, *wanted)}


def _first_that_runs(
    timm: ModuleType, name: str, side: int, options: tuple[Mapping[str, object], ...]
) -> tuple[nn.Module, Inputs] | None:
    for item in options:
        try:
            module = timm.create_model(name, pretrained=False, **item).eval()
            given = {"x": torch.randn(1, 3, side, side)}
            with torch.inference_mode():
                module(**given)
        except Exception:  # noqa: BLE001  # whatever it dislikes about a size, the next one is tried
            continue
        return module, given
    return None


# --- transformers -------------------------------------------------------------------------------------------


SIZES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(
            ("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "emb_dim", "embedding_size"), 64
        ),
        **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers"), 2),
        **dict.fromkeys(("decoder_layers", "num_decoder_layers", "num_encoder_layers", "depth"), 2),
        **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads"), 4),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
        **dict.fromkeys(("head_dim", "d_kv", "attention_head_dim"), 16),
        **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "d_inner"), 128),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), 128),
        **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 64),
        **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
        **dict.fromkeys(("num_experts_per_tok", "moe_k", "n_group", "topk_group"), 2),
        **dict.fromkeys(("max_position_embeddings", "n_positions", "max_source_positions"), 128),
        **dict.fromkeys(("vocab_size", "entity_vocab_size"), 512),
        **dict.fromkeys(("image_size",), 64),
        **dict.fromkeys(("projection_dim", "conv_dim_out"), 32),
    }
)
"""Sizes of small configurations, under all the names that they have."""
WORDS = 12


def transformers_names() -> Iterator[str]:
    """Every model type that AutoModel knows."""
    auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    yield from sorted(auto.MODEL_MAPPING_NAMES)


def small_transformers(name: str) -> tuple[nn.Module, Inputs]:
    """A model of a type with a small configuration, and what its main input is called with."""
    package: Any = importlib.import_module("transformers")
    config = small_config(package.CONFIG_MAPPING[name])
    config.use_cache = False
    module = package.AutoModel.from_config(config).eval()
    main = str(module.main_input_name)
    given: Inputs = {main: _given(main, config)}
    if config.is_encoder_decoder and main != "pixel_values":
        given["decoder_input_ids"] = torch.randint(3, 50, (1, WORDS))
    return module, given


def small_config(kind: Callable[..., Any]) -> Any:
    """A configuration of a class with all its sizes small, and those of what is nested in it."""
    plain = kind()
    chosen: dict[str, object] = {}
    for key, size in SIZES.items():
        known = _attribute(plain, key)
        if isinstance(known, int) and not isinstance(known, bool):
            chosen[key] = min(size, known)
    layers = chosen.get("num_hidden_layers")
    settable = "layer_types" in inspect.signature(kind.__init__).parameters
    if settable and isinstance(layers, int) and isinstance(kinds := _attribute(plain, "layer_types"), list):
        chosen["layer_types"] = kinds[:1] + kinds[-1:] if layers == 2 else kinds[:layers]
    for key in getattr(plain, "sub_configs", {}):
        nested = _attribute(plain, key)
        if nested is not None:
            chosen[key] = small_config(type(nested)).to_dict()
    for key in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        known = _attribute(plain, key)
        if isinstance(known, int) and known >= SIZES["vocab_size"]:
            chosen[key] = 0
    return kind(**chosen)


def _attribute(config: object, key: str) -> object:
    """What a configuration has under a name; some refuse to be asked."""
    try:
        return getattr(config, key, None)
    except Exception:  # noqa: BLE001  # each has exceptions of its own for numbers that differ by layer
        return None


def _given(main: str, config: Any) -> Tensor:
    if main in ("input_ids", "decoder_input_ids"):
        return torch.randint(3, 50, (1, WORDS))
    if main == "pixel_values":
        vision = _attribute(config, "vision_config") or config
        side = _attribute(vision, "image_size") or 64
        sides = (side, side) if isinstance(side, int) else tuple(side)  # type: ignore[arg-type]
        return torch.randn(1, int(_attribute(vision, "num_channels") or 3), *sides)  # type: ignore[call-overload]
    if main == "input_features":
        bins = _attribute(config, "num_mel_bins") or _attribute(config, "input_feat_per_channel") or 80
        frames = 2 * int(_attribute(config, "max_source_positions") or 64)  # type: ignore[call-overload]
        last = (int(bins), frames) if config.model_type == "whisper" else (frames, int(bins))  # type: ignore[call-overload]
        return torch.randn(1, *last)
    if main == "input_values":
        return torch.randn(1, 1600)
    raise ValueError(f"nobody knows what '{main}' is given")
