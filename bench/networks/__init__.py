"""The networks of `python -m bench.models` by name: how each is made, and what it is given for a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bench.networks import language, unseen, vision
from lamella.base.suggest import list_known


class Network(NamedTuple):
    """A module with random weights, and its inputs."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]


NETWORKS = MappingProxyType(
    {
        "resnet18": Network(vision.resnet18, vision.images),
        "resnet50": Network(vision.resnet50, vision.images),
        "mobilenet_v2": Network(vision.mobilenet_v2, vision.images),
        "efficientnet_b0": Network(vision.efficientnet_b0, vision.images),
        "vit_b16": Network(language.Vit, vision.images),
        "bert": Network(language.Bert, language.tokens),
        "gpt2_prefill": Network(language.Gpt2, partial(language.tokens, words=50257)),
        "gpt2_decode": Network(language.gpt2_decode, language.decode_inputs),
        "lstm": Network(language.Lstm, language.sequence),
        "unet": Network(vision.unet, partial(vision.images, size=256)),
        "mamba": Network(language.Mamba, language.mamba_inputs),
        "qwen3_decode": Network(language.Qwen3, language.qwen_inputs),
        "densenet121": Network(unseen.densenet121, vision.images),
        "convnext_tiny": Network(unseen.convnext_tiny, vision.images),
        "t5_encoder": Network(unseen.T5Encoder, partial(language.tokens, words=32128)),
    }
)


def build(name: str, batch: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A network in evaluation mode with random weights and inputs, the same at every call."""
    network = NETWORKS.get(name)
    if network is None:
        raise SystemExit(f"there is no network '{name}': {list_known(name, NETWORKS)}")
    torch.manual_seed(0)
    module = network.make().eval()
    for norm in _norms(module):
        # statistics that folding cannot take for those of a fresh norm
        nn.init.normal_(norm.running_mean, std=0.1)
        nn.init.uniform_(norm.running_var, 0.5, 1.5)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
    return module, network.inputs(batch)


def _norms(module: nn.Module) -> Iterator[nn.BatchNorm2d]:
    return (item for item in module.modules() if isinstance(item, nn.BatchNorm2d))
