"""Sums that begin at a bias, limits that keep NaN, widths of tiles, blocks of lanes: each against the reference."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamella
from lamella.backend.executor import GraphExecutable
from lamella.bridge.graph_to_kernels import flatten, graph_to_kernels
from lamella.bridge.graph_to_kernels.tile_widths import FEWEST_SUMS, tile_width
from lamella.graph.passes.fuse import fuse
from lamella.kernels.nodes import KernelGraph
from lamella.lang.tensor.write import write
from tests.support.bridge.launch_lists import compile_lists
from tests.support.bridge.operators.calls import agree, by_reference
from tests.support.graph.texts import model_of


def kernels_of(text: str) -> KernelGraph:
    """The kernels of a graph after fusion."""
    return graph_to_kernels(fuse(flatten(model_of(text))))


def verify(kernels: KernelGraph, *shape: int) -> None:
    """What the kernels compute of a random `x` is what the reference does."""
    fed = {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    agree(compile_lists(kernels)(**fed), by_reference(kernels.model)(**fed))


# --- where a sum begins -----------------------------------------------------------------------------------------

LAYER = """
import nn, math;
graph G {{
    @input {{ x: real[{batch}, 7, 5, 9]; }}
    @variable {{ a: real[{rows}, 7, 1, 1]; b: real[1, {rows}, 1, 1]; r: real[{batch}, {rows}, 5, 9]; }}
    @output {{ y: real[{batch}, {rows}, 5, 9]; }}
    @compose {{ s = nn.conv{{padding=[0, 0, 0, 0]}}(x, a); {body} }}
}}
"""
BODIES = {
    "a bias": ("t = math.add(s, b); y = nn.relu(t);", True),
    "a bias that is read twice": ("t = math.add(b, s); u = nn.sigmoid(t); y = math.mul(t, u);", True),
    "a bias before a residual": ("t = math.add(s, b); u = math.add(t, r); y = nn.relu(u);", True),
    "another value for each column": ("t = math.add(s, r); y = nn.relu(t);", False),
    "the sum itself too": ("t = math.add(s, b); y = math.mul(t, s);", False),
}


@pytest.mark.parametrize("rows", [16, 40])
@pytest.mark.parametrize("body", BODIES)
def test_sums_begin_at_what_all_columns_share(body: str, rows: int) -> None:
    text, begins = BODIES[body]
    kernels = kernels_of(LAYER.format(batch=2, rows=rows, body=text))
    functions = write(kernels.program).split("func @")
    assert any(map(_begins_somewhere, functions)) == begins
    verify(kernels, 2, 7, 5, 9)


def _begins_somewhere(function: str) -> bool:
    """Whether a kernel makes a matrix of what is applied to zeros: what a sum begins at."""
    zeros = set(re.findall(r"(%\d+) = constant 0x0p\+0 : coopmatrix", function))
    return not zeros.isdisjoint(re.findall(r"cooperative_matrix_apply \(.*\)=(%\d+) ->", function))


# --- limits -----------------------------------------------------------------------------------------------------

LIMITS = """
import nn, math;
graph G {
    @input { x: real[6, 40]; w: real[6, 40]; }
    @output { a: real[6, 40]; b: real[6, 40]; c: real[6, 40]; d: real[6, 40]; }
    @compose { a = nn.relu(x); b = math.min(x, w); c = math.max(w, x); d = math.min(2.0, x); }
}
"""


def test_the_larger_of_nan_and_a_number_is_nan() -> None:
    random = np.random.default_rng(0)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5], np.float32)
    fed = {name: random.choice(special, (6, 40)).astype(np.float32) for name in "xw"}
    found = compile_lists(kernels_of(LIMITS))(**fed)
    x, w = fed["x"], fed["w"]
    wanted = {
        "a": np.maximum(x, np.float32(0)),
        "b": np.minimum(x, w),
        "c": np.maximum(w, x),
        "d": np.minimum(x, np.float32(2)),
    }
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


# --- tiles ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 600), st.integers(1, 30), st.integers(1, 14))
def test_tiles_fit_and_cost_no_more_than_wide_ones(extent: int, most: int, each: int) -> None:
    def cost(width: int) -> int:
        full, rest = divmod(extent, width)
        return full * max(width * each, FEWEST_SUMS) + (max(rest * each, FEWEST_SUMS) if rest else 0)

    width = tile_width(extent, most, each)
    assert 1 <= width <= min(most, extent)
    assert cost(width) <= cost(min(most, extent)) + extent // width + 4


def test_no_column_of_a_prime_number_of_them_is_left_alone() -> None:
    assert 197 % tile_width(197, 14, 2) * 2 >= FEWEST_SUMS


DEPTHWISE = """
import nn, math;
graph G {{
    @input {{ x: real[{batch}, 3, {size}, {size}]; }}
    @variable {{ u: real[{lanes}, 3, 1, 1]; a: real[{lanes}, 1, {window}, {window}]; b: real[{lanes}]; }}
    @output {{ y: real[{batch}, {lanes}, {out}, {out}]; }}
    @compose {{
        r = nn.conv{{padding=[0, 0, 0, 0]}}(x, u);
        s = nn.conv{{padding={padding}, stride=[{step}, {step}], groups={lanes}}}(r, a, b);
        y = nn.relu(s);
    }}
}}
"""


@pytest.mark.parametrize(
    ("batch", "lanes", "size", "window", "step"),
    [(1, 40, 9, 3, 1), (2, 272, 4, 3, 2), (1, 24, 17, 5, 2), (1, 9, 30, 7, 1)],
)
def test_blocks_of_lanes(batch: int, lanes: int, size: int, window: int, step: int) -> None:
    padding = [window // 2] * 4
    out = (size - 1) // step + 1
    text = DEPTHWISE.format(
        batch=batch, lanes=lanes, size=size, window=window, step=step, padding=padding, out=out
    )
    verify(kernels_of(text), batch, 3, size, size)


# --- rows that are padded ---------------------------------------------------------------------------------------

PADDED = """
import nn, layout;
graph G {
    @input { x: real[1, 20, 24]; }
    @variable { a: real[1024, 24]; b: real[1024]; c: real[16, 1024]; }
    @output { y: real[20, 16]; }
    @compose {
        r = layout.flatten{axis=0, rank=2}(x);
        s = nn.linear(r, a, b);
        t = layout.unsqueeze{axes=[0]}(s);
        u = nn.relu(t);
        v = layout.flatten{axis=0, rank=2}(u);
        y = nn.linear(v, c);
    }
}
"""


def test_a_copy_of_padded_rows_is_another_name(tmp_path: Path) -> None:
    (tmp_path / "g.sknd").write_text(PADDED)
    run = lamella.compile(tmp_path / "g.sknd", backend="cpu")
    assert isinstance(run, GraphExecutable)
    x = np.random.default_rng(0).normal(size=(1, 20, 24)).astype(np.float32)
    operators = {item.operator for item in run.profile({"x": x})}
    assert not any(name.startswith("layout.") for name in operators)
    agree(run(x=x), lamella.compile(tmp_path / "g.sknd", backend="reference")(x=x))
