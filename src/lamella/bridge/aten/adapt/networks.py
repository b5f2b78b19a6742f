"""Operations of neural networks: softmax, attention, normalisation, convolution, pooling, images, padding."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType

from lamella.base.dim import add, equal, floor_divide, mul
from lamella.base.dtype import F32, F64
from lamella.bridge.aten.adapt.plain import call_named
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.site import Site
from lamella.graph.nodes import Tensor, Value

_SCALES = ("scales", "scales_d", "scales_h", "scales_w")
_TRAINED = "a graph computes what a model gives after training: export it in eval mode"


def build_softmax(site: Site) -> Result:
    """Softmax along a dimension, in another type where one is given."""
    operand, element = site.tensor("self"), site.element()
    if site.flag("half_to_float"):
        element = F32
    found = operand if element is None else site.cast(operand, element)
    return site.call(site.schema.operator, found, dim=site.integer("dim"))


def build_softmax_backward(site: Site) -> Result:
    """The gradient of a softmax, in the type of what it was given."""
    back, output = site.tensor("grad_output"), site.tensor("output")
    found = site.call(site.schema.operator, back, output, dim=site.integer("dim"))
    return site.cast(found, site.element("input_dtype") or found.element)


def build_attention(site: Site) -> Result:
    """Attention without dropout."""
    if site.real("dropout_p") != 0:
        site.refuse("dropout_p", "only 0 is possible: " + _TRAINED)
    mask = "attn_bias" if "attn_bias" in site.operands else "attn_mask"
    tensors = [site.tensor(name) for name in ("query", "key", "value")]
    given: dict[str, Value] = {name: site.flag(name) for name in ("is_causal", "enable_gqa")}
    if site.has("scale"):
        given["scale"] = site.real("scale")
    hidden = site.tensor(mask) if site.has(mask) else None
    return site.padded(site.call(site.schema.operator, *tensors, hidden, **given))


def build_rms_norm(site: Site) -> Result:
    """Normalisation by the mean square; without `eps` it is the distance from 1 to the next number of the type."""
    element = site.tensor("input").element
    eps = site.real("eps") if site.has("eps") else 2.0**-52 if element == F64 else None
    return site.padded(*site.flatten(call_named(site, site.schema.operator, attributes={"eps": eps})))


def build_instance_norm(site: Site) -> Result:
    """Normalisation of each channel by itself: as many groups as channels."""
    if not site.flag("use_input_stats"):
        site.refuse("use_input_stats", "the statistics of the input itself are possible")
    operand = site.tensor("input")
    parts = [site.tensor(name) if site.has(name) else None for name in ("weight", "bias")]
    channels = operand.shape[1] if len(operand.shape) > 1 else 0
    return site.call("aten.group_norm", operand, *parts, num_groups=channels, eps=site.real("eps"))


def build_batch_stats(site: Site) -> Result:
    """Normalisation by the statistics of the batch itself."""
    if not site.flag("training"):
        site.refuse("training", "there are no other statistics than those of the batch")
    return site.flatten(call_named(site, site.schema.operator, attributes={"training": None}))


def build_safe_softmax(site: Site) -> Result:
    """Softmax along a dimension; where all is minus infinity it is 0."""
    element = site.element() or site.tensor("self").element
    operand, dim = site.cast(site.tensor("self"), element), site.integer("dim")
    found = site.call("aten.softmax", operand, dim=dim)
    hidden = site.call("aten.eq", operand, site.cast(-math.inf, element))
    empty = site.call("aten.all", hidden, dim=(dim,), keepdim=True)
    return site.call("aten.masked_fill", found, empty, site.cast(0.0, element))


def build_batch_norm(site: Site) -> Result:
    """Normalisation by the statistics of the training."""
    if site.flag("training"):
        site.refuse("training", _TRAINED)
    for name in ("running_mean", "running_var"):
        site.tensor(name)
    return site.padded(*site.flatten(call_named(site, site.schema.operator, attributes={"training": None})))


# --- convolution and pooling ----------------------------------------------------------------------------------


def _batched(site: Site, operand: Tensor, rank: int, work: Callable[[Tensor], Tensor]) -> Tensor:
    """An image without a batch is a batch of one."""
    if len(operand.shape) != rank - 1:
        return work(operand)
    single = work(site.call("aten.unsqueeze", operand, dim=0))
    return site.call("aten.squeeze", single, dim=(0,))


def build_convolution(site: Site) -> Result:
    """Convolution; padding in words, and one number for all dimensions, are written out."""
    operand, weight = site.tensor("input"), site.tensor("weight")
    count = len(weight.shape) - 2
    given: dict[str, Value] = {}
    for name in ("stride", "padding", "dilation", "output_padding"):
        if name in site.operands and not isinstance(site.operands[name], str):
            found = site.extents(name)
            given[name] = found * count if len(found) == 1 else found
    if isinstance(site.operands.get("padding"), str):
        operand, given["padding"] = _pad_in_words(site, operand, weight)

    def convolve(image: Tensor) -> Tensor:
        return site.flatten(call_named(site, site.schema.operator, {"input": image}, given))[0]

    return _batched(site, operand, count + 2, convolve)


def _pad_in_words(site: Site, operand: Tensor, weight: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """`valid` is no padding; `same` keeps the extents, and where it is odd the end gets more."""
    word, kernel = site.word("padding"), weight.shape[2:]
    if word == "valid":
        return operand, (0,) * len(kernel)
    if word != "same":
        site.refuse("padding", '"valid", "same" and a list are possible')
    reaches = [mul(step, add(size, -1)) for step, size in zip(site.extents("dilation"), kernel, strict=False)]
    known = [item for item in reaches if isinstance(item, int)]
    if len(known) != len(kernel):
        site.refuse("padding", "the size of the kernel must be known")
    odd = [item % 2 for item in known]
    if any(odd):
        sides = tuple(part for item in reversed(odd) for part in (0, item))
        operand = site.call("aten.constant_pad_nd", operand, None, pad=sides)
    return operand, tuple(item // 2 for item in known)


def build_pool(site: Site) -> Result:
    """Pooling; without strides the windows lie side by side."""
    stride = site.extents("stride") or None
    return site.padded(*site.flatten(call_named(site, site.schema.operator, attributes={"stride": stride})))


def build_pool_backward(site: Site) -> Result:
    """The gradient of pooling; without strides the windows lie side by side."""
    stride = site.extents("stride") or site.extents("kernel_size")
    return site.padded(*site.flatten(call_named(site, site.schema.operator, attributes={"stride": stride})))


def build_adaptive_max(site: Site) -> Result:
    """The largest elements of windows that lie side by side."""
    operand, sizes = site.tensor("self"), site.extents("output_size")
    whole = operand.shape[len(operand.shape) - len(sizes) :]
    kernel = [floor_divide(extent, size) for extent, size in zip(whole, sizes, strict=True) if size != 0]
    if len(kernel) != len(sizes) or [mul(a, b) for a, b in zip(kernel, sizes, strict=True)] != [*whole]:
        site.refuse("output_size", f"sizes that divide {', '.join(map(str, whole))} are possible")
    return site.call_all(site.schema.operator, operand, kernel_size=tuple(kernel))


def build_upsample(site: Site) -> Result:
    """An image of another size; factors must say the size that is given."""
    scales = [item.name for item in site.schema.parameters if item.name in _SCALES]
    given: dict[str, Value] = dict.fromkeys(scales)
    if scales and all(site.has(name) for name in scales):
        given |= {"output_size": None, "scale_factors": tuple(site.real(name) for name in scales)}
    (found,) = site.flatten(call_named(site, site.schema.operator, attributes=given))
    if scales:
        for extent, size in zip(found.shape[2:], site.extents("output_size"), strict=False):
            if equal(extent, size) is False:
                site.refuse("output_size", f"the factors say {extent}")
    return found


# --- padding --------------------------------------------------------------------------------------------------


def build_pad(site: Site) -> Result:
    """Elements put around a tensor."""
    operand = site.tensor("self")
    empty = site.operands.get("value") in (None, 0)
    value = None if empty else site.cast(site.scalar("value"), operand.element)
    mode = {"mode": site.word("mode")} if "mode" in site.operands else {}
    return site.call(site.schema.operator, operand, value, pad=site.extents("pad"), **mode)


HOW = MappingProxyType(
    {
        **{"softmax": build_softmax, "attention": build_attention},
        **{
            "batch_norm": build_batch_norm,
            "rms_norm": build_rms_norm,
            "convolution": build_convolution,
            "pool": build_pool,
            "pool_backward": build_pool_backward,
            "softmax_backward": build_softmax_backward,
        },
        **{
            "upsample": build_upsample,
            "instance_norm": build_instance_norm,
            "adaptive_max": build_adaptive_max,
            "batch_stats": build_batch_stats,
            "safe_softmax": build_safe_softmax,
            "pad": build_pad,
        },
    }
)
"""The words of the table that are explained here."""
