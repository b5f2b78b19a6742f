"""Modules of timm, torchvision and transformers by name, with random weights; and all that there is to cover."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from bench.coverage.layers import LAYERS
from bench.coverage.small import SMALL, small_timm, small_transformers, timm_names, transformers_names

if sys.modules.get("torchvision", torch) is None:  # hidden for the other benches
    del sys.modules["torchvision"]
IMAGE = 224
HUGE = re.compile(r"_h_|_l_|128gf|32gf|vit_b_32|regnet_y_16gf|wide_resnet101|convnext_large|swin_v2_b|swin_b")
WHOLE = re.compile(r"inception_v3|vit_|maxvit|swin_v2")
"""Networks that take images of one size alone, or whose windows divide it."""
VIDEO = ("mc3_18", "r3d_18", "r2plus1d_18")
SEGMENTATION = (
    "fcn_resnet50",
    "deeplabv3_mobilenet_v3_large",
    "lraspp_mobilenet_v3_large",
    "deeplabv3_resnet50",
)
FAMILIES = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet"),
    *("inception_v3", "maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"),
    *("regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d", "shufflenet_v2_x0_5"),
    *("squeezenet1_0", "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11", "vgg11_bn", "vit_b_16"),
    *("wide_resnet50_2", "mc3_18", "r3d_18", "r2plus1d_18", "s3d", "mvit_v1_b", "mvit_v2_s", "swin3d_t"),
    *("fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"),
    *("raft_small", "ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn", "fcos_resnet50_fpn"),
    *(
        "fasterrcnn_mobilenet_v3_large_fpn",
        "ssd300_vgg16",
        "keypointrcnn_resnet50_fpn",
        "maskrcnn_resnet50_fpn",
    ),
)
"""One small network of each family of torchvision: classes of images and videos, pixels, flow, detection."""
LANGUAGE = (
    *(
        "Albert",
        "Bert",
        "BigBird",
        "Bloom",
        "Camembert",
        "ConvBert",
        "CTRL",
        "Deberta",
        "DebertaV2",
        "DistilBert",
    ),
    *(
        "Electra",
        "Ernie",
        "Falcon",
        "FNet",
        "Gemma",
        "Gemma2",
        "GPT2",
        "GPTBigCode",
        "GPTNeo",
        "GPTNeoX",
        "GPTJ",
    ),
    *(
        "Granite",
        "Helium",
        "IBert",
        "Llama",
        "Mamba",
        "MegatronBert",
        "Mistral",
        "MobileBert",
        "MPNet",
        "Nystromformer",
    ),
    *(
        "Olmo",
        "OPT",
        "Persimmon",
        "Phi",
        "Phi3",
        "Qwen2",
        "Qwen3",
        "RemBert",
        "Roberta",
        "RoFormer",
        "SmolLM3",
    ),
    *("SqueezeBert", "StableLm", "Starcoder2", "XGLM", "XLMRoberta", "XLNet"),
)
VISION = (
    *(
        "Beit",
        "BitModel",
        "ConvNext",
        "ConvNextV2",
        "Cvt",
        "Data2VecVision",
        "DeiT",
        "Dinov2",
        "EfficientNet",
    ),
    *(
        "FocalNet",
        "Levit",
        "MobileNetV1",
        "MobileNetV2",
        "MobileViT",
        "PoolFormer",
        "Pvt",
        "RegNet",
        "ResNet",
    ),
    *("Segformer", "Swin", "Swinv2", "SwiftFormer", "ViT", "ViTMAE", "Yolos"),
)
SIZES = {
    "vocab_size": 8000,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 1024,
    "max_position_embeddings": 256,
}
"""Small configurations, and yet some milliseconds of eager mode with 128 tokens."""
OWN_SIZES: dict[str, dict[str, object]] = {
    "Falcon": {"head_dim": None},
    "GPTNeo": {"num_layers": 4, "attention_types": [[["global", "local"], 2]]},
    "SqueezeBert": {"embedding_size": 256},
    "XLNet": {"max_position_embeddings": None, "d_model": 256, "n_layer": 4, "n_head": 4, "d_inner": 1024},
}
"""What single ones want else; None for what they do not let be said."""


@cache
def torchvision() -> ModuleType:
    """The package; its operators are built for another torch than a plain CPU one, and only their names matter here."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module("torchvision")


def names() -> Iterator[str]:
    """All modules as `source:name`; a source that is not installed has none."""
    yield from (f"layer:{name}" for name in LAYERS)
    if importlib.util.find_spec("transformers") is not None:
        yield from (f"transformers:{name}" for name in (*LANGUAGE, *VISION))
    if importlib.util.find_spec("torchvision") is not None:
        models = torchvision().models
        listed = [name for name in models.list_models(module=models) if not HUGE.search(name)]
        yield from (f"torchvision:{name}" for name in (*listed, *VIDEO, *SEGMENTATION))
    if importlib.util.find_spec("timm") is not None:
        yield from (f"timm:{name}" for name in _timm_names())


def _timm_names() -> Iterator[str]:
    """One small model for each file of timm: its architectures, not its sizes."""
    timm = _timm()
    for module in timm.list_modules():
        listed = timm.list_models(module=module)
        if listed:
            yield min(listed, key=lambda name: (not SMALL.search(name), len(name), name))


