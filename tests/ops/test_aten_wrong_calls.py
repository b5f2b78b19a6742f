"""Calls with windows, places and sizes that the operators of `aten` refuse, and what they say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.judges.harness import refuse
from tests.support.judges.registry import Given, Refusal

AXIS = "'dim' must be at least -2 and below 2"
NEGATIVE = "'size' must not be negative"
UPSAMPLED = {"nearest1d": 1, "nearest2d": 2, "nearest3d": 3, "linear1d": 1, "bilinear2d": 2, "trilinear3d": 3}
WINDOW: dict[str, Given] = {"kernel_size": 2, "dilation": 1, "padding": 0, "stride": 1}
SAMPLED: dict[str, Given] = {"interpolation_mode": 0, "padding_mode": 0, "align_corners": False}


def _resized() -> Iterator[Refusal]:
    for name, axes in {**UPSAMPLED, "bicubic2d": 2}.items():
        operator, image = f"aten.upsample_{name}", (1, 2, *(4,) * axes)
        yield Refusal(operator, "either 'output_size' or 'scale_factors'", (image,))
        yield Refusal(operator, "images must not be empty", (image,), {"output_size": 0})
    for name in ("bilinear2d_aa", "bicubic2d_aa"):
        image = (1, 2, 4, 4)
        yield Refusal(f"aten.upsample_{name}", "images must not be empty", (image,), {"output_size": (0, 1)})
    factors: dict[str, Given] = {"scale_factors": (1.3, 2.0)}
    yield Refusal("aten.upsample_bicubic2d", "must make whole extents", ((1, 2, 4, 4),), factors)


def _borders() -> Iterator[Refusal]:
    for axes in (1, 2, 3):
        zeros, plural = (0,) * (2 * axes - 1), "s" if axes > 1 else ""
        for kind, few in (("reflection", 4), ("replication", 0)):
            operator, image = f"aten.{kind}_pad{axes}d", (2, *(4,) * axes)
            yield Refusal(
                operator, f"at least {axes} dimension{plural}", (image[2:],), {"padding": (0, *zeros)}
            )
            yield Refusal(operator, "must not be negative", (image,), {"padding": (-1, *zeros)})
            empty = (2, *(few,) * axes)
            yield Refusal(operator, "there are too few elements to pad", (empty,), {"padding": (4, *zeros)})


def _bits() -> Iterator[Refusal]:
    yield Refusal("aten.bitwise_not", "bits are those of integers", ((2,),))
    for name in ("and", "or", "xor"):
        yield Refusal(f"aten.bitwise_{name}", "bits are those of integers", ((2,), (2,)))


def _columns() -> Iterator[Refusal]:
    image: dict[str, Given] = {**WINDOW, "output_size": 4}
    for operator, shape, given in (("im2col", (2, 4, 4), WINDOW), ("col2im", (8, 9), image)):
        yield Refusal(f"aten.{operator}", "must be positive", (shape,), {**given, "stride": 0})
    yield Refusal(
        "aten.im2col", "does not fit into the padded input", ((2, 4, 4),), {**WINDOW, "kernel_size": 5}
    )
    yield Refusal("aten.col2im", "the 7 rows cannot be divided into windows of 4", ((7, 9),), image)
    yield Refusal("aten.col2im", "there are 8 windows for 9 places", ((8, 8),), image)


def _slices() -> Iterator[Refusal]:
    for name, last in (("add", (2, 1)), ("copy", (2, 1)), ("fill", ())):
        yield Refusal(f"aten.index_{name}", AXIS, ((2, 3), (1,), last), {"dim": 2}, "f32 i64 f32")
    for name, last in (("scatter_value", ()), ("scatter_reduce", (2, 3))):
        given: dict[str, Given] = {"reduce": "sum"} if name == "scatter_reduce" else {}
        yield Refusal(f"aten.{name}", AXIS, ((2, 3), (2, 3), last), {"dim": 2, **given}, "f32 i64 f32")


def _places() -> Iterator[Refusal]:
    types = "f32 i64 f32"
    yield Refusal("aten.index_put", "at least one tensor", ((2, 3), [], ()), {"dims": ()}, types)
    yield Refusal("aten.index_put", "'dims' must be at least", ((2, 3), [(4,)], ()), {"dims": (2,)}, types)
    yield Refusal("aten.index_put", "must ascend", ((2, 3), [(4,), (4,)], ()), {"dims": (1, 0)}, types)
    yield Refusal(
        "aten.index_put", "'values' cannot be stretched", ((2, 3), [(4,)], (5,)), {"dims": (0,)}, types
    )


REFUSALS = (
    *_resized(),
    *_borders(),
    *_bits(),
    *_columns(),
    *_slices(),
    *_places(),
    Refusal("aten.as_strided", NEGATIVE, ((4,),), {"size": (-1,), "stride": (1,)}),
    Refusal("aten.as_strided", "'stride' and 'storage_offset'", ((4,),), {"size": (2,), "stride": (-1,)}),
    Refusal("aten.as_strided", "would lie at place 4 of 4", ((4,),), {"size": (3,), "stride": (2,)}),
    Refusal("aten.diagonal", "both dimensions must be at least -2", ((2, 3),), {"dim1": 2}),
    Refusal("aten.diagonal", "a diagonal must be two", ((2, 3),), {"dim1": 1, "dim2": -1}),
    Refusal("aten.empty", NEGATIVE, (), {"size": (-1,)}, types=("f32",)),
    Refusal("aten.empty_strided", NEGATIVE, (), {"size": (-1,), "stride": (1,)}, types=("f32",)),
    Refusal("aten.new_empty", NEGATIVE, ((2,),), {"size": (-1,)}),
    Refusal("aten.new_full", NEGATIVE, ((2,), ()), {"size": (-1,)}),
    Refusal("aten.eye", "'n' and 'm' must not be negative", (), {"n": -1}, types=("f32",)),
    Refusal("aten.linspace", "'steps' must not be negative", (), {"start": 0.0, "end": 1.0, "steps": -1}),
    Refusal(
        "aten.native_group_norm", "cannot be divided into 2 groups", ((1, 3, 2),), {"group": 2, "eps": 0.1}
    ),
    Refusal("aten.fused_rms_norm", "the last extents must be", ((2, 4),), {"normalized_shape": (3,)}),
    Refusal("aten.fused_rms_norm", "must have the shape", ((2, 3), (1,)), {"normalized_shape": (3,)}),
    Refusal("aten.cdist_forward", "batches of", ((2, 3, 4), (3, 3, 4)), {"p": 2.0}),
    Refusal("aten.cdist_forward", "'p' must not be negative", ((3, 4), (3, 4)), {"p": -1.0}),
    Refusal("aten.pdist_forward", "'p' must not be negative", ((3, 4),), {"p": -1.0}),
    Refusal(
        "aten.masked_scatter", "'mask' cannot be stretched", ((2, 3), (2,), (6,)), element="f32 bool f32"
    ),
    Refusal("aten.masked_scatter", "'source' has no elements", ((2, 3), (3,), (0,)), element="f32 bool f32"),
    Refusal(
        "aten.scatter_reduce",
        "'reduce' must be one of",
        ((2, 3), (2, 3), (2, 3)),
        {"dim": 0, "reduce": "median"},
        "f32 i64 f32",
    ),
    Refusal(
        "aten.grid_sampler_2d",
        "'interpolation_mode' must be",
        ((1, 2, 3, 3), (1, 2, 2, 2)),
        {**SAMPLED, "interpolation_mode": 3},
    ),
    Refusal(
        "aten.grid_sampler_2d",
        "'padding_mode' must be",
        ((1, 2, 3, 3), (1, 2, 2, 2)),
        {**SAMPLED, "padding_mode": -1},
    ),
    Refusal("aten.grid_sampler_2d", "an empty input", ((1, 2, 0, 3), (1, 2, 2, 2)), SAMPLED),
    Refusal(
        "aten.grid_sampler_3d",
        "'interpolation_mode' must be",
        ((1, 2, 3, 3, 3), (1, 2, 2, 2, 3)),
        {**SAMPLED, "interpolation_mode": 2},
    ),
    Refusal(
        "aten.grid_sampler_3d",
        "'padding_mode' must be",
        ((1, 2, 3, 3, 3), (1, 2, 2, 2, 3)),
        {**SAMPLED, "padding_mode": 3},
    ),
    Refusal("aten.grid_sampler_3d", "an empty input", ((1, 2, 0, 3, 3), (1, 2, 2, 2, 3)), SAMPLED),
    Refusal("aten.adaptive_max_pool", "more dimensions than", ((4, 4),), {"output_size": (2, 2)}),
    Refusal("aten.adaptive_max_pool", "must be positive", ((1, 4, 4),), {"output_size": (2, 0)}),
    Refusal("aten.adaptive_max_pool", "has no maximum", ((1, 0, 4),), {"output_size": (2, 2)}),
    Refusal("aten.pixel_unshuffle", "must be positive", ((1, 2, 4, 4),), {"downscale_factor": 0}),
    Refusal(
        "aten.pixel_unshuffle", "cannot be divided into blocks", ((1, 2, 3, 4),), {"downscale_factor": 2}
    ),
    Refusal("aten.clamp", "'min' cannot be stretched", ((2, 3), (2,))),
    Refusal("aten.clamp", "'max' cannot be stretched", ((2, 3), (), (2,))),
    Refusal("aten.clamp_min", "'min' cannot be stretched", ((2, 3), (2,))),
    Refusal("aten.clamp_max", "'max' cannot be stretched", ((2, 3), (2,))),
    Refusal("aten.unfold", "must be at least -1", ((4,),), {"dimension": 1, "size": 2, "step": 1}),
    Refusal("aten.unfold", "'step' must be positive", ((4,),), {"dimension": 0, "size": 2, "step": 0}),
    Refusal("aten.unfold", "and at most 4", ((4,),), {"dimension": 0, "size": 5, "step": 1}),
    Refusal("aten.diff", AXIS, ((2, 3),), {"dim": 2}),
    Refusal("aten.diff", "'n' must be 1", ((2, 3),), {"n": 2}),
    Refusal("aten.empty_permuted", NEGATIVE, (), {"size": (-1,), "physical_layout": (0,)}, types=("f32",)),
    Refusal("aten.histc", "'bins' must be positive", ((3,),), {"bins": 0, "max": 1.0}),
    Refusal("aten.histc", "'max' must be greater than 'min'", ((3,),)),
    Refusal("aten.weight_norm", AXIS, ((2, 3), (2, 1)), {"dim": 2}),
    Refusal("aten.weight_norm", "'g' must have one length", ((2, 3), (1, 3))),
    Refusal("aten.grouped_mm", "at least one matrix", ((2, 3), (0, 3, 4), (0,)), element="f32 f32 i64"),
    Refusal("aten.searchsorted", "must be one, or those of 'self'", ((2, 4), (3, 5))),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
