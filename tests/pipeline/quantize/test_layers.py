"""What computes in integers, and which tensors share codes."""

from __future__ import annotations

from pathlib import Path

import lamella
from lamella.graph.model import Model
from lamella.pipeline.quantize.layers import LayerRole, Layers, find_layers

HEAD = "import layout, linalg, math, nn;\n\ngraph G {\n"


def layers_of(text: str, folder: Path, kept: tuple[str, ...] = ()) -> Layers:
    (folder / "g.sknd").write_text(f"{HEAD}{text}\n}}\n", encoding="utf-8")
    model = lamella.load(folder / "g.sknd")
    assert isinstance(model, Model)
    return find_layers(model, kept)


def test_a_rectifier_and_a_view_have_the_codes_of_their_neighbours(tmp_path: Path) -> None:
    found = layers_of(
        """@input { x: real[1, 2, 8, 8]; } @output { y: real[1, 3]; }
        @variable { w: real[4, 2, 3, 3]; v: real[3, 4]; }
        @compose { a = nn.conv{padding=1}(x, w); b = nn.relu(a); c = nn.max_pool{size=2, stride=2}(b);
            d = math.mean_reduce{axes=[2, 3], squeeze=true}(c); y = nn.linear(d, v); }""",
        tmp_path,
    )
    assert {name: layer.kind for name, layer in found.layers.items()} == {
        "a": LayerRole.PRODUCT,
        "d": LayerRole.POOL,
        "y": LayerRole.PRODUCT,
    }
    assert found.ranges == {"x": "x", "a": "b", "b": "b", "c": "b", "d": "d", "y": "y"}
    assert not found.floats


def test_a_residual_stream_of_normalisations_stays_real(tmp_path: Path) -> None:
    text = """@input { x: real[4, 8]; } @output { y: real[4, 8]; }
        @variable { w: real[8, 8]; v: real[8, 8]; }
        @compose { n = nn.softmax(x); a = nn.linear(n, w); r = math.add(x, a); m = nn.softmax(r);
            b = nn.linear(m, v); y = math.add(r, b); }"""
    found = layers_of(text, tmp_path)
    assert set(found.layers) == {"a", "b"}
    assert set(found.ranges) == {"n", "a", "m", "b"}
    assert found.floats["r"] == "what it reads or gives is real"
    assert found.floats["n"] == "it has no integer form"


def test_the_sum_before_a_convolution_is_one_of_integers(tmp_path: Path) -> None:
    found = layers_of(
        """@input { x: real[1, 2, 4, 4]; } @output { y: real[1, 2, 4, 4]; }
        @variable { w: real[2, 2, 3, 3]; v: real[2, 2, 3, 3]; }
        @compose { a = nn.conv{padding=1}(x, w); s = math.add(a, x); r = nn.relu(s);
            y = nn.conv{padding=1}(r, v); }""",
        tmp_path,
    )
    assert list(found.layers) == ["a", "s", "y"]
    assert found.ranges["s"] == "r"
    assert found.ranges["a"] == "a"


def test_what_is_kept_is_no_layer_and_its_neighbours_are(tmp_path: Path) -> None:
    text = """@input { x: real[4, 8]; } @output { y: real[4, 8]; }
        @variable { w: real[8, 8]; v: real[8, 8]; }
        @compose { a = nn.linear(x, w); b = nn.relu(a); y = nn.linear(b, v); }"""
    found = layers_of(text, tmp_path, ("a",))
    assert list(found.layers) == ["y"]
    assert found.floats["a"] == "it was asked to stay real"
    assert set(found.ranges) == {"b", "y"}


def test_a_product_with_a_number_only_says_what_codes_stand_for(tmp_path: Path) -> None:
    found = layers_of(
        """@input { x: real[2, 4, 8]; } @output { y: real[2, 4, 4]; }
        @variable { w: real[8, 8]; }
        @compose { q = linalg.matmul(x, w); s = math.mul(q, 0.25); k = linalg.matmul(x, w);
            y = linalg.matmul{transB=true}(s, k); }""",
        tmp_path,
    )
    assert list(found.layers) == ["q", "k", "y"]
    assert "s" not in found.ranges
