"""The declarations of the library, and small values for those that have no preset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lamella.base.paths import shipped
from lamella.lang.module.nodes import Module, Preset
from lamella.pipeline.module.program import read_program
from lamella.pipeline.options import Options

FOLDER = shipped("models")
SMALL = MappingProxyType(
    {
        "vocab_size": 50,
        "in_dim": 6,
        "out_dim": 10,
        "d": 12,
        "d_model": 16,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 4,
        "d_ff": 24,
        "shared_d_ff": 20,
        "num_experts": 4,
        "top_k": 2,
        "max_seq": 32,
        "n_layers": 2,
        "kind": '"M"',
        "mamba_heads": 4,
        "mamba_head_dim": 8,
        "n_groups": 2,
        "kv_rank": 6,
        "width": 12,
        "num_key_heads": 2,
        "num_value_heads": 4,
        "key_dim": 6,
        "value_dim": 4,
        "linear": "true",
        "image_size": 12,
        "patch_size": 4,
    }
)
"""A value for each parameter that has no default anywhere in the library."""
REQUIRED = MappingProxyType(
    {
        **dict.fromkeys(("shared", "placed", "even_distances", "first", "sliding"), "true"),
        **dict.fromkeys(("use_bias", "use_mlp_bias", "use_key_bias"), "true"),
        **dict.fromkeys(("gated", "embedding_norm", "final_norm", "learned"), "true"),
        **dict.fromkeys(("rope", "local_rope", "layer_types"), "None"),
        **dict.fromkeys(("rope_theta", "local_rope_theta"), 10000.0),
        **dict.fromkeys(("relative", "writes"), "false"),
        **dict.fromkeys(("bottleneck", "early"), "true"),
        "asked": '["c2p", "p2c"]',
        "span": 4,
        "buckets": 4,
        "max_distance": 8,
        "kinds": 2,
        "eps": 1e-5,
        "activation": '"silu"',
        "norm": '"layer"',
        "pattern": 2,
        "window": 4,
        "norms": '"after"',
        "offset": 2,
        "embedding_scale": 4.0,
        **dict.fromkeys(("stride", "reduction", "depth", "mlp_ratio", "groups"), 2),
        **dict.fromkeys(("kernel", "channels"), 3),
        "conv_dim": "[8, 8]",
        "conv_kernel": "[4, 3]",
        "conv_stride": "[2, 2]",
    }
)
"""Values for parameters that have a default elsewhere, which is kept there."""


def files(kind: str) -> list[Path]:
    """The files of a folder of the library, and of those in it."""
    return sorted((FOLDER / kind).rglob("*.module"))


def declarations(kind: str) -> Iterator[tuple[Path, Module, bool]]:
    """What the files of a folder declare, with whether each has a preset of its file."""
    for path in files(kind):
        program = read_program(path, Options())
        items = program.resolved.unit.document.items
        small = any(isinstance(item, Preset) and item.name == "tiny" for item in items)
        for item in program.modules:
            # An abstract one computes nothing: those that extend it do.
            if isinstance(item.declaration, Module) and not item.declaration.abstract:
                module = item.declaration
                yield path, module, small and module.kind == "model"


def options_of(module: Module, small: bool) -> dict[str, Any]:
    """The options that build a declaration small."""
    if small:
        return {"model": module.name, "preset": "tiny"}
    config = {
        item.name: SMALL[item.name]
        for item in module.params or ()
        if item.name in SMALL and (item.name != "kind" or item.default is None)
    }
    config |= {
        item.name: REQUIRED[item.name]
        for item in module.params or ()
        if item.default is None and item.name in REQUIRED
    }
    if module.kind == "model":
        config |= {"vocab_size": 50, "n_layers": 2}
    return {"model": module.name, "config": config}
