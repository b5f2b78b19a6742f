"""A small GPT whose keys, values and position are buffers: each call takes one token and remembers those before it."""

from __future__ import annotations

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
from torch import nn
from torch.nn.functional import gelu

WORDS, LENGTH, WIDTH, HEADS, LAYERS = 64, 32, 32, 4, 2


class Attention(nn.Module):
    """Attention of one token to itself and to those before it, whose keys and values are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, LENGTH, WIDTH // HEADS))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """The token after it has looked back; its key and its value are written at the position."""
        query, key, value = self.project(x).view(1, 1, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        later = torch.arange(LENGTH) > position
        scores = query @ self.keys.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        seen = scores.masked_fill(later, float("-inf")).softmax(-1) @ self.values
        return self.out(seen.transpose(1, 2).reshape(1, 1, WIDTH))


class Block(nn.Module):
    """Attention, then two layers for each token by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """The token after this block."""
        x = x + self.attention(self.first(x), position)
        return x + self.narrow(gelu(self.wide(self.second(x))))


class Gpt(nn.Module):
    """Logits of the token that follows; the position counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))

    def forward(self, token: torch.Tensor) -> dict[str, torch.Tensor]:
        """Take one token, `[1, 1]`; the logits are `[1, 1, WORDS]`."""
        x = self.words(token) + self.places(self.position)
        for block in self.blocks:
            x = block(x, self.position)
        self.position += 1
        return {"logits": self.head(self.norm(x))}


def make() -> Gpt:
    """The model with random weights, always the same."""
    torch.manual_seed(0)
    model = Gpt()
    model.eval()
    return model


if __name__ == "__main__":
    token = torch.zeros(1, 1, dtype=torch.int64)
    torch.export.save(torch.export.export(make(), (token,)), "gpt.pt2")
