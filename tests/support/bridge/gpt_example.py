"""The GPT of the examples, and what PyTorch makes of all its tokens at once."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import gelu, scaled_dot_product_attention

PATH = Path(__file__).parents[3] / "examples" / "nac-app" / "gpt.py"
TOKEN = torch.zeros(1, 1, dtype=torch.int64)


def example() -> ModuleType:
    """The module of the example."""
    spec = spec_from_file_location("gpt_example_module", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def logits(model: Any, tokens: list[int], heads: int) -> npt.NDArray[np.float32]:
    """The logits behind the last of some tokens, computed from all of them without anything kept."""
    x = model.words(torch.tensor([tokens])) + model.places(torch.arange(len(tokens)))
    for block in model.blocks:
        parts = block.attention.project(block.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        seen = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + block.attention.out(seen.transpose(1, 2).flatten(2))
        x = x + block.narrow(gelu(block.wide(block.second(x))))
    found: npt.NDArray[np.float32] = model.head(model.norm(x))[0, -1].detach().numpy()
    return found


def greedy(model: Any, start: list[int], count: int, heads: int) -> list[int]:
    """The tokens that PyTorch finds likeliest, one after the other."""
    tokens = list(start)
    for _ in range(count):
        tokens.append(int(logits(model, tokens, heads).argmax()))
    return tokens[len(start) :]
