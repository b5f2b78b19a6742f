"""Single layers and functions, large enough that eager mode takes some milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as f

Shape = tuple[int, ...]


class Layer(NamedTuple):
    """How a layer is made, and the shapes of what it is given; a function of shapes alone gives other inputs."""

    make: Callable[[], nn.Module]
    shapes: tuple[Shape, ...] = ()
    inputs: Callable[[], tuple[Tensor, ...]] | None = None

    def build(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """The layer with random weights, and its inputs."""
        module = self.make().eval()
        given = self.inputs() if self.inputs is not None else tuple(torch.randn(item) for item in self.shapes)
        return module, given


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Tensor) -> object:
        """What the function gives."""
        return self.function(*given)


class First(nn.Module):
    """The first result of a layer that gives several."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Its first result."""
        found: Tensor = self.layer(x)[0]
        return found


class Attention(nn.Module):
    """Attention of a sequence to itself, as torch's own layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """The mixed values."""
        found: Tensor = self.layer(x, x, x, need_weights=False)[0]
        return found


def _function(function: Callable[..., object], *shapes: Shape) -> Layer:
    return Layer(partial(Function, function), shapes)


def _layer(make: Callable[[], nn.Module], *shapes: Shape) -> Layer:
    return Layer(make, shapes)


def _first(make: Callable[[], nn.Module], *shapes: Shape) -> Layer:
    return Layer(lambda: First(make()), shapes)


def _with_indices(function: Callable[..., object], shape: Shape, taken: Shape, below: int) -> Layer:
    return Layer(
        partial(Function, function), (), lambda: (torch.randn(shape), torch.randint(0, below, taken))
    )


def _tokens(make: Callable[[], nn.Module], shape: Shape, below: int) -> Layer:
    return Layer(make, (), lambda: (torch.randint(0, below, shape),))


IMAGE, MAP, LONG, BLOCK = (8, 32, 112, 112), (4, 128, 56, 56), (8, 256, 1024), (4, 16, 16, 56, 56)
MAPS_8, MAPS_32 = (8, 128, 56, 56), (32, 128, 56, 56)
ROWS = (8192, 1024)
RECURRENT = {
    "lstm": _first(lambda: nn.LSTM(256, 512, batch_first=True), (1, 128, 256)),
    "lstm-bidirectional": _first(
        lambda: nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True), (4, 64, 128)
    ),
    "lstm-projected": _first(lambda: nn.LSTM(128, 256, proj_size=64, batch_first=True), (4, 64, 128)),
    "gru": _first(lambda: nn.GRU(256, 512, batch_first=True), (1, 128, 256)),
    "gru-2": _first(lambda: nn.GRU(128, 256, 2, batch_first=True), (8, 64, 128)),
    "rnn": _first(lambda: nn.RNN(256, 512, batch_first=True), (4, 128, 256)),
    "lstm-cell": Layer(
        lambda: nn.LSTMCell(1024, 1024), (), lambda: (torch.randn(16, 1024), (torch.randn(16, 1024),) * 2)
    ),
}
CONVOLUTIONS = {
    "conv1d": _layer(lambda: nn.Conv1d(256, 256, 5, padding=2), LONG),
    "conv1d-dilated": _layer(lambda: nn.Conv1d(256, 256, 3, padding=4, dilation=4), LONG),
    "conv1d-depthwise": _layer(lambda: nn.Conv1d(256, 256, 9, padding=4, groups=256), LONG),
    "conv2d-3": _layer(lambda: nn.Conv2d(128, 128, 3, padding=1), MAP),
    "conv2d-1": _layer(lambda: nn.Conv2d(128, 256, 1), MAP),
    "conv2d-5": _layer(lambda: nn.Conv2d(32, 64, 5, padding=2), IMAGE),
    "conv2d-7-stem": _layer(lambda: nn.Conv2d(3, 64, 7, 2, 3), (4, 3, 224, 224)),
    "conv2d-stride": _layer(lambda: nn.Conv2d(128, 256, 3, 2, 1), MAP),
    "conv2d-dilated": _layer(lambda: nn.Conv2d(128, 128, 3, padding=2, dilation=2), MAP),
    "conv2d-grouped": _layer(lambda: nn.Conv2d(128, 128, 3, padding=1, groups=8), MAP),
    "conv2d-depthwise": _layer(lambda: nn.Conv2d(128, 128, 3, padding=1, groups=128), MAPS_8),
    "conv2d-depthwise-7": _layer(lambda: nn.Conv2d(128, 128, 7, padding=3, groups=128), MAP),
    "conv2d-asymmetric": _layer(lambda: nn.Conv2d(64, 64, (1, 7), padding=(0, 3)), (4, 64, 56, 56)),
    "conv2d-patches": _layer(lambda: nn.Conv2d(3, 384, 16, 16), (8, 3, 224, 224)),
    "conv2d-reflect": _layer(
        lambda: nn.Conv2d(64, 64, 3, padding=1, padding_mode="reflect"), (4, 64, 56, 56)
    ),
    "conv2d-circular": _layer(
        lambda: nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular"), (4, 64, 56, 56)
    ),
    "conv3d": _layer(lambda: nn.Conv3d(16, 32, 3, padding=1), BLOCK),
    "conv3d-stride": _layer(lambda: nn.Conv3d(16, 64, 3, 2, 1), BLOCK),
    "transposed1d": _layer(lambda: nn.ConvTranspose1d(256, 128, 4, 2, 1), LONG),
    "transposed2d": _layer(lambda: nn.ConvTranspose2d(128, 64, 2, 2), MAP),
    "transposed2d-4": _layer(lambda: nn.ConvTranspose2d(128, 64, 4, 2, 1), MAP),
    "transposed2d-grouped": _layer(lambda: nn.ConvTranspose2d(128, 128, 4, 2, 1, groups=8), MAP),
    "transposed3d": _layer(lambda: nn.ConvTranspose3d(16, 16, 2, 2), BLOCK),
    "unfold": _layer(lambda: nn.Unfold(3, padding=1), (2, 64, 56, 56)),
    "fold": _layer(lambda: nn.Fold((56, 56), 3, padding=1), (2, 64 * 9, 56 * 56)),
}
NORMS = {
    "layer-norm": _layer(lambda: nn.LayerNorm(1024), ROWS),
    "layer-norm-map": _layer(lambda: nn.LayerNorm((128, 56, 56)), MAPS_32),
    "rms-norm": _layer(lambda: nn.RMSNorm(1024), ROWS),
    "batch-norm-1": _layer(lambda: nn.BatchNorm1d(256), (64, 256, 1024)),
    "batch-norm-2": _layer(lambda: nn.BatchNorm2d(128), MAPS_32),
    "batch-norm-3": _layer(lambda: nn.BatchNorm3d(16), (16, 16, 16, 56, 56)),
    "group-norm": _layer(lambda: nn.GroupNorm(32, 128), MAPS_32),
    "instance-norm": _layer(lambda: nn.InstanceNorm2d(128, affine=True), MAP),
    "local-response": _layer(lambda: nn.LocalResponseNorm(5), (4, 64, 56, 56)),
    "normalize": _function(partial(f.normalize, dim=-1), ROWS),
    "softmax": _layer(lambda: nn.Softmax(-1), ROWS),
    "softmax-channels": _layer(lambda: nn.Softmax(1), MAPS_8),
    "log-softmax": _layer(lambda: nn.LogSoftmax(-1), ROWS),
    "logsumexp": _function(partial(torch.logsumexp, dim=-1), ROWS),
    "variance": _function(partial(torch.var, dim=-1), ROWS),
    "standard-deviation": _function(partial(torch.std, dim=0), ROWS),
}
POOLS = {
    "max-pool-1": _layer(lambda: nn.MaxPool1d(3, 2, 1), (8, 256, 4096)),
    "max-pool-2": _layer(lambda: nn.MaxPool2d(3, 2, 1), IMAGE),
    "max-pool-2-plain": _layer(lambda: nn.MaxPool2d(2), IMAGE),
    "max-pool-3": _layer(lambda: nn.MaxPool3d(2), BLOCK),
    "average-pool-1": _layer(lambda: nn.AvgPool1d(3, 2, 1), (8, 256, 4096)),
    "average-pool-2": _layer(lambda: nn.AvgPool2d(3, 2, 1), IMAGE),
    "average-pool-3": _layer(lambda: nn.AvgPool3d(2), BLOCK),
    "adaptive-average": _layer(lambda: nn.AdaptiveAvgPool2d(7), (8, 256, 56, 56)),
    "adaptive-uneven": _layer(lambda: nn.AdaptiveAvgPool2d(5), (8, 256, 56, 56)),
    "adaptive-max": _layer(lambda: nn.AdaptiveMaxPool2d(7), (8, 256, 56, 56)),
    "global-average": _layer(lambda: nn.AdaptiveAvgPool2d(1), (32, 256, 56, 56)),
    "lp-pool": _layer(lambda: nn.LPPool2d(2, 3, 2), IMAGE),
}
IMAGES = {
    "nearest": _function(partial(f.interpolate, scale_factor=2, mode="nearest"), (4, 64, 56, 56)),
    "bilinear": _function(partial(f.interpolate, scale_factor=2, mode="bilinear"), (4, 64, 56, 56)),
    "bilinear-corners": _function(
        partial(f.interpolate, size=(100, 100), mode="bilinear", align_corners=True), (4, 64, 56, 56)
    ),
    "bicubic": _function(partial(f.interpolate, scale_factor=2, mode="bicubic"), (2, 32, 56, 56)),
    "trilinear": _function(partial(f.interpolate, scale_factor=2, mode="trilinear"), (1, 16, 8, 28, 28)),
    "linear-1": _function(partial(f.interpolate, scale_factor=2, mode="linear"), LONG),
    "area": _function(partial(f.interpolate, size=(28, 28), mode="area"), MAP),
    "pixel-shuffle": _layer(lambda: nn.PixelShuffle(2), MAP),
    "pixel-unshuffle": _layer(lambda: nn.PixelUnshuffle(2), MAP),
    "channel-shuffle": _layer(lambda: nn.ChannelShuffle(8), MAPS_32),
    "pad-reflect": _layer(lambda: nn.ReflectionPad2d(3), (32, 32, 112, 112)),
    "pad-replicate": _layer(lambda: nn.ReplicationPad2d(3), (32, 32, 112, 112)),
    "pad-zero": _layer(lambda: nn.ZeroPad2d(3), IMAGE),
    "grid-sample": Layer(
        partial(Function, partial(f.grid_sample, align_corners=False)),
        (),
        lambda: (torch.randn(8, 64, 56, 56), torch.rand(8, 56, 56, 2) * 2 - 1),
    ),
}
PRODUCTS = {
    "linear": _layer(lambda: nn.Linear(1024, 1024), (256, 1024)),
    "linear-row": _layer(lambda: nn.Linear(4096, 4096), (1, 4096)),
    "linear-few": _layer(lambda: nn.Linear(2048, 2048), (8, 2048)),
    "bilinear-form": _layer(lambda: nn.Bilinear(64, 64, 64), (512, 64), (512, 64)),
    "matmul": _function(torch.matmul, (512, 512), (512, 512)),
    "bmm": _function(torch.bmm, (64, 128, 128), (64, 128, 128)),
    "bmm-transposed": _function(lambda a, b: a @ b.transpose(1, 2), (64, 128, 128), (64, 128, 128)),
    "einsum": _function(partial(torch.einsum, "bhid,bhjd->bhij"), (8, 8, 128, 64), (8, 8, 128, 64)),
    "outer": _function(lambda a, b: a.unsqueeze(1) * b, (8192, 1), (1, 4096)),
    "cdist": _function(torch.cdist, (2048, 128), (2048, 128)),
    "cdist-1": _function(partial(torch.cdist, p=1.0), (512, 64), (512, 64)),
    "cosine": _function(partial(f.cosine_similarity, dim=-1), ROWS, ROWS),
    "attention": _layer(lambda: Attention(512, 8), (2, 256, 512)),
    "attention-causal": _function(
        partial(f.scaled_dot_product_attention, is_causal=True),
        (2, 8, 256, 64),
        (2, 8, 256, 64),
        (2, 8, 256, 64),
    ),
    "attention-masked": _function(
        f.scaled_dot_product_attention, (2, 8, 256, 64), (2, 8, 256, 64), (2, 8, 256, 64), (256, 256)
    ),
    "attention-one": _function(
        f.scaled_dot_product_attention, (8, 16, 1, 128), (8, 16, 1024, 128), (8, 16, 1024, 128)
    ),
    "encoder-layer": _layer(lambda: nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), (4, 64, 256)),
    "encoder-layer-first": _layer(
        lambda: nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, norm_first=True), (4, 64, 256)
    ),
    "decoder-layer": _layer(
        lambda: nn.TransformerDecoderLayer(256, 4, 1024, batch_first=True), (4, 64, 256), (4, 64, 256)
    ),
}
INDICES = {
    "embedding": _tokens(lambda: nn.Embedding(30000, 768), (32, 256), 30000),
    "embedding-bag": _tokens(lambda: nn.EmbeddingBag(30000, 256, mode="mean"), (1024, 64), 30000),
    "one-hot": Layer(
        partial(Function, partial(f.one_hot, num_classes=1000)),
        (),
        lambda: (torch.randint(0, 1000, (16384,)),),
    ),
    "gather": _with_indices(lambda x, i: x.gather(1, i), ROWS, ROWS, 1024),
    "index-select": _with_indices(lambda x, i: x.index_select(0, i), ROWS, (16384,), 2048),
    "take-rows": _with_indices(lambda x, i: x[i], ROWS, (4096,), 2048),
    "scatter-add": _with_indices(lambda x, i: torch.zeros_like(x).scatter_add(0, i, x), ROWS, ROWS, 2048),
    "index-add": _with_indices(lambda x, i: torch.zeros_like(x).index_add(0, i, x), ROWS, (8192,), 2048),
    "masked-fill": _function(lambda x: x.masked_fill(x > 0.5, 0.0), ROWS),
    "where": _function(lambda x, y: torch.where(x > y, x, y * 2), ROWS, ROWS),
    "top-k": _function(lambda x: torch.topk(x, 8)[0], ROWS),
    "top-k-indices": _function(lambda x: torch.topk(x, 8)[1], ROWS),
    "sort": _function(lambda x: torch.sort(x, -1)[0], (512, 1024)),
    "argsort": _function(partial(torch.argsort, dim=-1, stable=True), (512, 1024)),
    "argmax": _function(partial(torch.argmax, dim=-1), ROWS),
    "median": _function(lambda x: torch.median(x, -1)[0], (512, 1024)),
    "cumsum": _function(partial(torch.cumsum, dim=-1), ROWS),
    "cumsum-rows": _function(partial(torch.cumsum, dim=0), ROWS),
    "cumprod": _function(lambda x: torch.cumprod(1 + x * 1e-3, -1), ROWS),
    "cummax": _function(lambda x: torch.cummax(x, -1)[0], (4096, 1024)),
    "logcumsumexp": _function(partial(torch.logcumsumexp, dim=-1), (512, 1024)),
    "tril": _function(torch.tril, ROWS),
    "roll": _function(partial(torch.roll, shifts=(3, 5), dims=(0, 1)), ROWS),
    "flip": _function(partial(torch.flip, dims=(1,)), ROWS),
    "transpose": _function(lambda x: x.t().contiguous(), (2048, 2048)),
    "permute": _function(lambda x: x.permute(0, 2, 3, 1).contiguous(), MAPS_8),
    "concat": _function(lambda x, y: torch.cat([x, y], 1), ROWS, ROWS),
    "stack": _function(lambda x, y: torch.stack([x, y], 1), ROWS, ROWS),
    "split-add": _function(lambda x: sum(x.chunk(4, 1)), ROWS),
    "repeat": _function(lambda x: x.repeat(2, 3), (4096, 1024)),
    "repeat-interleave": _function(lambda x: x.repeat_interleave(4, 1), (1024, 1024)),
    "expand": _function(lambda x, y: x.unsqueeze(1) + y, (4096, 64), (4096, 64, 64)),
}
MAPS = {
    name: _function(function, ROWS)
    for name, function in {
        "relu": torch.relu,
        "gelu": f.gelu,
        "gelu-tanh": partial(f.gelu, approximate="tanh"),
        "silu": f.silu,
        "mish": f.mish,
        "elu": f.elu,
        "selu": f.selu,
        "softplus": f.softplus,
        "hardswish": f.hardswish,
        "hardsigmoid": f.hardsigmoid,
        "leaky-relu": f.leaky_relu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "log-sigmoid": f.logsigmoid,
        "exp": torch.exp,
        "log": lambda x: torch.log(x.abs() + 1),
        "sqrt": lambda x: torch.sqrt(x.abs()),
        "sin": torch.sin,
        "erf": torch.erf,
        "pow": lambda x: x.abs() ** 1.7,
        "round": torch.round,
        "clamp": partial(torch.clamp, min=-0.5, max=0.5),
        "glu": f.glu,
        "chain": lambda x: torch.tanh(x * 2 + 1) * torch.sigmoid(x) - x * 0.5,
        "sum-rows": partial(torch.sum, dim=-1),
        "sum-columns": partial(torch.sum, dim=0),
        "mean-all": torch.mean,
        "max-rows": partial(torch.amax, dim=-1),
        "prod-rows": lambda x: torch.prod(1 + x * 1e-3, -1),
        "norm-rows": partial(torch.linalg.vector_norm, dim=-1),
    }.items()
}
LAYERS = MappingProxyType(
    {**RECURRENT, **CONVOLUTIONS, **NORMS, **POOLS, **IMAGES, **PRODUCTS, **INDICES, **MAPS}
)
