"""Networks over tokens, in plain torch: transformers as encoders, prefill and decoding, an LSTM, a Mamba block."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention, silu, softplus

WIDTH, HEADS, LAYERS = 768, 12, 12
CACHED = 128


def _split(x: Tensor, heads: int) -> Tensor:
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def _join(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Mlp(nn.Module):
    """Four times as wide, and back."""

    def __init__(self, width: int, tanh: bool = False) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.form = "tanh" if tanh else "none"

    def forward(self, x: Tensor) -> Tensor:
        """The new values."""
        found: Tensor = self.down(gelu(self.up(x), approximate=self.form))
        return found


class Layer(nn.Module):
    """A layer of a transformer with one product for queries, keys and values; norms before or behind."""

    def __init__(self, before: bool, causal: bool, tanh: bool = False) -> None:
        super().__init__()
        self.merged, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = Mlp(WIDTH, tanh)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.before, self.causal = before, causal

    def attend(self, x: Tensor, past: Tensor | None) -> Tensor:
        """Attention, over cached keys and values too."""
        q, k, v = (_split(part, HEADS) for part in self.merged(x).chunk(3, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        found: Tensor = self.out(_join(scaled_dot_product_attention(q, k, v, is_causal=self.causal)))
        return found

    def forward(self, x: Tensor, past: Tensor | None = None) -> Tensor:
        """The new values."""
        if self.before:
            x = x + self.attend(self.first(x), past)
            return x + self.mlp(self.second(x))
        x = self.first(x + self.attend(x, past))
        found: Tensor = self.second(x + self.mlp(x))
        return found


class Vit(nn.Module):
    """ViT-B/16: patches as tokens, a token for the class."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 197, WIDTH) * 0.02)
        self.layers = nn.Sequential(*(Layer(before=True, causal=False) for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """A value per class."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        found: Tensor = self.head(self.norm(self.layers(x))[:, 0])
        return found


class Bert(nn.Module):
    """BERT-base without a head."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, WIDTH), nn.Embedding(512, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.Sequential(*(Layer(before=False, causal=False) for _ in range(LAYERS)))

    def forward(self, tokens: Tensor) -> Tensor:
        """A vector per token."""
        places = self.places.weight[: tokens.shape[1]]
        found: Tensor = self.layers(self.norm(self.words(tokens) + places))
        return found


class Gpt2(nn.Module):
    """GPT-2-small with its tied head, for the logits of the last token."""

    def __init__(self, cached: int = 0) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50257, WIDTH), nn.Embedding(1024, WIDTH)
        self.layers = nn.ModuleList(Layer(before=True, causal=not cached, tanh=True) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.cached = cached
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens: Tensor, past: Tensor | None = None) -> Tensor:
        """The logits of the last token; `past` has the keys and values of each layer."""
        places = self.places.weight[self.cached : self.cached + tokens.shape[1]]
        x = self.words(tokens) + places
        for place, layer in enumerate(self.layers):
            x = layer(x, None if past is None else past[place])
        return self.norm(x[:, -1]) @ self.words.weight.t()


def gpt2_decode() -> nn.Module:
    """One token of GPT-2-small, its keys and values given as one tensor and concatenated."""
    return Gpt2(CACHED)


def tokens(batch: int, length: int = 128, words: int = 30522) -> tuple[Tensor]:
    """The tokens of a text."""
    return (torch.randint(0, words, (batch, length)),)


def decode_inputs(batch: int) -> tuple[Tensor, Tensor]:
    """One token, and what is cached of those before it."""
    past = torch.randn(LAYERS, 2, batch, HEADS, CACHED, WIDTH // HEADS)
    return torch.randint(0, 50257, (batch, 1)), past


# --- Qwen3 --------------------------------------------------------------------------------------------------


class RmsNorm(nn.Module):
    """Rows scaled by the root of their mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """The scaled rows."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class QwenLayer(nn.Module):
    """A layer with grouped heads, normed queries and keys, and a gated product."""

    def __init__(self, width: int, heads: int, groups: int, size: int, inner: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, size
        self.q, self.k, self.v = (
            nn.Linear(width, count * size, bias=False) for count in (heads, groups, groups)
        )
        self.o = nn.Linear(heads * size, width, bias=False)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.first, self.second = RmsNorm(width), RmsNorm(width)
        self.qnorm, self.knorm = RmsNorm(size), RmsNorm(size)

    def forward(self, x: Tensor, past: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The new values of one token."""
        y = self.first(x)
        q = _turn(self.qnorm(_split(self.q(y), self.heads)), cos, sin)
        k = _turn(self.knorm(_split(self.k(y), self.groups)), cos, sin)
        k = torch.cat([past[0], k], 2)
        v = torch.cat([past[1], _split(self.v(y), self.groups)], 2)
        times = self.heads // self.groups
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        x = x + self.o(_join(scaled_dot_product_attention(q, k, v)))
        y = self.second(x)
        found: Tensor = x + self.down(silu(self.gate(y)) * self.up(y))
        return found


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: halves of a head turned against each other."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class Qwen3(nn.Module):
    """Qwen3-0.6B: one token, with what is cached of those before it."""

    def __init__(self, layers: int = 28) -> None:
        super().__init__()
        width, size = 1024, 128
        self.words = nn.Embedding(151936, width)
        nn.init.normal_(self.words.weight, std=0.02)
        self.layers = nn.ModuleList(QwenLayer(width, 16, 8, size, 3072) for _ in range(layers))
        self.norm = RmsNorm(width)
        angles = CACHED / 1e6 ** (torch.arange(0, size, 2) / size)
        self.register_buffer("cos", torch.cat([angles.cos()] * 2))
        self.register_buffer("sin", torch.cat([angles.sin()] * 2))

    def forward(self, token: Tensor, past: Tensor) -> Tensor:
        """The logits."""
        x = self.words(token)
        for place, layer in enumerate(self.layers):
            x = layer(x, past[place], self.cos, self.sin)
        return self.norm(x[:, -1]) @ self.words.weight.t()


def qwen_inputs(batch: int) -> tuple[Tensor, Tensor]:
    """One token, and what is cached."""
    return torch.randint(0, 151936, (batch, 1)), torch.randn(28, 2, batch, 8, CACHED, 128)


# --- recurrent ----------------------------------------------------------------------------------------------


class Lstm(nn.Module):
    """Two layers of 512 cells over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(256, 512, 2, batch_first=True)
        self.head = nn.Linear(512, 256)

    def forward(self, x: Tensor) -> Tensor:
        """A vector per step."""
        found: Tensor = self.head(self.cells(x)[0])
        return found


def sequence(batch: int) -> tuple[Tensor]:
    """The inputs of the LSTM."""
    return (torch.randn(batch, 128, 256),)


class Mamba(nn.Module):
    """A Mamba block: a short convolution along time, and a scan whose steps depend on the input."""

    def __init__(self, width: int = 768, state: int = 16, rank: int = 48) -> None:
        super().__init__()
        inner = 2 * width
        self.rank, self.state = rank, state
        self.enter = nn.Linear(width, 2 * inner, bias=False)
        self.short = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.select = nn.Linear(inner, rank + 2 * state, bias=False)
        self.step = nn.Linear(rank, inner)
        self.a = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(inner, 1))
        self.d = nn.Parameter(torch.ones(inner))
        self.leave = nn.Linear(inner, width, bias=False)
        self.norm = RmsNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """The new values."""
        length = x.shape[1]
        u, gate = self.enter(self.norm(x)).chunk(2, -1)
        u = silu(self.short(u.transpose(1, 2))[..., :length]).transpose(1, 2)
        step, b, c = self.select(u).split([self.rank, self.state, self.state], -1)
        step = softplus(self.step(step))
        decay = torch.exp(step.unsqueeze(-1) * -torch.exp(self.a))
        taken = (step * u).unsqueeze(-1) * b.unsqueeze(2)
        h, rows = torch.zeros_like(taken[:, 0]), []
        for place in range(length):
            h = decay[:, place] * h + taken[:, place]
            rows.append((h * c[:, place].unsqueeze(1)).sum(-1))
        y = torch.stack(rows, 1) + u * self.d
        found: Tensor = x + self.leave(y * silu(gate))
        return found


def mamba_inputs(batch: int) -> tuple[Tensor]:
    """The vectors of a text of 64 tokens."""
    return (torch.randn(batch, 64, 768),)
