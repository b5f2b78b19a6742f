"""Random networks by tiles and layouts give what the reference gives in 64 bits, with any number of threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.bridge.graph_to_kernels import flatten, graph_to_kernels
from lamella.graph.model import Model
from lamella.graph.passes.fuse import fuse
from lamella.lang.tensor.write import write
from tests.support.bridge.launch_lists import compile_lists, lists_of
from tests.support.bridge.layers import (
    RandomNetwork,
    compare,
    random_attention,
    random_image_network,
    random_row_network,
    reference,
    run_network,
)
from tests.support.bridge.operators.calls import agree, build, by_kernels, by_reference, call, natives
from tests.support.graph.texts import model_of
from tests.support.repository import ROOT

SEEDS = st.integers(0, 1_000_000)
Network = tuple[Model, RandomNetwork]


@settings(max_examples=settings().max_examples // 5)
@given(SEEDS, st.integers(1, 6))
def test_convolutions_and_what_stands_between_them(seed: int, steps: int) -> None:
    model, net = random_image_network(seed, steps)
    compare(run_network(model, net), reference(model, net))


@settings(max_examples=settings().max_examples // 5)
@given(SEEDS, st.integers(1, 6))
def test_products_and_what_stands_between_them(seed: int, steps: int) -> None:
    model, net = random_row_network(seed, steps)
    compare(run_network(model, net), reference(model, net))


@settings(max_examples=settings().max_examples // 5)
@given(SEEDS)
def test_attention(seed: int) -> None:
    model, net = random_attention(seed)
    compare(run_network(model, net), reference(model, net))


WAYS: dict[str, Callable[[int], Network]] = {
    "images": lambda seed: random_image_network(seed, 4),
    "rows": lambda seed: random_row_network(seed, 4),
    "attention": random_attention,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS)
def test_threads_change_no_bit(way: str, seed: int) -> None:
    model, net = WAYS[way](seed)
    one, two = (run_network(model, net, threads=count) for count in (1, 2))
    assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in one)


@pytest.mark.parametrize("way", WAYS)
def test_the_interpreter_gives_the_same(way: str) -> None:
    model, net = WAYS[way](2)
    compare(run_network(model, net, "interpreter"), reference(model, net))


# --- single cases -----------------------------------------------------------------------------------------------

CHAIN = """
import nn, math;
graph G {
    @input { x: real[1, 5, 9, 11]; }
    @variable { a: real[17, 5, 3, 3]; b: real[17, 1, 3, 3]; c: real[24, 17, 1, 1]; d: real[17, 24, 3, 3]; }
    @output { y: real[1, 17, 5, 6]; m: real[1, 24, 9, 11]; }
    @compose {
        e = nn.conv{padding=[1, 1, 1, 1]}(x, a);
        p = nn.relu(e);
        f = nn.conv{padding=[1, 1, 1, 1], groups=17}(p, b);
        q = nn.relu(f);
        m = nn.conv{padding=[0, 0, 0, 0]}(q, c);
        g = nn.conv{padding=[1, 1, 1, 1], stride=[2, 2]}(m, d);
        y = nn.relu(g);
    }
}
"""


def test_tensors_inside_a_graph_lie_for_its_products() -> None:
    """Channels lie closest, windows find zeros round what they read, and every product is one of tiles or lanes."""
    kernels = graph_to_kernels(fuse(flatten(model_of(CHAIN))))
    text = write(kernels.program)
    assert text.count("cooperative_matrix_mul_add") >= 3
    assert "gemm" not in text
    inner = [item for item in kernels.layouts.values() if item.strides[1] == 1]
    assert any(any(low or high for low, high in item.halo) for item in inner)
    random = np.random.default_rng(0)
    fed = {"x": random.normal(size=(1, 5, 9, 11)).astype(np.float32)}
    agree(compile_lists(kernels)(**fed), by_reference(kernels.model)(**fed))


def test_columns_behind_the_last_tile_are_no_block_of_their_own() -> None:
    """197 columns are 14 tiles of 14 and one more, in two blocks for each of the 24 panels of 32 rows, not three."""
    text = """
