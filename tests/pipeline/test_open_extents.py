"""Graphs that leave extents open: calls of many sizes share machine code, and say where they cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lamella
from lamella.backend.executor import GraphExecutable
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.graph.rewrite import members

MODELS = {
    "rows": """
import nn, math, llm, layout;
graph Rows {
    @input { x: real[B|8, T|96, 48]; }
    @variable { w: real[96, 48]; b: real[96]; g: real[48]; v: real[48, 96]; }
    @output { y: real[~, ~, 48]; m: real[~, 48]; }
    @compose {
        r, s = llm.rmsnorm(x, g);
        h = llm.matmul{transpose="NT"}(r, w);
        f = llm.bias_add(h, b);
        a = llm.gelu(f);
        z = llm.matmul{transpose="NT"}(a, v);
        y = math.add(x, z);
        m = math.mean_reduce{axes=[1], squeeze=true}(y);
    }
}
""",
    "attention": """
import llm, linalg, layout, nn, math;
graph Attention {
    @input { q: real[B|8, 4, T|96, 16]; k: real[B, 2, T, 16]; v: real[B, 2, T, 16]; }
    @output { y: real[~, 4, ~, 16]; p: real[~, 2, ~, ~]; }
    @compose {
        y, l = llm.flash_attention(q, k, v);
        c = linalg.matmul{transB=true}(k, v);
        p = nn.softmax{axes=[3]}(c);
    }
}
""",
    "convolution": """
import nn, math, layout;
graph Convolution {
    @input { x: real[B|8, 12, T|96]; }
    @variable { w: real[20, 12, 3]; b: real[20]; d: real[20, 1, 3]; }
    @output { y: real[~, ~, 20]; }
    @compose {
        c = nn.conv{padding=1}(x, w, b);
        r = nn.relu(c);
        e = nn.conv{padding=1, groups=0}(r, d, b);
        y = layout.transpose{perm=[0, 2, 1]}(e);
    }
}
""",
    "batch between": """
import nn, linalg, layout, math;
graph Between {
    @input { x: real[B|8, 3, 20, 20]; s: real[9, B, 32]; }
    @variable { w: real[32, 3, 3, 3]; d: real[32, 1, 3, 3]; v: real[16, 32, 1, 1]; }
    @output { y: real[~, 16, 20, 20]; z: real[~, 2, 9, 16]; }
    @compose {
        c = nn.conv{padding=1}(x, w);
        l = nn.conv{padding=1, groups=0}(c, d);
        y = nn.conv(l, v);
        e = math.exp(s);
        f = layout.unflatten{axis=2, shape=[2, 16]}(e);
        g = layout.flatten{axis=1, rank=2}(f);
        h = layout.transpose{perm=[1, 0, 2]}(g);
        t = layout.unflatten{axis=0, shape=[B, 2]}(h);
        a = linalg.matmul{transB=true}(t, t);
        p = nn.softmax{axes=[3]}(a);
        z = linalg.matmul(p, t);
    }
}
""",
}
CACHED = """
import llm, layout, math;
graph Cached {
    @input { x: real[1, 2, T|8, 4]; }
    @variable { keys: real[1, 2, 8, 4]; seen: int[]; }
    @output { y: real[1, 2, 8, 4]; }
    @compose {
        room = layout.range<int>{first=0, last=9, stride=1}();
        after = llm.advance{count=T}(seen, room);
        now = llm.remember(keys, x, seen);
        y = math.mul(now, 2.0);
    }
    @update { keys = now; seen = after; }
}
"""


def compiled(text: str, folder: Path, backend: str | None = None) -> GraphExecutable:
    """A graph of a text, ready to run."""
    path = folder / "model.sknd"
    path.write_text(text)
    found = lamella.compile(path) if backend is None else lamella.compile(path, backend=backend)
    assert isinstance(found, GraphExecutable)
    return found


def draw(executable: GraphExecutable, batch: int, length: int, seed: int) -> dict[str, Array]:
    """Random inputs of a size."""
    random = np.random.default_rng(seed)
    found = {}
    for item in members(executable.model.graph.inputs):
        sizes = [
            size if isinstance(size, int) else {"B": batch, "T": length}[str(size)] for size in item.shape
        ]
        found[item.name] = random.standard_normal(sizes).astype(np.float32)
    return found


def notes(executable: GraphExecutable) -> list[str]:
    """What a run said about compiling."""
    return [item.message for item in executable.findings if "had to be compiled" in item.message]


@pytest.mark.parametrize("name", MODELS)
def test_sizes_share_code_and_have_the_numbers_of_the_reference(name: str, tmp_path: Path) -> None:
    ours, judge = compiled(MODELS[name], tmp_path), compiled(MODELS[name], tmp_path, "reference")
    random = np.random.default_rng(7)
    sizes = [
        (3, 40),
        *((int(random.integers(2, 9)), int(random.integers(8, 97))) for _ in range(9)),
        (2, 96),
        (2, 16),
    ]
    for number, (batch, length) in enumerate(sizes):
        given = draw(ours, batch, length, number)
        found, expected = ours(**given), judge(**given)
        assert not notes(ours), (batch, length)
        for key, array in expected.items():
            np.testing.assert_allclose(
                found[key], array, rtol=2e-4, atol=2e-5, err_msg=f"{key} {batch} {length}"
            )


def test_a_call_that_must_compile_says_so(tmp_path: Path) -> None:
    ours = compiled(MODELS["rows"], tmp_path)
    told = []
    for batch, length in ((2, 9), (2, 1), (2, 30), (5, 1)):
        ours(**draw(ours, batch, length, 0))
        told.append(notes(ours))
    assert [len(item) for item in told] == [0, 1, 0, 0]
    assert "B = 2, T = 1" in told[1][0]


def test_a_cache_is_written_in_place_and_keeps_its_numbers_where_a_run_fails(tmp_path: Path) -> None:
    ours, judge = compiled(CACHED, tmp_path), compiled(CACHED, tmp_path, "reference")
    start = np.zeros((1, 2, 8, 4), np.float32)
    for item in (ours, judge):
        item.state |= {"keys": start, "seen": np.array(0)}
    for length in (3, 1, 2):
        given = draw(ours, 1, length, length)
        np.testing.assert_array_equal(ours(**given)["y"], judge(**given)["y"])
    assert not start.any()  # an array of somebody else is never written
    place = id(ours.state["keys"])
    ours(**draw(ours, 1, 1, 5))
    assert id(ours.state["keys"]) == place
    held = ours.state["keys"]
    before = held.copy()
    with pytest.raises(LamellaError, match="room"):
        ours(**draw(ours, 1, 4, 6))
    np.testing.assert_array_equal(ours.state["keys"], before)
    assert ours.state["seen"] == 7
    ours(**draw(ours, 1, 1, 9))
    np.testing.assert_array_equal(held, before)  # who holds the last value sees no other
    assert ours.state["keys"] is not held


def test_a_call_with_no_items_gives_none(tmp_path: Path) -> None:
    ours = compiled(MODELS["convolution"], tmp_path)
    assert ours(**draw(ours, 0, 9, 0))["y"].shape == (0, 9, 20)
    assert ours(**draw(ours, 2, 9, 0))["y"].shape == (2, 9, 20)
