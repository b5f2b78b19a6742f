"""Files of adapters as the package PEFT has them: `adapter_config.json` and `adapter_model.safetensors`."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import map_bytes_in, shown
from lamella.base.writer import whole_folder, write_text
from lamella.bridge.hf_to_module.checkpoint import read_object
from lamella.graph.data.safetensors import decode_safetensors, write_safetensors
from lamella.train.adapters.places import LAST, AdapterRows
from lamella.train.adapters.rewrite import FEED_FORWARD, Adapted, AdapterWeight
from lamella.train.adapters.specs import (
    BOTTLENECK,
    DORA,
    IA3,
    LORA,
    MOST,
    PREFIX,
    PROMPT,
    AdapterSpec,
    require_share,
)

CONFIG, STORE = "adapter_config.json", "adapter_model.safetensors"
PREFIXED = "base_model.model."
EMBEDDINGS = "prompt_embeddings"
BASE = ".base_layer"
"""What a name has for each adapter around that which it means."""
TYPES = {
    LORA: "LORA",
    DORA: "LORA",
    IA3: "IA3",
    PREFIX: "PREFIX_TUNING",
    PROMPT: "PROMPT_TUNING",
    BOTTLENECK: "BOTTLENECK",
}
"""What PEFT calls kinds of adapters; the last is one of ours, which it does not know."""
ENDINGS = {
    "lora_A": "lora_A.weight",
    "lora_B": "lora_B.weight",
    "magnitude": "lora_magnitude_vector",
    "scale": "ia3_l",
    "input_scale": "ia3_l",
    "adapter_down": "adapter_down.weight",
    "adapter_down_bias": "adapter_down.bias",
    "adapter_up": "adapter_up.weight",
    "adapter_up_bias": "adapter_up.bias",
}
"""The ends of names of tensors, by what they are."""


# --- writing ----------------------------------------------------------------------------------------------------


def write_adapter(folder: Path, adapted: Adapted, arrays: Mapping[str, Array], base: str) -> tuple[Path, ...]:
    """Write the adapters of a model, by the names of their variables; gives the files written, the config last."""
    tensors = dict(_tensors(adapted, arrays))
    config = _config(adapted, base)
    with whole_folder(folder) as beside:
        write_safetensors(beside / STORE, tensors, {"format": "pt"})
        write_text(beside / CONFIG, f"{json.dumps(config, indent=2)}\n")
    return folder / STORE, folder / CONFIG


def _tensors(adapted: Adapted, arrays: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    if adapted.spec.kind == PROMPT:
        yield EMBEDDINGS, np.ascontiguousarray(arrays[adapted.weights[0].variable])
        return
    if adapted.spec.kind == PREFIX:
        join = _make_prefix if adapted.spec.hidden_dim else _join_prefix
        yield EMBEDDINGS, join(adapted.weights, arrays)
        return
    stacked = _nested(
        item.module for item in adapted.weights if item.role == "lora_A" and len(item.shape) == 3
    )
    for item in adapted.weights:
        array = np.asarray(arrays[item.variable])
        if item.role == "scale":
            array = array[:, None]
        elif item.role == "input_scale":
            array = array[None, :]
        module = item.module
        if item.module in stacked:
            module = stacked[item.module]
            array = _flattened(array, item.role)
        yield f"{PREFIXED}{module}.{ENDINGS[item.role]}", np.ascontiguousarray(array)


def _flattened(array: Array, role: str) -> Array:
    """The factors of all experts as one matrix: A one below the other, of B the columns of one rank side by side."""
    if role == "lora_A":
        return array.reshape(-1, array.shape[2])
    return array.transpose(1, 2, 0).reshape(array.shape[1], -1)


def _unflattened(array: Array, role: str, rank: int) -> Array:
    """The factors of all experts, one by one."""
    if role == "lora_A":
        return array.reshape(-1, rank, array.shape[1])
    return array.reshape(len(array), rank, -1).transpose(2, 0, 1)


def _nested(modules: Iterable[str]) -> dict[str, str]:
    """What PEFT calls the adapters of matrices of experts: each wraps what it had wrapped before, the last outside."""
    owners: dict[str, list[str]] = {}
    for module in sorted(set(modules), key=_in_order):
        owners.setdefault(module.rpartition(".")[0], []).append(module)
    return {
        module: f"{owner}{BASE * (len(found) - 1 - number)}"
        for owner, found in owners.items()
        for number, module in enumerate(found)
    }


def _in_order(name: str) -> tuple[bool, str]:
    """The matrices of an expert in the order in which they are multiplied with."""
    return name.rpartition(".")[2] in LAST, name


def _join_prefix(weights: Sequence[AdapterWeight], arrays: Mapping[str, Array]) -> Array:
    """Keys and values of all layers as one matrix: a row for each virtual token, in it layers, both, heads, widths."""
    # [layer, key or value, head, token, width]
    stacked = np.stack([np.asarray(arrays[item.variable]) for item in weights])
    turned = stacked.transpose(2, 0, 1, 3)
    return np.ascontiguousarray(turned.reshape(turned.shape[0], -1))


def _make_prefix(weights: Sequence[AdapterWeight], arrays: Mapping[str, Array]) -> Array:
    """What the network of a prefix makes, in the same order: the network is of no use behind the training."""
    found = {item.role: np.asarray(arrays[item.variable], np.float64) for item in weights}
    inner = np.tanh(found["table"] @ found["first"].T + found["first_bias"])
    made = inner @ found["last"].T + found["last_bias"]
    return np.ascontiguousarray(made.astype(np.asarray(arrays[weights[0].variable]).dtype))


def _config(adapted: Adapted, base: str) -> dict[str, object]:
    spec, places = adapted.spec, adapted.places
    found: dict[str, object] = {
        "base_model_name_or_path": base,
        "inference_mode": True,
        "peft_type": TYPES[spec.kind],
        "task_type": "CAUSAL_LM",
    }
    if spec.kind in (LORA, DORA):
        found |= _low_rank_config(places, spec)
    elif spec.kind == IA3:
        found |= {
            "target_modules": _words(places),
            "fan_in_fan_out": any(item.is_stored_turned for item in places),
        }
        found["feedforward_modules"] = _words([item for item in places if item.word in FEED_FORWARD])
    elif spec.kind == BOTTLENECK:
        found |= {"bottleneck_dim": spec.dim, "activation": spec.activation, "target_modules": _words(places)}
    else:
        found |= {"num_virtual_tokens": spec.length, "num_transformer_submodules": 1}
        found |= (
            _prefix_config(adapted) if spec.kind == PREFIX else {"token_dim": adapted.weights[0].shape[1]}
        )
    return found


def _low_rank_config(places: Sequence[AdapterRows], spec: AdapterSpec) -> dict[str, object]:
    """Most places share a rank; the others are listed."""
    rank = Counter(item.spec.rank for item in places).most_common(1)[0][0]
    alpha = Counter(item.spec.alpha for item in places).most_common(1)[0][0]
    return {
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": spec.dropout,
        "bias": "none",
        "fan_in_fan_out": any(item.is_stored_turned for item in places),
        "use_dora": spec.kind == DORA,
        "target_modules": _words([item for item in places if not item.product.experts]),
        "target_parameters": sorted(
            {".".join(item.module.split(".")[-2:]) for item in places if item.product.experts}
        ),
        "rank_pattern": {item.module: item.spec.rank for item in places if item.spec.rank != rank},
        "alpha_pattern": {item.module: item.spec.alpha for item in places if item.spec.alpha != alpha},
    }


def _prefix_config(adapted: Adapted) -> dict[str, object]:
    weights = adapted.weights
    if adapted.spec.hidden_dim:
        shapes = {item.role: item.shape for item in weights}
        heads, size = adapted.heads, shapes["table"][1]
        layers = shapes["last"][0] // (2 * size)
    else:
        heads, layers = weights[0].shape[0], len(weights) // 2
        size = heads * weights[0].shape[2]
    return {
        "num_layers": layers,
        "num_attention_heads": heads,
        "token_dim": size,
        "encoder_hidden_size": size,
        "prefix_projection": False,
    }


def _words(places: Sequence[AdapterRows]) -> list[str]:
    return sorted({item.word for item in places})


# --- reading ----------------------------------------------------------------------------------------------------


def read_adapter(folder: Path, limits: Limits) -> tuple[AdapterSpec, dict[tuple[str, str], Array]]:
    """The adapter of a folder, and its arrays by module and what they are."""
    config = read_object(folder, CONFIG, limits)
    kind = _kind(config, folder)
    arrays = decode_safetensors(map_bytes_in(folder, STORE, limits).data, shown(folder / STORE))
    if kind == PROMPT:
        array = _embeddings(arrays, folder)
        return AdapterSpec(kind, length=len(array)), {("", "prompt.0"): array}
    if kind == PREFIX:
        return _read_prefix(config, _embeddings(arrays, folder), folder)
    found = dict(_entries(arrays))
    if config.get("target_parameters"):
        found = dict(_stacks(found, config, int(_number(config, "r", folder)), folder))
    spec = AdapterSpec(kind, targets=tuple(sorted({module for module, _ in found})))
    if not found:
        raise InputError("it holds no adapters", path=shown(folder / STORE))
    if kind in (LORA, DORA):
        rank, alpha = int(_number(config, "r", folder)), _number(config, "lora_alpha", folder)
        dropout = config.get("lora_dropout")
        share = dropout if isinstance(dropout, int | float) else 0.0
        own = {module: _own(module, config, rank, alpha, folder) for module in spec.targets}
        return AdapterSpec(
            kind, rank, alpha, spec.targets, dropout=require_share(share, dropout), own=own
        ), found
    if kind == BOTTLENECK:
        dim, activation = int(_number(config, "bottleneck_dim", folder)), str(config.get("activation"))
        return AdapterSpec(kind, dim=dim, activation=activation, targets=spec.targets), found
    return spec, found


def _own(
    module: str, config: Mapping[str, object], rank: int, alpha: float, folder: Path
) -> tuple[int, float]:
    """The rank and alpha of a module: those of the first pattern that it ends with, else those of all."""
    found: list[float] = [rank, alpha]
    for place, key in enumerate(("rank_pattern", "alpha_pattern")):
        listed = config.get(key)
        patterns = {str(name): item for name, item in listed.items()} if isinstance(listed, Mapping) else {}
        for pattern in patterns:
            words = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".").replace(".*", "*")
            if fnmatchcase(module, words) or fnmatchcase(module, f"*.{words}"):
                found[place] = _number(patterns, pattern, folder)
                break
    # With a scale of alpha / √rank.
    return int(found[0]), found[1] * math.sqrt(found[0]) if config.get("use_rslora") is True else found[1]


def _kind(config: Mapping[str, object], folder: Path) -> str:
    name = config.get("peft_type")
    kinds = [kind for kind, known in TYPES.items() if known == name and kind != DORA]
    if not kinds:
        hint = f"those that are read are: {', '.join(sorted(set(TYPES.values())))}"
        raise InputError(f"'{str(name)[:40]}' is no kind of adapter", path=shown(folder / CONFIG), hint=hint)
    return DORA if kinds[0] == LORA and config.get("use_dora") is True else kinds[0]


def _number(config: Mapping[str, object], key: str, folder: Path) -> float:
    value = config.get(key)
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 < value <= MOST
    ):
        return value
    raise InputError(f"'{key}' is no positive number", path=shown(folder / CONFIG))


def _entries(arrays: Mapping[str, Array]) -> Iterator[tuple[tuple[str, str], Array]]:
    ends = "|".join(re.escape(item) for item in sorted(set(ENDINGS.values())))
    pattern = re.compile(rf"{re.escape(PREFIXED)}(.+?)\.({ends})")
    for name, array in arrays.items():
        found = pattern.fullmatch(name)
        if found is None:
            raise InputError(f"'{name[:100]}' is the name of no array of an adapter")
        role = next(key for key, end in ENDINGS.items() if end == found[2])
        if role == "scale":
            role = "scale" if array.shape[-1:] == (1,) else "input_scale"
            array = array.reshape(-1)
        yield (found[1], role), array


def _stacks(
    found: Mapping[tuple[str, str], Array], config: Mapping[str, object], rank: int, folder: Path
) -> Iterator[tuple[tuple[str, str], Array]]:
    """The arrays with those of experts by the names of the matrices that they add to."""
    listed = config["target_parameters"]
    words = {str(item).rpartition(".")[2] for item in listed} if isinstance(listed, list | tuple) else set()
    order = sorted(words, key=_in_order)
    deepest: dict[str, int] = {}
    for module, _ in found:
        owner, depth = module.replace(BASE, ""), module.count(BASE)
        deepest[owner] = max(deepest.get(owner, 0), depth)
    for (module, role), array in found.items():
        owner, depth = module.replace(BASE, ""), module.count(BASE)
        if not owner.endswith(".experts"):
            yield (module, role), array
            continue
        if depth >= len(order) or array.ndim != 2 or array.size % rank or deepest[owner] + 1 != len(order):
            raise InputError(
                f"'{module[:80]}' is not of {len(order)} matrices of experts with rank {rank}",
                path=shown(folder / STORE),
            )
        yield (f"{owner}.{order[-1 - depth]}", role), _unflattened(array, role, rank)


def _embeddings(arrays: Mapping[str, Array], folder: Path) -> Array:
    array = arrays.get(EMBEDDINGS)
    if array is None or array.ndim != 2 or not array.size:
        raise InputError(f"it holds no matrix '{EMBEDDINGS}'", path=shown(folder / STORE))
    return array


def _read_prefix(
    config: Mapping[str, object], array: Array, folder: Path
) -> tuple[AdapterSpec, dict[tuple[str, str], Array]]:
    layers, heads = (int(_number(config, key, folder)) for key in ("num_layers", "num_attention_heads"))
    length, width = array.shape
    if width % (2 * layers * heads):
        raise InputError(
            f"rows of {width} are not {layers} layers of {heads} heads", path=shown(folder / CONFIG)
        )
    parts = array.reshape(length, layers, 2, heads, -1).transpose(1, 2, 3, 0, 4)
    found = {
        ("", f"{role}.{layer}"): np.ascontiguousarray(parts[layer, number])
        for layer in range(layers)
        for number, role in enumerate(("key", "value"))
    }
    return AdapterSpec(PREFIX, length=length), found
