"""A batch in parts: the numbers of the whole, wherever items do not meet, and nothing where they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamella
from lamella.backend.executor import GraphExecutable
from lamella.backend.executor.kernels import KernelExecutable
from lamella.backend.executor.segments import Segment
from lamella.backend.executor.stored import StoredExecutable
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Found
from lamella.graph.model import Model
from lamella.graph.passes import cut_batch as cutting
from lamella.graph.passes.cut_batch import BatchCut, cut_batch
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.graph.rewrite import members
from lamella.graph.verify import verify
from tests.support.bridge.layers import (
    RandomNetwork,
    random_image_network,
    random_row_network,
    random_wide_network,
)
from tests.support.graph.running import random_arrays
from tests.support.graph.texts import model_of, small
from tests.support.strategies.graph import models

WEIGHTS = "@variable { w: real[6, 3, 3, 3]; u: real[5, 24]; b: real[6]; t: real[4, 3]; }"
IMAGES = "x: real[4, 3, 4, 4];"


def run_parts(
    model: Model, cut: BatchCut, inputs: Mapping[str, Array], data: Mapping[str, Array]
) -> dict[str, Array]:
    """The outputs of a graph whose parts run one after the other, on the reference."""
    run = compile_model(replace(cut.model, data=data))
    found: dict[str, list[Array]] = {}
    for part in range(cut.parts):
        given = {
            name: np.array_split(array, cut.parts)[part] if name in cut.batched else array
            for name, array in inputs.items()
        }
        for name, array in run(**given).items():
            found.setdefault(name, []).append(array)
    return {name: np.concatenate(items) for name, items in found.items()}


def check(model: Model, cut: BatchCut, seed: int = 0) -> None:
    """The parts give what the whole gives."""
    assert not verify(cut.model.graph, cut.model.library)
    inputs = random_arrays(list(members(model.graph.inputs)), {}, seed)
    data = random_arrays(model.graph.variables, {}, seed + 1)
    whole = compile_model(replace(model, data=data))(**inputs)
    for name, array in run_parts(model, cut, inputs, data).items():
        assert array.shape == whole[name].shape
        np.testing.assert_allclose(array, whole[name], 1e-5, 1e-5, err_msg=name)


CUT = {
    "window": "h = nn.conv{padding=1}(x, w, b); y = nn.relu(h);",
    "norm of an item": "y = nn.softmax{axes=[1, 2, 3]}(x);",
    "pooled and flattened": "h = nn.max_pool{size=[2, 2], stride=[2, 2]}(x); y = layout.flatten{axis=1}(h);",
    "told by a list": "y = layout.reshape{shape=[4, 6, 8]}(x);",
    "likewise, and then a product": """
        h = layout.reshape{shape=[4, 24, 2]}(x);
        g = math.mean_reduce{axes=[2], squeeze=true}(h);
        y = nn.linear(g, u, 0.0);
    """,
    "with itself": "h = layout.flatten{axis=2}(x); y = linalg.matmul{transB=true}(h, h);",
    "two of them": "h = math.exp(x); y = layout.concat{axis=1}([x, h]);",
    "weights that something is done to": "v = math.exp(w); y = nn.conv(x, v, b);",
}


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("parts", [2, 4])
def test_items_that_do_not_meet_run_apart(name: str, parts: int) -> None:
    model = small(IMAGES, CUT[name], blocks=WEIGHTS)
    cut = cut_batch(model, parts)
    assert cut is not None
    assert cut.parts == parts
    check(model, cut)


MEET = {
    "softmax over the batch": "y = nn.softmax{axes=[0]}(x);",
    "mean of the batch taken away": "h = math.mean_reduce{axes=[0]}(x); y = math.sub(x, h);",
    "sums that run along the batch": "y = math.cumsum{axis=0}(x);",
    "other order": "h = layout.transpose{perm=[1, 0, 2, 3]}(x); y = layout.slice{axes=[0], begin=[0], end=[3]}(h);",
    "items changed": "y = layout.slice{axes=[0], begin=[3], end=[-5], stride=[-1]}(x);",
    "products of items": "h = layout.flatten{axis=1}(x); y = linalg.matmul{transB=true}(h, h);",
    "put together": "h = layout.slice{axes=[0], begin=[0], end=[2]}(x); y = layout.concat{axis=0}([h, h]);",
    "batch beside channels": "h = layout.flatten{axis=0, rank=2}(x); y = layout.unflatten{axis=0, shape=[4, 3]}(h);",
    "a weight as long as the batch": "y = math.add{rhs_align=0}(x, t);",
}


@pytest.mark.parametrize("name", MEET)
def test_items_that_meet_stay_together(name: str) -> None:
    assert cut_batch(small(IMAGES, MEET[name], blocks=WEIGHTS), 2) is None


COUNTED = """\
operator counted {
    @input { x: real[b, n]; }
    @output { y: real[b, n]; }
    @lower { y[i, j] = x[i, j] * real(b), i < b, j < n; }
}
graph G { @input { x: real[4, 3]; } @output { y: real[4, 3]; } @compose { y = counted(x); } }
"""


def test_a_formula_that_counts_the_items_stays_whole() -> None:
    assert cut_batch(model_of(COUNTED), 2) is None


@given(models(), st.integers(0, 1 << 16))
def test_random_graphs_are_cut_right_or_not_at_all(model: Model, seed: int) -> None:
    try:
        known = specialise_shapes(model, {"n": 4})
    except Found:
        return
    cut = cut_batch(known, 2)
    if cut is not None:
        check(known, cut, seed)


@pytest.mark.parametrize("make", [random_image_network, random_wide_network, random_row_network])
def test_random_networks_are_cut_right(make: Callable[[int, int], tuple[Model, RandomNetwork]]) -> None:
    done = 0
    for seed in range(24):
        model = make(seed, 4)[0]
        cut = cut_batch(model, 2) or cut_batch(model, 3)
        if cut is not None:
            done += 1
            check(model, cut, seed)
    assert done >= 3


# --- compiled -------------------------------------------------------------------------------------------------------

NETWORK = """\
import math, nn, layout;
graph Images {
    @input { x: real[6, 8, 20, 20]; }
    @variable { w: real[16, 8, 3, 3]; b: real[16]; u: real[5, 16]; c: real[5]; }
    @output { y: real[6, 5]; kept: real[6, 16, 20, 20]; }
    @compose {
        k = nn.conv(x, w, b);
        kept = nn.relu(k);
        h = math.mean_reduce{axes=[2, 3], squeeze=true}(kept);
        y = nn.linear(h, u, c);
    }
}
"""


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network that is cut, because nothing is near, in a cache of its own."""
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cutting, "NEAR_BYTES", 1 << 15)
    found = tmp_path / "images.sknd"
    found.write_text(NETWORK)
    return found


