"""What options do to a model that has weights: precision, warnings, what comes too late, what a folder still holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import lamella
from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.cli import lamella as command
from lamella.graph.data import write_safetensors

MODEL = """
import layer, nn, math;
public operator block {
    @input { x: real[b, c]; }
    @output { y: real[b, c]; }
    @compose {
        hidden = layer.linear{channels=c}(x);
        y = math.add(x, hidden);
    }
}
graph Net {
    @input { x: real[2, 3]; }
    @output { y: real[2, 3]; }
    @compose { y = first: block(x); }
}
"""
FILTER = np.arange(9.0).reshape(3, 3) / 7
BIAS = np.arange(3.0) / 3
X = np.arange(6.0).reshape(2, 3) / 11


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose data are wider than its variables."""
    (tmp_path / "net.sknd").write_text(MODEL)
    return tmp_path / "net.sknd"


def weights(folder: Path, **more: Array) -> Path:
    arrays = {"first.hidden.filter": FILTER, "first.hidden.bias": BIAS}
    write_safetensors(folder / "wide.safetensors", arrays | more)
    return folder / "wide.safetensors"


def test_a_run_in_64_bits_takes_weights_of_64_bits(model: Path) -> None:
    run = lamella.compile(model, weights=weights(model.parent), dtype="f64")
    assert np.allclose(run(x=X)["y"], X + X @ FILTER.T + BIAS, rtol=1e-14, atol=0)
    assert run.findings == []


def test_rounded_and_unused_weights_are_told_once_for_all(model: Path) -> None:
    run = lamella.compile(model, weights=weights(model.parent, other=np.zeros(1), more=np.zeros(1)))
    run(x=X)
    assert [item.code for item in run.findings] == ["SKR364", "SKR361"]
    assert all("(and 1 more)" in item.message for item in run.findings)


def test_an_operator_that_calls_one_with_variables_is_composed(model: Path) -> None:
    path = weights(model.parent)
    kept = lamella.compile(model, weights=path, keep="block", dtype="f64")
    assert np.array_equal(kept(x=X)["y"], lamella.compile(model, weights=path, dtype="f64")(x=X)["y"])


@pytest.mark.parametrize("option", [{"weights": "w"}, {"config": {}}, {"shape": {"n": 2}}, {"keep": "block"}])
def test_options_of_reading_are_refused_for_a_loaded_model(model: Path, option: dict[str, Any]) -> None:
    loaded = lamella.load(model)
    with pytest.raises(lamella.LamellaError, match="comes too late"):
        lamella.compile(loaded, None, **option)
    with pytest.raises(lamella.LamellaError, match="comes too late"):
        lamella.lower(loaded, to="sknd", **option)


def test_data_left_in_a_folder_are_not_taken_for_those_of_another_model(model: Path) -> None:
    folder = model.parent / "flat"
    lamella.save(lamella.load(model, weights=weights(model.parent)), folder)
    with pytest.raises(lamella.LamellaError, match="holds data of another model"):
        lamella.save(lamella.load(model), folder)
    lamella.save(lamella.load(model, weights=weights(model.parent)), folder)


def test_an_output_pack_that_the_run_measures_reads_back(tmp_path: Path) -> None:
    (tmp_path / "grow.sknd").write_text("""
import math;
graph Grow {
    @input { x: real[]; }
    @output { y: real[]; ys: real[]..(~|8); }
    @compose {
        y, ys.. = with a = x while math.lt(a, 10.0) do..(8) { b = math.add(a, a); yield b, b; };
    }
}
""")
    model = lamella.load(tmp_path / "grow.sknd")
    lamella.save(model, tmp_path / "flat")
    again = lamella.compile(tmp_path / "flat")
    assert again(x=np.float32(1))["ys"].tolist() == [2, 4, 8, 16]


def test_what_has_no_effect_on_this_model_is_refused(model: Path, tmp_path: Path) -> None:
    """Quantisation that nobody describes, caches that nothing fills, extents and weights that a file has not."""
    with pytest.raises(InputError, match="describes no quantisation"):
        lamella.compile(model, quantized=True)
    (tmp_path / "map.module").write_text(
        "model Map(n: int = 2):\n  params:\n    w: [n, n]\n  forward:\n    in: x: [B, n]\n    out: y: [B, n]\n"
        "    graph:\n      (x, w) -> matmul(transpose=NT) -> y\n"
    )
    with pytest.raises(InputError, match="keeps nothing from call to call"):
        lamella.compile(tmp_path / "map.module", cache=4)
    (tmp_path / "plain.sknd").write_text(
        "import math;\ngraph G {\n    @input { x: real[n|9]; }\n    @output { y: real[n]; }\n"
        "    @compose { y = math.add(x, x); }\n}\n"
    )
    for words in (("plain.sknd", "plain.nac"), ("plain.nac", "narrow.nac", "--shape", "n=3")):
        assert convert(tmp_path, *words).exit_code == 0
    assert lamella.compile(tmp_path / "narrow.nac", seed=1)()["y"].shape == (3,)
    assert "no open extent 'z'" in convert(tmp_path, "plain.nac", "wrong.nac", "--shape", "z=3").output
    lost = convert(tmp_path, "plain.nac", "wrong.nac", "--weights", "nowhere.safetensors").output
    assert "no parameters that could take weights" in lost


def convert(folder: Path, source: str, target: str, *words: str) -> Result:
    """What the command says."""
    return CliRunner().invoke(command, ["convert", str(folder / source), str(folder / target), *words])