def small_names() -> Iterator[str]:
    """The small modules as `source:name`: torchvision's, a family of timm or a type of transformers each."""
    if importlib.util.find_spec("torchvision") is not None:
        yield from (f"torchvision:{name}" for name in FAMILIES)
    if importlib.util.find_spec("timm") is not None:
        yield from (f"timm:{name}" for name in timm_names(_timm()))
    if importlib.util.find_spec("transformers") is not None:
        yield from (f"transformers:{name}" for name in transformers_names())


def build_small(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """A small module in evaluation mode with random weights, and its inputs by name."""
    torch.manual_seed(0)
    source, _, word = name.partition(":")
    if source == "torchvision":
        module, given = _small_torchvision(word)
    elif source == "timm":
        module, given = small_timm(_timm(), word)
    else:
        torchvision()  # transformers would load it without our declarations
        module, given = small_transformers(word)
    return _without_zeros(Tensors(module)), given


def _timm() -> ModuleType:
    torchvision()
    return importlib.import_module("timm")


def build(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A module in evaluation mode with random weights, and its inputs."""
    torch.manual_seed(0)
    source, _, word = name.partition(":")
    if source == "layer":
        return LAYERS[word].build()
    module, inputs = _model(source, word)
    return _without_zeros(module), inputs


def _without_zeros(module: nn.Module) -> nn.Module:
    """A module whose weights of zeros are drawn: else a head, or what a branch adds, would be judged by nothing."""
    with torch.no_grad():
        for item in module.parameters():
            if item.is_floating_point() and not item.any():
                item.normal_(std=0.02)
    return module


def _model(source: str, word: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    if source == "torchvision":
        return _torchvision(word)
    if source == "timm":
        torchvision()
        module = importlib.import_module("timm").create_model(word, pretrained=False).eval()
        size: Any = module.default_cfg.get("input_size", (3, IMAGE, IMAGE))
        return module, (torch.randn(1, *size),)
    return _transformers(word)


def _torchvision(word: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    extra = {"weights_backbone": None} if word in SEGMENTATION else {}
    module = torchvision().models.get_model(word, weights=None, **extra).eval()
    if word in VIDEO:
        return module, (torch.randn(1, 3, 8, 112, 112),)
    size = 299 if word == "inception_v3" else 256 if "swin_v2" in word else IMAGE
    return module, (torch.randn(1, 3, size, size),)


def _small_torchvision(word: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """A network of torchvision with the smallest inputs that it takes."""
    models = torchvision().models
    kinds = getattr(models.get_model_builder(word), "__module__", "")
    extra = (
        {}
        if ".models.detection" not in kinds and ".segmentation" not in kinds
        else {"weights_backbone": None}
    )
    module = models.get_model(word, weights=None, **extra).eval()
    if ".optical_flow" in kinds:
        images = [torch.rand(1, 3, 128, 128) * 2 - 1 for _ in range(2)]
        return module, dict(zip(("image1", "image2"), images, strict=True))
    if ".detection" in kinds:
        return _Detection(module), {"image": torch.rand(3, 128, 128)}
    if ".video" in kinds:
        frames, side = (16, 224) if "mvit" in word or word == "s3d" else (8, 64)
        return module, {"x": torch.randn(1, 3, frames, side, side)}
    size = (
        299 if word == "inception_v3" else 256 if "swin_v2" in word else IMAGE if WHOLE.match(word) else 128
    )
    return module, {"input" if "lraspp" in word else "x": torch.randn(1, 3, size, size)}


class _Detection(nn.Module):
    """A detector that is given one image, not a list of them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> object:
        """The boxes, labels and scores of an image."""
        return self.model([image])


def _transformers(word: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    if importlib.util.find_spec("torchvision") is not None:
        torchvision()  # transformers would load it without our declarations
    package = importlib.import_module("transformers")
    stem = word.removesuffix("Model")
    configuration = getattr(package, f"{stem}Config")
    if word in VISION:
        config = configuration()
        if isinstance(getattr(config, "num_hidden_layers", None), int):
            config.num_hidden_layers = min(4, config.num_hidden_layers)
        size = getattr(config, "image_size", IMAGE)
        given = torch.randn(1, 3, *((size, size) if isinstance(size, int) else size))
    else:
        known, own = configuration(), OWN_SIZES.get(word, {})
        chosen = {key: value for key, value in SIZES.items() if key in own or _has(known, key)}
        if (getattr(known, "pad_token_id", None) or 0) >= SIZES["vocab_size"]:
            chosen["pad_token_id"] = 0
        config = configuration(
            **{key: value for key, value in {**chosen, **own}.items() if value is not None}
        )
        given = torch.randint(0, 8000, (1, 128))
    config.use_cache = False
    return Tensors(package.AutoModel.from_config(config).eval()), (given,)


def _has(config: object, key: str) -> bool:
    """Whether a configuration has a number; some refuse to be asked."""
    try:
        return hasattr(config, key)
    except NotImplementedError:
        return False


class Tensors(nn.Module):
    """A model that gives its tensors alone, without what its results are called."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor, **named: Tensor) -> tuple[Tensor, ...]:
        """What it gives, without the names."""
        leaves = _pytree.tree_leaves(self.model(*given, **named))
        return tuple(item for item in leaves if isinstance(item, Tensor))