import linalg;
graph G {
    @input { x: real[197, 768]; }
    @variable { w: real[768, 768]; }
    @output { y: real[197, 768]; }
    @compose { y = linalg.matmul(x, w); }
}
"""
    kernels = graph_to_kernels(fuse(flatten(model_of(text))))
    run = compile_lists(kernels)
    (segment,) = lists_of(run)
    assert [item.groups for item in segment.each.launches] == [2 * 24]
    fed = {"x": np.random.default_rng(0).normal(size=(197, 768)).astype(np.float32)}
    agree(run(**fed), by_reference(kernels.model)(**fed))


HOLES = """
import nn;
graph G {
    @input { x: real[1, 3, 22]; }
    @variable { a: real[3, 16, 1]; b: real[3, 16, 3]; }
    @output { y: real[1, 3, 43]; }
    @compose {
        p = nn.deconv{stride=[2], padding=[0, 0]}(x, a);
        q = nn.sigmoid(p);
        y = nn.conv{padding=[1, 1]}(q, b);
    }
}
"""


def test_what_a_sum_leaves_out_is_made_of_nothing() -> None:
    """Between the steps of a transposed convolution lie zeros, of which what follows is made too."""
    kernels = graph_to_kernels(fuse(flatten(model_of(HOLES))))
    fed = {"x": np.random.default_rng(0).normal(size=(1, 3, 22)).astype(np.float32)}
    agree(compile_lists(kernels)(**fed), by_reference(kernels.model)(**fed))


WINDOWS = {
    "steps that meet in the output": call("nn.deconv", "f32 2 33 3 8", "f32 33 1 2 1", padding=(0, 0, 0, 0)),
    "no room behind the last step": call(
        "nn.conv", "f32 1 33 11 11", "f32 16 33 3 1", stride=(2, 2), dilation=(2, 1), padding=(0, 0, 0, 0)
    ),
    "steps that do not meet": call(
        "nn.deconv", "f32 1 24 5 6", "f32 24 17 2 2", stride=(2, 2), padding=(0,) * 4
    ),
}


def test_a_part_of_a_sum_is_no_end_of_its_tiles() -> None:
    """Two phases of 19 elements each are one more than the output has: a tile would write behind it."""
    odd = call("nn.deconv", "f32 1 64 19 18", "f32 64 64 4 2", stride=(2, 1), padding=(2, 0, 1, 1), groups=2)
    model, fed = build([odd])
    run = compile_lists(graph_to_kernels(fuse(model)))
    agree(run(**fed), by_reference(model)(**fed))
    assert lists_of(run)  # all launches are proved to stay in their memory


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_that_tiles_must_be_careful_with(name: str) -> None:
    model, fed = build([WINDOWS[name]])
    agree(by_kernels(model)(**fed), by_reference(model)(**fed))


NARROW = """
import layout, linalg, nn;
graph G {
    @input { q: real[2, 37, 24]; k: real[2, 21, 24]; v: real[2, 21, 16]; }
    @output { y: real[2, 37, 16]; }
    @compose {
        q_narrow = layout.cast<TYPE>(q);
        k_narrow = layout.cast<TYPE>(k);
        v_narrow = layout.cast<TYPE>(v);
        s = linalg.matmul{transB=true}(q_narrow, k_narrow);
        ROWS
        m = linalg.matmul(p, v_narrow);
        y = layout.cast<real>(m);
    }
}
"""
WIDE_SOFTMAX = "w = layout.cast<real>(s); e = nn.softmax{axes=[2]}(w); p = layout.cast<TYPE>(e);"


@pytest.mark.parametrize("rows", ["p = nn.softmax{axes=[2]}(s);", WIDE_SOFTMAX], ids=["narrow", "wide"])
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_attention_of_narrow_reals_is_rounded_where_its_tensors_are(element: str, rows: str) -> None:
    """Up to a few sums in another order, which may cross the border between two numbers of the type."""
    model = model_of(NARROW.replace("ROWS", rows).replace("TYPE", element))
    kernels = graph_to_kernels(fuse(flatten(model)))
    assert "matrix_a" in write(kernels.program)
    random = np.random.default_rng(0)
    shapes = {"q": (2, 37, 24), "k": (2, 21, 24), "v": (2, 21, 16)}
    fed = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    found, wanted = compile_lists(kernels)(**fed)["y"], by_reference(model)(**fed)["y"]
    unit = 2.0**-10 if element == "f16" else 2.0**-7
    assert np.abs(found - wanted).max() <= 4 * unit
    assert np.mean(found != wanted) < 0.02


LOGS = """
import llm;
graph G {
    @input { q: real[2, 4, N, 8]; k: real[2, 2, M, 8]; v: real[2, 2, M, 6]; }
    @output { y: real[2, 4, N, 6]; lse: real[2, 4, N]; }
    @compose { y, lse = llm.flash_attention{causal=CAUSAL}(q, k, v); }
}
"""


@pytest.mark.parametrize("sizes", [(16, 16), (37, 37), (5, 40), (64, 21)], ids=str)
@pytest.mark.parametrize("causal", ["true", "false"])
def test_attention_gives_the_logarithms_of_its_rows_too(sizes: tuple[int, int], causal: str) -> None:
    """A backward pass reads them: they leave the one kernel that knows them."""
    text = LOGS.replace("CAUSAL", causal)
    model = model_of(text.replace(" N", f" {sizes[0]}").replace(" M", f" {sizes[1]}"))
    kernels = graph_to_kernels(fuse(flatten(model)))
    assert "matrix_a" in write(kernels.program)
    random = np.random.default_rng(0)
    shapes = {"q": (2, 4, sizes[0], 8), "k": (2, 2, sizes[1], 8), "v": (2, 2, sizes[1], 6)}
    fed = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    agree(compile_lists(kernels)(**fed), by_reference(model)(**fed))


def test_a_group_without_a_kernel_is_lowered_by_its_members() -> None:
    text = (ROOT / "examples" / "operator" / "window_attention.sknd").read_text(encoding="utf-8")
    model = fuse(flatten(model_of(text)))
    (group,) = model.graph.operations()
    kernels = graph_to_kernels(model)
    assert group.operator.startswith("fused.")
    assert natives(kernels) == set()
    random = np.random.default_rng(0)
    fed = {
        name: random.normal(size=(1, 2, 16, 8)).astype(np.float32) for name in ("queries", "keys", "values")
    }
    agree(compile_lists(kernels)(**fed), by_reference(model)(**fed))


CUT = """
import nn, math, algo;
graph G {
    @input { x: real[1, 5, 9, 11]; }
    @variable { a: real[17, 5, 3, 3]; b: real[24, 17, 3, 3]; c: real[24, 17, 1, 1]; w: real[1, 24, 12, 11]; }
    @output { y: real[1, 24, 9, 11]; }
    @compose {
        e = nn.conv{padding=[1, 1, 1, 1]}(x, a);
        p = nn.relu(e);
        NATIVE
        m = nn.conv{padding=[0, 0, 0, 0]}(p, c);
        n = nn.relu(m);
        y = math.add(n, s);
    }
}
"""


WEIGHTS = "s, ~ = algo.top_k{k=9, axis=2}(w);"
NUMBERS = f"d = nn.conv{{padding=[1, 1, 1, 1]}}(p, b); {WEIGHTS.replace('(w)', '(d)')}"


@pytest.mark.parametrize("native", [WEIGHTS, NUMBERS], ids=["weights", "numbers"])
def test_what_lies_otherwise_is_in_one_list_of_launches(native: str) -> None:
    """An operation without kernels ends a list: what crosses it lies row by row, what weights decide stands first."""
    kernels = graph_to_kernels(fuse(flatten(model_of(CUT.replace("NATIVE", native)))))
    run = compile_lists(kernels)
    fed = {"x": np.random.default_rng(0).normal(size=(1, 5, 9, 11)).astype(np.float32)}
    agree(run(**fed), by_reference(kernels.model)(**fed))
    assert {item.operation for item in run.placement if item.where != "kernel"} == {"algo.top_k"}
    assert kernels.layouts
