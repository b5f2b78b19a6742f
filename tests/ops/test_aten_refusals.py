"""Calls that the operators of `aten` refuse, and what they say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.judges.harness import refuse
from tests.support.judges.registry import Given, Refusal

IMAGE = (1, 2, 4, 4)
BAGS = (5, 3), (6,), (2,)
AXIS = "'dim' must be at least -2 and below 2"
ONCE = "'dim' must name each dimension once"
PAIRS = (
    *("add", "sub", "rsub", "mul", "div", "floor_divide", "remainder", "fmod", "pow", "lerp", "minimum"),
    *("maximum", "min_other", "max_other", "lt", "le", "gt", "ge", "eq", "ne", "atan2", "hypot", "copysign"),
    *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
)
REDUCTIONS = (
    *("sum", "prod", "mean", "amax", "amin", "any", "all", "var", "std", "var_mean"),
    *("linalg_vector_norm", "logsumexp"),
)
ALONG: dict[str, dict[str, Given]] = {
    "argmax": {},
    "argmin": {},
    "max_dim": {},
    "min_dim": {},
    "median_dim": {},
    "cumsum": {},
    "cumprod": {},
    "cummax": {},
    "cummin": {},
    "logcumsumexp": {},
    "topk": {"k": 1},
    "sort": {},
    "glu": {},
    "unflatten": {"sizes": (3,)},
    "split": {"split_size": 1},
    "split_with_sizes": {"split_sizes": (3,)},
    "chunk": {"chunks": 2},
    "unbind": {},
    "slice": {},
    "select": {"index": 0},
    "narrow": {"start": 0, "length": 1},
    "softmax": {},
    "log_softmax": {},
    "repeat_interleave": {"repeats": 2},
}
"""Operators along one dimension, and what else they must be told."""
PLAIN = ("conv1d", 3), ("conv2d", 4), ("conv3d", 5)
TRANSPOSED = ("conv_transpose1d", 3), ("conv_transpose2d", 4), ("conv_transpose3d", 5), ("convolution", 4)
POOLS = (
    *(("max_pool1d", 1), ("avg_pool1d", 1), ("max_pool2d", 2), ("avg_pool2d", 2), ("max_pool3d", 3)),
    *(("avg_pool3d", 3), ("max_pool2d_with_indices", 2), ("max_pool3d_with_indices", 3)),
)
ADAPTIVE = ("adaptive_avg_pool1d", 1), ("adaptive_avg_pool2d", 2), ("adaptive_avg_pool3d", 3)
MAKERS = ("zeros", "ones")
NAMES = ("view", "size"), ("reshape", "shape")


def _pairs() -> Iterator[Refusal]:
    for name in PAIRS:
        element = "bool" if name.startswith("bitwise") else "f32"
        given: dict[str, Given] = {"weight": 0.5} if name == "lerp" else {}
        fragment = "the shapes of 'self' and 'other' do not broadcast: "
        yield Refusal(f"aten.{name}", fragment, ((2, 3), (2, 4)), given, element)


def _dimensions() -> Iterator[Refusal]:
    for name in REDUCTIONS:
        yield Refusal(f"aten.{name}", AXIS, ((2, 3),), {"dim": (2,)})
        yield Refusal(f"aten.{name}", ONCE, ((2, 3),), {"dim": (1, -1)})
    for name, given in ALONG.items():
        yield Refusal(f"aten.{name}", AXIS, ((2, 3),), {**given, "dim": 2})
        yield Refusal(f"aten.{name}", AXIS, ((2, 3),), {**given, "dim": -3})
    for name in ("argmax", "argmin", "max_dim", "min_dim", "median_dim"):
        yield Refusal(f"aten.{name}", "nothing stands in an empty dimension", ((2, 0),), {"dim": 1})


def _sizes() -> Iterator[Refusal]:
    for name in MAKERS:
        yield Refusal(f"aten.{name}", "'size' must not be negative", (), {"size": (-1,)}, types=("f32",))
        yield Refusal(f"aten.new_{name}", "'size' must not be negative", ((2,),), {"size": (-1,)})
    yield Refusal("aten.full", "'size' must not be negative", ((),), {"size": (2, -1)})
    for name, attribute in NAMES:
        found = {"hold extents or -1": (-2, -3), "leave only one extent": (-1, -1), "the volume of": (4, 2)}
        for fragment, size in found.items():
            yield Refusal(f"aten.{name}", fragment, ((2, 3),), {attribute: size})
    for name in ("layer_norm", "native_layer_norm", "rms_norm"):
        given: dict[str, Given] = {"normalized_shape": (3,), "eps": 0.1}
        yield Refusal(f"aten.{name}", "the last extents must be", ((2, 4),), given)
        yield Refusal(f"aten.{name}", "the weight must have the shape", ((2, 3), (1,)), given)


def _convolutions() -> Iterator[Refusal]:
    for name, rank in (*PLAIN, *TRANSPOSED):
        operator = f"aten.{name}"
        x, weight, wide = (1, 2, 4, 4, 4)[:rank], (2, 2, 3, 3, 3)[:rank], (1, 3, 4, 4, 4)[:rank]
        yield Refusal(operator, "'groups' must be positive", (x, weight), {"groups": 0})
        yield Refusal(operator, "'stride' must be at least 1", (x, weight), {"stride": 0})
        yield Refusal(operator, "'dilation' must be at least 1", (x, weight), {"dilation": 0})
        yield Refusal(operator, "the filter must be positive", (x, (*weight[:-1], 0)))
        yield Refusal(operator, "cannot be divided into 3 groups", (x, weight), {"groups": 3})
        yield Refusal(operator, "the input has 3 channels; ", (wide, weight))
        yield Refusal(operator, "the bias has 3 items for 2 output channels", (x, weight, (3,)))
    for name, rank in PLAIN:
        x, large = (1, 2, 4, 4, 4)[:rank], (2, 2, 5, 5, 5)[:rank]
        yield Refusal(f"aten.{name}", "does not fit into the padded input", (x, large))
    for name, rank in TRANSPOSED:
        x, weight = (1, 2, 1, 1, 1)[:rank], (2, 2, 1, 1, 1)[:rank]
        more: dict[str, Given] = {"transposed": True} if name == "convolution" else {}
        yield Refusal(f"aten.{name}", "the output would have extents", (x, weight), {**more, "padding": 1})
        given = {**more, "output_padding": 1}
        yield Refusal(f"aten.{name}", "'output_padding' must be less than", (x, weight), given)


def _pools() -> Iterator[Refusal]:
    for name, rank in POOLS:
        operator, flat, whole = f"aten.{name}", ((4, 4, 4)[:rank],), ((2, 4, 4, 4)[: rank + 1],)
        fragment = f"must have at least {rank + 1} dimensions"
        yield Refusal(operator, fragment, flat, {"kernel_size": 2})
        yield Refusal(operator, "'kernel_size' must be at least 1", whole, {"kernel_size": 0})
        yield Refusal(operator, "'stride' must be at least 1", whole, {"kernel_size": 2, "stride": 0})
        yield Refusal(operator, "at most half of 'kernel_size'", whole, {"kernel_size": 2, "padding": 2})
        yield Refusal(operator, "does not fit into the padded input", whole, {"kernel_size": 5})
        if name.startswith("max"):
            given = {"kernel_size": 2, "dilation": 0}
            yield Refusal(operator, "'dilation' must be at least 1", whole, given)
    for name, rank in ADAPTIVE:
        operator, flat, whole = f"aten.{name}", ((4, 4, 4)[:rank],), ((2, 4, 4, 4)[: rank + 1],)
        yield Refusal(operator, f"must have at least {rank + 1} dim", flat, {"output_size": 2})
        yield Refusal(operator, "'output_size' must be positive", whole, {"output_size": 0})
        yield Refusal(operator, "has no mean", ((2, 0, 0, 0)[: rank + 1],), {"output_size": 2})


REFUSALS = (
    *_pairs(),
    *_dimensions(),
    *_sizes(),
    *_convolutions(),
    *_pools(),
    Refusal("aten.avg_pool2d", "must not be zero", (IMAGE,), {"kernel_size": 2, "divisor_override": 0}),
    Refusal("aten.avg_pool3d", "must not be zero", (IMAGE,), {"kernel_size": 2, "divisor_override": 0}),
    Refusal("aten.gelu", "'approximate' must be one of", ((2,),), {"approximate": "TANH"}),
    Refusal("aten.celu", "'alpha' must not be zero", ((2,),), {"alpha": 0.0}),
    Refusal("aten.prelu", "'weight' has 3 items, neither one nor one for each channel", ((2, 4), (3,))),
    Refusal("aten.div", "'rounding_mode' must be one of", ((2,), (2,)), {"rounding_mode": "ceil"}),
    Refusal("aten.flatten", "must not lie behind 'end_dim'", ((2, 3, 4),), {"start_dim": 2, "end_dim": 0}),
    Refusal("aten.squeeze", AXIS, ((2, 3),), {"dim": (2,)}),
    Refusal("aten.t", "'self' must have at most 2 dimensions", ((2, 3, 4),)),
    Refusal("aten.expand", "'size' must have at least 2 items", ((2, 3),), {"size": (3,)}),
    Refusal("aten.expand", "must tell the extents of new dimensions", ((3,),), {"size": (-1, 3)}),
    Refusal("aten.expand", "extents other than 1 cannot be stretched", ((3,),), {"size": (2, 6)}),
    Refusal("aten.repeat", "'repeats' must have at least 2 items", ((2, 3),), {"repeats": (3,)}),
    Refusal("aten.repeat_interleave", "must not be negative", ((2, 3),), {"repeats": -1, "dim": 0}),
    Refusal("aten.flip", "'dims' must be at least -2 and below 2", ((2, 3),), {"dims": (2,)}),
    Refusal("aten.flip", "'dims' must name each dimension once", ((2, 3),), {"dims": (1, -1)}),
    Refusal("aten.roll", "must be at least -2", ((2, 3),), {"shifts": (1,), "dims": (2,)}),
    Refusal("aten.roll", "must name each dimension once", ((2, 3),), {"shifts": (1, 1), "dims": (1, -1)}),
    Refusal("aten.split", "'split_size' must be positive", ((4,),), {"split_size": 0}),
    Refusal("aten.chunk", "'chunks' must be positive", ((4,),), {"chunks": 0}),
    Refusal("aten.slice", "'step' must be positive", ((4,),), {"step": 0}),
    Refusal("aten.slice_scatter", "'step' must be positive", ((4,), (4,)), {"step": -1}),
    Refusal("aten.slice_scatter", AXIS, ((2, 3), (2, 3)), {"dim": -3}),
    Refusal(
        "aten.slice_scatter", "'src' has 4 elements along 'dim' for 2 places", ((4,), (4,)), {"start": 2}
    ),
    Refusal("aten.select", "'index' must be at least -4 and below 4", ((4,),), {"dim": 0, "index": 4}),
    Refusal("aten.select_scatter", "'index' must be at least", ((4,), ()), {"dim": 0, "index": -5}),
    Refusal("aten.narrow", "does not lie within 4", ((4,),), {"dim": 0, "start": 2, "length": 3}),
    Refusal("aten.gather", AXIS, ((2, 3), (2, 3)), {"dim": 2}, "f32 i64"),
    Refusal("aten.scatter", AXIS, ((2, 3), (2, 3), (2, 3)), {"dim": 2}, "f32 i64 f32"),
    Refusal("aten.scatter_add", AXIS, ((2, 3), (2, 3), (2, 3)), {"dim": 2}, "f32 i64 f32"),
    Refusal("aten.constant_pad_nd", "'pad' has 4 items for 1 dimensions", ((4,),), {"pad": (1, 1, 1, 1)}),
    Refusal("aten.constant_pad_nd", "'pad' takes away more than there is", ((4,),), {"pad": (-3, -2)}),
    Refusal("aten.index", "must hold at least one tensor", ((2, 3), []), {"dims": ()}, "f32 i64"),
    Refusal("aten.index", "'dims' must be at least -2", ((2, 3), [(4,)]), {"dims": (2,)}, "f32 i64"),
    Refusal("aten.index", "'dims' must ascend", ((2, 3), [(4,), (4,)]), {"dims": (1, 0)}, "f32 i64"),
    Refusal("aten.matmul", "both factors must have at least one dimension", ((), (2, 3))),
    Refusal(
        "aten.scaled_dot_product_attention",
        "'enable_gqa' needs a dimension of heads",
        ((2, 3), (2, 3), (2, 3)),
        {"enable_gqa": True},
    ),
    Refusal(
        "aten.scaled_dot_product_attention",
        "must have the same batches and heads",
        ((4, 2, 3), (2, 2, 3), (2, 2, 3)),
    ),
    Refusal(
        "aten.scaled_dot_product_attention",
        "'is_causal' and 'attn_mask' exclude one another",
        ((4, 2, 3), (4, 2, 3), (4, 2, 3), (2, 2)),
        {"is_causal": True},
        "f32 f32 f32 bool",
    ),
    Refusal(
        "aten.scaled_dot_product_attention",
        "'attn_mask' cannot be stretched",
        ((4, 2, 3), (4, 2, 3), (4, 2, 3), (3, 2)),
        element="f32 f32 f32 bool",
    ),
    Refusal("aten.group_norm", "cannot be divided into 2 groups", ((1, 3, 2),), {"num_groups": 2}),
    Refusal("aten.pixel_shuffle", "'upscale_factor' must be positive", (IMAGE,), {"upscale_factor": 0}),
    Refusal("aten.pad", "'mode' must be one of", ((4,),), {"pad": (1, 1), "mode": "mirror"}),
    Refusal("aten.pad", "'pad' has 4 items for 1 dimensions", ((4,),), {"pad": (1, 1, 1, 1)}),
    Refusal("aten.pad", "'pad' takes away more than there is", ((4,),), {"pad": (-3, -2)}),
    Refusal("aten.pad", "there are too few elements", ((2, 4),), {"pad": (4, 0), "mode": "reflect"}),
    Refusal("aten.pad", "there are too few elements", ((2, 0),), {"pad": (1, 0), "mode": "replicate"}),
    Refusal("aten.where", "do not broadcast", ((2, 3), (2, 4), (2, 3)), element="bool f32 f32"),
    Refusal("aten.masked_fill", "do not broadcast", ((2, 3), (2, 4), ()), element="f32 bool f32"),
    Refusal("aten.linalg_vector_norm", "'ord' must be positive", ((2, 3),), {"ord": 0.0}),
    Refusal("aten.topk", "'k' must be at least 1 and at most 3", ((2, 3),), {"k": 4}),
    Refusal("aten.arange", "'step' must not be zero", (), {"end": 3, "step": 0}, types=("i64",)),
    Refusal("aten.arange", "in the direction of 'step'", (), {"end": -3}, types=("i64",)),
    Refusal("aten.unflatten", "whose volume is 6", ((6,),), {"dim": 0, "sizes": (4, 2)}),
    Refusal("aten.squeeze", ONCE, ((2, 1),), {"dim": (1, -1)}),
    Refusal("aten.unsqueeze", "'dim' must be at least -3 and at most 2", ((2, 3),), {"dim": 3}),
    Refusal("aten.transpose", "both dimensions must be at least -2", ((2, 3),), {"dim0": 0, "dim1": 2}),
    Refusal("aten.permute", "'dims' must be at least -2", ((2, 3),), {"dims": (0, 2)}),
    Refusal("aten.permute", "'dims' must name each dimension once", ((2, 3),), {"dims": (1, -1)}),
    Refusal("aten.copy", "cannot be stretched to the shape of 'self'", ((2, 3), (2,))),
    Refusal("aten.repeat", "'repeats' must be positive", ((2,),), {"repeats": (0,)}),
    Refusal("aten.cat", "must hold at least one tensor", ([],), types=("f32",)),
    Refusal("aten.cat", AXIS, ([(2, 3)],), {"dim": 2}),
    Refusal("aten.stack", "must hold at least one tensor", ([],), types=("f32",)),
    Refusal("aten.stack", "'dim' must be at least -3 and at most 2", ([(2, 3)],), {"dim": 3}),
    Refusal("aten.split_with_sizes", "must not be negative", ((4,),), {"split_sizes": (5, -1)}),
    Refusal("aten.split_with_sizes", "must add up to 4", ((4,),), {"split_sizes": (3, 2)}),
    Refusal("aten.embedding_bag", "'mode' must be 0, 1 or 2", BAGS, {"mode": 3}, "f32 i64 i64"),
    Refusal("aten.embedding_bag", "'mode' must be 0, 1 or 2", BAGS, {"mode": -1}, "f32 i64 i64"),
    Refusal(
        "aten.embedding_bag",
        "there is no last offset",
        (*BAGS[:2], (0,)),
        {"include_last_offset": True},
        "f32 i64 i64",
    ),
    Refusal("aten.index_select", AXIS, ((2, 3), (2,)), {"dim": 2}, "f32 i64"),
    Refusal("aten.select_scatter", AXIS, ((2, 3), (2,)), {"dim": 2, "index": 0}),
    Refusal("aten.matmul", "the summed extent is 3 by 'self' and 2 by 'other'", ((2, 3), (2, 3))),
    Refusal("aten.matmul", "do not broadcast", ((2, 2, 3), (3, 3, 2))),
    Refusal("aten.addmm", "cannot be stretched to the shape of the product", ((3,), (2, 3), (3, 2))),
    Refusal("aten.baddbmm", "cannot be stretched to the", ((3, 2, 2), (2, 2, 3), (2, 3, 2))),
    Refusal("aten.pixel_shuffle", "cannot be divided into blocks", (IMAGE,), {"upscale_factor": 2}),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