def parts_of(executable: object) -> int:
    """How many parts a compiled graph runs in."""
    assert isinstance(executable, GraphExecutable)
    (segment,) = executable._context.runner.cut(executable.model.graph.nodes, executable._needed)
    assert isinstance(segment, Segment)
    return segment.parts


def test_a_compiled_graph_runs_in_parts_and_is_kept(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).standard_normal((6, 8, 20, 20)).astype("f4")
    first = lamella.compile(network, backend="cpu", seed=3)
    assert isinstance(first, StoredExecutable)
    assert parts_of(first) > 1
    found = first(x=x)
    monkeypatch.setattr(cutting, "cut_batch", lambda model: pytest.fail("it is kept"))
    again = lamella.compile(network, backend="cpu", seed=3)
    assert isinstance(again, StoredExecutable)
    expected = lamella.compile(network, backend="reference", seed=3)(x=x)
    for name, array in again(x=x).items():
        np.testing.assert_array_equal(array, found[name])
        np.testing.assert_allclose(array, expected[name], 1e-5, 1e-5)


def test_parts_write_where_the_caller_wants_it_and_tell_their_times(network: Path) -> None:
    x = np.random.default_rng(2).standard_normal((6, 8, 20, 20)).astype("f4")
    run = lamella.compile(network, backend="cpu", seed=3)
    assert isinstance(run, StoredExecutable)
    out = np.zeros((6, 16, 20, 20), "f4")
    found = run.run({"x": x}, {"kept": out})
    assert found["kept"] is out
    np.testing.assert_array_equal(run(x=x)["kept"], out)
    times, parts = [item.kernel for item in run.profile({"x": x})], parts_of(run)
    assert times == times[: len(times) // parts] * parts
    with pytest.raises(LamellaError):
        run(x=x[:1])


def test_small_networks_stay_whole(network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "NEAR_BYTES", 1 << 20)
    assert isinstance(lamella.compile(network, backend="cpu", seed=3), KernelExecutable)
