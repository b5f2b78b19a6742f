"""The passes on the way to kernels: what stands before and after each, and that the numbers stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.reference import compile_model
from lamella.graph.model import Model
from lamella.graph.passes import BEFORE_KERNELS
from lamella.graph.passes.dce import dce
from lamella.graph.passes.fold_batch_norm import fold_batch_norm
from lamella.graph.passes.fold_transposes import fold_transposes
from lamella.graph.passes.fuse import Machine
from lamella.graph.passes.hoist_scales import hoist_scales
from lamella.graph.passes.local_views import local_views
from lamella.graph.passes.merge_products import merge_products
from lamella.graph.passes.sink_casts import sink_casts
from lamella.graph.rewrite import members
from lamella.graph.verify import verify
from lamella.pipeline.skriptnd.run_passes import ALL_PASSES
from tests.support.graph.running import random_arrays, run, same
from tests.support.graph.texts import body_of, small
from tests.support.strategies.graph import models

EXTENTS = st.integers(1, 4).map(lambda size: {"n": size})
WEIGHTS = "@variable { w: real[6, 4]; u: real[5, 4]; b: real[6]; c: real[5]; s: real[6]; t: real[1, 6]; }"
FILTERS = (
    "@variable { w: real[6, 2, 3, 3]; s: real[6, 1, 1]; m: real[6]; v: real[6]; g: real[6]; b: real[6]; }"
)
CONV = "x: real[2, 4, 7, 7];"


def check(before: Model, after: Model, body: list[str]) -> None:
    """The text after a pass, and that it computes the same within rounding."""
    assert body_of(after) == body
    assert not verify(after.graph, after.library)
    same(run(before, {"n": 3}), run(after, {"n": 3}), exact=False)


# --- sink_casts -----------------------------------------------------------------------------------------------


def test_widening_casts_stand_before_their_readers() -> None:
    """Each reader has one of its own, behind what only moves elements; what is waited for is the narrow tensor."""
    lines = (
        "h = layout.cast<bf16>(x); r = layout.cast<f32>(h); a = math.neg(r); f = layout.flatten{axis=0, rank=2}(r);"
        " b = math.exp(f); w = misc.after(x, r); y = math.add(a, w);"
    )
    before = small("x: real[n|8, 4];", lines, "y: real[~, ~]; b: real[~]")
    after = sink_casts(before)
    text = body_of(after)
    assert sum("layout.cast<real>" in line or "layout.cast<f32>" in line for line in text) == 2
    assert any("misc.after(x, h)" in line for line in text)
    assert any("layout.flatten" in line and "(h)" in line for line in text)
    assert not verify(after.graph, after.library)
    same(run(before, {"n": 3}), run(after, {"n": 3}), exact=True)


# --- hoist_scales ---------------------------------------------------------------------------------------------


def test_scales_of_codes_stand_behind_their_product() -> None:
    """Also where a factor is moved before it is multiplied; a product that starts from something keeps them."""
    lines = (
        "p = llm.quantize<f8e4m3>(x); a = llm.dequantize<real>(p); c = math.mul(a, s);"
        " q = llm.quantize<f8e5m2>(z); b = llm.dequantize<real>(q); d = math.mul(t, b);"
        " f = layout.transpose{perm=[1, 0]}(d); y = linalg.matmul(c, f); u = nn.linear(c, d, v);"
    )
    inputs = "x: real[n|8, 4]; z: real[5, 4]; s: real[1, 1]; t: real[1, 1]; v: real[5];"
    before = small(inputs, lines, "y: real[~, ~]; u: real[~, ~]")
    after = hoist_scales(before)
    text = body_of(after)
    assert any("linalg.matmul(p_real, q_moved_real)" in line for line in text)
    assert any("nn.linear(c, d, v)" in line for line in text)
    assert not any("dequantize" in line for line in text)
    assert not verify(after.graph, after.library)
    same(run(before, {"n": 3}), run(after, {"n": 3}), exact=False)


def test_codes_wait_where_scaled_numbers_did() -> None:
    """What is computed again on the way back waits for a gradient: the codes do, and nothing waits for numbers."""
    lines = (
        "p = llm.quantize<f8e4m3>(x); a = llm.dequantize<real>(p); c = math.mul(a, s);"
        " q = llm.quantize<f8e5m2>(z); b = llm.dequantize<real>(q); d = math.mul(t, b);"
        " e = misc.after(c, d); f = misc.after(d, x); y = linalg.matmul{transB=true}(e, f);"
    )
    inputs = "x: real[n|8, 4]; z: real[5, 4]; s: real[1, 1]; t: real[1, 1];"
    before = small(inputs, lines, "y: real[~, ~]")
    after = hoist_scales(before)
    text = body_of(after)
    assert any("misc.after(p, q)" in line for line in text)
    assert any("misc.after(q, x)" in line for line in text)
    assert sum("math.mul" in line for line in text) == 2
    assert not verify(after.graph, after.library)
    same(run(before, {"n": 3}), run(after, {"n": 3}), exact=False)


# --- fold_batch_norm ------------------------------------------------------------------------------------------

FOLDED = {
    "shift without a bias": (
        "x: real[3, 4];",
        WEIGHTS,
        "z = nn.linear(x, w); y = math.add(z, s);",
        ["y = nn.linear(x, w, s);"],
    ),
    "shift of a bias": (
        "x: real[3, 4];",
        WEIGHTS,
        "z = nn.linear(x, w, b); y = math.sub(z, s);",
        ["b_folded = math.sub(b, s);", "y = nn.linear(x, w, b_folded);"],
    ),
    "scale": (
        "x: real[3, 4];",
        WEIGHTS,
        "z = nn.linear(x, w, b); y = math.mul(s, z);",
        [
            "w_scaled = math.mul{rhs_align=0}(w, s);",
            "b_folded = math.mul(b, s);",
            "y = nn.linear(x, w_scaled, b_folded);",
        ],
    ),
    "a product that has no vector of biases": (
        "x: real[3, 4];",
        "@variable { w: real[4, 6]; s: real[6]; }",
        "z = linalg.matmul(x, w); a = math.mul(z, s); y = math.add(a, s);",
        [
            "w_scaled = math.mul{rhs_align=1}(w, s);",
            "a = linalg.matmul(x, w_scaled);",
            "y = math.add(a, s);",
        ],
    ),
    "what another reads stays": (
        "x: real[3, 4];",
        WEIGHTS,
        "z = nn.linear(x, w); a = math.add(z, s); y = math.mul(a, z);",
        ["z = nn.linear(x, w);", "a = math.add(z, s);", "y = math.mul(a, z);"],
    ),
    "a vector along another axis stays": (
        "x: real[6, 4];",
        WEIGHTS,
        "z = nn.linear(x, w); y = math.add{rhs_align=0}(z, s);",
        ["z = nn.linear(x, w);", "y = math.add{rhs_align=0}(z, s);"],
    ),
    "a difference the other way round stays": (
        "x: real[3, 4];",
        WEIGHTS,
        "z = nn.linear(x, w); y = math.sub(s, z);",
        ["z = nn.linear(x, w);", "y = math.sub(s, z);"],
    ),
    "an input is no weight": (
        "x: real[3, 4]; s: real[6];",
        "@variable { w: real[6, 4]; }",
        "z = nn.linear(x, w); y = math.mul(z, s);",
        ["z = nn.linear(x, w);", "y = math.mul(z, s);"],
    ),
}


@pytest.mark.parametrize("name", FOLDED)
def test_scales_and_shifts_go_into_weights(name: str) -> None:
    inputs, weights, body, expected = FOLDED[name]
    before = small(inputs, body, blocks=weights)
    check(before, fold_batch_norm(before), expected)


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_behind_a_convolution_goes(groups: int) -> None:
    filters = FILTERS.replace("6, 2, 3", f"6, {4 // groups}, 3")
    body = f"z = nn.conv{{groups={groups}}}(x, w); y = nn.batch_norm{{epsilon=0.1}}(z, m, v, b, g);"
    before = small(CONV, body, blocks=filters)
    after = fold_batch_norm(ALL_PASSES["decompose_all"](before))
    names = [item.operator for item in after.graph.operations()]
    assert names.count("nn.conv") == 1
    assert names[-1] == "nn.conv"
    data = random_arrays(before.graph.variables, {}, 1)
    data["v"] = abs(data["v"]) + 1
    arrays = random_arrays(list(members(before.graph.inputs)), {}, 2)
    first, second = (compile_model(Model(item.graph, item.library, data)) for item in (before, after))
    same(first(**arrays), second(**arrays), exact=False)


def test_an_updated_variable_is_no_weight() -> None:
    blocks = "@variable { w: real[4, 4]; s: real[4]; } @update { s = y2; }"
    body = "z = nn.linear(x, w); y = math.mul(z, s); y2 = math.neg(s);"
    before = small("x: real[3, 4];", body, blocks=blocks)
    assert "y = math.mul(z, s);" in body_of(fold_batch_norm(before))


# --- merge_products -------------------------------------------------------------------------------------------

MERGED = [
    "joined = layout.concat{axis=0}([w, u]);",
    "joined_1 = layout.concat{axis=0}([b, c]);",
    "p_merged = nn.linear(x, joined, joined_1);",
    "p = layout.slice{axes=[1], begin=[0], end=[6]}(p_merged);",
    "q = layout.slice{axes=[1], begin=[6], end=[11]}(p_merged);",
]


def test_products_of_one_activation_are_one() -> None:
    body = "p = nn.linear(x, w, b); q = nn.linear(x, u, c); y = layout.concat{axis=1}([p, q]);"
    before = small("x: real[3, 4];", body, blocks=WEIGHTS)
    check(before, merge_products(before), [*MERGED, "y = layout.concat{axis=1}([p, q]);"])


def test_weights_that_are_computed_later_are_computed_first() -> None:
    body = "p = nn.linear(x, w); v = math.neg(u); q = nn.linear(x, v); y = layout.concat{axis=1}([p, q]);"
    before = small("x: real[3, 4];", body, blocks=WEIGHTS)
    assert body_of(merge_products(before))[:2] == [
        "v = math.neg(u);",
        "joined = layout.concat{axis=0}([w, v]);",
    ]
    check(before, merge_products(before), body_of(merge_products(before)))


@pytest.mark.parametrize(
    "body",
    [
        "p = nn.linear(x, w, b); q = nn.linear(x, u); y = layout.concat{axis=1}([p, q]);",
        "p = nn.linear(x, w); q = nn.linear(r, u); y = layout.concat{axis=1}([p, q]);",
        "p = nn.linear(x, w); y = nn.linear(p, t);",
    ],
    ids=["one without bias", "two activations", "one behind the other"],
)
def test_other_products_stay(body: str) -> None:
    before = small("x: real[3, 4]; r: real[3, 4];", body, blocks=WEIGHTS)
    assert merge_products(before).graph == before.graph


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_channels_of_groups_stay_where_they_are(groups: int) -> None:
    """With as many channels more, a group would read another part of the activation."""
    blocks = f"@variable {{ w: real[4, {4 // groups}, 3]; u: real[4, {4 // groups}, 3]; }}"
    conv = f"nn.conv{{groups={groups}}}"
    body = f"p = {conv}(x, w); q = {conv}(x, u); y = layout.concat{{axis=1}}([p, q]);"
    before = small("x: real[2, 4, 9];", body, blocks=blocks)
    after = merge_products(before, Machine(launch=1.0))
    assert (after.graph == before.graph) == (groups > 1)
    check(before, after, body_of(after))


def test_products_are_merged_where_it_pays() -> None:
    """A result that an epilogue consumes on the way would have to be stored."""
    body = (
        "p = nn.linear(x, w); q = nn.linear(x, u); e = math.exp(p); f = math.exp(q);"
        "y = layout.concat{axis=1}([e, f]);"
    )
    before = small("x: real[3, 4];", body, blocks=WEIGHTS)
    assert merge_products(before, Machine(launch=0.0)).graph == before.graph
    assert merge_products(before, Machine(launch=1.0)).graph != before.graph


# --- fold_transposes ------------------------------------------------------------------------------------------

TRANSPOSED = {
    "second": (
        "b = layout.transpose{perm=[1, 0]}(v); y = linalg.matmul(x, b);",
        "linalg.matmul{transB=true}(x, v)",
    ),
    "back": (
        "b = layout.transpose{perm=[1, 0]}(w); y = linalg.matmul{transB=true}(x, b);",
        "linalg.matmul(x, w)",
    ),
    "first": (
        "b = layout.transpose{perm=[1, 0]}(z); y = linalg.matmul(b, w);",
        "linalg.matmul{transA=true}(z, w)",
    ),
    "of aten": ("b = aten.t(v); y = linalg.matmul(x, b);", "linalg.matmul{transB=true}(x, v)"),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_matrices_become_flags(name: str) -> None:
    body, expected = TRANSPOSED[name]
    before = small("x: real[3, 4]; z: real[4, 3]; v: real[5, 4]; w: real[4, 5];", body)
    check(before, dce(fold_transposes(before)), [f"y = {expected};"])


def test_other_transpositions_stay() -> None:
    before = small(
        "x: real[2, 3, 4]; w: real[4, 2, 5];",
        "b = layout.transpose{perm=[1, 0, 2]}(w); y = linalg.matmul(x, b);",
    )
    assert fold_transposes(before).graph == before.graph


# --- local_views ----------------------------------------------------------------------------------------------

VIEWS = {
    "split of the last axis": (
        "x: real[1, 8, 32];",
        "a = layout.flatten(x); y = layout.unflatten{axis=0, shape=[1, 8, 4, 8]}(a);",
        ["y = layout.unflatten{axis=2, shape=[4, 8]}(x);"],
    ),
    "there and back": (
        "x: real[2, 8, 4];",
        "a = layout.flatten(x); b = layout.unflatten{axis=0, shape=[2, 8, 4]}(a); y = math.exp(b);",
        ["y = math.exp(x);"],
    ),
    "joined axes": (
        "x: real[n|4, 8, 4];",
        "y = layout.reshape{shape=[n * 8, 4]}(x);",
        ["y = layout.flatten{rank=2}(x);"],
    ),
    "ones": (
        "x: real[1, 8, 4];",
        "y = layout.reshape{shape=[8, 4, 1]}(x);",
        ["y_step = layout.squeeze{axes=[0]}(x);", "y = layout.unsqueeze{axes=[2]}(y_step);"],
    ),
    "axes that do not correspond": (
        "x: real[4, 6];",
        "y = layout.reshape{shape=[3, 8]}(x);",
        ["y_step = layout.flatten{rank=2}(x);", "y = layout.unflatten{axis=0, shape=[3, 8]}(y_step);"],
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_of_the_axes_that_change(name: str) -> None:
    inputs, body, expected = VIEWS[name]
    before = small(inputs, body)
    check(before, dce(local_views(before)), expected)


# --- random graphs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fold_transposes", "fold_batch_norm", "merge_products"])
@given(model=models(), extents=EXTENTS)
def test_passes_keep_the_numbers(name: str, model: Model, extents: dict[str, int]) -> None:
    found = ALL_PASSES[name](ALL_PASSES["decompose_all"](model))
    assert not verify(found.graph, found.library)
    same(run(model, extents), run(found, extents), exact=False)


@given(model=models(), extents=EXTENTS)
def test_the_whole_way_keeps_the_numbers(model: Model, extents: dict[str, int]) -> None:
    found = model
    for name in BEFORE_KERNELS:
        found = ALL_PASSES[name](found)
    assert not verify(found.graph, found.library)
    same(run(model, extents), run(found, extents), exact=False)
