"""Export a small classifier of sequences from PyTorch, with an input and what PyTorch makes of it."""

from __future__ import annotations

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import numpy as np
import torch
from torch import nn


class Tagger(nn.Module):
    """A word gets one of five tags; words see each other through attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.norm = nn.LayerNorm(32)
        self.drop = nn.Dropout(0.1)
        self.tags = nn.Linear(32, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores of the tags for each word."""
        x = self.words(ids)
        heads = [self._split(part(x)) for part in (self.query, self.key, self.value)]
        seen = nn.functional.scaled_dot_product_attention(*heads)
        x = self.norm(x + self.drop(seen.transpose(1, 2).flatten(2)))
        return self.tags(x)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(2, (4, 8)).transpose(1, 2)


torch.manual_seed(0)
model = Tagger().eval()
ids = torch.randint(0, 100, (2, 12))
length = torch.export.Dim("length", min=2, max=64)
program = torch.export.export(model, (ids,), dynamic_shapes={"ids": {1: length}})
torch.export.save(program, "tagger.pt2")
np.save("ids.npy", ids.numpy())
np.save("scores.npy", model(ids).detach().numpy())
