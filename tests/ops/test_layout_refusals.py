"""Every assertion of the operators of `layout`, broken once."""

from __future__ import annotations

import pytest

from tests.support.judges.harness import refuse
from tests.support.judges.registry import Refusal

BLOCKS = (
    *(("", name) for name in ("space_to_batch", "batch_to_space", "space_to_depth", "depth_to_space")),
    *(("newer/", name) for name in ("space_to_batch", "batch_to_space")),
)

REFUSALS = (
    Refusal("layout.dynamic_range", "'limit' must not be negative", ((),), {"limit": -1}, "i64"),
    *(
        Refusal(name, "'shape' must not be negative", (), {"shape": (-1, -1), "value": 1.0})
        for name in ("layout.constant", "layout.tensor")
    ),
    Refusal("layout.uniform", "'shape' must not be negative", ((),), {"shape": (2, -1)}),
    Refusal("layout.range", "'stride' must not be zero", (), {"first": 0, "last": 3, "stride": 0}),
    Refusal("layout.range", "must not be below 'first'", (), {"first": 0, "last": -3}),
    Refusal("layout.range", "must not be above 'first'", (), {"first": 0.0, "last": 3.0, "stride": -1.0}),
    Refusal("layout.reshape", "'axis' must be at least -2", ((2, 3),), {"axis": 3, "shape": (6,)}),
    Refusal("layout.reshape", "'rank' must be at least 0", ((2, 3),), {"axis": 1, "rank": 2, "shape": (6,)}),
    Refusal("layout.reshape", "positive extents or -1", ((2, 3),), {"shape": (6, 0)}),
    Refusal("layout.reshape", "no negative extents", ((2, 0),), {"shape": (-1, 0)}),
    Refusal("layout.reshape", "only one extent", ((2, 3),), {"shape": (-1, -1)}),
    Refusal("layout.reshape", "divisible by the known extents", ((2, 3),), {"shape": (4, -1)}),
    Refusal("layout.reshape", "must be that of the reshaped dimensions, 6", ((2, 3),), {"shape": (3,)}),
    Refusal("layout.flatten", "'axis' must be at least -2", ((2, 3),), {"axis": -3}),
    Refusal("layout.flatten", "'rank' must be at least 0", ((2, 3),), {"axis": 1, "rank": 2}),
    Refusal("layout.unflatten", "'axis' must be at least -2", ((2, 6),), {"axis": 2, "shape": (2, 3)}),
    Refusal("layout.unflatten", "must not be negative", ((2, 6),), {"axis": 1, "shape": (-2, -3)}),
    Refusal("layout.unflatten", "must equal 6", ((2, 6),), {"axis": 1, "shape": (2, 2)}),
    Refusal("layout.squeeze", "'axes' must be at least -2", ((1, 1),), {"axes": (2,)}),
    Refusal("layout.squeeze", "name each dimension once", ((1, 1),), {"axes": (1, -1)}),
    Refusal("layout.squeeze", "must be 1", ((1, 3),), {"axes": (1,)}),
    Refusal("layout.unsqueeze", "'axes' must be at least -3", ((2, 3),), {"axes": (3,)}),
    Refusal("layout.unsqueeze", "name each dimension once", ((2, 3),), {"axes": (3, -1)}),
    Refusal("layout.concat", "at least one tensor", ([],), {"axis": 0}, types=("real",)),
    Refusal("layout.concat", "'axis' must be at least -2", ([(2, 3), (2, 3)],), {"axis": 2}),
    Refusal("layout.split", "'axis' must be at least -2", ((2, 4),), {"axis": -3, "count": 2}),
    Refusal("layout.split", "'count' must be positive", ((2, 4),), {"axis": 1, "count": 0}),
    Refusal(
        "layout.split",
        "'sizes' must hold 'count' items",
        ((2, 4),),
        {"axis": 1, "count": 2, "sizes": (1, 1, 2)},
    ),
    Refusal("layout.split", "'sizes' must not be negative", ((2, 4),), {"axis": 1, "sizes": (5, -1)}),
    Refusal("layout.split", "'sizes' must add up to 4", ((2, 4),), {"axis": 1, "count": 3}),
    Refusal("layout.stack", "at least one tensor", ([],), {"axis": 0}, types=("real",)),
    Refusal("layout.stack", "'axis' must be at least -2", ([(2, 3), (2, 3)],), {"axis": 3}),
    Refusal("layout.stack", "'axis' must be below 2", ([(2, 3), (2, 3)],), {"axis": 2, "squeeze": True}),
    Refusal("layout.unstack", "'axis' must be at least -2", ((2, 3),), {"axis": 2}),
    Refusal("layout.tile", "'axes' must be at least -2", ((2, 3),), {"axes": (2,), "repeats": (2,)}),
    Refusal("layout.tile", "name each dimension once", ((2, 3),), {"axes": (0, -2), "repeats": (2, 2)}),
    Refusal("layout.tile", "'repeats' must be positive", ((2, 3),), {"axes": (0,), "repeats": (0,)}),
    *(
        Refusal(f"{prefix}layout.broadcast", fragment, ((2, 1),), {"axes": axes, "shape": shape})
        for prefix in ("", "newer/")
        for fragment, axes, shape in (
            ("'axes' must be at least -2", (2,), (4,)),
            ("name each dimension once", (1, -1), (4, 4)),
            ("'shape' must be positive", (1,), (0,)),
            ("must be 1 or those of 'shape'", (0,), (4,)),
        )
    ),
    *(
        Refusal(
            f"{prefix}layout.slice",
            fragment,
            ((2, 3),),
            {"axes": axes, "begin": begin, "end": end, "stride": stride},
        )
        for prefix in ("", "newer/")
        for fragment, axes, begin, end, stride in (
            ("'axes' must be at least -2", (2,), (0,), (1,), (1,)),
            ("name each dimension once", (1, -1), (0, 0), (1, 1), (1, 1)),
            ("'stride' must not be zero", (1,), (0,), (1,), (0,)),
            ("must not lie before 'begin'", (1,), (2,), (1,), (1,)),
            ("must not lie behind 'begin'", (1,), (0,), (1,), (-1,)),
        )
    ),
    Refusal("layout.slice", "must not lie before the first", ((3,),), {"begin": (-4,), "end": (3,)}),
    Refusal(
        "layout.slice", "must not lie behind the last", ((3,),), {"begin": (3,), "end": (0,), "stride": -1}
    ),
    Refusal("newer/layout.slice", "'begin' must name an element", ((3,),), {"begin": (-1,), "end": (3,)}),
    Refusal("layout.pad", "'axes' must be at least -1", ((3,),), {"axes": (1,), "padding": (1, 1)}),
    Refusal("layout.pad", "name each dimension once", ((3,),), {"axes": (0, -1), "padding": (1, 1, 1, 1)}),
    Refusal("layout.pad", "'method' must be one of", ((3,),), {"padding": (1, 1), "method": "MIRROR"}),
    Refusal("layout.pad", "'padding' must not be negative", ((3,),), {"padding": (1, -1)}),
    Refusal(
        "layout.pad",
        "must be less than the input's extent",
        ((3,),),
        {"padding": (3, 0), "method": "REFLECT"},
    ),
    Refusal("layout.pad", "at most the input's extent", ((3,),), {"padding": (0, 4), "method": "SYMMETRIC"}),
    Refusal("layout.pad", "no border to repeat", ((0,),), {"padding": (0, 1), "method": "REPLICATE"}),
    Refusal("layout.transpose", "'axis' must be at least -2", ((2, 3),), {"axis": 3, "perm": ()}),
    Refusal("layout.transpose", "'perm' must name dimensions from 1", ((2, 3),), {"axis": 1, "perm": (0,)}),
    Refusal("layout.transpose", "name each dimension once", ((2, 3),), {"perm": (1, -1)}),
    Refusal("layout.shuffle", "'axis' must be at least -2", ((2, 4),), {"axis": 2, "groups": 2}),
    Refusal("layout.shuffle", "'groups' must be positive", ((2, 4),), {"axis": 1, "groups": 0}),
    Refusal("layout.shuffle", "must be divisible by 'groups'", ((2, 4),), {"axis": 1, "groups": 3}),
    *(
        Refusal(f"layout.{name}{suffix}", fragment, shapes, attributes, "i64")
        for name, shapes in (("gather", ((2, 3), (1, 1))), ("scatter", ((2, 3), (2, 1), (2, 1))))
        for suffix, fragment, attributes in (
            ("", "'axis' must be at least -2", {"axis": 2}),
            ("_nd", "'batch_dims' must not be negative", {"batch_dims": -1}),
        )
    ),
    *(
        Refusal(
            f"{prefix}layout.{name}", "'block_size' must be positive", ((4, 4, 4, 4),), {"block_size": (2, 0)}
        )
        for prefix, name in BLOCKS
    ),
    *(
        Refusal(f"{prefix}layout.{name}", "must be divisible by", ((4, 4, 5, 5),), {"block_size": (3, 3)})
        for prefix, name in BLOCKS
    ),
    *(
        Refusal(
            f"{prefix}layout.{name}",
            "'data_format' must be one of",
            ((4, 4, 4, 4),),
            {"block_size": (2, 2), "data_format": "XCN"},
        )
        for prefix, name in BLOCKS
        if prefix or name.endswith("depth") or name.startswith("depth")
    ),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
