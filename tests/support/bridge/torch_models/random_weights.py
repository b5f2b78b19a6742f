"""Weights that no mistake can hide behind: no zeros, no ones, signals that neither vanish nor explode."""

from __future__ import annotations

import os
from typing import Any

import torch

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")


def shake(module: Any, seed: int = 0) -> Any:
    """Draw all parameters and statistics anew; the module itself is given back."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in module.parameters():
            drawn = torch.rand(tensor.shape, generator=generator) - 0.5
            fan = tensor[0].numel() if tensor.dim() > 1 else 1
            tensor.copy_(drawn * (4.5 / fan) ** 0.5 if tensor.dim() > 1 else 0.6 * drawn + tensor)
        for name, tensor in module.named_buffers():
            if name.endswith("running_mean"):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) - 0.5)
            elif name.endswith("running_var"):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return module
